"""Jobs and partitions on a real slurmctld."""

from collections.abc import AsyncIterator

import pytest

from integration.slurm.test_nodes import allocate
from kurm.slurm import cluster, jobs, nodes
from kurm.slurm.errors import NotFound
from kurm.slurm.nodes import NewNode
from kurm.slurm.session import Session


@pytest.fixture
async def node(slurm: Session) -> AsyncIterator[str]:
    """Return a node with room for the test's jobs."""
    name = "for-jobs"
    new = NewNode(names=(name,), cpus=8, real_memory=800, state="EXTERNAL", address="127.0.0.1")
    await nodes.create_nodes(slurm, new)
    yield name
    await nodes.delete_nodes(slurm, [name])


async def test_a_job_runs_and_is_cancelled(slurm: Session, node: str) -> None:
    """Its narrow record and its short state agree; cancelling it twice is no error."""
    job = await allocate(slurm, node, cpus=2)
    found = await jobs.get_job(slurm, job)
    assert (found.nodes, found.partition, found.running, found.cpus.value) == (node, "main", True, 2)
    assert [state.state for state in await jobs.job_states(slurm, [job])] == [("RUNNING",)]
    await jobs.cancel_job(slurm, job)
    found = await jobs.get_job(slurm, job)
    assert (found.job_state, found.running, found.finished) == (("CANCELLED",), False, True)
    await jobs.cancel_job(slurm, job)


async def test_a_job_that_never_was(slurm: Session) -> None:
    """Neither read nor cancelled; of many, it is no reason to fail."""
    with pytest.raises(NotFound):
        await jobs.get_job(slurm, 4_000_000)
    with pytest.raises(NotFound):
        await jobs.cancel_job(slurm, 4_000_000)
    assert await jobs.cancel_jobs(slurm, [4_000_000, 4_000_001]) == ()
    assert await jobs.job_states(slurm, [4_000_000]) == ()


async def test_many_jobs_are_asked_for_and_cancelled_at_once(slurm: Session, node: str) -> None:
    """More ids than one query holds; the unknown ones are left out."""
    started = [await allocate(slurm, node) for _ in range(3)]
    unknown = range(3_000_000, 3_000_000 + jobs.SHORT_LIST)
    found = await jobs.job_states(slurm, [*started, *unknown])
    assert {(int(job.job_id), job.state) for job in found} == {(job, ("RUNNING",)) for job in started}
    before = slurm.traffic.total
    assert await jobs.cancel_jobs(slurm, started) == ()
    assert slurm.traffic.total - before == 1
    assert {(await jobs.get_job(slurm, job)).job_state for job in started} == {("CANCELLED",)}


async def test_the_list_of_jobs_is_narrow_and_conditional(slurm: Session, node: str) -> None:
    """What is read of a list is what is read of one; nothing new is no list."""
    job = await allocate(slurm, node)
    listed = await jobs.list_jobs(slurm)
    assert listed
    assert await jobs.get_job(slurm, job) in (listed.jobs or ())
    assert await jobs.list_jobs(slurm, since=(listed.last_update.value or 0) + 1) is None
    await jobs.cancel_job(slurm, job)


async def test_a_partition_goes_down_and_up(slurm: Session) -> None:
    """Nothing else of it changes."""
    states = []
    for state in ("DOWN", "UP"):
        await cluster.set_partition_state(slurm, "main", state)
        answer = await cluster.list_partitions(slurm)
        (main,) = (answer.partitions if answer else None) or ()
        states.append((main.state, main.node_sets, main.flags, main.priority.tier))
    assert states == [("DOWN", "ALL", ("DEFAULT",), 1), ("UP", "ALL", ("DEFAULT",), 1)]
    last = await cluster.list_partitions(slurm)
    assert last
    assert await cluster.list_partitions(slurm, since=(last.last_update.value or 0) + 1) is None


async def test_slurmctld_tells_about_itself(slurm: Session) -> None:
    """Release, clocks, settings in force, and how it does."""
    controller = await cluster.get_controller(slurm)
    assert controller.release == slurm.release
    assert 0 < controller.boot_time <= controller.conf_read
    assert controller.next_job.value
    assert (await cluster.get_settings(slurm))["ClusterName"] == "lab"
    assert (await cluster.get_diag(slurm)).server_thread_count > 0
