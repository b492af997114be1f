"""When each side came to know something, by clocks that nobody measured disturbs.

slurmctld's own log says when it drained a node, to the millisecond; all is one machine, so its clock is ours. What a
pod is told and that a node was cordoned are seen by watches of the bench's own.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from kurm.domain.signals import NODE_SET, SLURM_READY
from kurm.kube.cache import Cache, Change
from kurm.kube.session import Session
from kurm.kube.watch import Selection
from kurm.syncer.objects import CLAIMED_NODES, SLURMD_PODS, Node, Pod, slurmd_pods

STATE = re.compile(rb"^\[(\S+)\] update_node: node (\S+) state set to (\S+)$", re.MULTILINE)
"""slurmctld's words about an update that changed a node's state (log level info); its images' clock is UTC."""
JOB = re.compile(rb"^\[(\S+)\] (?:sched|sched/backfill): (?:Allocate|Started) JobId=", re.MULTILINE)


class ControllerLog:
    """slurmctld's log, read from where it was left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def seek_end(self) -> None:
        """Forget what it says up to now."""
        self._read = self._path.stat().st_size

    def states(self) -> list[tuple[float, str, str]]:
        """Return the updates of states since it was last asked: time (time.time()), node, the new state."""
        return [(_moment(at), node.decode(), state.decode()) for at, node, state in STATE.findall(self._next())]

    def starts(self) -> int:
        """Return how many jobs were started since it was last asked."""
        return len(JOB.findall(self._next()))

    def _next(self) -> bytes:
        with self._path.open("rb") as log:
            log.seek(self._read)
            whole = log.read().rpartition(b"\n")
        self._read += len(whole[0]) + len(whole[1])
        return whole[0] + whole[1]

    async def drained(self, nodes: set[str], *, within: float) -> dict[str, float]:
        """Wait until all of these nodes have been drained, and return when each was. TimeoutError names some."""
        found: dict[str, float] = {}
        end = time.monotonic() + within
        while True:
            for at, node, state in self.states():
                if node in nodes and "DRAIN" in state:
                    found.setdefault(node, at)
            if len(found) == len(nodes):
                return found
            if time.monotonic() > end:
                missing = sorted(nodes - found.keys())
                raise TimeoutError(f"{len(missing)} nodes were not drained in {within:.0f} s, as {missing[:3]}")
            await asyncio.sleep(0.01)


def _moment(text: bytes) -> float:
    return datetime.fromisoformat(text.decode()).replace(tzinfo=UTC).timestamp()


class Kubernetes:
    """What pods are told (the reason of `SlurmReady`) and which nodes are cordoned, each with its time."""

    def __init__(self, session: Session, namespace: str, cluster: str) -> None:
        self.pods = Cache(session, SLURMD_PODS, Selection(namespace=namespace, labels=slurmd_pods(cluster)))
        self.nodes = Cache(session, CLAIMED_NODES, Selection(labels=NODE_SET))
        self.told: dict[str, tuple[str, float]] = {}
        """By node: the reason, and when it came."""
        self.cordoned: dict[str, float] = {}
        self.pods.on_change(self._hear_pod)
        self.nodes.on_change(self._hear_node)

    def _hear_pod(self, change: Change[Pod]) -> None:
        if change.new is None:
            return
        condition = change.new.condition(SLURM_READY)
        node, reason = change.new.spec.node_name, condition.reason if condition else ""
        if self.told.get(node, ("",))[0] != reason:
            self.told[node] = reason, time.time()

    def _hear_node(self, change: Change[Node]) -> None:
        if change.new is None:
            return
        if not change.new.spec.unschedulable:
            self.cordoned.pop(change.key.name, None)
        else:
            self.cordoned.setdefault(change.key.name, time.time())

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Kubernetes"]:
        """Watch within the block."""
        tasks = [asyncio.create_task(cache.run()) for cache in (self.pods, self.nodes)]
        try:
            for cache in (self.pods, self.nodes):
                await cache.wait_synced(60)
            yield self
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def all_told(self, reason: str, *, within: float, nodes: set[str] | None = None) -> float:
        """Wait until all pods, or those of some nodes, are told this; return when the last was told it."""
        names = nodes if nodes is not None else {pod.spec.node_name for pod in self.pods}

        def missing() -> list[str]:
            return [name for name in names if self.told.get(name, ("",))[0] != reason]

        def problem() -> str:
            left = missing()
            return f"{len(left)} of {len(names)} pods are not told {reason}, as {left[0]}: {self.told.get(left[0])}"

        await until(lambda: not missing(), problem, within=within)
        return max((self.told[name][1] for name in names), default=0.0)


async def until(met: Callable[[], bool], problem: Callable[[], str], *, within: float) -> None:
    """Wait until something holds; TimeoutError with the problem in words if not in time."""
    end = time.monotonic() + within
    while not met():
        if time.monotonic() > end:
            raise TimeoutError(f"after {within:.0f} s: {problem()}")
        await asyncio.sleep(0.05)
