"""Which pods belong to which owner of an allocation, kept from the watches of pods and Jobs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from kurm.domain.gangs import Owner
from kurm.kube.cache import Change
from kurm.scheduler.objects import Pod
from kurm.scheduler.pool import Pool, is_guest


@dataclass
class Members:
    """The pods of an owner that are there, by UID, ended ones too."""

    owner: Owner
    foreign: bool = False
    """Whether another scheduler has placed them."""
    pods: dict[str, Pod] = field(default_factory=dict)
    ghosts: set[str] = field(default_factory=set)
    """Those of `pods` that nobody sees any more, and whose containers may still run."""

    def rank(self, pod: Pod) -> int:
        """Return which slot a pod shall have, -1 for any."""
        return -1


class Owners:
    """The table. `look_at` is called with each owner of which a pod has changed."""

    def __init__(self, pool: Pool, look_at: Callable[[str], None]) -> None:
        self._pool, self._look_at = pool, look_at
        self._members: dict[str, Members] = {}
        self._of: dict[str, str] = {}  # pod's UID -> owner
        self._since: dict[str, float] = {}
        pool.pods.on_change(self._heed_own)
        pool.foreign.on_change(self._heed_foreign)

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

    def _heed_own(self, change: Change[Pod]) -> None:
        self._heed(change, foreign=False)

    def _heed_foreign(self, change: Change[Pod]) -> None:
        self._heed(change, foreign=True)

    def _heed(self, change: Change[Pod], *, foreign: bool) -> None:
        pod = change.new or change.old
        if pod is None or (foreign and not (is_guest(pod) and self._pool.node(pod.spec.node_name))):
            return
        uid = pod.metadata.uid
        if change.new is None:
            self._drop(uid)
            return
        owner = self._of.get(uid)
        if owner is None:
            owner = self._file(pod, foreign=foreign)
        self._members[owner].pods[uid] = pod
        self._look_at(owner)

    def _file(self, pod: Pod, *, foreign: bool) -> str:
        found = Owner(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
        self._of[pod.metadata.uid] = found.id
        self._since[pod.metadata.uid] = asyncio.get_running_loop().time()
        self._members.setdefault(found.id, Members(found, foreign=foreign))
        return found.id

    def _drop(self, uid: str) -> None:
        self._since.pop(uid, None)
        owner = self._of.pop(uid, None)
        if owner is None:
            return
        members = self._members[owner]
        members.pods.pop(uid, None)
        if not members.pods:
            del self._members[owner]
        self._look_at(owner)


def job_name(owner: Owner) -> str:
    """Return what its job is called in Slurm."""
    return f"{owner.namespace}/{owner.name}.{owner.id[:8]}"
