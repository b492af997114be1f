"""What is written to pods: their binding, the end that Slurm has set them, and by which job they are bound now.

The watch brings a write of ours a moment later. Until then, and where the answer to a bind was lost, what we know is
kept here: `where` is what is to be believed of a pod.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from kurm.domain.steps import Bind, EndPod
from kurm.kube.cache import Change
from kurm.kube.errors import Conflict, KubeError, NotFound
from kurm.kube.queue import Queue
from kurm.kube.resources import Key
from kurm.kube.session import Patch, Session
from kurm.scheduler.ledger import Entry
from kurm.scheduler.metrics import Metrics
from kurm.scheduler.objects import ALLOCATION, DISRUPTED, EPOCH, JOB, OWN_PODS, SLOT, Pod
from kurm.scheduler.owners import Members
from kurm.scheduler.pool import Pool, is_guest

log = structlog.get_logger("kurm.scheduler")

REWRITES = 0.05
"""Seconds between the writes by which pods are told that another job stands for them: nobody waits for them."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a pod is bound, and by what."""

    node: str = ""
    job: int = 0
    epoch: str = ""
    slot: int = -1


class Binding:
    """Writes, and what is known of writes."""

    def __init__(self, kube: Session, pool: Pool, metrics: Metrics) -> None:
        self._kube, self._pool, self._metrics = kube, pool, metrics
        self._known: dict[str, Where] = {}
        self._doubt: set[str] = set()
        self._moves: Queue[str] = Queue()
        self._coming: dict[str, dict[str, Pod]] = {}  # node -> pods that are being bound to it, by UID
        self.ahead: Callable[[str], None] = lambda _: None
        """Told each node of which the pods have changed, or the jobs by which they are bound."""
        self.unbound: Callable[[Pod], None] = lambda _: None
        """Told each pod that is not where we have tried to bind it: it is counted there no longer."""
        for cache in (pool.pods, pool.foreign):
            cache.on_change(self._heed)

    def where(self, pod: Pod) -> Where:
        """Return where a pod is, as far as is known."""
        uid = pod.metadata.uid
        known = self._known.get(uid)
        if known is None:
            return _said(pod)
        if not pod.spec.node_name or known.node == pod.spec.node_name:
            return known
        return _said(pod)

    async def bind(self, pod: Pod, act: Bind, *, epoch: str, owner: str) -> bool:
        """Bind a pod; return whether it is bound there now. Raises KubeError when that is not known, or refused."""
        uid, where = pod.metadata.uid, Where(act.node, act.job, epoch, act.slot)
        annotations = {JOB: str(act.job), ALLOCATION: owner, EPOCH: epoch, SLOT: str(act.slot)}
        self._known[uid] = where
        self._coming.setdefault(act.node, {})[uid] = pod
        self.ahead(act.node)
        try:
            await self._kube.bind(pod.key, act.node, uid=uid, annotations=annotations)
        except (Conflict, NotFound):
            return await self._reread(pod)
        except asyncio.CancelledError:
            self._doubt.add(uid)
            raise
        except KubeError:
            self._doubt.add(uid)
            raise
        return True

    async def resolve(self, pods: Iterable[Pod]) -> None:
        """Read again those pods of which nobody knows whether they are bound. Raises KubeError."""
        if self._doubt:
            for pod in pods:
                if pod.metadata.uid in self._doubt:
                    await self._reread(pod)

    async def _reread(self, pod: Pod) -> bool:
        """Believe what the server says of a pod; return whether it is bound where we bound it."""
        uid = pod.metadata.uid
        try:
            found = await self._kube.get(OWN_PODS, pod.key)
        except NotFound:
            found = None
        self._doubt.discard(uid)
        known = self._known.pop(uid, None)
        if known is not None:
            self._arrived(uid, known.node)
            self.ahead(known.node)
        if found is None or found.metadata.uid != uid or not found.spec.node_name:
            self.unbound(pod)
            return False
        self._known[uid] = _said(found)
        if known is not None and known.node == found.spec.node_name:
            return True
        self.unbound(found)
        return False

    def on(self, node: str) -> Iterable[Pod]:
        """Return the pods that hold a share of a node, also those that are being bound to it."""
        there = (*self._pool.pods.by("node", node), *filter(is_guest, self._pool.foreign.by("node", node)))
        seen = {pod.metadata.uid for pod in there}
        coming = (pod for uid, pod in self._coming.get(node, {}).items() if uid not in seen)
        return (*(pod for pod in there if not pod.over), *coming)

    def _arrived(self, uid: str, node: str) -> None:
        coming = self._coming.get(node)
        if coming is not None:
            coming.pop(uid, None)
            if not coming:
                del self._coming[node]

    async def certain(self, members: Members | None, entry: Entry | None) -> bool:
        """Whether an owner is gone that this process has never seen: its pod may be missing in our view alone."""
        if members is not None or entry is None or entry.ours:
            return True
        namespace, _, rest = entry.name.partition("/")
        name, _, _ = rest.rpartition(".")
        if not (namespace and name):
            return True
        try:
            found = await self._kube.get(OWN_PODS, Key(namespace, name))
        except NotFound:
            return True
        return found.metadata.uid != entry.owner

    async def end(self, pod: Pod, act: EndPod) -> bool:
        """Tell a pod why it ends, and delete it."""
        uid, now = pod.metadata.uid, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": DISRUPTED, "status": "True", "reason": act.reason, "message": act.message}
        status = {"conditions": [condition | {"lastTransitionTime": now}]}
        log.info("ends a pod", pod=str(pod.key), why=act.message, within=act.within)
        try:
            if act.within != 0:
                body = {"metadata": {"uid": uid}, "status": status}
                await self._kube.patch(OWN_PODS, pod.key, body, kind=Patch.STRATEGIC, subresource="status")
            grace = pod.spec.termination_grace_period_seconds
            within = None if act.within is None else min(int(act.within), grace)
            await self._kube.delete(OWN_PODS, pod.key, uid=uid, grace=within)
        except (NotFound, Conflict):
            return True  # it is gone, or another one of its name is there
        self._metrics.ended.labels(act.reason).inc()
        return True

    def moved(self, pod: Pod, node: str, job: int, epoch: str, *, owner: str) -> None:
        """Heed that another job stands for a bound pod, and write that down in time."""
        uid = pod.metadata.uid
        self._known[uid] = Where(node, job, epoch, _said(pod).slot)
        self.ahead(node)
        if pod.metadata.annotations.get(ALLOCATION) == owner:
            self._moves.add(uid)

    async def run(self) -> None:
        """Write by which job pods are bound, where that has changed; never ends, cancel it."""
        while True:
            uid = await self._moves.take()
            try:
                await self._write_move(uid)
                self._moves.forget(uid)
            except (NotFound, Conflict):
                self._moves.forget(uid)
            except KubeError as error:
                log.warning("a pod was not told its job", uid=uid, why=str(error))
                self._moves.retry(uid)
            finally:
                self._moves.done(uid)
            await asyncio.sleep(REWRITES)

    async def _write_move(self, uid: str) -> None:
        pod, known = next(iter(self._pool.pods.by("uid", uid)), None), self._known.get(uid)
        if pod is not None and known is not None and known != _said(pod):
            annotations = {JOB: str(known.job), EPOCH: known.epoch}
            body = {"metadata": {"uid": uid, "annotations": annotations}}
            # By the status: a right to patch pods themselves would be one to change what they run.
            await self._kube.patch(OWN_PODS, pod.key, body, subresource="status")

    def _heed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        if pod is None:
            return
        uid = pod.metadata.uid
        known = self._known.get(uid)
        if known is not None and (change.new is None or pod.spec.node_name):
            self._arrived(uid, known.node)
        if change.new is None:
            self._known.pop(uid, None)
            self._doubt.discard(uid)
        elif known is not None and known == _said(change.new):
            del self._known[uid]


def _said(pod: Pod) -> Where:
    """Return what a pod itself says."""
    if not pod.spec.node_name:
        return Where()
    notes = pod.metadata.annotations
    job, slot = notes.get(JOB, ""), notes.get(SLOT, "")
    return Where(
        pod.spec.node_name,
        int(job) if job.isdecimal() else 0,
        notes.get(EPOCH, ""),
        int(slot) if slot.isdecimal() else -1,
    )
