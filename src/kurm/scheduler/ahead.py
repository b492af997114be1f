"""What is written ahead to each node: which pods hold a share of it, for the start gate in slurmd's Prolog.

The gate keeps the next job from starting over containers that still run, whoever has ended their Slurm job
(docs/design/start-gate.md). It reads the annotations of the node's slurmd pod; those wanted are of the pods that are
bound there, so a lost write and a new slurmd pod are healed by the next look.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable

import structlog

from kurm.domain import gres
from kurm.domain.podresources import Resources
from kurm.kube.cache import Change
from kurm.kube.errors import Conflict, KubeError, NotFound
from kurm.kube.queue import Queue
from kurm.kube.session import Session
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.objects import GATE, OWN_PODS, Pod
from kurm.scheduler.owners import Owners
from kurm.scheduler.pool import Pool, is_guest
from kurm.scheduler.terrain import size_of

log = structlog.get_logger("kurm.scheduler")

WORKERS = 4
GONE = 16384
"""Pods that are remembered as gone for sure."""
ARRIVES = 10.0
"""Seconds in which a record that is written has reached its node. The longest that was seen is 0.92 s."""
SPACED = 0.1
"""Seconds between two writes for one node, at least: a node that fills has dozens of pods within that. A record has
three times as long until its pod's first container runs (docs/design/start-gate.md)."""
KEPT = 24 * 3600.0
"""Seconds for which a pod stays recorded that has vanished without its kubelet's word. It does no harm: where its
cgroup is gone the gate does not wait."""


