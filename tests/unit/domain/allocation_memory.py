"""Of the model of allocations: a pod as the API server has it, and what the scheduler knows in its present life."""

from collections import Counter
from dataclasses import dataclass, field

from kurm.domain.owner import Job


@dataclass
class Bound:
    """A pod as the API server has it."""

    uid: str
    owner: str
    rank: int
    node: str = ""
    job: int = 0
    epoch: str = ""
    leaving: bool = False
    robbed: bool = False
    """Whether Slurm has ended the job that it was bound by, so that nobody owes it anything but its end."""


@dataclass
class Memory:
    """What the scheduler knows in its present life."""

    epoch: str = ""
    jobs: dict[int, tuple[str, Job]] | None = None
    unsure: set[str] = field(default_factory=set)
    ended: dict[int, tuple[str, str]] = field(default_factory=dict)
    open: bool = False
    full: set[str] = field(default_factory=set)
    partial: dict[str, float] = field(default_factory=dict)
    taken: dict[str, set[str]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    """Nodes on which a pin was refused a moment ago, because Slurm starts nothing there."""
    vain: Counter[str] = field(default_factory=Counter)
