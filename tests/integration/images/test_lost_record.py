"""What a real slurmd does when slurmctld has lost its record, and how it is made to come back."""

import asyncio
from collections.abc import Awaitable, Callable

from integration.images.machine import Machine
from integration.slurm.conftest import opened
from kurm.slurm import nodes
from kurm.slurm.nodes import NewNode, Update
from kurm.slurm.session import Session

NEW = NewNode(names=("n1",), cpus=1, real_memory=100)
HERE = "127.0.0.1"
STEPS = "pgrep --full '^slurmstepd' || true"


def lose_all(machine: Machine) -> None:
    """Kill slurmctld, empty its state directory, and start it."""
    machine.kill_controller()
    machine.shell("rm -rf /var/spool/slurmctld/state")
    machine.start_slurmctld()
    machine.until("", lambda: machine.slurm("sinfo", "-h", "-N"))


def run(machine: Machine, what: Callable[[Session], Awaitable[None]]) -> None:
    """Do something over REST."""

    async def all_of_it() -> None:
        async with opened(machine) as session:
            await what(session)

    asyncio.run(all_of_it())


async def seen(session: Session) -> tuple[str, ...]:
    """Return the words of the node's state."""
    return (await nodes.get_node(session, "n1")).state


def test_a_future_record_that_is_resumed_brings_its_slurmd_back(machine: Machine) -> None:
    """Within a second or two, and what ran there ends. A CLOUD record waits in vain, whatever slurmctld is told of it.

    slurmctld asks for registrations in ping_nodes(), which passes over records that are powered down or powering up;
    no update takes those flags away but FUTURE.
    """
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    machine.slurm("scontrol", "create", "NodeName=n1", "State=CLOUD", "CPUs=1", "RealMemory=100")
    machine.start_slurmd("n1")
    machine.until("idle", lambda: machine.slurm("sinfo", "-h", "-o", "%t").strip())
    machine.slurm("sbatch", "--chdir=/tmp", "--output=/dev/null", "--wrap=sleep 600")
    machine.until(expected=True, actual=lambda: machine.shell(STEPS) != "")
    lose_all(machine)
    machine.start_rest()

    async def in_vain(session: Session) -> None:
        await nodes.create_nodes(session, NEW)
        for state in ("UNDRAIN", "IDLE", "DOWN", "RESUME"):
            await nodes.update_nodes(session, ["n1"], Update(state=state, address=HERE))
            await asyncio.sleep(2)
        assert "POWERED_DOWN" in await seen(session)

    async def back(session: Session) -> None:
        await nodes.update_nodes(session, ["n1"], Update(state="FUTURE", address=HERE))
        assert "FUTURE" in await seen(session)
        await nodes.update_nodes(session, ["n1"], Update(state="RESUME"))

    run(machine, in_vain)
    assert machine.shell(STEPS) != ""
    run(machine, back)
    assert machine.until("idle", lambda: machine.slurm("sinfo", "-h", "-o", "%t").strip()) < 10
    machine.until("", lambda: machine.shell(STEPS))

    machine.slurm("scontrol", "delete", "nodename=n1")

    async def made_as_future(session: Session) -> None:
        await nodes.create_nodes(session, NewNode(names=("n1",), cpus=1, real_memory=100, state="FUTURE"))
        await nodes.update_nodes(session, ["n1"], Update(address=HERE))
        await nodes.update_nodes(session, ["n1"], Update(state="RESUME"))

    run(machine, made_as_future)
    assert machine.until("idle", lambda: machine.slurm("sinfo", "-h", "-o", "%t").strip()) < 10
    assert machine.slurm("srun", "--chdir=/tmp", "hostname").strip() == "lab"


def test_a_restart_that_loses_nothing_harms_no_job(machine: Machine) -> None:
    """The record has its flags and address from before: slurmctld asks its slurmd by itself, and the job runs on.

    So it is with one that came back as FUTURE, too.
    """
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    machine.slurm("scontrol", "create", "NodeName=n1", "State=FUTURE", "CPUs=1", "RealMemory=100")
    machine.slurm("scontrol", "update", "NodeName=n1", "State=RESUME", f"NodeAddr={HERE}")
    machine.start_slurmd("n1")
    machine.until("idle", lambda: machine.slurm("sinfo", "-h", "-o", "%t").strip())
    job = machine.slurm("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap=sleep 600").strip()
    machine.until("RUNNING", lambda: machine.slurm("squeue", "-h", "-j", job, "-o", "%T").strip())
    machine.stop_controller()
    machine.start_slurmctld()
    machine.until("allocated", lambda: machine.slurm("sinfo", "-h", "-o", "%T").strip())
    machine.start_rest()

    async def registered(session: Session) -> None:
        async with asyncio.timeout(30):
            while not (await nodes.get_node(session, "n1")).registered:  # noqa: ASYNC110 - Slurm has no event
                await asyncio.sleep(0.2)

    run(machine, registered)
    assert machine.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
