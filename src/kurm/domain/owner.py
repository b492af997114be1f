"""Both sides of one owner of an allocation at one moment: its pods, its jobs, and what is known around them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Health(StrEnum):
    """What is known of a Kubernetes node."""

    WELL = "well"
    SILENT = "silent"
    """Its kubelet is not heard of; what runs on it may run on."""
    DEAD = "dead"
    """Not heard of for long enough, or declared so by a person."""
    GONE = "gone"
    """Deleted, or no longer the cluster's."""


class Phase(StrEnum):
    """How far a live Slurm job is."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Making:
    """Volumes that are being made for a pod, where a job gives it a node."""

    job: int
    node: str
    since: float
    refused: bool = False
    """Whether the provisioner has said that it makes none there."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of an owner that has not ended: one whose containers have (Succeeded, Failed) is none any more."""

    uid: str
    node: str = ""
    """Where it is bound; empty while it waits."""
    job: int = 0
    """The job by which it was bound, as the pod says; 0 for one that somebody else has bound."""
    epoch: str = ""
    """The life of slurmctld in which that job was made."""
    rank: int = -1
    """Which slot of a gang it shall have, -1 for any."""
    leaving: bool = False
    """Whether it is being deleted; it holds its slot until it is gone."""
    foreign: bool = False
    """Whether another scheduler has bound it: it is never ended by us."""
    claims: str = ""
    """Names of those of its claims whose volumes are made only once its node is known; empty if it waits for none."""
    making: Making | None = None
    beyond: frozenset[str] = frozenset()
    """Of a gang's pod that waits: those of its jobs' nodes that cannot reach its volumes."""


@dataclass(frozen=True, slots=True)
class Job:
    """A live Slurm job of an owner."""

    id: int
    phase: Phase
    hosts: tuple[str, ...] = ()
    """Its nodes, empty until it runs."""
    slots: Mapping[str, int] | None = None
    """How many slots are on which node, in the order of ranks; None until that was looked at."""
    pinned: bool = False
    """Whether it stands for pods that were bound already, on one node."""
    ends_at: float | None = None
    """When Slurm ends it to make room for another."""
    doomed: bool = False
    """Whether it is to end as soon as its pods are gone."""
    granted_at: float = 0.0
    """When it was first seen running."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why nothing is asked of Slurm for the pods that wait: a condition's reason and message."""

    reason: str
    message: str
    again: float | None = None
    """Seconds until it is worth another try; None: when something changes."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Both sides of one owner at one moment. Times are in seconds, by one clock."""

    pods: tuple[Pod, ...] = ()
    """In the order in which they get slots."""
    jobs: tuple[Job, ...] | None = ()
    """None: it is not known what Slurm knows."""
    wanted: int = 1
    """Slots: how many pods it has when it is whole."""
    finished: int = 0
    """How many of these pods have ended for good: none comes in their place, and nobody needs their slots."""
    epoch: str = ""
    """slurmctld's present life."""
    ended: Mapping[int, str] = field(default_factory=dict)
    """Jobs of this owner that have ended in this life of slurmctld, and how, in Slurm's word (NODE_FAIL, CANCELLED,
    ...); empty while nobody has looked."""
    nodes: Mapping[str, Health] = field(default_factory=dict)
    """Of the pods' and jobs' nodes; one that is not named is GONE."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Nodes on which Slurm starts nothing of anybody's, and why: what a pod there has lost is given to nobody."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Nodes to which these pods must not be bound (any more), and why."""
    taken: frozenset[str] = frozenset()
    """Nodes where a pin has found no room for a while: what these pods had was given to others."""
    obstacle: Obstacle | None = None
    open: bool = True
    """Whether slurmctld gives out nodes: not while what is bound is being pinned again after its restart."""
    outdated: bool = False
    """Whether its queued job excludes other nodes than it would now, or asks for another number of GRES or slots."""
    room: bool | None = True
    """Whether some node is thought to have room without preemption; None while that is being found out."""
    problem: str = ""
    """Why Slurm is not known, in words."""
    partial_since: float | None = None
    """Since when some pods of a gang are bound and some were never; None if it was whole, or nobody knows."""
    force: bool = False
    """Whether pods that are Terminating on a dead node are to be deleted by force."""
    now: float = 0.0
