"""slurmctld's init keeps partitions shut after a start until the scheduler, or a time, opens them; on virtual time."""

import asyncio
import json
from pathlib import Path

import pytest
from slurmctld_init.commands import CommandError
from slurmctld_init.gate import SAVED, Gate, read

pytestmark = pytest.mark.looptime


class Slurm:
    """Has partitions, all DOWN as slurm.conf says, and answers or does not."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.answers = True

    async def run(self, *words: str) -> str:
        """Be scontrol."""
        command, name, state = words[1], words[2].removeprefix("PartitionName="), words[3].removeprefix("State=")
        assert (words[0], command) == ("scontrol", "update")
        if not self.answers:
            raise CommandError("scontrol: Unable to contact slurm controller")
        self.states[name] = state
        return ""


def write(folder: Path, wait: float = 60, **partitions: str) -> Path:
    """Have a configuration with a gate over these partitions."""
    (folder / "kurm-gate").write_text(json.dumps({"partitions": partitions, "wait": wait}))
    return folder


async def test_without_the_file_there_is_none(tmp_path: Path) -> None:
    """A cluster that places no pods starts as ever."""
    slurm = Slurm()
    gate = Gate(slurm.run, tmp_path)
    gate.close(tmp_path)
    gate.wait()
    await gate.open()
    await asyncio.sleep(1000)
    assert (gate.state, slurm.states) == ("none", {})


async def test_slurmctld_does_not_find_the_states_that_partitions_had(tmp_path: Path) -> None:
    """It would take them up, UP as they were; where there is no gate that is as it should be."""
    for name in SAVED:
        (tmp_path / name).touch()
    gate = Gate(Slurm().run, tmp_path)
    gate.close(tmp_path)
    assert all((tmp_path / name).exists() for name in SAVED)
    gate.close(write(tmp_path, batch="UP"))
    assert not any((tmp_path / name).exists() for name in SAVED)


async def test_it_is_opened_when_all_is_pinned(tmp_path: Path) -> None:
    """Each partition takes its own state; an administrator's later change is not undone."""
    slurm = Slurm()
    gate = Gate(slurm.run, tmp_path)
    gate.close(write(tmp_path, batch="UP", old="DRAIN"))
    gate.wait()
    await asyncio.sleep(30)
    assert (gate.state, slurm.states) == ("closed", {})
    await gate.open()
    assert (gate.state, slurm.states) == ("open", {"batch": "UP", "old": "DRAIN"})
    slurm.states["batch"] = "DOWN"
    await gate.open()
    await asyncio.sleep(1000)
    assert slurm.states == {"batch": "DOWN", "old": "DRAIN"}


async def test_it_opens_by_itself(tmp_path: Path) -> None:
    """The scheduler is away: after the wait partitions get their states, as soon as Slurm can be told."""
    slurm = Slurm()
    gate = Gate(slurm.run, tmp_path)
    gate.close(write(tmp_path, wait=10, batch="UP"))
    gate.wait()
    slurm.answers = False
    await asyncio.sleep(30)
    assert gate.state == "closed"
    with pytest.raises(CommandError):
        await gate.open()
    slurm.answers = True
    await asyncio.sleep(2)
    assert (gate.state, slurm.states) == ("open", {"batch": "UP"})


async def test_a_new_partition_gets_its_state_at_once_if_it_is_open(tmp_path: Path) -> None:
    """A reconfigure keeps the states of others, so they are let be; a gate that is shut stays shut."""
    slurm = Slurm()
    gate = Gate(slurm.run, tmp_path)
    gate.close(write(tmp_path, wait=100, batch="UP"))
    gate.wait()
    gate.renew(write(tmp_path, wait=100, batch="UP", more="UP"))
    await asyncio.sleep(50)
    assert (gate.state, slurm.states) == ("closed", {})
    await gate.open()
    slurm.states = {}
    gate.renew(write(tmp_path, batch="UP", more="UP", third="UP"))
    await asyncio.sleep(1)
    assert slurm.states == {"third": "UP"}
    (tmp_path / "kurm-gate").unlink()
    gate.renew(tmp_path)
    assert gate.state == "none"
    gate.renew(write(tmp_path, batch="UP"))
    await asyncio.sleep(1)
    assert (gate.state, slurm.states) == ("open", {"third": "UP", "batch": "UP"})


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"partitions": {"batch": "SIDEWAYS"}, "wait": 1}', '{"partitions": {"a b": "UP"}, "wait": 1}']
)
def test_what_cannot_be_read_is_no_gate_and_is_told(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partitions stay as slurm.conf has them."""
    (tmp_path / "kurm-gate").write_text(text)
    assert read(tmp_path) == ({}, 0.0)
    assert "kurm-gate" in capsys.readouterr().err
