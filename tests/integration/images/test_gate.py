"""What slurmctld forgets by a crash it gives to nobody else: the gate of its init, with the real slurmctld."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.images.machine import OURS, Machine
from integration.slurm.conftest import opened
from kurm.domain.jobrequest import JobRequest
from kurm.slurm import allocations, jobs
from kurm.slurm.nodes import NewNode, create_nodes
from kurm.slurm.session import Session
from kurm.slurm.token import sign

pytestmark = pytest.mark.timeout(240)
PODS, WAITING = 300, 100
FIRST_LOOK = 10.0
"""Seconds, more than a new slurmctld takes to look at its queue for the first time: 3 to 4 (see `free`)."""
GATED = """\
ReconfigFlags=KeepPartState
DebugFlags=HetJob
SchedulerParameters=batch_sched_delay=0
PartitionName=batch Nodes=ALL Default=YES State=DOWN PriorityTier=1
PartitionName=services Nodes=ALL State=DOWN PriorityTier=100
PartitionName=pin Nodes=ALL State=UP PriorityTier=65533 Hidden=YES RootOnly=YES PreemptMode=OFF
"""
PLAIN = OURS[: OURS.index("PartitionName=")]
REQUEST = """
import sys, urllib.request, urllib.error
method, path, token, body = sys.argv[1:]
asked = urllib.request.Request('http://127.0.0.1:6819/' + path, method=method, data=body.encode() or None)
asked.add_header('X-SLURM-USER-TOKEN', token)
try:
    print(200, urllib.request.urlopen(asked).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, 'null')
"""


def conf(*more: str, wait: float = 60.0, gate: bool = True) -> dict[str, str]:
    """Return a configuration whose gate keeps two partitions, and more of these names."""
    lines = [f"PartitionName={name} Nodes=ALL State=DOWN" for name in more]
    text = PLAIN + GATED + "\n".join([*lines, ""])
    if not gate:
        return {"slurm.conf": text.replace("State=DOWN", "State=UP").replace("ReconfigFlags=KeepPartState", "")}
    states = dict.fromkeys(("batch", "services", *more), "UP")
    return {"slurm.conf": text, "kurm-gate": json.dumps({"partitions": states, "wait": wait})}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine with nothing projected and nothing running."""
    with Machine(tmp_path / "machine").run() as machine:
        yield machine


def ask(machine: Machine, method: str, path: str = "", body: object = None) -> tuple[int, Any]:
    """Ask slurmctld's init as SlurmUser."""
    token = sign(machine.key, "slurm", now=time.time())
    words = machine.command("python3", "-c", REQUEST, method, path, token, "" if body is None else json.dumps(body))
    status, _, found = words.partition(" ")
    return int(status), json.loads(found)


def states(machine: Machine) -> dict[str, str]:
    """Return the partitions' states."""
    lines = machine.slurm("sinfo", "--all", "-h", "-o", "%R %a").split("\n")
    return dict(line.split() for line in lines if line)


def gate(machine: Machine) -> str:
    """Return how the gate stands."""
    found: str = ask(machine, "GET")[1]["gate"]
    return found


def external(*names: str) -> NewNode:
    """Return nodes that need no slurmd."""
    here = "127.0.0.1"
    return NewNode(names=names, cpus=8, real_memory=1000, state="EXTERNAL", address=here, hostname="localhost")


def pod(number: int, partition: str = "services", cpus: int = 8) -> JobRequest:
    """Return what a pod asks for: by itself a node of the test."""
    return JobRequest(f"ns/{partition}-{number}.uid", f"kurm:c:{partition}-{number}", 1, cpus, 100, partition=partition)


async def at_once(session: Session, how_many: int, *, partition: str) -> list[str]:
    """Make allocations, eight at a time, and return the node of each."""
    room = asyncio.Semaphore(8)

    async def one(number: int) -> str:
        async with room:
            request = pod(number, partition)
            job = await allocations.allocate(session, request)
            return next(iter(await allocations.layout(session, job, request)))

    return await asyncio.gather(*(one(number) for number in range(how_many)))


async def pin_all(session: Session, nodes: list[str]) -> None:
    """Pin each pod to its node."""
    room = asyncio.Semaphore(8)

    async def one(number: int, node: str) -> None:
        async with room:
            await allocations.pin(session, pod(number), node, 1)

    await asyncio.gather(*(one(number, node) for number, node in enumerate(nodes)))


def names(machine: Machine, state: str) -> set[str]:
    """Return the names of the jobs in a state."""
    return set(machine.slurm("squeue", "--all", "-h", f"--states={state}", "-o", "%j").split())


def prepare(machine: Machine, *, gate: bool) -> None:
    """Have a slurmctld with nodes, and jobs that wait because their partition is DOWN yet; all of it saved."""
    machine.project("h1", conf(gate=gate))
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    machine.start_rest()
    machine.slurm("scontrol", "update", "PartitionName=batch", "State=DOWN")
    machine.slurm("scontrol", "update", "PartitionName=services", "State=UP")

    async def fill() -> None:
        async with opened(machine) as session:
            await create_nodes(session, external(*(f"n{number}" for number in range(PODS))))
            for number in range(WAITING):
                await allocations.submit(session, pod(number, "batch"))

    asyncio.run(fill())
    saved(machine, pod(WAITING - 1, "batch"))


def saved(machine: Machine, request: JobRequest) -> None:
    """Wait until slurmctld has saved a job, which it does up to five seconds late."""
    file = machine.folder / "state/state/job_state"
    machine.until(expected=True, actual=lambda: request.name.encode() in file.read_bytes())


