"""Which pods belong to which owner of an allocation, kept from the watches of pods and Jobs."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kurm.domain.asks import GANG, GANG_SIZE, RefusedError
from kurm.domain.gangs import (
    UNKNOWN,
    Owner,
    finished,
    job_of,
    natural,
    owner_of,
    owner_was,
    rank,
    starts_at_once,
)
from kurm.kube.cache import Change
from kurm.scheduler.objects import ALLOCATION, BatchJob, Node, Pod
from kurm.scheduler.pool import Pool, is_guest

CONFIRMED_WITHIN = 90.0
"""Seconds of its grace that a pod may have left as its job is cancelled, though nobody has confirmed that it is gone:
the start gate of its node holds the next job for longer than that (docs/design/start-gate.md)."""


@dataclass(slots=True)
class Members:
    """The pods of an owner that are there, by UID, ended ones too."""

    owner: Owner
    foreign: bool = False
    """Whether another scheduler has placed them."""
    pods: dict[str, Pod] = field(default_factory=dict)
    finished: frozenset[int] = frozenset()
    """The ranks for which its Job makes no pod any more."""
    ghosts: frozenset[str] = frozenset()
    """Those of `pods` that nobody sees any more, and whose containers may still run."""
    problem: str = ""
    """Why these pods can have no allocation, in words: their annotations make no gang."""

    def there(self) -> list[Pod]:
        """Return those that have not ended and may be bound, in the order of their names."""
        # The API server binds nobody who has a gate (spec.schedulingGates): what Slurm gave would be held for nobody.
        found = [
            pod for pod in self.pods.values() if not pod.over and (pod.spec.node_name or not pod.spec.scheduling_gates)
        ]
        return sorted(found, key=lambda pod: natural(pod.metadata.name)) if len(found) > 1 else found

    def rank(self, pod: Pod) -> int:
        """Return which slot a pod shall have, -1 for any."""
        found = rank(pod) if self.owner.indexed else None
        return -1 if found is None else found


class Owners:
    """The table. `look_at` is called with each owner of which a pod has changed."""

    def __init__(self, pool: Pool, look_at: Callable[[str], None]) -> None:
        self._pool, self._look_at = pool, look_at
        self._members: dict[str, Members] = {}
        self._of: dict[str, str] = {}  # pod's UID -> owner
        self._since: dict[str, float] = {}
        self.arriving: Callable[[Pod], float] = lambda _: 0.0
        """Told how many seconds more the start gate of its node may not know of a pod."""
        self._homeless: dict[str, dict[str, Pod]] = {}  # by the UID of a Job that is not known yet
        pool.pods.on_change(self._heed_own)
        pool.foreign.on_change(self._heed_foreign)
        pool.jobs.on_change(self._heed_job)
        pool.nodes.on_change(self._heed_node)
        pool.node_sets.on_change(lambda _: self._refile(pool.foreign))

    def get(self, owner: str) -> Members | None:
        """Return the pods of an owner, None if there are none."""
        return self._members.get(owner)

    def of(self, uid: str) -> str:
        """Return the owner that a pod belongs to; empty if it is not known."""
        return self._of.get(uid, "")

    def seen_for(self, uid: str) -> float:
        """Return for how many seconds a pod has been known."""
        now = asyncio.get_running_loop().time()
        return now - self._since.get(uid, now)

    def bound(self) -> tuple[str, ...]:
        """Return the owners of whom a pod is bound."""
        return tuple(
            owner
            for owner, members in self._members.items()
            if any(pod.spec.node_name and not pod.over for pod in members.pods.values())
        )

    def all(self) -> tuple[str, ...]:
        """Return all owners that have pods."""
        return tuple(self._members)

    def waiting(self) -> tuple[str, ...]:
        """Return the owners of whom a pod waits."""
        return tuple(
            owner
            for owner, members in self._members.items()
            if any(not pod.spec.node_name and not pod.over for pod in members.pods.values())
        )

    def look_at(self, node: str) -> None:
        """Have those looked at who have pods on a node."""
        for pod in (*self._pool.pods.by("node", node), *self._pool.foreign.by("node", node)):
            if owner := self._of.get(pod.metadata.uid):
                self._look_at(owner)

    def _heed_own(self, change: Change[Pod]) -> None:
        self._heed(change, foreign=False)

    def _heed_foreign(self, change: Change[Pod]) -> None:
        self._heed(change, foreign=True)

    def _heed(self, change: Change[Pod], *, foreign: bool) -> None:
        pod = change.new or change.old
        if pod is None:
            return
        uid = pod.metadata.uid
        known = uid in self._of  # also where its node has left before it
        if foreign and not (known or (is_guest(pod) and self._pool.owns(pod.spec.node_name))):
            return
        if change.old is not None:
            if self._homeless:
                self._no_longer_homeless(change.old)
            if _regrouped(change.old, pod) or self._astray(change.old, pod):
                self._drop(uid)  # from where it was: it is filed anew
        if change.new is None:
            self._vanished(pod)
            return
        owner = self._of.get(uid) or self._file(pod, foreign=foreign)
        if owner:
            self._members[owner].pods[uid] = pod
            if change.old is None or _differ(change.old, pod):
                self._look_at(owner)

    def _astray(self, old: Pod, new: Pod) -> bool:
        """Whether a pod comes back bound for another owner than it belongs to by now: it was changed meanwhile."""
        if old.spec.node_name or not new.spec.node_name:
            return False
        bound_by, owner = new.metadata.annotations.get(ALLOCATION), self._of.get(new.metadata.uid)
        return bound_by is not None and owner is not None and owner != bound_by

    def _heed_node(self, change: Change[Node]) -> None:
        """Have those looked at whose pods are on a node that has fallen silent, or is back: no pod says so."""
        # A foreign pod may be seen before its node is known for ours.
        self._refile(self._pool.foreign.by("node", change.key.name))
        if change.old is None or _health(change.old) != _health(change.new):
            self.look_at(change.key.name)

    def _refile(self, pods: Iterable[Pod]) -> None:
        """File foreign pods that are on nodes of ours."""
        for pod in pods:
            if pod.metadata.uid not in self._of:
                self._heed(Change(pod.key, None, pod), foreign=True)

    def _heed_job(self, change: Change[BatchJob]) -> None:
        """File the pods that have come before their Job, and heed how many it wants and which it makes no more."""
        job = change.new
        if job is None:
            return
        owner = job.metadata.uid
        for pod in self._homeless.pop(owner, {}).values():
            self._heed(Change(pod.key, None, pod), foreign=False)
        members = self._members.get(owner)
        if members is None:
            return
        if not starts_at_once(job.spec):
            for pod in [pod for pod in members.pods.values() if not (pod.spec.node_name or pod.over)]:
                self._drop(pod.metadata.uid)
                self._heed(Change(pod.key, None, pod), foreign=False)
            return
        size = job.spec.parallelism
        now = replace(members.owner, size=size), finished(job.status)
        if now != (members.owner, members.finished):
            members.owner, members.finished = now
            self._look_at(owner)

    def _no_longer_homeless(self, pod: Pod) -> None:
        job = job_of(pod)
        if pods := self._homeless.get(job):
            pods.pop(pod.metadata.uid, None)
            if not pods:
                del self._homeless[job]

    def _file(self, pod: Pod, *, foreign: bool) -> str:
        """Return to whom a new pod belongs; nobody while its Job is not known."""
        metadata, problem, ended = pod.metadata, "", frozenset[int]()
        found = Owner(metadata.uid, metadata.namespace, metadata.name)
        if not foreign:
            bound_by = metadata.annotations.get(ALLOCATION, "") if pod.spec.node_name else ""
            uid = job_of(pod)
            job = next(iter(self._pool.jobs.by("uid", uid)), None) if uid else None
            if uid and job is None and not bound_by:
                self._homeless.setdefault(uid, {})[metadata.uid] = pod
                return ""
            try:
                found = owner_of(pod, job.spec if job else None)
                ended = finished(job.status) if job and found.indexed else ended
            except RefusedError as error:
                problem = str(error)
            if bound_by and found.id != bound_by:  # its Job has gone before it, or its annotations were changed
                found, problem = owner_was(pod, bound_by), ""
        self._of[metadata.uid] = found.id
        self._since[metadata.uid] = asyncio.get_running_loop().time()
        self._enrol(Members(found, foreign=foreign, finished=ended, problem=problem))
        return found.id

    def _enrol(self, new: Members) -> None:
        """Have an owner with these traits, the latest that are said; but while pods are bound, those of these pods."""
        known = self._members.setdefault(new.owner.id, new)
        if known.owner.size == UNKNOWN or not any(pod.spec.node_name and not pod.over for pod in known.pods.values()):
            known.owner, known.finished, known.problem = new.owner, new.finished, new.problem

    def _vanished(self, pod: Pod) -> None:
        """Heed that a pod is no longer there. Only its kubelet knows whether it is gone; it says so by the phase."""
        uid = pod.metadata.uid
        left = max(pod.spec.termination_grace_period_seconds - CONFIRMED_WITHIN, self.arriving(pod))
        owner = self._of.get(uid)
        if owner is not None and pod.spec.node_name and not pod.over and left > 0:
            members = self._members[owner]
            members.pods[uid] = pod
            members.ghosts |= {uid}
            asyncio.get_running_loop().call_later(left, self._drop, uid)
            self._look_at(owner)
        else:
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._since.pop(uid, None)
        owner = self._of.pop(uid, None)
        if owner is None:
            return
        members = self._members[owner]
        members.pods.pop(uid, None)
        members.ghosts -= {uid}
        if not members.pods:
            del self._members[owner]
        self._look_at(owner)


def _regrouped(old: Pod, new: Pod) -> bool:
    """Whether a pod that waits says of its gang another thing than before."""
    before, now = (tuple(one.metadata.annotations.get(name) for name in (GANG, GANG_SIZE)) for one in (old, new))
    return before != now and not new.spec.node_name


def _health(node: Node | None) -> tuple[object, ...]:
    """Return what tells how a node is."""
    return (node.ready, node.unheard_since, node.out_of_service) if node is not None else ()


def _differ(old: Pod, new: Pod) -> bool:
    """Whether anything is another than before that an allocation depends on; what a kubelet says often is not."""
    before, now = old.metadata, new.metadata
    same = old.over == new.over and before.deletion_timestamp == now.deletion_timestamp
    return not (same and old.spec == new.spec and before.annotations == now.annotations)
