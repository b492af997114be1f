"""What sinfo and squeue print, read."""

from kurm.cli.queues import Queue, queues

SINFO = "batch*|up|3/1/0/4\nservices|drain|0/0/2/2\nslurm_load_partitions: odd words\n"
SQUEUE = """RUNNING|batch|None
RUNNING|services|None
COMPLETING|batch|None
PENDING|batch,services|Resources
PENDING|batch|Priority
PENDING|batch|Resources
"""


def test_partitions_with_their_jobs() -> None:
    """A job that waits in two partitions waits in both; what still holds nodes counts as running."""
    assert queues(SINFO, SQUEUE) == [
        Queue(
            "batch",
            default=True,
            state="up",
            allocated=3,
            idle=1,
            other=0,
            total=4,
            running=2,
            pending=3,
            waits_for={"Resources": 2, "Priority": 1},
        ),
        Queue(
            "services",
            default=False,
            state="drain",
            allocated=0,
            idle=0,
            other=2,
            total=2,
            running=1,
            pending=1,
            waits_for={"Resources": 1},
        ),
    ]


def test_nothing_is_nothing() -> None:
    """A cluster without partitions has no queues."""
    assert queues("", "") == []
