"""Allocations: Slurm jobs without processes, of which each slot holds one pod. Made, pinned, and looked at.

All are jobs with the flag EXTERNAL_JOB, which no slurmd hears of. `allocate` and `pin` start now or are refused, which
leaves a FAILED record until MinJobAge is over; `submit` waits in the queue. Their end and their states are in `jobs`.

A name lives once (dependency=singleton), so each of these can be repeated: a second immediate one is StillHeld. A
second queued one waits for the end of the first, with the reason Dependency.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kurm.domain.jobrequest import JobRequest
from kurm.slurm.errors import NotFound
from kurm.slurm.nodes import recount_nodes
from kurm.slurm.session import Session
from kurm.slurm.wire import Answer, Narrow, number

PIN = "pin"
"""The partition of what is bound already: on all nodes, of the highest tier, always UP, and nobody else's."""


class Made(Answer):
    """The answer of `job/allocate` and `job/submit`."""

    job_id: int = 0


class NodeLayout(Narrow):
    """What a job holds of one node."""

    node: str
    mem_alloc: int = 0
    """MiB."""
    core_bitmap: str = ""
    """Numbers and ranges of the cores of the node: `0-1,4`."""


class LayoutAnswer(Answer):
    """The answer of `resources/{job_id}`: a node each, in Slurm's order, which is the order of ranks."""

    nodes: tuple[NodeLayout, ...] | None = None


async def allocate(session: Session, request: JobRequest, *, excluded: str = "", deadline: float | None = None) -> int:
    """Start a job now, on no node of `excluded` (a host list), and return its id.

    Raises NoRoom (no room now; it may preempt others by that, so ask only where there is room), Behind (a job of a
    higher priority waits), StillHeld (one of this name lives). Any other ApiError is a refusal for good.
    """
    raise NotImplementedError


async def submit(session: Session, request: JobRequest, *, excluded: str = "", deadline: float | None = None) -> int:
    """Queue a job, on no node of `excluded`, and return its id; it may have started by then.

    Raises ApiError if Slurm refuses it for good.
    """
    raise NotImplementedError


async def pin(session: Session, request: JobRequest, node: str, slots: int, *, deadline: float | None = None) -> int:
    """Start a job now on exactly this node, for so many slots of a request, whoever waits; return its id.

    The job of a gang (`request.slots` > 1) is named after its node, too: `NAME@NODE`. Raises NoRoom, StillHeld, Behind
    (another pin waits, which nothing of ours does), NotFound for an unknown node.
    """
    raise NotImplementedError


async def layout(
    session: Session, job: int, request: JobRequest, *, deadline: float | None = None
) -> Mapping[str, int]:
    """Return on which nodes the slots of a running job are, in the order of ranks. Raises NotFound if it holds none."""
    raise NotImplementedError


async def nudge(session: Session, *, deadline: float | None = None) -> None:
    """Have slurmctld look at its queue now: the end of an external job alone does not make it."""
    raise NotImplementedError
