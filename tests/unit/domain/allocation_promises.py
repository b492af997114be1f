"""Of the model of allocations: what must hold, at any moment and when all is quiet."""

from collections import Counter

from unit.domain.allocation_memory import Bound
from unit.domain.forgetful_slurm import Slurm

OWNERS = {"one": 1, "other": 1, "gang": 3}
"""With their sizes."""


class BrokenPromiseError(AssertionError):
    """One of P1 to P4 does not hold; the message says which and where."""


class Promises:
    """What is looked at for them."""

    slurm: Slurm
    pods: dict[str, Bound]
    finished: dict[str, set[int]]
    """By owner, ranks of which a pod has ended for good; none when all have, since the next Job is another owner."""

    def check(self) -> None:
        """P2 at any moment: what we have asked for is never more than our pods. Revived jobs are Slurm's doing."""
        for owner, size in OWNERS.items():
            held = [job for job in self.slurm.jobs.values() if job.owner == owner and job.layout and not job.revived]
            slots = sum(sum((job.layout or {}).values()) for job in held)
            if slots > size and not any(job.revived for job in self.slurm.jobs.values() if job.owner == owner):
                raise BrokenPromiseError(f"P2: {owner} holds {slots} slots, and has {size}: {held}")

    def check_quiet(self) -> None:
        """All four when nothing more is to be done: each pod has its slots, or others have the room."""
        if not self.slurm.open:
            raise BrokenPromiseError("P4: the gate stays closed")
        free = sum(self.slurm.free().values())
        for owner, size in OWNERS.items():
            pods = [pod for pod in self.pods.values() if pod.owner == owner]
            jobs = [job for job in self.slurm.jobs.values() if job.owner == owner]
            held = Counter[str]()
            for job in jobs:
                held.update(job.layout or {})
            bound = Counter(pod.node for pod in pods if pod.node)
            if bound - held:
                raise BrokenPromiseError(f"P1: {owner} is bound to {dict(bound)} and holds {dict(held)}")
            if held.total() > size:
                raise BrokenPromiseError(f"P2: {owner} holds {dict(held)}, and has {size} pods")
            if not pods and jobs:
                raise BrokenPromiseError(f"P4: nobody gives back what {owner} holds: {jobs}")
            waiting = [pod for pod in pods if not pod.node]
            whole = len(pods) == size - len(self.finished[owner])
            if whole and waiting and (free >= size or not jobs):
                raise BrokenPromiseError(f"P4: {owner} waits with {free} slots free and jobs {jobs}: {waiting}")
            if whole and waiting and held - bound:
                raise BrokenPromiseError(f"P4: {owner} waits beside free slots of its own: {dict(held)}: {pods}")
            if len(jobs) > 1 and not any(job.pinned for job in jobs):
                raise BrokenPromiseError(f"P2: {owner} has several jobs: {jobs}")

    def check_robbery(self, layout: dict[str, int]) -> None:
        """P3: what somebody is given now is not what a pod holds that slurmctld has forgotten."""
        for node in layout:
            owed = Counter(pod.owner for pod in self.pods.values() if pod.node == node and not pod.robbed)
            for owner, count in owed.items():
                held = sum((job.layout or {}).get(node, 0) for job in self.slurm.jobs.values() if job.owner == owner)
                short = count - held
                if short > 0 and self.slurm.free().get(node, 0) < short:
                    raise BrokenPromiseError(f"P3: {short} slots of {owner} on {node} are given to others")
