"""slurmctld's init tells which jobs have started and ended, by the log's lines as slurmctld 26.05.5 writes them."""

import asyncio

import pytest
from slurmctld_init.jobs import Jobs, event


async def at_once() -> None:
    """Have nothing on its way."""


def started(job: int, node: str) -> str:
    """Return what slurmctld writes before it answers an immediate allocation."""
    return f"sched: _slurm_rpc_allocate_resources JobId={job} NodeList={node} usec=530"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sched: _slurm_rpc_allocate_resources JobId=10 NodeList=n1 usec=530", (10, "started", "n1")),
        ("sched: Allocate JobId=35 NodeList=n[1-2] #CPUs=2 Partition=services", (35, "started", "n[1-2]")),
        ("sched/backfill: _start_job: HETJOB: Started JobId=33 in services on n1", (33, "started", "n1")),
        ("sched: Allocate JobId=7_3(9) NodeList=n1 #CPUs=1 Partition=batch", (9, "started", "n1")),
        ("job_signal: 9 of running JobId=29 successful 0x4", (29, "ended")),
        ("job_signal: 9 of pending JobId=29 successful", (29, "ended")),
        ("_job_complete: JobId=2 done", (2, "ended")),
        ("job_complete: JobId=7_3(9) done", (9, "ended")),
        ("Time limit exhausted for JobId=4", (4, "ended")),
        ("Killing JobId=5 on failed node n3", (5, "ended")),
        ("requeue job JobId=1 due to failure of node n1", (1, "ended")),
        ("job_signal: 15 of running JobId=29 successful 0x4", None),
        ("_slurm_rpc_submit_batch_job: JobId=33 SLUID=s335M80DWK9G00 InitPrio=1 usec=409", None),
        ("_slurm_rpc_request_resource_layout: JobId=9 running!", None),
        ("_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=29 uid 0", None),
        ("_update_job: setting comment to sched: Allocate JobId=7 NodeList=n1 #CPUs=1 for JobId=8", None),
        ("update_node: node n1 state set to DRAINED", None),
    ],
)
def test_a_line_says_what_became_of_a_job(line: str, expected: tuple[object, ...] | None) -> None:
    """Starts name their nodes; what a user can write stands behind other words."""
    names = ("id", "event", "nodes")
    assert (dict(zip(names, expected, strict=False)) if expected else None) == event(line)


async def test_events_are_numbered() -> None:
    """Who asks with the last number gets what came since; a number of another ring has lost something."""
    jobs = Jobs(at_once)
    begun = jobs.ring.next
    jobs.hear("sched: Allocate JobId=1 NodeList=n1 #CPUs=2 Partition=services")
    jobs.hear("_job_complete: JobId=1 WEXITSTATUS 0")
    jobs.hear("_job_complete: JobId=1 done")
    told = [{"id": 1, "event": "started", "nodes": "n1"}, {"id": 1, "event": "ended"}]
    assert (await jobs.after(begun)) == {"next": begun + 2, "jobs": told, "lost": False}
    assert (await jobs.after(begun + 1))["jobs"] == told[1:]
    assert (await Jobs(at_once).after(begun))["lost"]


async def test_the_node_of_a_job_is_told_for_certain() -> None:
    """Of many at once; of one that has more nodes, waits, or has not started, nothing."""
    jobs = Jobs(at_once)
    for line in (started(1, "n1"), started(2, "gpu-2.x_y"), started(3, "n[1-2]"), started(4, "(null)")):
        jobs.hear(line)
    assert await jobs.nodes([1, 2, 3, 4, 5]) == {"1": "n1", "2": "gpu-2.x_y"}


@pytest.mark.parametrize("forged_first", [True, False])
async def test_a_line_that_somebody_else_has_written_is_not_believed(forged_first: bool) -> None:  # noqa: FBT001
    """A job's name may hold a whole line of the log, for an id that comes next: where two disagree, neither is."""
    jobs = Jobs(at_once)
    for node in ("stolen", "n1") if forged_first else ("n1", "stolen"):
        jobs.hear(started(7, node))
    jobs.hear(started(7, "n1"))
    assert await jobs.nodes([7]) == {}


