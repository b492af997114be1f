"""What nodes are in Slurm by their labels: places in a topology, features and GRES, on a real slurmctld.

The configuration is the operator's, written to the lab by hand; slurmctld takes it by a reconfigure.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from integration.slurm.lab import CONF, Lab, LabError
from integration.syncer.stage import Stage, until
from kurm.domain.gres import GRES
from kurm.domain.topology import Topology, path
from kurm.kube.apply import Applier
from kurm.kube.resources import NODES, Key, Object
from kurm.operator.render import topology
from kurm.syncer.objects import SLURM_CLUSTERS
from kurm.syncer.syncer import Syncer

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"
TREE = {"type": "tree", "nodeLabels": [ZONE, RACK]}
BLOCK = {"type": "block", "nodeLabels": [RACK], "blockSizes": [2, 4]}


async def ask_for(stage: Stage, kind: dict[str, Any]) -> None:
    """Say in the SlurmCluster what topology it has."""
    metadata = {"name": "demo", "namespace": stage.place}
    await Applier(stage.kube, "test").apply(SLURM_CLUSTERS, {"metadata": metadata, "spec": {"topology": kind}})


async def label(stage: Stage, name: str, **labels: str | None) -> None:
    """Label a node with its zone and its rack."""
    told = {{"zone": ZONE, "rack": RACK}[key]: value for key, value in labels.items()}
    await stage.kube.patch(NODES.of(Object), Key("", name), {"metadata": {"labels": told}})


def configure(lab: Lab, kind: dict[str, Any], nodes: Iterable[dict[str, str]], *, start: bool = False) -> None:
    """Bring the topology of nodes with these labels into force."""
    of = msgspec.convert(kind, Topology)
    lab.write_conf(topology.files(of, {path(of, labels) for labels in nodes})[topology.FILE], topology.FILE)
    lab.write_conf(f"{CONF}TopologyPlugin=topology/{of.type}\n")
    if start:
        lab.stop_controller()
        lab.start_controller()
    else:
        lab.command("scontrol", "reconfigure")


async def places(stage: Stage) -> dict[str, str]:
    """Return the places of all records."""
    return {name: record.topology for name, record in (await stage.records()).items()}


def shown(lab: Lab, kind: str) -> dict[str, str]:
    """Return the nodes of each switch or block, as `scontrol show topology` has them."""
    lines = [dict(word.split("=", 1) for word in line.split()) for line in lab.command(*SHOW).splitlines() if line]
    return {line[kind]: line.get("Nodes", "") for line in lines if kind in line}


SHOW = ("scontrol", "show", "topology")


async def test_a_node_is_where_its_labels_say_and_moves_with_them(stage: Stage, prefix: str) -> None:
    """In a tree: also into a rack that slurmctld has not heard of, without a reconfigure. Features go with it."""
    one, two, three = names = [f"{prefix}{number}" for number in (1, 2, 3)]
    await ask_for(stage, TREE)
    await stage.node_set("workers", featureLabels={ZONE: "zone"})
    configure(stage.lab, TREE, [{ZONE: "eu1", RACK: "r1"}, {ZONE: "eu1", RACK: "r2"}], start=True)
    await stage.claim(names, pods=False)
    await label(stage, one, zone="eu1", rack="r1")
    await label(stage, two, zone="eu1", rack="r2")
    async with stage.syncer():
        expected = {
            one: "default:root:eu1:eu1/r1",
            two: "default:root:eu1:eu1/r2",
            three: "default:root:unlabelled",
        }
        await until(lambda: places(stage), expected)
        assert shown(stage.lab, "SwitchName") == {
            "root": f"{prefix}[1-3]", "eu1": f"{prefix}[1-2]", "eu1/r1": one, "eu1/r2": two, "unlabelled": three,
        }  # fmt: skip
        await label(stage, three, zone="us7", rack="r1")
        await label(stage, two, rack="r1")
        await until(lambda: places(stage), expected | {two: expected[one], three: "default:root:us7:us7/r1"})
        found = shown(stage.lab, "SwitchName")
        assert (found["eu1/r1"], found["eu1/r2"], found["us7/r1"]) == (f"{prefix}[1-2]", "", three)
        assert (await stage.records())[three].features == ("nodeset:workers", "zone-us7")
        stage.lab.command("scontrol", "reconfigure")
        assert shown(stage.lab, "SwitchName")["us7/r1"] == three


async def test_a_block_that_is_not_there_yet_is_waited_for(stage: Stage, prefix: str) -> None:
    """The record is made without its place, and takes jobs of one node; a block that goes is let go of before."""
    one, two = f"{prefix}1", f"{prefix}2"
    await ask_for(stage, BLOCK)
    configure(stage.lab, BLOCK, [{RACK: "r1"}], start=True)
    await stage.claim([one, two], pods=False)
    await label(stage, one, rack="r1")
    await label(stage, two, rack="r2")
    async with stage.syncer() as syncer:
        await until(lambda: places(stage), {one: "default:r1", two: ""})
        await until(stage.marked, {one, two})
        await stage.end_job(await stage.start_job(two))
        await _configured(stage, syncer, [{RACK: "r1"}, {RACK: "r2"}])
        await until(lambda: places(stage), {one: "default:r1", two: "default:r2"})
        assert shown(stage.lab, "BlockName") == {"r1": one, "r2": two, "unlabelled": ""}
        with pytest.raises(LabError):  # slurmctld takes no configuration in which the place of a record is not there
            configure(stage.lab, BLOCK, [{RACK: "r1"}])
        await label(stage, two, rack="r3")
        await until(lambda: places(stage), {one: "default:r1", two: ""})
        await _configured(stage, syncer, [{RACK: "r1"}, {RACK: "r3"}])
        await until(lambda: places(stage), {one: "default:r1", two: "default:r3"})


async def _configured(stage: Stage, syncer: Syncer, nodes: list[dict[str, str]]) -> None:
    configure(stage.lab, BLOCK, nodes)
    syncer._reconfigured()  # the syncer hears it from slurmctld's init, which the lab has not


async def test_from_a_tree_to_blocks_and_to_none(stage: Stage, prefix: str) -> None:
    """A place of the one is none of the other: it is given up at once, so that the other configuration is taken."""
    one = f"{prefix}1"
    await ask_for(stage, TREE)
    configure(stage.lab, TREE, [{ZONE: "eu1", RACK: "r1"}], start=True)
    await stage.claim([one], pods=False)
    await label(stage, one, zone="eu1", rack="r1")
    async with stage.syncer() as syncer:
        await until(lambda: places(stage), {one: "default:root:eu1:eu1/r1"})
        await ask_for(stage, BLOCK)
        await until(lambda: places(stage), {one: ""})
        await _configured(stage, syncer, [{RACK: "r1"}])
        await until(lambda: places(stage), {one: "default:r1"})
        metadata = {"name": "demo", "namespace": stage.place}
        await Applier(stage.kube, "test").apply(SLURM_CLUSTERS, {"metadata": metadata, "spec": {}})
        await until(lambda: places(stage), {one: ""})


async def test_gres_are_those_that_the_node_was_claimed_with(stage: Stage, prefix: str) -> None:
    """Whatever its labels and its device plugin say by then; its pod says what is no longer so."""
    one = f"{prefix}1"
    stage.lab.write_conf(CONF + "GresTypes=gpu\n")
    stage.lab.write_conf(f"NodeName={one} Name=gpu Type=h100 File=/dev/nvidia[0-7]\n", "gres.conf")
    stage.lab.command("scontrol", "reconfigure")
    await stage.node_set("workers", gres={"nvidia.com/gpu": {}})
    await stage.claim([one])
    metadata = {
        "annotations": {GRES: '{"nvidia.com/gpu":"gpu:h100:8"}'},
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"},
    }
    await stage.kube.patch(NODES.of(Object), Key("", one), {"metadata": metadata})
    async with stage.syncer() as syncer:
        await until(stage.marked, {one})
        assert (await stage.records())[one].gres == "gpu:h100:8"
        claim = syncer.pool.claim(one)
        assert claim
        assert claim.outdated == (
            "its record keeps the GRES that it was made with, although: nvidia.com/gpu: the node has none, "
            "and gpu is made of it"
        )
        resources = {"nvidia.com/gpu": "8"}
        status = {"status": {"allocatable": resources, "capacity": resources}}
        await stage.kube.patch(NODES.of(Object), Key("", one), status, subresource="status")

        async def outdated() -> str:
            found = syncer.pool.claim(one)
            return found.outdated if found else ""

        said = "its record keeps gpu:h100:8 for its life, and the node would have gpu:nvidia-h200:8 now"
        await until(outdated, said)
        assert (await stage.records())[one].gres == "gpu:h100:8"
