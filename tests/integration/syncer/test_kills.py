"""Whatever is killed at whatever moment, both sides end in the same agreed state."""

import asyncio
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from typing import TYPE_CHECKING

import pytest

from integration.apiserver import ApiServer
from integration.syncer.stage import Stage, until
from kurm.slurm import nodes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KILLS = 10


async def start(stage: Stage, api_server: ApiServer) -> Process:
    """Start `kurm syncer` as its container does, under the same name each time."""
    command = ["from kurm.cli import main; main()", "syncer"]
    options = {
        "cluster": "demo",
        "namespace": stage.place,
        "slurmrestd": f"unix:{stage.lab.socket}",
        "jwt-key": f"{stage.lab.etc}/jwt_hs256.key",
        "kubeconfig": str(api_server.kubeconfig()),
        "controller": "http://127.0.0.1:9/",
        "identity": "demo-syncer-0",
        "port": "0",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with (stage.lab.folder / "syncer.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", *command, *words, stdout=log, stderr=log, stdin=DEVNULL
        )


@pytest.mark.timeout(240)
async def test_killed_at_random_moments(stage: Stage, api_server: ApiServer, prefix: str) -> None:
    """Nodes come, are released, given up and drained by people while the syncer is killed; slurmctld is killed once."""
    dice = random.Random(prefix)  # noqa: S311 - the seed is in the names of the nodes
    kept, released, gone = ([f"{prefix}{letter}{number}" for number in range(4)] for letter in "krg")
    foreign, admins = f"{prefix}foreign", f"{prefix}k0"
    async with stage.session() as slurm:
        await nodes.create_nodes(slurm, nodes.NewNode(names=(foreign,), cpus=1, real_memory=1))
    await stage.claim([*kept, *released])
    await stage.claim(gone, pods=False)

    async def drained_by_an_administrator() -> None:
        await until(lambda: _there(stage, admins))
        await stage.update(admins, state="DRAIN", reason="fan is loud")
        # slurmctld saves it up to five seconds late, and nobody else knows of it when slurmctld is killed before that.
        await until(lambda: asyncio.sleep(0, b"fan is loud" in (stage.lab.folder / "state/node_state").read_bytes()))

    async def controller_killed() -> None:
        await asyncio.to_thread(stage.lab.kill_controller)
        await asyncio.to_thread(stage.lab.start_controller)

    people: list[Callable[[], Awaitable[None]]] = [
        lambda: stage.release(*kept[1:]),
        lambda: stage.unclaim(*gone[:2]),
        drained_by_an_administrator,
        lambda: stage.release(*kept[1:], reason=None),
        controller_killed,
        lambda: stage.unclaim(*gone[2:]),
        lambda: stage.release(*released),
    ]
    for number in range(KILLS):
        process = await start(stage, api_server)
        await asyncio.sleep(dice.uniform(0.5, 2.5))
        if number % 2 and people:
            await people.pop(0)()
            await asyncio.sleep(dice.uniform(0.0, 0.3))
        process.kill()
        await process.wait()
    last = await start(stage, api_server)
    for deed in people:
        await deed()

    async def world() -> dict[str, tuple[str, bool, str]]:
        return {name: (one.extra, one.draining, one.reason) for name, one in (await stage.records()).items()}

    def agreed(names: list[str], *, draining: bool, reason: str) -> dict[str, tuple[str, bool, str]]:
        return {name: (f"kurm:{stage.uids[name]}", draining, reason) for name in names}

    expected = agreed(kept[1:], draining=False, reason="") | {foreign: ("", False, "")}
    expected |= agreed([admins], draining=True, reason="fan is loud")
    expected |= agreed(released, draining=True, reason="kurm: scaling in")
    await until(world, expected, within=60)
    for name in released:
        await until(lambda name=name: stage.drained(name))  # type: ignore[misc]
    last.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        assert await last.wait() == 0


async def _there(stage: Stage, name: str) -> bool:
    return name in await stage.records()
