"""What squeue prints of a pod's job, read."""

from kurm.cli.queuedjob import QueuedJob, placed, read

WAITS = "12|PENDING|services|lab|normal|N/A||Priority\n"


def test_a_job_that_waits_and_one_that_runs() -> None:
    """What squeue has nothing for is empty; a reason may have a bar in it; odd lines are passed over."""
    printed = f"{WAITS}7|RUNNING|services|(null)|normal|2026-11-22T01:29:16|n[1-2]|odd|one\nslurm_load_jobs: error\n"
    assert read(printed) == [
        QueuedJob("12", "PENDING", "services", "lab", "normal", reason="Priority"),
        QueuedJob("7", "RUNNING", "services", "", "normal", "2026-11-22T01:29:16", "n[1-2]", "odd|one"),
    ]


def test_the_place_is_by_priority_and_then_by_age() -> None:
    """An array whose tasks all wait is one job, and old by its number."""
    (job,) = read(WAITS)
    found = placed(job, "13|500\n12|500\n9_[1-4]|500\n20|900\n2|100\n")
    assert (found.place, found.waiting) == (3, 5)


def test_a_job_that_has_just_started_has_no_place() -> None:
    """It was pending when it was looked at, and is not in the queue any more."""
    (job,) = read(WAITS)
    assert placed(job, "13|500\n").place == 0
