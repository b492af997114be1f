"""Node records on a real slurmctld."""

from itertools import count

import msgspec
import pytest

from integration.slurm.lab import Lab
from kurm.slurm import jobs, nodes
from kurm.slurm.errors import AlreadyExists, ApiError, Busy, InvalidTransition, NoReason, NotFound
from kurm.slurm.jobs import JobsAnswer
from kurm.slurm.nodes import NewNode, Update
from kurm.slurm.session import Session
from kurm.slurm.wire import Answer, number

_numbers = count(1)


@pytest.fixture
def prefix() -> str:
    """Names of nodes that no other test has."""
    return f"t{next(_numbers)}-"


async def allocate(slurm: Session, node: str, cpus: int = 1) -> int:
    """Start an external job on a node, and return its id."""
    job = {
        "name": "test",
        "partition": "main",
        "tasks": 1,
        "cpus_per_task": cpus,
        "memory_per_node": number(10),
        "flags": ["EXTERNAL_JOB"],
        "immediate": True,
        "required_nodes": [node],
        "current_working_directory": "/",
        "environment": ["A=b"],
    }
    answer = await slurm.request(Allocated, "POST", "job/allocate", body={"job": job})
    assert answer
    return answer.job_id


class Allocated(JobsAnswer):
    """The answer of `job/allocate`."""

    job_id: int = 0


async def test_a_record_is_made_changed_and_deleted(slurm: Session, prefix: str) -> None:
    """Everything that is given at creation or by an update is read back."""
    names = (f"{prefix}1", f"{prefix}2")
    shape = NewNode(names=names, cpus=8, sockets=1, cores_per_socket=4, threads_per_core=2, real_memory=16000)
    await nodes.create_nodes(slurm, msgspec.structs.replace(shape, features=("ssd", "big"), weight=7))
    node = await nodes.get_node(slurm, names[0])
    assert (node.cpus, node.real_memory, node.features, node.weight) == (8, 16000, ("ssd", "big"), 7)
    assert set(node.state) == {"IDLE", "CLOUD", "POWERED_DOWN", "DYNAMIC_NORM"}
    assert (node.registered, node.busy, node.draining) == (False, False, False)
    change = Update(state="DRAIN", reason="kurm: going", extra="uid=1", features=("hdd",), weight=9, comment="hello")
    await nodes.update_nodes(slurm, names, change)
    node = await nodes.get_node(slurm, names[1])
    assert (node.reason, node.extra, node.features, node.weight, node.comment, node.draining) == (
        "kurm: going", "uid=1", ("hdd",), 9, "hello", True,
    )  # fmt: skip
    await nodes.update_nodes(slurm, names, Update(extra="", comment="", features=()))
    node = await nodes.get_node(slurm, names[1])
    assert (node.extra, node.comment, node.features, node.weight) == ("", "", (), 9)
    for name in names:
        await nodes.delete_nodes(slurm, [name])
        with pytest.raises(NotFound):
            await nodes.get_node(slurm, name)


async def test_an_existing_record_is_told_from_a_new_one(slurm: Session, prefix: str) -> None:
    """Making it again is AlreadyExists, and none of the others in the call is made."""
    names = tuple(f"{prefix}{number}" for number in (1, 2, 3))
    await nodes.create_nodes(slurm, NewNode(names=names[1:2], cpus=1, real_memory=1))
    with pytest.raises(AlreadyExists):
        await nodes.create_nodes(slurm, NewNode(names=names, cpus=1, real_memory=1))
    for name in (names[0], names[2]):
        with pytest.raises(NotFound):
            await nodes.get_node(slurm, name)


async def test_an_update_of_many_changes_all_that_are_there(slurm: Session, prefix: str) -> None:
    """Slurm itself stops at the first name that it does not know; we go on, and tell it at the end."""
    there = [f"{prefix}{number}" for number in (1, 3, 4, 6, 7, 8)]
    asked = [f"{prefix}{number}" for number in range(1, 10)]
    await nodes.create_nodes(slurm, NewNode(names=tuple(there), cpus=1, real_memory=1))
    before = slurm.traffic.total
    with pytest.raises(NotFound):
        await nodes.update_nodes(slurm, asked, Update(state="DRAIN", reason="kurm: x"))
    assert slurm.traffic.total - before < 2 * len(asked)
    assert [(await nodes.get_node(slurm, name)).draining for name in there] == [True] * len(there)


async def test_a_deletion_of_many_deletes_all_that_can_go(slurm: Session, prefix: str) -> None:
    """A node with a job, and one that is gone, keep no other."""
    names = [f"{prefix}{number}" for number in range(1, 6)]
    new = NewNode(names=tuple(names[:4]), cpus=1, real_memory=100, state="EXTERNAL", address="127.0.0.1")
    await nodes.create_nodes(slurm, new)
    job = await allocate(slurm, names[1])
    with pytest.raises(Busy):
        await nodes.delete_nodes(slurm, names[:4])
    with pytest.raises((Busy, NotFound)):
        await nodes.delete_nodes(slurm, names)
    found = await nodes.list_nodes(slurm)
    assert found
    assert nodes.names_of(found.nodes or ()) & set(names) == {names[1]}
    await jobs.cancel_job(slurm, job)
    await nodes.delete_nodes(slurm, names[1:2])


