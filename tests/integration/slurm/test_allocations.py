"""Allocations on a real slurmctld: made, queued, pinned, laid out, refused."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec import structs

from integration.slurm.conftest import opened
from integration.slurm.lab import COMPLAINING, CONF, Lab
from kurm.domain.jobrequest import JobRequest
from kurm.slurm import allocations, jobs, nodes
from kurm.slurm.errors import ApiError, Behind, Infeasible, NoRoom, NotFound, StillHeld
from kurm.slurm.nodes import NewNode
from kurm.slurm.session import Session

PARTITIONS = """\
DebugFlags=HetJob
SchedulerParameters=batch_sched_delay=0,bf_interval=300,sched_interval=300
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=batch Nodes=ALL Default=YES MaxTime=1-0 State=UP PriorityTier=1 PreemptMode=OFF
PartitionName=services Nodes=ALL State=UP PriorityTier=100 PreemptMode=OFF
PartitionName=pin Nodes=ALL State=UP PriorityTier=65533 Hidden=YES RootOnly=YES PreemptMode=OFF
"""
MINE = ("a1", "a2", "a3")
_names = itertools.count()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a cluster with the partitions of the scheduler: three nodes of 8 CPUs, and one of 4 cores of 2 threads."""
    conf = CONF[: CONF.index("PartitionName=")] + PARTITIONS
    with Lab(tmp_path_factory.mktemp("slurm"), conf=conf, rest_args=COMPLAINING).run() as lab:
        yield lab


@pytest.fixture
async def slurm(lab: Lab) -> AsyncIterator[Session]:
    """Open a session with it; the test's jobs are ended afterwards."""
    async with opened(lab) as session:
        flat = NewNode(names=MINE, cpus=8, real_memory=800, state="EXTERNAL", address="127.0.0.1", hostname="localhost")
        threaded = structs.replace(flat, names=("t1",), sockets=1, cores_per_socket=4, threads_per_core=2)
        await nodes.create_nodes(session, flat)
        await nodes.create_nodes(session, threaded)
        yield session
        lab.command("scancel", "--user=slurm")
        await nodes.delete_nodes(session, [*MINE, "t1"])


def request(slots: int = 1, cpus: int = 2, memory: int = 100, partition: str = "services", **more: Any) -> JobRequest:
    """Return a request of a name of its own."""
    name = f"ns/pod-{next(_names)}.0a1b2c3d"
    return JobRequest(name, f"kurm:c:{name}", slots, cpus, memory, partition=partition, **more)


async def test_a_pod_gets_what_it_asked_for(slurm: Session) -> None:
    """On one node, exactly; the job bears its name, its signature and its words."""
    asked = request(cpus=3, memory=150, time_limit=7, comment="hello")
    job = await allocations.allocate(slurm, asked, excluded="a[1,3],t1")
    found = await jobs.get_job(slurm, job)
    assert (found.name, found.admin_comment, found.comment) == (asked.name, asked.signature, "hello")
    assert (found.nodes, found.partition, found.running, found.time_limit.value) == ("a2", "services", True, 7)
    assert found.tres_alloc_str == "cpu=3,mem=150M,node=1,billing=3"
    assert (found.user_name, "EXTERNAL_JOB" in found.flags) == ("slurm", True)
    assert await allocations.layout(slurm, job, asked) == {"a2": 1}


async def test_a_gang_is_spread_where_nodes_may_take_few_of_it(slurm: Session) -> None:
    """Beside jobs that leave little room on each node, too: nobody has to go for it."""
    gang = request(slots=3, cpus=1, slots_per_node=1)
    job = await allocations.allocate(slurm, gang, excluded="t1")
    assert await allocations.layout(slurm, job, gang) == {"a1": 1, "a2": 1, "a3": 1}
    beside = [await allocations.allocate(slurm, request(cpus=6), excluded="t1") for _ in MINE]
    wide = request(slots=3, cpus=1, slots_per_node=2)
    job = await allocations.allocate(slurm, wide, excluded="t1")
    assert sum((await allocations.layout(slurm, job, wide)).values()) == 3
    assert all([(await jobs.get_job(slurm, one)).running for one in beside])


async def test_only_the_job_that_was_meant_is_ended(slurm: Session) -> None:
    """A slurmctld that has forgotten gives numbers out again; a name says whose a number is."""
    asked = request()
    job = await allocations.allocate(slurm, asked)
    assert await jobs.cancel_jobs(slurm, [job], name="ns/another.0a1b2c3d") == ()
    assert (await jobs.get_job(slurm, job)).running
    assert await jobs.cancel_jobs(slurm, [job, 4_000_000], name=asked.name) == ()
    assert not (await jobs.get_job(slurm, job)).running


async def test_a_second_one_of_the_same_name_is_refused(slurm: Session) -> None:
    """So an answer that got lost can be asked for again; when the first has ended there is another."""
    asked = request()
    job = await allocations.allocate(slurm, asked)
    with pytest.raises(StillHeld):
        await allocations.allocate(slurm, asked)
    with pytest.raises(StillHeld):
        await allocations.pin(slurm, asked, "a1", 1)
    second = await allocations.submit(slurm, asked)
    assert (await jobs.get_job(slurm, second)).state_reason == "Dependency"
    await jobs.cancel_jobs(slurm, [job, second])
    assert await allocations.allocate(slurm, asked)


