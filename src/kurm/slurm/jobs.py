"""Slurm's jobs: read and cancelled. Whoever submits them builds on `Session` too.

Field names are those of data_parser v0.0.45. Times are in seconds since 1970.
"""

from collections.abc import Iterable

from kurm.slurm.errors import AlreadyDone, ApiError, NotFound, OtherJob, api_error
from kurm.slurm.session import Session
from kurm.slurm.wire import ABSENT, Answer, Narrow, Number

FINISHED = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
"""Base states of a job that is over (slurm.h, enum job_states); COMPLETING may stand beside them."""
SHORT_LIST = 100
"""Most job ids in one query: each is a parameter of its own (Slurm refuses "1,2"), some 20 characters."""


class JobState(Narrow):
    """A job's id and state: 79 bytes over the wire, where a whole job is 27.5 KB."""

    job_id: str
    state: tuple[str, ...] = ()


class Job(Narrow):
    """A job, as far as Kurm reads it."""

    job_id: int
    name: str = ""
    job_state: tuple[str, ...] = ()
    """One base state and flags (COMPLETING, CONFIGURING, REQUEUED, ...)."""
    state_reason: str = ""
    state_description: str = ""
    nodes: str = ""
    """A host list; empty before the start."""
    node_count: Number = ABSENT
    cpus: Number = ABSENT
    partition: str = ""
    account: str = ""
    qos: str = ""
    user_id: int = 0
    user_name: str = ""
    comment: str = ""
    admin_comment: str = ""
    extra: str = ""
    batch_flag: bool = False
    flags: tuple[str, ...] = ()
    priority: Number = ABSENT
    submit_time: Number = ABSENT
    start_time: Number = ABSENT
    end_time: Number = ABSENT
    preempt_time: Number = ABSENT
    time_limit: Number = ABSENT
    """Minutes."""
    tres_alloc_str: str = ""
    tres_req_str: str = ""

    @property
    def running(self) -> bool:
        """Whether it holds nodes and is meant to go on."""
        return "RUNNING" in self.job_state and "COMPLETING" not in self.job_state

    @property
    def finished(self) -> bool:
        """Whether it has ended and holds nothing any more."""
        return not FINISHED.isdisjoint(self.job_state) and "COMPLETING" not in self.job_state


class JobsAnswer(Answer):
    """Jobs. `last_update` is slurmctld's clock, to be given back as `since`."""

    jobs: tuple[Job, ...] | None = None
    last_update: Number = ABSENT


class StatesAnswer(Answer):
    """The answer of `jobs/state/`."""

    jobs: tuple[JobState, ...] | None = None


class Killed(Narrow):
    """What became of the wish to end one job; `code` 0 means that it was heard."""

    class Error(Narrow):
        """Slurm's number and words."""

        code: int = 0
        string: str = ""
        message: str = ""

    error: Error = Error()
    step_id: str = ""


class KilledAnswer(Answer):
    """The answer of a deletion."""

    status: tuple[Killed, ...] | None = None


async def job_states(
    session: Session, ids: Iterable[int] = (), *, deadline: float | None = None
) -> tuple[JobState, ...]:
    """Return the states of these jobs, or of all. Jobs that slurmctld does not know are left out."""
    wanted = [str(number) for number in ids]
    found: list[JobState] = []
    for start in range(0, max(len(wanted), 1), SHORT_LIST):
        query = [("job_id", job) for job in wanted[start : start + SHORT_LIST]]
        answer = await session.request(StatesAnswer, "GET", "jobs/state/", query=query, deadline=deadline)
        found += (answer.jobs if answer else None) or ()
    return tuple(found)


async def get_job(session: Session, job: int | str, *, deadline: float | None = None) -> Job:
    """Return one job. Raises NotFound; Slurm forgets a finished job after MinJobAge seconds."""
    answer = await session.request(JobsAnswer, "GET", "job/{}", str(job), deadline=deadline)
    if not answer or not answer.jobs:
        raise NotFound(status=404, error="no such job", description=f"job {job}")
    return answer.jobs[0]


async def list_jobs(session: Session, *, since: int = 0, deadline: float | None = None) -> JobsAnswer | None:
    """Return all jobs, finished ones too; None if nothing has changed since `since`, an earlier `last_update`.

    Very dear (27.5 KB for each job over the wire, and much memory in slurmrestd): only to rebuild after a restart.
    """
    query = [("update_time", str(since))] if since else []
    answer = await session.request(JobsAnswer, "GET", "jobs/", query=query, deadline=deadline)
    # Nodes and partitions answer 304 for "nothing has changed"; jobs answer 200, an empty list and no time.
    return None if since and answer and not answer.last_update.value else answer


async def cancel_job(session: Session, job: int, *, signal: str = "", deadline: float | None = None) -> None:
    """End a job, or send it a signal ("TERM"). One that has ended is a success; one that never was is NotFound."""
    query = [("signal", signal)] if signal else []
    answer = await session.request(KilledAnswer, "DELETE", "job/{}", str(job), query=query, deadline=deadline)
    for failure in _failures(answer):
        if not isinstance(failure, AlreadyDone):
            raise failure


async def cancel_jobs(
    session: Session, ids: Iterable[int], *, name: str = "", deadline: float | None = None
) -> tuple[ApiError, ...]:
    """End many jobs by one call. Returns what was refused, without those that had ended or never were.

    `name`: only those of that name. slurmrestd waits for a slurmctld that is away, and one that has lost its state
    gives numbers out again: without the name another's job might be ended.
    """
    body: dict[str, object] = {"jobs": [str(job) for job in ids]} | ({"job_name": name} if name else {})
    if not body["jobs"]:
        return ()
    answer = await session.request(KilledAnswer, "DELETE", "jobs/", body=body, deadline=deadline)
    return tuple(error for error in _failures(answer) if not isinstance(error, AlreadyDone | NotFound | OtherJob))


def _failures(answer: KilledAnswer | None) -> Iterable[ApiError]:
    for killed in (answer.status if answer else None) or ():
        if killed.error.code:
            description = f"job {killed.step_id}"
            yield api_error(status=200, number=killed.error.code, error=killed.error.string, description=description)
