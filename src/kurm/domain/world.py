"""Both sides of a compute node at one moment: Kubernetes' claim on it, its slurmd pod, and Slurm's record. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from kurm.domain.causes import OURS, Cause
from kurm.domain.noderecord import NodeRecord, feature

MARK = "kurm:"
"""How the `extra` of a record of ours begins; the UID of the Kubernetes node follows."""
_POWERED = frozenset({"POWERED_DOWN", "POWERING_UP"})


def mark(uid: str) -> str:
    """Return the `extra` of the record of the Kubernetes node with that UID."""
    return f"{MARK}{uid}"


@dataclass(frozen=True)
class Claim:
    """A Kubernetes node that a NodeSet of the cluster has claimed."""

    uid: str
    """Of the Kubernetes node."""
    record: NodeRecord | None
    """What its record is to say; None if none can be made of this node, for the reason `unfit`."""
    unfit: str = ""
    causes: tuple[Cause, ...] = ()
    """Why the Kubernetes node shall take no jobs."""
    outdated: str = ""
    """What of the node is no longer as its record says, and stays so for the record's life; a sentence."""


@dataclass(frozen=True)
class Pod:
    """The slurmd pod on a node."""

    uid: str
    release: str = ""
    """Why it shall go, in words; empty if it shall stay."""
    terminating: bool = False
    """It was told to end."""
    ready: bool = False
    """slurmd in it answers, says the kubelet."""
    address: str = ""
    """Where slurmd in it is reached."""
    told: bool = False
    """It was told of its Slurm node before. slurmd of one that was not may be about to register for the first time."""
    protected: bool = False
    """It bears the label `PROTECTED`: nobody can evict it."""
    proven: bool = False
    """It was told that its node is drained, or may have been: the label may be taken off at any moment."""
    overdue: bool = False
    """Its release has waited long enough: what still runs on its node is to be requeued."""

    @property
    def held(self) -> bool:
        """Whether it can be evicted neither now nor by what it was told: jobs may come to its node."""
        return self.protected and not self.proven

    @property
    def running(self) -> bool:
        """Whether slurmd in it runs and can be asked to register."""
        return self.ready and not self.terminating and self.address != ""


@dataclass(frozen=True)
class Record:
    """A node record of Slurm's."""

    extra: str = ""
    draining: bool = False
    """It takes no new jobs."""
    reason: str = ""
    busy: bool = False
    """A job holds a part of it, or is just leaving it; also when nobody can tell."""
    registered: bool = False
    """A slurmd is attached to it, and answers."""
    attached: bool = False
    """A slurmd was attached to it at some time."""
    down: bool = False
    """It takes no jobs, and whatever ran there was requeued or ended; a slurmd that answers brings it back."""
    flags: tuple[str, ...] = ()
    """What else Slurm's state says of the node; nothing that changes with each job."""
    comment: str = ""
    features: tuple[str, ...] = ()
    weight: int = 1
    topology: str = ""
    """Its place in the topology."""
    address: str = ""
    """Where slurmctld takes its slurmd to be."""

    @property
    def ours(self) -> bool:
        """Whether we made it. The mark comes a moment after the record: until then its NodeSet's feature tells."""
        made = any(one.startswith(feature("")) for one in self.features)
        return self.extra.startswith(MARK) or (not self.extra and made)

    @property
    def future(self) -> bool:
        """Whether it takes no jobs because nobody has resumed it since it was made, and ordinary lists hide it."""
        return "FUTURE" in self.flags

    @property
    def vacant(self) -> bool:
        """Whether it takes jobs and has them wait for its first slurmd, which slurmctld will not ask to register."""
        return not self.attached and not _POWERED.isdisjoint(self.flags)

    @property
    def drained_by_us(self) -> bool:
        """Whether the drain is ours to lift, and a DOWN that is left of one."""
        return (self.draining or self.down) and self.reason.startswith(OURS)

    @property
    def state(self) -> str:
        """Whether it is in service, in Slurm's words: UP, DRAINING, DRAINED, DOWN, FUTURE; and flags: DOWN+DRAIN."""
        if self.future and not self.draining:
            words = []
        elif self.down:
            words = ["DOWN", *(["DRAIN"] if self.draining else [])]
        elif self.draining:
            words = ["DRAINING" if self.busy else "DRAINED"]
        else:
            words = ["UP"]
        return "+".join([*words, *self.flags])


@dataclass(frozen=True)
class World:
    """Both sides, each node by its name, which is the same on both.

    Each side is whole or None: of a side that cannot be read (or was read in part) nothing is known, and what would
    follow from an absence is not done.
    """

    claims: Mapping[str, Claim] | None
    pods: Mapping[str, Pod] | None
    records: Mapping[str, Record] | None
