"""A cluster's queues: what sinfo and squeue say, asked in slurmctld's own pod. From outside nothing else tells."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kurm.cli import channels
from kurm.cli.trouble import Pod
from kurm.cli.view import component
from kurm.kube.errors import KubeError
from kurm.kube.session import Session
from kurm.operator.render.names import Part

DEADLINE = 10.0
"""Seconds. slurmctld answers in milliseconds, or it is away."""
CONTAINER = "slurmctld"
SINFO = ("sinfo", "--noheader", "--summarize", "--format=%P|%a|%F")
_LINE = re.compile(r"[^|]+\|[^|]+\|\d+/\d+/\d+/\d+")
SQUEUE = ("squeue", "--noheader", "--format=%T|%P|%r")


class Queue(msgspec.Struct, frozen=True, rename="camel"):
    """A partition, and what waits and runs in it. Figures of nodes are sinfo's: each is in one of the first three."""

    name: str
    default: bool
    state: str
    allocated: int
    idle: int
    other: int
    """Nodes that are down, drained or not registered."""
    total: int
    running: int = 0
    """Jobs that hold nodes."""
    pending: int = 0
    """Jobs that wait; an array whose tasks all wait is one."""
    waits_for: dict[str, int] = {}
    """Why jobs wait, in squeue's words, with their number."""


class Queues(msgspec.Struct, frozen=True, rename="camel"):
    """The queues of one cluster, or why nothing is known of them."""

    namespace: str
    cluster: str
    partitions: tuple[Queue, ...] = ()
    unknown: str = ""


class UnansweredError(Exception):
    """Slurm could not be asked; the words say why."""


async def ask(session: Session, namespace: str, cluster: str, pods: Iterable[Pod]) -> Queues:
    """Ask slurmctld's pod among the cluster's pods; within the deadline, whatever happens."""
    try:
        nodes, jobs = await run(session, pods, SINFO, SQUEUE)
    except UnansweredError as error:
        return Queues(namespace, cluster, unknown=str(error))
    return Queues(namespace, cluster, tuple(queues(nodes, jobs)))


async def run(session: Session, pods: Iterable[Pod], *commands: Sequence[str]) -> list[str]:
    """Return what these commands print in slurmctld's pod among a cluster's pods, each within the deadline.

    Raises UnansweredError.
    """
    controllers = [pod for pod in pods if component(pod) == Part.CONTROLLER and not pod.metadata.deletion_timestamp]
    pod = next((one for one in controllers if one.ready), None)
    if pod is None:
        raise UnansweredError("no pod of slurmctld is ready")
    try:
        ran = await asyncio.gather(
            *(channels.run(session, pod.key, CONTAINER, command, deadline=DEADLINE) for command in commands)
        )
    except KubeError as error:
        raise UnansweredError(str(error)) from error
    if failed := next((one for one in ran if one.code), None):
        raise UnansweredError(" ".join(failed.errors.split()) or f"exit status {failed.code}")
    return [one.output for one in ran]


def queues(sinfo: str, squeue: str) -> list[Queue]:
    """Return the partitions of what SINFO and SQUEUE have printed. Lines that are none of theirs are passed over."""
    running: Counter[str] = Counter()
    waiting: dict[str, Counter[str]] = {}
    for line in squeue.splitlines():
        state, separator, rest = line.partition("|")
        partitions, _, reason = rest.partition("|")
        for name in partitions.split(",") if separator else ():
            if state == "PENDING":
                waiting.setdefault(name, Counter())[reason] += 1
            else:
                running[name] += 1
    return [_queue(line, running, waiting) for line in sinfo.splitlines() if _LINE.fullmatch(line)]


def _queue(line: str, running: Counter[str], waiting: dict[str, Counter[str]]) -> Queue:
    name, state, figures = line.split("|")
    allocated, idle, other, total = (int(figure) for figure in figures.split("/"))
    plain = name.rstrip("*")
    reasons = waiting.get(plain, Counter())
    return Queue(
        plain,
        default=name.endswith("*"),
        state=state,
        allocated=allocated,
        idle=idle,
        other=other,
        total=total,
        running=running[plain],
        pending=reasons.total(),
        waits_for=dict(reasons.most_common()),
    )
