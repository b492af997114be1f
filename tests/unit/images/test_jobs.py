"""slurmctld's init tells which jobs have started and ended, by the log's lines as slurmctld 26.05.5 writes them."""

import pytest
from slurmctld_init.jobs import Jobs, event


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
    jobs = Jobs()
    begun = jobs.ring.next
    jobs.hear("sched: Allocate JobId=1 NodeList=n1 #CPUs=2 Partition=services")
    jobs.hear("_job_complete: JobId=1 WEXITSTATUS 0")
    jobs.hear("_job_complete: JobId=1 done")
    told = [{"id": 1, "event": "started", "nodes": "n1"}, {"id": 1, "event": "ended"}]
    assert (await jobs.after(begun)) == {"next": begun + 2, "jobs": told, "lost": False}
    assert (await jobs.after(begun + 1))["jobs"] == told[1:]
    assert (await Jobs().after(begun))["lost"]
