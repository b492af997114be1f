"""What time alone changes: a node that is not heard of for long enough, a release that has waited long enough."""

import asyncio
from collections.abc import Callable
from datetime import datetime

LEAST = 0.01
"""Seconds: a clock that is a hair behind is asked again after that."""


class Alarms:
    """Calls `look_at` with a node's name when a moment has come; one moment for each node and matter, the last set."""

    def __init__(self, look_at: Callable[[str], None], now: Callable[[], datetime]) -> None:
        self._look_at, self._now = look_at, now
        self._set: dict[tuple[str, str], tuple[datetime, asyncio.TimerHandle]] = {}

    def set(self, node: str, matter: str, moment: datetime | None) -> None:
        """Look at a node at that moment; None, or one that has passed, for no more."""
        before = self._set.get((node, matter))
        if before is not None:
            if before[0] == moment:
                return
            before[1].cancel()
            del self._set[node, matter]
        if moment is not None and moment > self._now():
            self._wait(node, matter, moment)

    def _wait(self, node: str, matter: str, moment: datetime) -> None:
        left = max((moment - self._now()).total_seconds(), LEAST)
        handle = asyncio.get_running_loop().call_later(left, self._ring, node, matter, moment)
        self._set[node, matter] = moment, handle

    def _ring(self, node: str, matter: str, moment: datetime) -> None:
        if self._now() < moment:  # it runs by another clock, which may have been set back
            self._wait(node, matter, moment)
            return
        del self._set[node, matter]
        self._look_at(node)
