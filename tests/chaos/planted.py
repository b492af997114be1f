"""A scheduler with one planted fault, to see that chaos finds it: `planted.py FAULT` instead of `-m kurm.cli`.

The product has no switch for this: what it decides, or what it asks of Slurm, is changed here before it is loaded.
"""

import dataclasses
import sys
from collections.abc import Callable

from kurm.domain import allocation, owner, steps
from kurm.domain.jobrequest import JobRequest
from kurm.scheduler.owners import Owners
from kurm.slurm import allocations
from kurm.slurm.session import Session


def skips_a_pin() -> None:
    """P1: what slurmctld has forgotten is not pinned again."""
    _without(lambda step: isinstance(step, steps.Pin))


def misses_a_nodes_return() -> None:
    """P1: a pod is not looked at when its node is back, whose job Slurm has ended meanwhile."""
    _without(lambda step: isinstance(step, steps.Wait))
    Owners._heed_node = lambda *_: None  # type: ignore[method-assign]


def allocates_twice() -> None:
    """P2: each immediate start is asked for twice, by two names, so that Slurm cannot see that it is the same."""
    once = allocations.allocate

    async def twice(session: Session, request: JobRequest, *, excluded: str = "", deadline: float | None = None) -> int:
        await once(session, dataclasses.replace(request, name=f"{request.name}-2"), excluded=excluded)
        return await once(session, request, excluded=excluded, deadline=deadline)

    allocations.allocate = twice


def lets_go_too_early() -> None:
    """P3: a pod that is told to end counts as gone, while its containers still run."""
    decide = allocation.decide

    def without_leaving(seen: owner.Snapshot) -> list[steps.Instruction]:
        pods = tuple(pod for pod in seen.pods if not pod.leaving)
        return decide(dataclasses.replace(seen, pods=pods))

    allocation.decide = without_leaving


def drops_a_cancellation() -> None:
    """P4: jobs of pods that are gone are left to live."""
    _without(lambda step: isinstance(step, steps.Cancel))


def _without(planted: Callable[[steps.Instruction], bool]) -> None:
    """Leave out some of what is decided."""
    decide = allocation.decide

    def less(seen: owner.Snapshot) -> list[steps.Instruction]:
        return [step for step in decide(seen) if not planted(step)]

    allocation.decide = less


FAULTS = {
    "P1": skips_a_pin,
    "P1-node": misses_a_nodes_return,
    "P2": allocates_twice,
    "P3": lets_go_too_early,
    "P4": drops_a_cancellation,
}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    from kurm.cli import main  # only now: what it loads must be what was changed

    main()
