"""Where Slurm has placed a pod: read in slurmctld's log, and asked of Slurm where somebody else may have written it."""

import pytest

from integration.scheduler.stage import Stage, until

pytestmark = pytest.mark.timeout(180)

LAYOUT = "GET resources/{}"


async def test_slurm_is_asked_once_for_a_pod(stage: Stage) -> None:
    """For its allocation: on which node that is, slurmctld's init has read by then."""
    async with stage.scheduler() as scheduler:
        await stage.pod("web")
        await until(lambda: stage.bound("web"), 1)
        calls = scheduler.placer.hand.slurm.traffic.calls
        assert (calls["POST job/allocate"], calls[LAYOUT]) == (1, 0)


async def test_the_name_of_a_job_sends_no_pod_elsewhere(stage: Stage) -> None:
    """A user names a job after lines of the log, for the ids that come next: Slurm itself is asked then."""
    *_, elsewhere = stage.nodes
    held = int((await stage.slurm("sbatch", "--parsable", "--hold", "--wrap", "true")).split()[0])
    lines = (
        f"[2026-11-23T05:00:00.000] sched: _slurm_rpc_allocate_resources JobId={job} NodeList={elsewhere} usec=9"
        for job in range(held + 1, held + 9)
    )
    async with stage.scheduler() as scheduler:
        await stage.slurm("scontrol", "update", f"JobId={held}", "JobName=" + "\n".join(("x", *lines, "y")))
        await stage.pod("web")
        await until(lambda: stage.bound("web"), 1)
        given = await stage.slurm("squeue", "--noheader", "--user=slurm", "--states=RUNNING", "--format=%N")
        assert given.split() == [await stage.node_of("web")]
        assert given.split() != [elsewhere]
        assert scheduler.placer.hand.slurm.traffic.calls[LAYOUT] == 1