async def test_what_finds_no_room_is_told_from_what_never_will(slurm: Session) -> None:
    """And from what is refused for another reason, which has Slurm's words."""
    full = [await allocations.allocate(slurm, request(cpus=8)) for _ in range(4)]
    with pytest.raises(NoRoom):
        await allocations.allocate(slurm, request(cpus=8))
    await jobs.cancel_jobs(slurm, full)
    for never in (request(cpus=9), request(memory=900)):
        with pytest.raises(Infeasible):
            await allocations.allocate(slurm, never)
        with pytest.raises(Infeasible):
            await allocations.submit(slurm, never)
    with pytest.raises(Infeasible):
        await allocations.allocate(slurm, request(), excluded="a[1-3],t1")
    for number, wrong in ((2000, request(partition="nope")), (2029, request(constraint="nope"))):
        with pytest.raises(ApiError) as refused:
            await allocations.allocate(slurm, wrong)
        assert refused.value.number == number
        assert not isinstance(refused.value, NoRoom | Behind | Infeasible | StillHeld)


async def test_nobody_overtakes_who_waits_before(slurm: Session) -> None:
    """A job of the same tier waits for its node; what would fit beside it is told so. A higher tier passes."""
    await allocations.allocate(slurm, request(cpus=7), excluded="a[2-3],t1")
    await allocations.submit(slurm, request(cpus=8, partition="services"), excluded="a[2-3],t1")
    with pytest.raises(Behind):
        await allocations.allocate(slurm, request(cpus=1), excluded="a[2-3],t1")
    assert await allocations.pin(slurm, request(cpus=1), "a1", 1)


async def test_a_pin_is_for_exactly_that_node(slurm: Session) -> None:
    """A single pod's under its own name; it finds room where others wait, and none where there is none."""
    asked = request(cpus=6)
    job = await allocations.pin(slurm, asked, "a3", 1)
    found = await jobs.get_job(slurm, job)
    assert (found.name, found.nodes, found.partition) == (asked.name, "a3", "pin")
    with pytest.raises(NoRoom):
        await allocations.pin(slurm, request(cpus=6), "a3", 1)
    with pytest.raises(NotFound):
        await allocations.pin(slurm, request(), "nosuch", 1)


async def test_a_gang_is_one_job_of_several_pods_on_a_node(slurm: Session) -> None:
    """All or none; pinned again node by node it holds the same."""
    gang = request(slots=5, cpus=3, memory=100)
    job = await allocations.allocate(slurm, gang, excluded="t1")
    held = await allocations.layout(slurm, job, gang)
    assert sorted(held.values()) == [1, 2, 2]
    assert set(held) == set(MINE)
    before = (await jobs.get_job(slurm, job)).tres_alloc_str
    assert before == "cpu=15,mem=510M,node=3,billing=15"
    await jobs.cancel_job(slurm, job)
    pinned = [await allocations.pin(slurm, gang, node, slots) for node, slots in held.items()]
    found = [await jobs.get_job(slurm, one) for one in pinned]
    assert {(one.name, one.nodes) for one in found} == {(f"{gang.name}@{node}", node) for node in held}
    assert sum(one.cpus.value or 0 for one in found) == 15
    with pytest.raises(NoRoom):
        await allocations.allocate(slurm, request(slots=2, cpus=3), excluded="t1")
    with pytest.raises(Infeasible):
        await allocations.allocate(slurm, request(slots=7, cpus=3), excluded="t1")


async def test_whole_cores_are_granted(slurm: Session) -> None:
    """Three CPUs on cores of two threads are four; a gang's slots are told all the same."""
    single = await allocations.allocate(slurm, request(cpus=3), excluded="a[1-3]")
    assert (await jobs.get_job(slurm, single)).cpus.value == 4
    await jobs.cancel_job(slurm, single)
    gang = request(slots=5, cpus=1)
    job = await allocations.allocate(slurm, gang, excluded="a[1-3]")
    assert (await jobs.get_job(slurm, job)).cpus.value == 6
    assert await allocations.layout(slurm, job, gang) == {"t1": 5}


async def test_an_exclusive_pod_has_its_node_alone(slurm: Session) -> None:
    """Nothing else fits beside it."""
    await allocations.allocate(slurm, request(cpus=1, exclusive=True), excluded="a[2-3],t1")
    with pytest.raises(NoRoom):
        await allocations.allocate(slurm, request(cpus=1), excluded="a[2-3],t1")


async def test_a_layout_of_what_holds_nothing_is_an_error(slurm: Session) -> None:
    """One that waits, and one that never was."""
    await allocations.allocate(slurm, request(cpus=8), excluded="a[2-3],t1")
    waiting = await allocations.submit(slurm, request(cpus=8), excluded="a[2-3],t1")
    for job in (waiting, 4_000_000):
        with pytest.raises(ApiError):
            await allocations.layout(slurm, job, request())


async def test_what_is_freed_goes_to_who_waits_after_a_nudge(slurm: Session) -> None:
    """The end of an external job wakes nobody, and slurmctld looks by itself every five minutes here.

    (Mostly nobody: something else may have it look meanwhile.) It does not matter whether a node is named.
    """
    for node in ("a1", ""):
        held = await allocations.allocate(slurm, request(cpus=8), excluded="a[2-3],t1")
        waiting = await allocations.submit(slurm, request(cpus=8), excluded="a[2-3],t1")
        await asyncio.sleep(2.5)  # a submission is a nudge itself; its look at the queue is to be over
        await jobs.cancel_job(slurm, held)
        await allocations.nudge(slurm, node=node)
        async with asyncio.timeout(10):
            while await state(slurm, waiting) != "RUNNING":  # noqa: ASYNC110 - slurmctld has no event
                await asyncio.sleep(0.05)
        await jobs.cancel_job(slurm, waiting)


async def state(session: Session, job: int) -> str:
    """Return a job's state."""
    (found,) = await jobs.job_states(session, [job])
    return found.state[0]
