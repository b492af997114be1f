"""slurmctld itself: whether it answers, what it runs on, how it does; and its partitions."""

from collections.abc import Mapping

import msgspec

from kurm.slurm.session import Session, check_release
from kurm.slurm.wire import ABSENT, Answer, Narrow, Number


class Controller(Narrow, rename={"boot_time": "BOOT_TIME", "release": "SLURM_VERSION"}):
    """What slurmctld runs on. Times are in seconds since 1970."""

    release: str = ""
    boot_time: int = 0
    """When this slurmctld process began: it changes by a restart, and by a reconfigure."""
    conf_read: int = msgspec.field(default=0, name="LastUpdate")
    """When it last read its configuration."""
    conf_hash: int = msgspec.field(default=0, name="HashValue")
    """Slurm's own hash of slurm.conf as slurmctld has read it."""
    next_job: Number = msgspec.field(default=ABSENT, name="NEXT_JOB_ID")


class ConfAnswer(Answer):
    """The answer of `conf`: every setting that is in force, by name."""

    slurm_conf: dict[str, msgspec.Raw] | None = None
    slurm_conf_meta: Controller | None = None


class Diag(Narrow):
    """How slurmctld does, since its last reset (midnight, or its start)."""

    server_thread_count: int = 0
    agent_queue_size: int = 0
    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    schedule_cycle_last: int = 0
    """Microseconds of the last round of the main scheduler, here and below of the backfill scheduler."""
    schedule_queue_length: int = 0
    bf_cycle_last: int = 0
    bf_active: bool = False


class DiagAnswer(Answer):
    """The answer of `diag`."""

    statistics: Diag | None = None


class PartitionState(Narrow):
    """The part of a partition that says whether it takes and starts jobs: UP, DOWN, DRAIN or INACTIVE."""

    state: tuple[str, ...] = ()


class PartitionNodes(Narrow):
    """The part of a partition that says over which nodes."""

    configured: str = ""
    """A host list."""
    total: int = 0


class PartitionPriority(Narrow):
    """The part of a partition that says whose jobs go first."""

    tier: int = 0
    job_factor: int = 0


class Partition(Narrow):
    """A partition, as far as Kurm reads it."""

    name: str
    partition: PartitionState = PartitionState()
    nodes: PartitionNodes = PartitionNodes()
    node_sets: str = ""
    priority: PartitionPriority = PartitionPriority()
    flags: tuple[str, ...] = ()
    grace_time: int = 0
    """Seconds."""
    preempt_mode: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """UP, DOWN, DRAIN or INACTIVE; empty if Slurm did not say."""
        return next(iter(self.partition.state), "")


class PartitionsAnswer(Answer):
    """All partitions."""

    partitions: tuple[Partition, ...] | None = None
    last_update: Number = ABSENT


async def get_controller(session: Session, *, deadline: float | None = None) -> Controller:
    """Return what slurmctld runs on. Raises ReleaseError if it is of another release than Kurm is made for."""
    answer = await session.request(ConfAnswer, "GET", "conf", deadline=deadline)
    controller = (answer.slurm_conf_meta if answer else None) or Controller()
    check_release(controller.release, "slurmctld")
    return controller


async def get_settings(session: Session, *, deadline: float | None = None) -> Mapping[str, object]:
    """Return every setting of slurm.conf that is in force, decoded, by its name in slurm.conf(5)."""
    answer = await session.request(ConfAnswer, "GET", "conf", deadline=deadline)
    return {key: msgspec.json.decode(raw) for key, raw in ((answer.slurm_conf if answer else None) or {}).items()}


async def get_diag(session: Session, *, deadline: float | None = None) -> Diag:
    """Return how slurmctld does."""
    answer = await session.request(DiagAnswer, "GET", "diag/", deadline=deadline)
    return (answer.statistics if answer else None) or Diag()


async def reconfigure(session: Session, *, deadline: float | None = None) -> None:
    """Have all daemons read their configuration, and wait until slurmctld has.

    Raises NoReason if slurmctld refuses the new one and goes on with the old: the reason is in its log, or for a line
    that does not parse nowhere. Any Slurm command says it that is run on the file: `SLURM_CONF=FILE scontrol ping`.
    """
    await session.request(Answer, "GET", "reconfigure/", deadline=deadline)


async def list_partitions(
    session: Session, *, since: int = 0, deadline: float | None = None
) -> PartitionsAnswer | None:
    """Return all partitions; None if nothing has changed since `since`, the `last_update` of an earlier answer."""
    query = [("update_time", str(since))] if since else []
    return await session.request(PartitionsAnswer, "GET", "partitions/", query=query, deadline=deadline)


async def set_partition_state(session: Session, name: str, state: str, *, deadline: float | None = None) -> None:
    """Set a partition UP, DOWN, DRAIN or INACTIVE; a restart of slurmctld goes back to slurm.conf.

    Slurm makes a partition of a name that it does not know, so ask for those that `list_partitions` has.
    """
    body = {"partitions": [{"name": name, "partition": {"state": [state]}}]}
    await session.request(Answer, "POST", "partitions/", body=body, deadline=deadline)
