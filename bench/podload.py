"""The load of the scheduler's bench: pods that are created at a rate, and a watch that says when each was bound.

It is also what a kubelet would be to them: a pod that is to go has ended before its object goes, and, if it is wanted,
one that is bound is soon Running.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from common import each
from podworld import TOLERATION

from kurm.kube.cache import Cache, Change
from kurm.kube.errors import NotFound
from kurm.kube.resources import NAMESPACES, PODS, Condition, Key, Narrow, Object
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection

PLACE = "load"
"""Namespace of the pods."""
AT_ONCE = Pace(gulp=0.0)
"""No change is left to gather: that would be a part of what is measured."""
KUBELETS = 16
"""Pods that are told Running at once: fewer would fall behind a fast scheduler, and the slow one alone would pay."""
LOOK = 0.02
"""Seconds between looks at whether all is as it should be."""


class EndedError(Exception):
    """The scheduler that was to bind pods has ended."""


class Spec(Narrow):
    """Where a pod is."""

    node_name: str = ""


class Status(Narrow):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object):
    """A pod of the load."""

    spec: Spec = Spec()
    status: Status = Status()


@dataclass(frozen=True)
class Shape:
    """What a pod asks."""

    cpus: int = 1
    memory: str = "1Gi"
    annotations: Mapping[str, str] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)

    def manifest(self, name: str, scheduler: str) -> dict[str, Any]:
        """Return the pod."""
        requests = {"cpu": str(self.cpus), "memory": self.memory}
        container = {"name": "main", "image": "none", "resources": {"requests": requests}}
        spec: dict[str, Any] = {"schedulerName": scheduler, "tolerations": [TOLERATION], "containers": [container]}
        spec |= {"nodeSelector": dict(self.selector), "terminationGracePeriodSeconds": 5}
        metadata = {"name": name, "namespace": PLACE, "annotations": dict(self.annotations)}
        return {"metadata": metadata, "spec": spec}


class Load:
    """Pods by name: when each was sent (time.monotonic()), when and where it was seen bound."""

    def __init__(self, kube: Session, *, kubelet: bool = False) -> None:
        self.kube, self.kubelet = kube, kubelet
        self.sent: dict[str, float] = {}
        self.made: dict[str, float] = {}
        """When the API server had answered."""
        self.bound: dict[str, tuple[float, str]] = {}
        self.waiting: set[str] = set()
        """Those of which a scheduler has said that they wait."""
        self.own_writes = 0
        """Writes of the bench's, by now."""
        self.ended: Callable[[], int | None] = lambda: None
        """Returns the exit status of the scheduler that is waited for, None while it runs."""
        self._numbers = count()
        self._cache = Cache(kube, PODS.of(Pod), Selection(namespace=PLACE), pace=AT_ONCE)
        self._cache.on_change(self._hear)
        self._work: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Load"]:
        """Watch, and be the kubelet, within the block."""
        await self.kube.create(NAMESPACES, {"metadata": {"name": PLACE}})
        tasks = [asyncio.create_task(self._cache.run()), *(asyncio.create_task(self._serve()) for _ in range(KUBELETS))]
        try:
            await self._cache.wait_synced(60)
            yield self
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _hear(self, change: Change[Pod]) -> None:
        name, now = change.key.name, time.monotonic()
        if (pod := change.new) is None:
            self.waiting.discard(name)
        elif pod.spec.node_name:
            self.waiting.discard(name)
            if name not in self.bound:
                self.bound[name] = now, pod.spec.node_name
                if self.kubelet:
                    self._work.put_nowait((name, False))
            if pod.metadata.deletion_timestamp and not (change.old and change.old.metadata.deletion_timestamp):
                self._work.put_nowait((name, True))
        elif any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions):
            self.waiting.add(name)

    async def _serve(self) -> None:
        """Say that bound pods run, and end those that are to go, as a kubelet does."""
        while True:
            name, ending = await self._work.get()
            with contextlib.suppress(NotFound):
                if ending:
                    await self._end(name)
                    await self.kube.delete(PODS, Key(PLACE, name), grace=0)
                else:
                    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready")]
                    status = {"phase": "Running", "conditions": conditions}
                    await self._tell(name, status)
            self._work.task_done()

    async def _tell(self, name: str, status: Mapping[str, Any]) -> None:
        self.own_writes += 1
        await self.kube.patch(PODS.of(Object), Key(PLACE, name), {"status": status}, subresource="status")

    async def _end(self, name: str) -> None:
        await self._tell(name, {"phase": "Succeeded"})

    def names(self, number: int) -> list[str]:
        """Return so many new names."""
        return [f"pod-{next(self._numbers):06d}" for _ in range(number)]

    async def create(
        self, number: int, scheduler: str, shape: Shape = Shape(), *, rate: float | None = None
    ) -> list[str]:
        """Create pods, so many a second whether or not earlier ones are answered, or as fast as it goes."""
        names = self.names(number)
        if rate is None:
            await each(range(number), lambda index: self._create(names[index], scheduler, shape))
            return names
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for index, name in enumerate(names):
                await asyncio.sleep(max(0.0, begun + index / rate - time.monotonic()))
                group.create_task(self._create(name, scheduler, shape))
        return names

    async def _create(self, name: str, scheduler: str, shape: Shape) -> None:
        self.sent[name] = time.monotonic()
        self.own_writes += 1
        await self.kube.create(PODS.of(Object), shape.manifest(name, scheduler))
        self.made[name] = time.monotonic()

    async def delete(self, name: str) -> None:
        """Delete a pod as anybody would."""
        await self.kube.delete(PODS, Key(PLACE, name))

    async def all_bound(self, names: Iterable[str], *, within: float) -> None:
        """Wait until all of these are bound; TimeoutError says how many are not."""
        left = set(names)

        def met() -> bool:
            for name in [name for name in left if name in self.bound]:
                left.remove(name)
            return not left

        await self.until(met, lambda: f"{len(left)} pods are not bound, as {min(left)}", within=within)

    async def until(self, met: Callable[[], bool], problem: Callable[[], str], *, within: float) -> None:
        """Wait until something holds. TimeoutError with the problem in words; EndedError if the scheduler has ended."""
        end = time.monotonic() + within
        while not met():
            await asyncio.sleep(LOOK)  # times are noted where a change is heard, so nobody is in a hurry here
            if (status := self.ended()) is not None:
                raise EndedError(f"with status {status}: {problem()}")
            if time.monotonic() > end:
                raise TimeoutError(f"after {within:.0f} s: {problem()}")

    def latencies(self, names: Sequence[str]) -> list[float]:
        """Return the seconds from sent to bound."""
        return [self.bound[name][0] - self.sent[name] for name in names]

    async def clear(self) -> None:
        """End all pods as if their work were done, and delete them."""
        await self._work.join()  # a pod that has ended is never told Running again
        names = [pod.metadata.name for pod in self._cache]
        bound = [pod.metadata.name for pod in self._cache if pod.spec.node_name and pod.status.phase != "Succeeded"]
        unbound = sorted(set(names) - set(bound))

        async def end(name: str) -> None:
            with contextlib.suppress(NotFound):
                await self._end(name)

        async def delete(name: str) -> None:
            with contextlib.suppress(NotFound):
                await self.kube.delete(PODS, Key(PLACE, name), grace=0)

        await each(range(len(unbound)), lambda index: delete(unbound[index]))
        await each(range(len(bound)), lambda index: end(bound[index]))
        await self.kube.request("DELETE", PODS.path(namespace=PLACE), query={"gracePeriodSeconds": "0"}, deadline=120)
        await self.until(lambda: not len(self._cache), lambda: f"{len(self._cache)} pods are left", within=120)
        self.bound.clear()