class Ahead:
    """Writes, node by node."""

    def __init__(
        self, kube: Session, *, pool: Pool, owners: Owners, ledger: Ledger, binding: Binding, leads: Callable[[], bool]
    ) -> None:
        self._kube, self._pool, self._owners, self._ledger = kube, pool, owners, ledger
        self._binding, self._leads = binding, leads
        self._queue: Queue[str] = Queue()
        self._written: dict[str, dict[str, str]] = {}  # slurmd pod's UID -> what it says by our last write
        self._sizes: dict[str, str] = {}  # of pods, by UID: worked out once, for a node has many; equal ones are one
        self._acknowledged: dict[str, float] = {}
        self._gone: dict[str, None] = {}
        self._ghosts: dict[str, dict[str, tuple[str, float]]] = {}
        self._next: dict[str, float] = {}  # by node: when it may be written again, of those that have just been
        for cache in (pool.pods, pool.foreign):
            cache.on_change(self._heed)
        pool.foreign.on_change(self._heed_slurmd)

    def look_at(self, node: str) -> None:
        """Have the records of a node written, if they are not."""
        if self._pool.slurmd(node):
            self._add(node)

    def _add(self, node: str) -> None:
        self._queue.add(node, after=self._next.get(node, 0.0) - self._now())

    def arriving(self, pod: Pod) -> float:
        """Return for how many seconds more a node may not know of a pod that it was told of."""
        if not self._pool.slurmd(pod.spec.node_name):
            return 0.0
        since = self._acknowledged.get(pod.metadata.uid)
        return 0.0 if since is None else max(since + ARRIVES - self._now(), 0.0)

    async def run(self) -> None:
        """Write; never ends, cancel it."""
        for node in self._pool.foreign.values("slurmd"):
            self._queue.add(str(node))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            node = await self._queue.take()
            try:
                await self._write(node)
                self._queue.forget(node)
            except (NotFound, Conflict):
                self._queue.retry(node)  # another slurmd pod is about to be seen
            except KubeError as error:
                log.warning("not written ahead", node=node, why=str(error), after=self._queue.retry(node))
            finally:
                self._queue.done(node)

    async def _write(self, node: str) -> None:
        if not self._leads():
            return
        self._space(node)
        wanted = self._wanted(node)
        for pod in self._pool.slurmd(node):
            if pod.over:
                continue
            uid = pod.metadata.uid
            said = self._written.get(uid)
            has = said if said is not None else _records(pod)
            changed: dict[str, str | None] = {key: value for key, value in wanted.items() if has.get(key) != value}
            changed |= {key: None for key in has if key not in wanted and self._forgets(node, key, has[key])}
            if not changed:
                continue
            body = {"metadata": {"uid": uid, "annotations": changed}}
            try:
                await self._kube.patch(OWN_PODS, pod.key, body)
            except KubeError:
                self._written.pop(uid, None)
                raise
            self._written[uid] = {key: value for key, value in (has | changed).items() if value is not None}
            self._acknowledge(key.removeprefix(GATE) for key, value in changed.items() if value is not None)

    def _space(self, node: str) -> None:
        now = self._now()
        while self._next and next(iter(self._next.values())) <= now:
            del self._next[next(iter(self._next))]
        self._next.pop(node, None)
        self._next[node] = now + SPACED

    def _acknowledge(self, uids: Iterable[str]) -> None:
        now = self._now()
        while self._acknowledged and next(iter(self._acknowledged.values())) + ARRIVES <= now:
            del self._acknowledged[next(iter(self._acknowledged))]
        for uid in uids:
            self._acknowledged.setdefault(uid, now)

    def _wanted(self, node: str) -> dict[str, str]:
        now, found = self._now(), {}
        for uid, (value, until) in list(self._ghosts.get(node, {}).items()):
            if until > now:
                found[GATE + uid] = value
            else:
                del self._ghosts[node][uid]
        for pod in self._binding.on(node):
            found[GATE + pod.metadata.uid] = self._value(pod, node)
        return found

    def _value(self, pod: Pod, node: str) -> str:
        uid, job = pod.metadata.uid, self._binding.where(pod).job
        if not job:  # somebody else has bound it: only Slurm knows
            jobs = self._ledger.jobs(self._owners.of(uid)) or ()
            job = next((one.id for one in jobs if node in one.hosts), 0)
        size = self._sizes.get(uid)
        if size is None:
            found = size_of(pod)
            words = [str(found.cpus), str(found.mebibytes), *self._kinds(found)]
            size = self._sizes[uid] = sys.intern(",".join(words))
        return f"{job},{size}"

    def _kinds(self, size: Resources) -> list[str]:
        """Return the kinds of GRES that a pod holds: all of each kind that its node has."""
        maps = [spec.slurm.gres for spec in self._pool.own_node_sets.values()]
        asked = {name for name, _ in size.extended}
        return sorted({gres.name_of(name, made[name]) for made in maps for name in asked & made.keys()})

    def _forgets(self, node: str, key: str, value: str) -> bool:
        """Whether a record of a pod that is not on a node (any more) may go: only if its end is known for sure."""
        uid = key.removeprefix(GATE)
        if uid in self._gone:
            return True
        ghosts = self._ghosts.setdefault(node, {})
        if uid in ghosts:
            return ghosts[uid][1] <= self._now()
        ghosts[uid] = value, self._now() + KEPT
        return False

    def _heed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        if pod is None or not pod.spec.node_name or not self._pool.slurmd(pod.spec.node_name):
            return
        node, uid = pod.spec.node_name, pod.metadata.uid
        if change.new is not None and not pod.over:
            if change.old is None or not change.old.spec.node_name:
                self._add(node)
            return
        self._acknowledged.pop(uid, None)
        if pod.over:
            self._gone[uid] = None
            while len(self._gone) > GONE:
                del self._gone[next(iter(self._gone))]
        elif pod.spec.scheduler_name == self._pool.scheduler or is_guest(pod):
            self._ghosts.setdefault(node, {})[uid] = self._value(pod, node), self._now() + KEPT
        self._sizes.pop(uid, None)
        self._add(node)

    def _heed_slurmd(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        if pod is None or not self._pool.is_slurmd(pod):
            return
        if change.new is None:
            self._written.pop(pod.metadata.uid, None)
        elif self._written.get(pod.metadata.uid) == _records(pod):
            del self._written[pod.metadata.uid]
        if pod.spec.node_name and (change.old is None or change.new is None):
            self._queue.add(pod.spec.node_name)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _records(pod: Pod) -> dict[str, str]:
    return {key: value for key, value in pod.metadata.annotations.items() if key.startswith(GATE)}