def crash(machine: Machine) -> list[str]:
    """Allocate all nodes, let batch jobs wait for them, and kill slurmctld at once: most of it is not saved yet."""

    async def fill() -> list[str]:
        async with opened(machine) as session:
            return await at_once(session, PODS, partition="services")

    begun = time.monotonic()
    nodes = asyncio.run(fill())
    sys.stderr.write(f"{PODS} allocated in {time.monotonic() - begun:.2f} s\n")
    machine.slurm("scontrol", "update", "PartitionName=batch", "State=UP")
    machine.kill_controller()
    return nodes


def test_nothing_is_given_away_and_all_are_pinned_again(machine: Machine) -> None:
    """300 acknowledged allocations, and slurmctld dies; its next life starts none of the 100 that wait for their nodes.

    All are pinned; then the gate is opened, and what is freed goes to who waits. `bench/pods.py` measures how soon.
    """
    prepare(machine, gate=True)
    before = ask(machine, "GET")[1]
    assert (before["gate"], ask(machine, "POST", "open", {"epoch": "another"})[0]) == ("closed", 409)
    nodes = crash(machine)
    assert len(set(nodes)) == PODS

    begun = time.monotonic()
    machine.start_slurmctld()
    machine.until("closed", lambda: gate(machine))
    returned = time.monotonic()
    after = ask(machine, "GET")[1]
    assert after["epoch"] not in {"", before["epoch"]}
    known = ask(machine, "GET", "allocations")[1]
    assert known["epoch"] == after["epoch"]
    waiting = {job["name"] for job in known["jobs"] if job["state"] == "PENDING"}
    held = {job["name"]: job["id"] for job in known["jobs"] if job["state"] == "RUNNING"}
    assert waiting == {pod(number, "batch").name for number in range(WAITING)}
    assert "batch" not in {job["partition"] for job in known["jobs"] if job["state"] == "RUNNING"}

    async def pin() -> float:
        async with opened(machine) as session:
            await jobs.cancel_jobs(session, held.values())
            now = time.monotonic()
            await pin_all(session, nodes)
            return time.monotonic() - now

    took = asyncio.run(pin())
    assert ask(machine, "POST", "open", {"epoch": after["epoch"]})[1]["gate"] == "open"
    all_of_it = time.monotonic() - returned
    sys.stderr.write(
        f"slurmctld answers after {returned - begun:.2f} s and knows {len(held)}; "
        f"all pinned in {took:.2f}, {all_of_it:.2f} in all\n"
    )
    found = ask(machine, "GET", "allocations")[1]["jobs"]
    assert {(job["name"], job["nodes"]) for job in found if job["state"] == "RUNNING"} == {
        (pod(number).name, node) for number, node in enumerate(nodes)
    }

    async def free() -> None:
        # Slurm looks at no queue in the first 3 s of its life, nudged or not: batch_sched_delay is read by that look.
        async with opened(machine) as session:
            await jobs.cancel_job(session, next(job["id"] for job in found if job["state"] == "RUNNING"))
            await allocations.nudge(session, node=nodes[0])

    asyncio.run(free())
    machine.until(1, lambda: len(names(machine, "RUNNING") & waiting), seconds=FIRST_LOOK)


def test_without_the_gate_the_nodes_are_given_away(machine: Machine) -> None:
    """That is why it is there: Slurm starts what waits within seconds of its return, on nodes where pods still run."""
    prepare(machine, gate=False)
    assert gate(machine) == "none"
    crash(machine)
    machine.start_slurmctld()
    waiting = {pod(number, "batch").name for number in range(WAITING)}
    machine.until(expected=True, actual=lambda: bool(names(machine, "RUNNING") & waiting), seconds=40)


def test_it_opens_by_itself_and_partitions_come_and_go(machine: Machine) -> None:
    """The scheduler is away. A partition that is new gets its state at once, one that was set by hand keeps it."""
    machine.project("h1", conf(wait=15))
    machine.start_slurmctld()
    machine.until("closed", lambda: gate(machine))
    assert states(machine) == {"batch": "down", "services": "down", "pin": "up"}
    life = ask(machine, "GET")[1]["epoch"]
    machine.until("open", lambda: gate(machine))
    assert set(states(machine).values()) == {"up"}
    machine.slurm("scontrol", "update", "PartitionName=batch", "State=DOWN")
    machine.project("h2", conf("more"))
    machine.until("h2", lambda: machine.told()["hash"])
    expected = {"batch": "down", "services": "up", "more": "up", "pin": "up"}
    machine.until(expected, lambda: states(machine))
    assert ask(machine, "GET")[1]["epoch"] == life
    machine.stop_controller()  # in order: it saves that they are UP, and would find them so
    machine.start_slurmctld()
    machine.until("closed", lambda: gate(machine))
    assert states(machine) == {"batch": "down", "services": "down", "more": "down", "pin": "up"}


def test_an_ended_allocation_that_was_revived_is_seen_and_cancelled(machine: Machine) -> None:
    """It had ended, slurmctld had not saved that, and now it holds a node for nobody."""
    machine.project("h1", conf(gate=False))
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    machine.start_rest()

    async def begin() -> int:
        async with opened(machine) as session:
            await create_nodes(session, external("n1"))
            return await allocations.allocate(session, pod(1))

    async def cancel(job: int) -> None:
        async with opened(machine) as session:
            await jobs.cancel_job(session, job)

    job = asyncio.run(begin())
    saved(machine, pod(1))
    asyncio.run(cancel(job))
    machine.kill_controller()
    machine.start_slurmctld()
    machine.until(200, lambda: ask(machine, "GET", "allocations")[0])
    (revived,) = ask(machine, "GET", "allocations")[1]["jobs"]
    assert (revived["id"], revived["state"], revived["signature"]) == (job, "RUNNING", pod(1).signature)
    asyncio.run(cancel(job))
    assert ask(machine, "GET", "allocations")[1]["jobs"] == []
