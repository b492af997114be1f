"""A ring of the last news, numbered, for whoever asks for what came after a number and waits if nothing has."""

import asyncio
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

RING = 4096
"""News that are kept for whoever asks late."""
WAIT = 20.0
"""Seconds until an answer without news."""


class Ring(Generic[T]):
    """Numbers begin where no earlier ring can have come to: at the time in us.

    `gather` is for how many seconds more news are waited for once there is one.
    """

    def __init__(self, gather: float) -> None:
        self.next = time.time_ns() // 1000
        self._gather = gather
        self._ring: deque[T] = deque(maxlen=RING)
        self._news = asyncio.Event()

    def add(self, item: T) -> None:
        """Have one more."""
        self._ring.append(item)
        self._tell()

    def lose(self) -> None:
        """Forget all: something has happened that no item can tell."""
        self._ring.clear()
        self._tell()

    def _tell(self) -> None:
        self.next += 1
        self._news.set()
        self._news = asyncio.Event()

    async def after(self, number: int) -> tuple[list[T], bool]:
        """Return what came after a number (`next` at an earlier time), waiting for it if nothing has.

        And whether some of it is lost: not known any more, or never was.
        """
        if number == self.next:
            try:
                async with asyncio.timeout(WAIT):
                    await self._news.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(self._gather)
        oldest = self.next - len(self._ring)
        lost = not oldest <= number <= self.next
        return list(self._ring) if lost else list(self._ring)[number - oldest :], lost
