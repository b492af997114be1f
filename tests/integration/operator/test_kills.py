"""Whenever the operator is killed, the end is the same: nothing missing, nothing twice, nothing left over."""

import asyncio
import contextlib
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from integration.operator.stage import IMAGES, OPERATOR, Stage, until
from kurm.domain.signals import RELEASE
from kurm.kube.errors import NotFound
from kurm.kube.resources import Key, Object
from kurm.operator.objects import NODE_SETS, SLURM_CLUSTERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KILLS = 50
OBJECTS = (
    *("ConfigMap/{0}-authorized-keys", "ConfigMap/{0}-config", "ConfigMap/{0}-users", "Deployment/{0}-login"),
    *("Deployment/{0}-syncer", "PersistentVolumeClaim/{0}-controller", "PodDisruptionBudget/{0}-slurmd"),
    *("Role/{0}-syncer", "RoleBinding/{0}-syncer"),
    *("Secret/{0}-keys", "Secret/{0}-ssh-host-keys", "Service/{0}-controller", "Service/{0}-login"),
    *("Service/{0}-slurmd", "ServiceAccount/{0}-syncer", "StatefulSet/{0}-controller"),
)


@asynccontextmanager
async def operator(stage: Stage, folder: Path) -> AsyncIterator[Process]:
    """Run `kurm operator` as its container does, under the same name each time; kill it at the block's end."""
    process = await _start(stage, folder)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _start(stage: Stage, folder: Path) -> Process:
    images = folder / "images.json"
    images.write_bytes(msgspec.json.encode(IMAGES))
    options = {
        "images": str(images),
        "kubeconfig": str(stage.server.kubeconfig(OPERATOR, None)),
        "identity": "kurm-operator-0",
        "port": "0",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with (folder / "operator.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from kurm.cli import main; main()", "operator", *words),
            stdout=log,
            stderr=log,
            stdin=DEVNULL,
        )


@pytest.mark.timeout(600)
async def test_killed_at_random_moments(stage: Stage, tmp_path: Path) -> None:
    """Two clusters are made, scaled, reconfigured, and one of them is deleted, again and again, with a kill at each."""
    dice = random.Random(stage.place)  # noqa: S311 - the seed is the namespace's name
    nodes = await stage.add_nodes(6)
    deeds = _deeds(stage)
    keys: dict[str, str] = {}
    for number in range(KILLS):
        async with operator(stage, tmp_path):
            await asyncio.sleep(dice.uniform(0.5, 2.0))  # it is there after one second
            await deeds[number % len(deeds)]()
            await asyncio.sleep(dice.uniform(0.0, 1.5))
        keys = await _unchanged_keys(stage, keys)
    async with operator(stage, tmp_path) as last:
        for deed in deeds:
            await deed()
        expected = {name.format("demo") for name in OBJECTS} | {f"ClusterRoleBinding/kurm-syncer.{stage.place}.demo"}
        await until(lambda: _names(stage), expected, within=60)
        await until(stage.claimed, dict.fromkeys(nodes, "demos"), within=60)
        await until(lambda: _pods(stage), dict.fromkeys(nodes, ("demos", False)), within=60)
        whole = {"Available": ("True", "Answers"), "Ready": ("True", "Ready")}
        await until(stage.conditions, whole, within=60)
        await until(lambda: stage.node_set_conditions("demos"), {"Ready": ("True", "Ready")}, within=60)
        await _unchanged_keys(stage, keys)
        last.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await last.wait() == 0


def _deeds(stage: Stage) -> "list[Callable[[], Awaitable[None]]]":
    """Return what people do, in an order that can begin anew."""
    storage = {"storage": {"whenDeleted": "Delete"}}
    batch = [{"name": "batch", "nodeSets": ["demos"]}]

    async def made() -> None:
        for name in ("demo", "gone"):
            await stage.cluster(name, controller=storage)
            await stage.node_set(f"{name}s", name, replicas=3)

    async def deleted() -> None:
        for resource, name in ((SLURM_CLUSTERS.of(Object), "gone"), (NODE_SETS.of(Object), "gones")):
            with contextlib.suppress(NotFound):
                await stage.kube.delete(resource, Key(stage.place, name))

    return [
        made,
        lambda: stage.node_set("demos", replicas=1),
        lambda: stage.cluster(controller=storage, partitions=batch),
        lambda: stage.node_set("demos", replicas=3),
        deleted,
        lambda: stage.cluster(controller=storage | {"annotations": {"a": "b"}}, partitions=batch),
        lambda: stage.node_set("demos", annotations={"new": "template"}),
    ]


async def _names(stage: Stage) -> set[str]:
    return set(await stage.made())


async def _pods(stage: Stage) -> dict[str, tuple[str, bool]]:
    return {
        node: (pod.metadata.owner_references[0].name, RELEASE in pod.metadata.annotations)
        for node, pod in (await stage.pods()).items()
    }


async def _unchanged_keys(stage: Stage, known: dict[str, str]) -> dict[str, str]:
    """Keys are made once: return the versions of demo's Secrets, which are those that are known already."""
    found = {name: version for name, version in (await stage.made()).items() if name.startswith("Secret/demo")}
    assert known.items() <= found.items()
    return found
