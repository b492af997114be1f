"""Allocations: Slurm jobs without processes, of which each slot holds one pod. Made, pinned, and looked at.

All are jobs with the flag EXTERNAL_JOB, which no slurmd hears of. `allocate` and `pin` start now or are refused, which
leaves a FAILED record until MinJobAge is over; `submit` waits in the queue. Their end and their states are in `jobs`.

A name lives once (dependency=singleton), so each of these can be repeated: a second immediate one is StillHeld. A
second queued one waits for the end of the first, with the reason Dependency.
"""

import contextlib
from collections.abc import Mapping

from kurm.domain.jobrequest import JobRequest
from kurm.slurm.errors import Busy, NoRoom, NotFound
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


class LayoutAnswer(Answer):
    """The answer of `resources/{job_id}`: a node each, in Slurm's order, which is the order of ranks."""

    nodes: tuple[NodeLayout, ...] | None = None


async def allocate(session: Session, request: JobRequest, *, excluded: str = "", deadline: float | None = None) -> int:
    """Start a job now, on no node of `excluded` (a host list), and return its id.

    Raises NoRoom (no room now; it may preempt others by that, so ask only where there is room), Behind (a job of a
    higher priority waits), StillHeld (one of this name lives), Infeasible (no node could ever hold it, as they are
    now). Any other ApiError is a refusal for good.
    """
    return await _start_now(session, _job(request, request.slots) | _except(excluded), deadline)


async def submit(session: Session, request: JobRequest, *, excluded: str = "", deadline: float | None = None) -> int:
    """Queue a job, on no node of `excluded`, and return its id; the queue is looked at within a second.

    Raises Infeasible if no node could ever hold it, as they are now; any other ApiError is a refusal for good.
    """
    job = _job(request, request.slots) | _except(excluded)
    return await _made(session, "job/submit", job, deadline)


async def amend(
    session: Session,
    job: int,
    request: JobRequest,
    *,
    excluded: str = "",
    resized: bool = False,
    deadline: float | None = None,
) -> None:
    """Change a queued job to what would be asked now: which nodes it shall not get, its GRES of each; `resized`: slots.

    It keeps its place in the queue. Raises NotFound for one that is no more. One that has started keeps what it has,
    and most changes raise an ApiError then.
    """
    # A list without any would leave it as it was (26.05, _update_job): there has to be an empty one.
    body: dict[str, object] = {"excluded_nodes": [excluded]}
    if request.gres:
        body["tres_per_node"] = _gres(request)
    if resized:
        # The most nodes, which is what it was or more, cannot be changed of a job that runs. The least alone can, and
        # would take nodes away from it.
        slots = request.slots
        body |= {"tasks": slots, "minimum_nodes": _least_nodes(request, slots), "maximum_nodes": slots}
    await session.request(Answer, "POST", "job/{}", str(job), body=body, deadline=deadline)


def pin_name(request: JobRequest, node: str) -> str:
    """Return the name of the job that pins a request's slots on a node."""
    return f"{request.name}@{node}" if request.slots > 1 else request.name


async def pin(session: Session, request: JobRequest, node: str, slots: int, *, deadline: float | None = None) -> int:
    """Start a job now on exactly this node, for so many slots of a request, whoever waits; return its id.

    The job of a gang (`request.slots` > 1) is named after its node, too: `NAME@NODE`. Raises NoRoom, StillHeld, Behind
    (another pin waits, which nothing of ours does), NotFound for an unknown node.
    """
    here = {"partition": PIN, "required_nodes": [node], "minimum_nodes": 1, "maximum_nodes": 1}
    if request.slots > 1:
        here["name"] = pin_name(request, node)
    return await _start_now(session, _job(request, slots) | here, deadline)


