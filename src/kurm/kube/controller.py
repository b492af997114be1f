"""From changes to work: caches say which keys to look at, workers look at each, one worker per key.

The contract of `reconcile(key)`:

- It is level-based. It is told which object to look at, never what happened to it: it reads the caches, decides what
  ought to be, and writes the difference. Events may come late, twice, in another order or never; the same state of the
  world gives the same writes. An object that is not in the cache is to be forgotten.
- It can be repeated at any moment. It may be cut off between two writes, and the next run starts from what is there.
- It answers afresh each time: `DONE`, or `Again(seconds, reason)` for what no event will announce (a deadline). An
  earlier look replaces a later one, so an answer given before counts no more.
- It raises when it could not finish. The key comes again, later each time; the others are not held up.
- It has a deadline, and so has every wait in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import structlog

from kurm.kube.cache import Cache, Change
from kurm.kube.errors import Conflict, KubeError
from kurm.kube.queue import Queue, QueueClosed
from kurm.kube.resources import Object

log = structlog.get_logger("kurm.kube")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something changes."""


@dataclass(frozen=True, slots=True)
class Again:
    """Look again after so many seconds, whatever happens; the reason is for people."""

    after: float
    reason: str = ""


Result: TypeAlias = Done | Again
DONE = Done()


class Controller(Generic[K]):
    """Runs `reconcile` for the keys that its caches name. Times are in seconds."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        workers: int = 1,
        deadline: float = 60.0,
        queue: Queue[K] | None = None,
    ) -> None:
        self.name = name
        self.queue: Queue[K] = queue or Queue()
        self._reconcile = reconcile
        self._workers = workers
        self._deadline = deadline
        self._caches: list[Cache[Any]] = []

    def watch(self, cache: Cache[T], keys: Callable[[Change[T]], Iterable[K]]) -> None:
        """Look at `keys(change)` at each change of a cache, and at all that it holds now. It waits for the cache."""
        self._caches.append(cache)

        def look_again(change: Change[T]) -> None:
            for key in keys(change):
                self.queue.add(key)

        cache.on_change(look_again)

    async def run(self, *, sync_within: float = 120.0) -> None:
        """Wait until every watched cache is whole (NotSynced after `sync_within`), then work until stopped.

        Never on a part of the list: what is not there yet would be taken for deleted.
        """
        for cache in self._caches:
            await cache.wait_synced(sync_within)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def stop(self, *, within: float = 10.0) -> None:
        """Finish what is due and what is in work, then let `run` return. TimeoutError when it takes longer."""
        self.queue.close()
        async with asyncio.timeout(within):
            await self.queue.drained()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.take()
            except QueueClosed:
                return
            try:
                await self._look_at(key)
            finally:
                self.queue.done(key)

    async def _look_at(self, key: K) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                result = await self._reconcile(key)
        except Conflict as error:
            # Somebody else wrote in between. The watch is about to bring it: no cause for alarm.
            self.queue.retry(key)
            log.debug("read again", controller=self.name, key=str(key), why=str(error))
        except (KubeError, TimeoutError) as error:
            why = str(error) or f"it took longer than {self._deadline:g} s"
            log.warning("to be tried again", controller=self.name, key=str(key), why=why, after=self.queue.retry(key))
        except Exception:
            log.exception("reconcile failed", controller=self.name, key=str(key), after=self.queue.retry(key))
        else:
            self.queue.forget(key)
            if isinstance(result, Again):
                self.queue.add(key, after=result.after)
