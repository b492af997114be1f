"""A model of a forgetful Slurm: one live job of a name, and after a crash what it had saved, under the same job ids."""

import copy
from collections import Counter
from dataclasses import dataclass, field

NODES = ("n1", "n2", "n3")
SLOTS = 2
"""Of each node."""


@dataclass
class Held:
    """A job as slurmctld has it. `owner` is empty for somebody else's."""

    id: int
    owner: str
    name: str
    size: int
    layout: dict[str, int] | None = None
    """None while it waits."""
    pinned: bool = False
    ends_at: float | None = None
    revived: bool = False
    """Whether slurmctld had it back by a crash, though it had ended."""


@dataclass
class Slurm:
    """slurmctld: its jobs, and what of them it has saved."""

    jobs: dict[int, Held] = field(default_factory=dict)
    next: int = 1
    epoch: int = 1
    open: bool = True
    ended: dict[int, str] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    saved: tuple[dict[int, Held], int] = field(default_factory=lambda: ({}, 1))

    def free(self) -> dict[str, int]:
        """Return the free slots of the nodes that are up."""
        used = Counter[str]()
        for job in self.jobs.values():
            used.update(job.layout or {})
        return {node: SLOTS - used[node] for node in NODES if node not in self.down}

    def room(self, size: int) -> dict[str, int] | None:
        """Return where so many slots would go; None for nowhere."""
        layout: dict[str, int] = {}
        for node, free in self.free().items():
            take = min(free, size - sum(layout.values()))
            if take > 0:
                layout[node] = take
        return layout if sum(layout.values()) == size else None

    def live(self, name: str) -> bool:
        """Whether a job of a name lives."""
        return any(job.name == name for job in self.jobs.values())

    def add(self, job: Held) -> int:
        """Take a job in, and return its id."""
        job.id, self.next = self.next, self.next + 1
        self.jobs[job.id] = job
        return job.id

    def end(self, job: int, how: str) -> None:
        """End a job."""
        if self.jobs.pop(job, None) is not None:
            self.ended[job] = how

    def save(self) -> None:
        """Save all."""
        self.saved = copy.deepcopy(self.jobs), self.next

    def crash(self) -> None:
        """Be what was saved, in another life."""
        before = set(self.jobs)
        self.jobs, self.next = copy.deepcopy(self.saved)
        for job in self.jobs.values():
            job.revived = job.id not in before
            if job.layout and self.down.intersection(job.layout):
                job.revived = True
        self.epoch, self.open, self.ended = self.epoch + 1, False, {}
