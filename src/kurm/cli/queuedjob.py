"""The Slurm job of a pod: what squeue says of it, asked in slurmctld's own pod, and its place in the queue."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kurm.cli import queues
from kurm.cli.trouble import Pod
from kurm.kube.session import Session

FORMAT = "%i|%T|%P|%a|%q|%S|%N|%r"
"""The reason is last: it may have anything in it."""
_FIELDS = FORMAT.count("|") + 1
PENDING = "PENDING"
_NOTHING = frozenset({"N/A", "(null)"})


@dataclass(frozen=True)
class QueuedJob:
    """A job as squeue prints it."""

    id: str
    state: str
    partition: str = ""
    account: str = ""
    qos: str = ""
    start: str = ""
    """When it has started, or is expected to; empty if Slurm does not know."""
    nodes: str = ""
    reason: str = ""
    place: int = 0
    """Its place among the jobs that wait in its partition, the highest priority first; 0 if it does not wait."""
    waiting: int = 0
    """How many jobs wait there."""


async def ask(session: Session, pods: Iterable[Pod], names: Sequence[str]) -> list[QueuedJob]:
    """Return the live jobs of these names; `pods` are those of the cluster's components. Raises UnansweredError."""
    members = list(pods)
    mine = ("squeue", "--noheader", f"--name={','.join(names)}", f"--format={FORMAT}")
    (said,) = await queues.run(session, members, mine)
    found = read(said)
    waiting = next((one for one in found if one.state == PENDING), None)
    if waiting is None:
        return found
    others = ("squeue", "--noheader", f"--states={PENDING}", f"--partition={waiting.partition}", "--format=%i|%Q")
    (queue,) = await queues.run(session, members, others)
    return [placed(one, queue) if one.state == PENDING else one for one in found]


def read(squeue: str) -> list[QueuedJob]:
    """Return the jobs of what squeue has printed by FORMAT. Lines that are none of its are passed over."""
    found = []
    for line in squeue.splitlines():
        row = line.split("|", _FIELDS - 1)
        if len(row) == _FIELDS:
            job, state, partition, account, qos, start, nodes, reason = (_said(word) for word in row)
            found.append(QueuedJob(job, state, partition, account, qos, start, nodes, reason))
    return found


def _said(word: str) -> str:
    """Return a word of squeue's, empty where it has none."""
    return "" if word in _NOTHING else word


def placed(job: QueuedJob, squeue: str) -> QueuedJob:
    """Return the job with its place in a queue, of which squeue has printed ids and priorities.

    Of equal priority the older one is first, as Slurm has it; a job that is no longer in the queue has no place.
    """
    rows = [line.split("|") for line in squeue.splitlines() if line.count("|") == 1]
    order = [id_ for id_, _ in sorted(rows, key=lambda row: (-_number(row[1]), _number(row[0])))]
    place = order.index(job.id) + 1 if job.id in order else 0
    return replace(job, place=place, waiting=len(order))


def _number(words: str) -> int:
    """Return a number, of an array (`12_[1-4]`) that before the line; 0 for what is none."""
    digits = words.partition("_")[0]
    return int(digits) if digits.isdecimal() else 0