async def test_all_that_was_written_counts() -> None:
    """A forged line that was heard already is not believed while slurmctld's own is on its way."""

    async def catch_up() -> None:
        jobs.hear(started(7, "n1"))

    jobs = Jobs(catch_up)
    jobs.hear(started(7, "stolen"))
    assert await jobs.nodes([7]) == {}


async def test_another_life_of_slurmctld_has_other_jobs() -> None:
    """Its ids may be those of jobs that it has forgotten. That it has begun nobody can say but the init."""
    jobs = Jobs(at_once)
    jobs.hear(started(7, "n1"))
    for line in ("Running as primary controller", started(7, "stolen")):
        jobs.hear(line)
    assert await jobs.nodes([7]) == {}
    await jobs.begin()
    jobs.hear(started(7, "n2"))
    assert await jobs.nodes([7]) == {"7": "n2"}


async def test_after_a_loss_no_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurmctld's own line may be the one that is missing; followers hear that something is."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    jobs = Jobs(at_once)
    jobs.hear(started(7, "n1"))
    begun = jobs.ring.next
    jobs.lose()
    jobs.hear(started(8, "stolen"))
    assert await jobs.nodes([7, 8]) == {}
    assert (await jobs.after(begun))["lost"]
    now += 61
    jobs.hear(started(9, "n1"))
    assert await jobs.nodes([7, 8, 9]) == {"9": "n1"}


async def test_only_the_last_jobs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks does so at once."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    jobs = Jobs(at_once)
    for job in range(5000):
        jobs.hear(started(job, "n1"))
        now += 0.01
    assert await jobs.nodes([0, 4999]) == {"4999": "n1"}


@pytest.mark.parametrize("primed", [False, True], ids=["at once", "foreseen"])
async def test_a_flood_of_lines_washes_no_job_away(monkeypatch: pytest.MonkeyPatch, *, primed: bool) -> None:
    """Forged lines by the thousand, until slurmctld's own is forgotten, then one on that job; or also long before."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    jobs = Jobs(at_once)
    monkeypatch.setattr("slurmctld_init.jobs.MOST", 1000)
    flood = [started(job, "n1") for job in range(1000, 2000)]
    for line in (started(7, "stolen"), *flood[2:]) if primed else ():  # just as many as are remembered
        jobs.hear(line)
    now += 41
    for line in (started(7, "n1"), *flood, started(999, "n1"), started(7, "stolen")):
        jobs.hear(line)
    assert await jobs.nodes([7]) == {}
    now += 61
    jobs.hear(started(8, "n1"))
    assert await jobs.nodes([8]) == {"8": "n1"}


async def test_a_number_that_is_none_is_not_read() -> None:
    """Python raises at numbers of thousands of digits, and slurmctld's own line may stand behind."""
    jobs = Jobs(at_once)
    for line in (started(int("7" * 20), "n1"), f"sched: Allocate JobId={'7' * 5000} NodeList=n1 ", started(7, "n1")):
        jobs.hear(line)
    assert await jobs.nodes([7]) == {"7": "n1"}


async def test_without_slurmctlds_own_lines_none_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator has had it say less; what a user writes is still there, beside errors."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    jobs = Jobs(at_once)
    assert await jobs.nodes([7]) == {}
    jobs.hear(started(8, "stolen"))
    assert await jobs.nodes([8]) == {}
    now += 61
    jobs.hear(started(9, "n1"))
    assert await jobs.nodes([9]) == {"9": "n1"}


async def test_a_log_that_is_stuck_holds_nobody_up() -> None:
    """Each question would leave an answer that is waited for, until the init answers nobody."""

    async def never() -> None:
        await asyncio.Event().wait()

    jobs = Jobs(never)
    async with asyncio.timeout(2):
        await jobs.begin()
    async with asyncio.timeout(2):
        assert await jobs.nodes([7]) == {}