async def layout(
    session: Session, job: int, request: JobRequest, *, deadline: float | None = None
) -> Mapping[str, int]:
    """Return how many slots of a running job are on each of its nodes, in the order of ranks.

    The job is that of `allocate` or `submit`. Raises NotFound if it holds no node.
    """
    answer = await session.request(LayoutAnswer, "GET", "resources/{}", str(job), deadline=deadline)
    nodes = (answer.nodes if answer else None) or ()
    if not nodes:
        raise NotFound(status=404, error="it holds no node", description=f"job {job}")
    # Memory is granted for each CPU, so it tells the CPUs, which Slurm rounds up to whole cores.
    held = [node.mem_alloc // (_memory_per_cpu(request) * request.cpus) for node in nodes]
    found: dict[str, int] = {}
    for place, node in enumerate(nodes):
        others = len(nodes) - place - 1  # each of which has one at least
        found[node.node] = max(1, min(held[place], request.slots - sum(found.values()) - others))
    return found


async def nudge(session: Session, *, node: str = "", deadline: float | None = None) -> None:
    """Have slurmctld look at its queue with its next tick, within a second: the end of an external job does not.

    By an update of a node that changes nothing of it. Slurm has no call for it; this is the cheapest that asks for a
    look (26.05, queue_job_scheduler), and it does so whether or not the node is there. slurmctld logs nothing if it is,
    and two lines if there is none. `batch_sched_delay=0` has slurmctld obey without a delay of its own.
    """
    with contextlib.suppress(NotFound):
        await session.request(Answer, "POST", "nodes/", body={"name": [node] if node else []}, deadline=deadline)


def _job(request: JobRequest, slots: int) -> dict[str, object]:
    """Return the job's description, as data_parser v0.0.45 has it, with room for so many slots."""
    words = {
        "account": request.account,
        "qos": request.qos,
        "partition": request.partition,
        "constraints": request.constraint,
        "reservation": request.reservation,
        "licenses": request.licenses,
        "comment": request.comment,
        "tres_per_node": _gres(request),
    }
    job: dict[str, object] = {
        "name": request.name,
        "admin_comment": request.signature,
        "flags": ["EXTERNAL_JOB"],
        "dependency": "singleton",
        "tasks": slots,
        "cpus_per_task": request.cpus,
        "current_working_directory": "/",
        "requeue": False,  # a pod that Slurm ends is ended; its successor asks again
        **{field: word for field, word in words.items() if word},
    }
    if request.slots == 1:
        # No memory at all would be all of the node's.
        job |= {"minimum_nodes": 1, "maximum_nodes": 1, "memory_per_node": number(max(request.memory, 1))}
    else:
        job["memory_per_cpu"] = number(_memory_per_cpu(request))
        if request.slots_per_node:
            # Slurm knows no most of a node: `tasks_per_node` is a least for slurmctld, and preempted who had the rest.
            job["minimum_nodes"] = _least_nodes(request, slots)
    if request.time_limit is not None:
        job["time_limit"] = number(request.time_limit)
    if request.exclusive:
        job["shared"] = ["none"]
    return job


def _gres(request: JobRequest) -> str:
    return ",".join(f"gres/{one}" for one in request.gres)


def _least_nodes(request: JobRequest, slots: int) -> int:
    return -(-slots // request.slots_per_node) if request.slots_per_node else 1


def _memory_per_cpu(request: JobRequest) -> int:
    """Return MiB of each CPU of a gang, rounded up: Slurm has no memory of a task."""
    return max(-(-request.memory // request.cpus), 1)


def _except(excluded: str) -> dict[str, object]:
    return {"excluded_nodes": [excluded]} if excluded else {}


async def _start_now(session: Session, job: dict[str, object], deadline: float | None) -> int:
    try:
        return await _made(session, "job/allocate", job | {"immediate": True}, deadline)
    except Busy as error:  # the number that a node in use has, too
        raise NoRoom(
            status=error.status,
            number=error.number,
            error=error.error,
            description=error.description,
            source=error.source,
        ) from error


async def _made(session: Session, route: str, job: dict[str, object], deadline: float | None) -> int:
    answer = await session.request(Made, "POST", route, body={"job": job}, deadline=deadline)
    return answer.job_id if answer else 0