async def test_undrain_can_be_repeated_and_resume_cannot(slurm: Session, prefix: str) -> None:
    """RESUME of a node that needs none is refused, for that node only; UNDRAIN is the one to use."""
    names = [f"{prefix}1", f"{prefix}2"]
    await nodes.create_nodes(slurm, NewNode(names=tuple(names), cpus=1, real_memory=1))
    await nodes.update_nodes(slurm, names[1:], Update(state="DRAIN", reason="kurm: x"))
    with pytest.raises(InvalidTransition):
        await nodes.update_nodes(slurm, names, Update(state="RESUME"))
    assert not (await nodes.get_node(slurm, names[1])).draining
    for _ in range(2):
        await nodes.update_nodes(slurm, names, Update(state="UNDRAIN"))


async def test_a_node_with_a_job_is_not_deleted(slurm: Session, prefix: str) -> None:
    """Busy, also while it drains; gone when its job is. An EXTERNAL one counts as registered, as it takes the job."""
    name = f"{prefix}1"
    new = NewNode(names=(name,), cpus=4, real_memory=100, state="EXTERNAL", address="127.0.0.1")
    await nodes.create_nodes(slurm, new)
    assert (await nodes.get_node(slurm, name)).registered
    job = await allocate(slurm, name)
    assert (await jobs.get_job(slurm, job)).nodes == name
    assert (await nodes.get_node(slurm, name)).busy
    await nodes.update_nodes(slurm, [name], Update(state="DRAIN", reason="kurm: x"))
    with pytest.raises(Busy):
        await nodes.delete_nodes(slurm, [name])
    await jobs.cancel_job(slurm, job)
    assert not (await nodes.get_node(slurm, name)).busy
    await nodes.delete_nodes(slurm, [name])


async def test_a_line_that_slurm_cannot_parse_has_no_reason(slurm: Session, prefix: str) -> None:
    """Slurm says no more than that it failed; a value that it knows to be wrong has a number."""
    body = {"node_conf": f"NodeName={prefix}1 State=CLOUD Bogus=1"}
    with pytest.raises(NoReason):
        await slurm.request(Answer, "POST", "new/node/", body=body)
    with pytest.raises(ApiError) as refused:
        await nodes.create_nodes(slurm, NewNode(names=(f"{prefix}1",), cpus=1, real_memory=1, state="NONSENSE"))
    assert refused.value.error == "Invalid node state specified"


async def test_features_are_changed_and_emptied(slurm: Session, prefix: str) -> None:
    """The active ones follow, unless they are given."""
    name = f"{prefix}1"
    await nodes.create_nodes(slurm, NewNode(names=(name,), cpus=1, real_memory=1, features=("a", "b")))
    seen = []
    for update in (
        Update(features=("c", "d")),
        Update(features=("e", "f"), active_features=("f",)),
        Update(features=()),
    ):
        await nodes.update_nodes(slurm, [name], update)
        node = await nodes.get_node(slurm, name)
        seen.append((node.features, node.active_features))
    assert seen == [(("c", "d"), ("c", "d")), (("e", "f"), ("f",)), ((), ())]


async def test_nothing_new_is_no_list(slurm: Session, prefix: str) -> None:
    """A list since the last one is None until something has changed; then it is the whole list."""
    await nodes.create_nodes(slurm, NewNode(names=(f"{prefix}1",), cpus=1, real_memory=1))
    first = await nodes.list_nodes(slurm)
    assert first
    since = first.last_update.value
    assert since
    assert await nodes.list_nodes(slurm, since=since + 1) is None
    assert f"{prefix}1" in nodes.names_of(first.nodes or ())


async def test_a_thousand_names_without_a_pattern_are_drained_by_few_calls(slurm: Session, prefix: str) -> None:
    """Names that do not compress make long host lists, which are split; Slurm takes each."""
    names = tuple(f"{prefix}{number * 7919:x}-node-of-the-pool" for number in range(2000))
    await nodes.create_nodes(slurm, NewNode(names=names, cpus=1, real_memory=1))
    before = slurm.traffic.total
    await nodes.update_nodes(slurm, names, Update(state="DRAIN", reason="kurm: all"))
    assert slurm.traffic.total - before == 2
    found = await nodes.list_nodes(slurm)
    assert found
    assert {node.name for node in found.nodes or () if node.reason == "kurm: all"} == set(names)


async def test_slurm_shows_what_we_made(slurm_lab: Lab, slurm: Session, prefix: str) -> None:
    """What scontrol says of the record is what was asked for."""
    await nodes.create_nodes(slurm, NewNode(names=(f"{prefix}1",), cpus=2, real_memory=500, features=("a", "b")))
    shown = slurm_lab.command("scontrol", "show", "node", f"{prefix}1")
    assert "AvailableFeatures=a,b" in shown
    assert "CPUTot=2" in shown
    assert "RealMemory=500" in shown


async def test_what_jobs_hold_of_one_node_is_counted_when_it_is_asked_for(slurm: Session, prefix: str) -> None:
    """Slurmctld counts for lists only: a drained node whose job has ended is busy until then."""
    name = f"{prefix}1"
    await nodes.create_nodes(
        slurm, NewNode(names=(name,), cpus=8, real_memory=800, state="EXTERNAL", address="127.0.0.1")
    )
    job = await allocate(slurm, name)
    await nodes.list_nodes(slurm)
    await nodes.update_nodes(slurm, [name], Update(state="DRAIN", reason="test"))
    await nodes.recount_nodes(slurm)
    await jobs.cancel_job(slurm, job)
    assert (await nodes.get_node(slurm, name)).busy
    await nodes.recount_nodes(slurm)
    assert not (await nodes.get_node(slurm, name)).busy
    await nodes.delete_nodes(slurm, [name])
