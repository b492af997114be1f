"""Nodes' devices and labels in Slurm's configuration, on a real API server, with devices simulated on node status."""

import asyncio
from typing import Any

import yaml

from integration.operator.stage import Stage, until
from kurm.domain.gres import GRES
from kurm.kube.resources import Key
from kurm.operator.objects import ALL_NODES, CONTENT_MAPS
from kurm.operator.settling import MOST

RACK = "example.com/rack"
TREE = {"type": "tree", "nodeLabels": [RACK]}
PRODUCT = "nvidia.com/gpu.product"


async def devices(stage: Stage, node: str, number: int, product: str | None = None) -> None:
    """Give a node so many GPUs, as the device plugin and GPU Feature Discovery do; a product if one is given."""
    resources = {"nvidia.com/gpu": str(number)}
    key, status = Key("", node), {"allocatable": resources, "capacity": resources}
    if product is not None:
        await stage.kube.patch(ALL_NODES, key, {"metadata": {"labels": {PRODUCT: product}}})
    await stage.kube.patch(ALL_NODES, key, {"status": status}, subresource="status")


async def label(stage: Stage, node: str, rack: str | None) -> None:
    """Say in which rack a node is."""
    await stage.kube.patch(ALL_NODES, Key("", node), {"metadata": {"labels": {RACK: rack}}})


async def configuration(stage: Stage) -> dict[str, str]:
    """Return Slurm's files."""
    return dict((await stage.kube.get(CONTENT_MAPS, Key(stage.place, "demo-config"))).data)


async def gres(stage: Stage) -> list[str]:
    """Return the lines of gres.conf, without the nodes' common beginning."""
    lines = (await configuration(stage))["gres.conf"].splitlines()
    return [line.replace(f"{stage.place}-", "") for line in lines if not line.startswith("#")]


async def switches(stage: Stage) -> dict[str, str] | None:
    """Return the children of each switch; None without a topology."""
    text = (await configuration(stage)).get("topology.yaml")
    if text is None:
        return None
    found: list[dict[str, Any]] = yaml.safe_load(text)[0]["tree"]["switches"]
    return {one["switch"]: one.get("children", "") for one in found}


async def settled(stage: Stage, node: str) -> str | None:
    """Return the GRES that stand on a node."""
    return (await stage.kube.get(ALL_NODES, Key("", node))).metadata.annotations.get(GRES)


async def test_gres_conf_is_of_the_devices_that_nodes_were_claimed_with(stage: Stage) -> None:
    """A node without a device is not claimed; a label that changes and a device plugin that is away change nothing."""
    one, two, three = await stage.add_nodes(3)
    await devices(stage, one, 8, "NVIDIA-H100-80GB-HBM3")
    await devices(stage, two, 4)
    await stage.cluster()
    await stage.node_set(slurm={"gres": {"nvidia.com/gpu": {}}})
    eight, four = "gpu:nvidia-h100-80gb-hbm3:8", "gpu:4"
    lines = [
        "NodeName=n1 Name=gpu File=/dev/nvidia[0-3]",
        "NodeName=n0 Name=gpu Type=nvidia-h100-80gb-hbm3 File=/dev/nvidia[0-7]",
    ]
    async with stage.operator():
        await until(lambda: gres(stage), lines)
        assert (await configuration(stage))["slurm.conf"].count("GresTypes=gpu\n") == 1
        assert [await settled(stage, node) for node in (one, two, three)] == [
            f'{{"nvidia.com/gpu":"{eight}"}}',
            f'{{"nvidia.com/gpu":"{four}"}}',
            None,
        ]
        infeasible = (await stage.get_node_set()).status.infeasible
        assert [(each.reason, each.examples) for each in infeasible if three in each.examples] == [
            ("TooFew/nvidia.com/gpu", (three,))
        ]
        await devices(stage, one, 0, "NVIDIA-H200")
        await devices(stage, two, 4, "NVIDIA-L40")
        await devices(stage, three, 1, "NVIDIA-L4")  # the last change: what is rendered now, is of all of them
        await until(lambda: gres(stage), [*lines, "NodeName=n2 Name=gpu Type=nvidia-l4 File=/dev/nvidia0"])
        assert await settled(stage, one) == f'{{"nvidia.com/gpu":"{eight}"}}'
        await stage.node_set(slurm={"gres": {"nvidia.com/gpu": {}}}, nodeSelector={"stage": "none"})
        await until(lambda: settled(stage, one), None)
        await until(lambda: gres(stage), [])


async def test_many_relabelled_nodes_are_one_configuration(stage: Stage) -> None:
    """Thirty get a rack, all within a moment; until then Slurm runs without a topology, and the status says why."""
    nodes = await stage.add_nodes(30)
    await stage.cluster(topology=TREE)
    await stage.node_set(replicas=30)

    async def ready() -> str:
        found = [one.message for one in (await stage.get_cluster()).status.conditions if one.type == "Ready"]
        return found[0] if found else ""

    async with stage.operator():
        await until(stage.claimed, dict.fromkeys(nodes, "workers"))
        note = f"spec.topology: no claimed node has the label {RACK}: Slurm runs without a topology"
        await until(lambda: _holds(ready, note))
        assert await switches(stage) is None
        await asyncio.sleep(MOST)  # all that came with the claims is over
        versions: set[str] = set()
        watching = asyncio.create_task(_watch(stage, versions))
        await asyncio.gather(*(label(stage, node, f"r{number % 3}") for number, node in enumerate(nodes)))
        racks = {"root": "r0,r1,r2,unlabelled", "r0": "", "r1": "", "r2": "", "unlabelled": ""}
        await until(lambda: switches(stage), racks)
        await asyncio.sleep(3)
        watching.cancel()
        assert len(versions) == 2  # the one before, and the one after
        await until(lambda: _holds(ready, note), expected=False)
        for node in nodes:
            await label(stage, node, None)
        await until(lambda: switches(stage), None)


async def _watch(stage: Stage, versions: set[str]) -> None:
    while True:
        versions.add((await configuration(stage))["kurm-hash"])
        await asyncio.sleep(0.1)


async def _holds(what: Any, part: str) -> bool:
    return part in await what()
