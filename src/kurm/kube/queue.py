"""A queue of keys to look at: each once, none by two at a time, failures later and later."""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from kurm.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)

# client-go's per-item limits are 5 ms to 1000 s; 1000 s is longer than anyone waits for a thing to heal itself.
BACKOFF = Backoff(first=0.05, most=120.0, jitter=0.2)


class QueueClosed(Exception):  # noqa: N818 - it is no error: there is nothing left to do
    """The queue is closed and empty."""


class Queue(Generic[K]):
    """Keys in the order in which they became due.

    A key waits at one place only: adding it again changes nothing, or makes it due earlier; an earlier look replaces a
    later one. So whoever looks at a key says anew when to look again. A key that is added while it is being worked on
    is due when that is done. All times are seconds on the event loop's clock.
    """

    def __init__(self, *, backoff: Backoff = BACKOFF) -> None:
        self._backoff = backoff
        self._ready: dict[K, float] = {}  # key -> since when; a dict, because it keeps the order and finds a key
        self._later: dict[K, float] = {}  # key -> when due
        self._alarms: list[tuple[float, int, K]] = []  # heap of (due, tie-break, key); stale ones are skipped
        self._again: dict[K, float] = {}  # keys in work that were added meanwhile -> when due
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.Handle | None = None
        self._rings_at = 0.0
        self._serial = 0
        self.closed = False

    def __len__(self) -> int:
        """How many keys are due now and not in work."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys are due later."""
        return len(self._later)

    @property
    def working(self) -> int:
        """How many keys are in work."""
        return len(self._working)

    @property
    def oldest(self) -> float:
        """Seconds that the longest-waiting key has been due; 0 when none is."""
        since = next(iter(self._ready.values()), None)
        return 0.0 if since is None else self._now() - since

    def add(self, key: K, *, after: float = 0.0) -> None:
        """Look at a key, after so many seconds. Ignored when the queue is closed."""
        if self.closed:
            return
        due = self._now() + max(after, 0.0)
        if key in self._working:
            self._again[key] = min(due, self._again.get(key, due))
        elif key not in self._ready:
            self._schedule(key, due)

    def retry(self, key: K) -> float:
        """Look at a key again after a failure: later each time, until `forget`. Return the delay in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(self._failures[key])
        self.add(key, after=delay)
        return delay

    def forget(self, key: K) -> None:
        """Count the next failure of a key as its first."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often a key has failed in a row."""
        return self._failures.get(key, 0)

    async def take(self) -> K:
        """Wait for the next key that is due, and hold it until `done`. Raises QueueClosed when there will be none."""
        while not self._ready:
            if self.closed:
                raise QueueClosed
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake()  # we were told of a key and cannot take it: tell the next, or it waits for nobody
                raise
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)
        key = next(iter(self._ready))
        del self._ready[key]
        self._working.add(key)
        self._idle.clear()
        return key

    def done(self, key: K) -> None:
        """Say that a taken key is no longer in work. ValueError if it was not."""
        if key not in self._working:
            raise ValueError(f"{key!r} is not in work")
        self._working.remove(key)
        due = self._again.pop(key, None)
        if due is not None and (not self.closed or due <= self._now()):
            self._schedule(key, due)
        self._settle()

    def close(self) -> None:
        """Take no more keys, forget those due later, and give out what is due now until nothing is left."""
        self.closed = True
        self._later.clear()
        self._alarms.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)
        self._settle()

    async def drained(self) -> None:
        """Wait until nothing is due and nothing is in work. Set a deadline around it: work may hang."""
        while self._ready or self._working:
            self._idle.clear()
            await self._idle.wait()

    def _schedule(self, key: K, due: float) -> None:
        if due <= self._now():
            self._later.pop(key, None)
            self._ready[key] = self._now()
            self._wake()
        elif due < self._later.get(key, float("inf")):
            self._later[key] = due
            self._serial += 1
            heapq.heappush(self._alarms, (due, self._serial, key))
            self._set_timer()

    def _set_timer(self) -> None:
        while self._alarms and self._later.get(self._alarms[0][2]) != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._alarms:
            self._rings_at = self._alarms[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._rings_at, self._ring)

    def _ring(self) -> None:
        # The loop may ring a clock tick early, uvloop half a millisecond; what is due by our own timer is due. The
        # handle is not to be asked for the moment: of what is due within that uvloop returns one that has none.
        now = max(self._now(), self._rings_at)
        while self._alarms and self._alarms[0][0] <= now:
            due, _, key = heapq.heappop(self._alarms)
            if self._later.get(key) == due:
                del self._later[key]
                self._ready[key] = now
                self._wake()
        self._set_timer()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _settle(self) -> None:
        if not self._ready and not self._working:
            self._idle.set()
            if self.closed:
                for taker in self._takers:
                    if not taker.done():
                        taker.set_result(None)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
