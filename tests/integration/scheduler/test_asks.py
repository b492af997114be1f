"""What a pod asks by annotations, of a Slurm that has it: reservations and licences."""

import pytest

from integration.scheduler.stage import Stage, until
from kurm.kube.resources import NODES, PODS, Key, Object
from kurm.scheduler import sight

pytestmark = pytest.mark.timeout(180)

RESERVATION = {"slurm.kurm.dev/reservation": "ours"}
LICENCE = {"slurm.kurm.dev/licenses": "matlab:1"}


async def test_a_reserved_node_is_for_pods_that_name_its_reservation(stage: Stage) -> None:
    """Others wait though there is room on it; they get it when the reservation is deleted."""
    reserved, *others = stage.nodes
    await stage.slurm(
        "scontrol",
        *("create", "reservation", "reservationname=ours", f"nodes={reserved}", "users=slurm"),
        *("starttime=now", "duration=60"),
    )
    async with stage.scheduler():
        for number in range(2):
            await stage.pod(f"filler-{number}", cpu="4")
        await until(lambda: stage.bound("filler-0", "filler-1"), 2)
        assert set(others) == {await stage.node_of("filler-0"), await stage.node_of("filler-1")}
        await stage.pod("late")
        await until(lambda: stage.reason("late"), "SlurmQueue")
        await stage.pod("named", cpu="3", annotations=RESERVATION)
        await until(lambda: stage.node_of("named"), reserved)
        assert await stage.bound("late") == 0
        await stage.end("named")
        await stage.slurm("scontrol", "delete", "reservationname=ours")
        await until(lambda: stage.node_of("late"), reserved)


async def test_a_reservation_that_is_not_there_is_told(stage: Stage) -> None:
    """In Slurm's own words, with what was asked."""
    async with stage.scheduler():
        await stage.pod("named", annotations=RESERVATION)
        await until(lambda: stage.reason("named"), "Refused")
        told = (await stage.get("named")).condition("PodScheduled")
        assert told is not None
        assert "Requested reservation is invalid" in told.message
        assert told.message.endswith("reservation ours")


async def test_a_pod_with_a_gate_holds_nothing_until_that_is_gone(stage: Stage) -> None:
    """The API server would not bind it. Slurm is asked for nothing, and others have the room."""
    async with stage.scheduler():
        await stage.pod("gated", cpu="4", gates=["example.com/quota"])
        for number in range(len(stage.nodes)):
            await stage.pod(f"filler-{number}", cpu="4")
        fillers = [f"filler-{number}" for number in range(len(stage.nodes))]
        await until(lambda: stage.bound(*fillers), len(fillers))
        assert set(fillers) == set(await stage.jobs())
        await stage.kube.patch(PODS, Key(stage.place, "gated"), {"spec": {"schedulingGates": None}})
        await until(lambda: stage.reason("gated"), "SlurmQueue")
        await stage.end(fillers[0])
        await until(lambda: stage.bound("gated"), 1)


async def test_a_queued_pod_gets_a_node_that_may_be_used_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the only one that was excluded, and nothing else becomes free."""
    monkeypatch.setattr(sight, "AMENDED_FOR", 1.0)
    cordoned, *others = stage.nodes
    await stage.kube.patch(NODES.of(Object), Key("", cordoned), {"spec": {"unschedulable": True}})
    async with stage.scheduler():
        for number in range(len(others)):
            await stage.pod(f"filler-{number}", cpu="4")
        await until(lambda: stage.bound("filler-0", "filler-1"), 2)
        await stage.pod("late")
        await until(lambda: stage.reason("late"), "SlurmQueue")
        (queued,) = (await stage.slurm("squeue", "-ah", "-t", "PD", "-o", "%i")).split()
        await stage.kube.patch(NODES.of(Object), Key("", cordoned), {"spec": {"unschedulable": None}})
        await until(lambda: stage.node_of("late"), cordoned)
        assert (await stage.get("late")).metadata.annotations["kurm.dev/job"] == queued


async def test_licences_are_as_many_as_slurm_has(stage: Stage) -> None:
    """Whoever finds none waits, and is told that it is for a licence."""
    conf = f"{stage.machine.conf}\nLicenses=matlab:2\n"
    await stage.configure(conf)
    async with stage.scheduler():
        for number in range(2):
            await stage.pod(f"user-{number}", annotations=LICENCE)
        await until(lambda: stage.bound("user-0", "user-1"), 2)
        await stage.pod("late", annotations=LICENCE)
        await until(lambda: stage.reason("late"), "SlurmQueue")
        await until(lambda: licences(stage), "matlab used 2, free 0")
        await stage.end("user-0")
        await until(lambda: stage.bound("late"), 1)


async def test_a_forgotten_pod_has_its_node_again_though_its_licence_is_gone(stage: Stage) -> None:
    """It runs, and nothing that it once asked for keeps Slurm from giving its share of the node to others."""
    conf = f"{stage.machine.conf}\nLicenses=matlab:2\n"
    await stage.configure(conf)
    async with stage.scheduler():
        users = [f"user-{number}" for number in range(2)]
        for name in users:
            await stage.pod(name, annotations=LICENCE)
        await until(lambda: stage.bound(*users), 2)
        places = {name: ("RUNNING", "pin", await stage.node_of(name)) for name in users}
        await stage.configure(conf.replace("matlab:2", "matlab:1"))
        await stage.forget()
        await until(stage.jobs, places)
        assert await licences(stage) == "matlab used 1, free 0"
        assert not any([await stage.leaving(name) for name in users])


async def licences(stage: Stage) -> str:
    """Return what Slurm says of its licences."""
    told = await stage.slurm("scontrol", "--oneliner", "show", "licenses")
    found = dict(word.split("=", 1) for word in told.split() if "=" in word)
    return f"{found['LicenseName']} used {found['Used']}, free {found['Free']}"
