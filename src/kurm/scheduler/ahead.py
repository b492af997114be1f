"""What is written ahead to each node: which pods hold a share of it, for the start gate in slurmd's Prolog.

The gate keeps the next job from starting over containers that still run, whoever has ended their Slurm job
(docs/design/start-gate.md). It reads the annotations of the node's slurmd pod; those wanted are of the pods that are
bound there, so a lost write and a new slurmd pod are healed by the next look.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping

import structlog

from kurm.domain import gres
from kurm.domain.podresources import Resources, size_of
from kurm.kube.cache import Change
from kurm.kube.errors import Conflict, KubeError, NotFound
from kurm.kube.queue import Queue
from kurm.kube.session import Session
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.objects import GATE, OWN_PODS, Pod
from kurm.scheduler.owners import Owners
from kurm.scheduler.pool import Pool, is_guest

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
GHOSTS = 1000
"""Most of such pods that stay recorded on a node, the latest: a record is 60 bytes or more, and all annotations of an
object are 256 KiB at most. Beyond that no pod of the node could be recorded any more."""


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
        """Return for how many seconds more a node may not know of a pod that it was told of, or is being told of."""
        node, uid = pod.spec.node_name, pod.metadata.uid
        if not self._pool.slurmd(node):
            return 0.0
        since = self._acknowledged.get(uid)
        if since is None:
            return 0.0 if GATE + uid in self._recorded(node) else ARRIVES
        return max(since + ARRIVES - self._now(), 0.0)

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
            uid, has = pod.metadata.uid, self._said(pod)
            changed: dict[str, str | None] = {key: value for key, value in wanted.items() if has.get(key) != value}
            changed.update({key: None for key in has if key not in wanted and self._forgets(node, key, has[key])})
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

    def _said(self, slurmd: Pod) -> dict[str, str]:
        """Return what a slurmd pod says: by our last write, or else by itself."""
        said = self._written.get(slurmd.metadata.uid)
        return said if said is not None else _records(slurmd)

    def _recorded(self, node: str) -> Mapping[str, str]:
        """Return what is recorded on a node."""
        return {key: value for pod in self._pool.slurmd(node) for key, value in self._said(pod).items()}

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
            if until > now and uid not in self._gone:
                found[GATE + uid] = value
            else:
                self._drop_ghost(node, uid)
        for pod in self._binding.on(node):
            if value := self._value(pod, node):
                found[GATE + pod.metadata.uid] = value
        return found

    def _value(self, pod: Pod, node: str) -> str:
        """Return what is to be recorded of a pod; empty for one that has no job, and none that was recorded."""
        uid, job = pod.metadata.uid, self._binding.where(pod).job
        if not job:  # somebody else has bound it: only Slurm knows
            jobs = self._ledger.jobs(self._owners.of(uid)) or ()
            job = next((one.id for one in jobs if node in one.hosts), 0)
        if not job:  # nor does Slurm (yet): what was known of it before, maybe by another process, is not less true
            return self._recorded(node).get(GATE + uid, "")
        size = self._sizes.get(uid)
        if size is None:
            found = size_of(pod.spec)
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
        if uid in self._gone or any(pod.spec.node_name != node for pod in self._pool.pods.by("uid", uid)):
            return True  # it has ended, or is not here: nobody could bind it
        ghosts = self._ghosts.get(node, {})
        if uid in ghosts:
            return ghosts[uid][1] <= self._now()
        if len(ghosts) >= GHOSTS:
            return True
        self._keep_ghost(node, uid, value)
        return False

    def _keep_ghost(self, node: str, uid: str, value: str) -> None:
        """Keep the record of a pod that has vanished without a word, and of others as many as there is room for."""
        ghosts = self._ghosts.setdefault(node, {})
        ghosts[uid] = value, self._now() + KEPT
        if len(ghosts) > GHOSTS:
            log.warning("too many pods have vanished without their kubelet's word; the oldest is forgotten", node=node)
            del ghosts[next(iter(ghosts))]

    def _drop_ghost(self, node: str, uid: str) -> None:
        ghosts = self._ghosts[node]
        del ghosts[uid]
        if not ghosts:
            del self._ghosts[node]

    def _heed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        if pod is None or not pod.spec.node_name:
            return
        node, uid = pod.spec.node_name, pod.metadata.uid
        if change.new is not None and not pod.over:
            if (change.old is None or not change.old.spec.node_name) and self._pool.slurmd(node):
                self._add(node)
            return
        if not (self._pool.owns(node) or self._pool.slurmd(node)):  # slurmd's pod may just be replaced
            return
        self._acknowledged.pop(uid, None)
        if pod.over:
            self._gone[uid] = None
            while len(self._gone) > GONE:
                del self._gone[next(iter(self._gone))]
        elif (pod.spec.scheduler_name == self._pool.scheduler or is_guest(pod)) and (value := self._value(pod, node)):
            self._keep_ghost(node, uid, value)
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
