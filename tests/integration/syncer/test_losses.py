"""slurmctld loses its state under a syncer: what was lost is told, and slurmds that run are asked to register."""

import asyncio
import shutil

import msgspec

from integration.slurm.lab import SLURM
from integration.syncer.stage import Stage, until
from kurm.kube.resources import EVENTS, PODS, Key
from kurm.kube.session import Patch

HERE = "192.0.2.1"
"""Of the lab's own loopback: nobody listens there."""


class Event(msgspec.Struct):
    """What is said of an object."""

    reason: str = ""
    note: str = ""


class Events(msgspec.Struct):
    """A list of them."""

    items: list[Event]


async def losses(stage: Stage) -> list[str]:
    """Return what the events say of losses."""
    found = await stage.kube.request("GET", EVENTS.path(namespace=stage.place))
    return [event.note for event in msgspec.json.decode(found, type=Events).items if event.reason == "SlurmStateLost"]


async def runs(stage: Stage, name: str) -> None:
    """Have the kubelet say that slurmd in a node's pod answers."""
    status = {"podIP": HERE, "podIPs": [{"ip": HERE}], "conditions": [{"type": "Ready", "status": "True"}]}
    key = Key(stage.place, f"workers-{name}")
    await stage.kube.patch(PODS, key, {"status": status}, kind=Patch.STRATEGIC, subresource="status")


def lose_state(stage: Stage) -> None:
    """Kill slurmctld, and start another one that knows nothing."""
    stage.lab.kill_controller()
    for entry in (stage.lab.folder / "state").iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.chown(stage.lab.folder / "state", SLURM, SLURM)
    stage.lab.start_controller()


async def test_a_loss_is_told_once_and_each_slurmd_is_asked(stage: Stage, prefix: str) -> None:
    """One whose slurmd runs gets a record that slurmctld asks it for; one without a slurmd a record that waits."""
    here, starting = f"{prefix}1", f"{prefix}2"
    await stage.claim([here, starting])
    await stage.taking_jobs(here, starting)
    async with stage.syncer():
        await stage.cordon(here, starting)
        for name in (here, starting):
            await until(lambda name=name: stage.drained(name))  # type: ignore[misc]
        await stage.uncordon(here, starting)
        for name in (here, starting):
            await until(lambda name=name: stage.drained(name), expected=False)  # type: ignore[misc]
        await runs(stage, here)
        await asyncio.sleep(1.0)  # a look of its own after the undrain would see one record gone before the other
        lose_state(stage)
        await until(lambda: losses(stage), [_note(2, 2, f"{prefix}[1-2]")], within=60)
        await until(stage.marked, {here, starting})

        async def asked() -> tuple[str, bool]:
            record = (await stage.records())[here]
            return record.address, record.has("IDLE") and record.has("NOT_RESPONDING")

        await until(asked, (HERE, True))
        waits = (await stage.records())[starting]
        assert (waits.has("CLOUD"), waits.has("POWERED_DOWN")) == (True, True)
        assert len(await losses(stage)) == 1


def _note(lost: int, had: int, hosts: str) -> str:
    return (
        f"Slurm has lost the records of {lost} of {had} nodes, and with them their jobs: {hosts}. "
        "The records are made anew, and each slurmd is asked to register."
    )
