"""topology.yaml and gres.conf as files: what claimed nodes' labels become, to the letter (see test_golden)."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.noderecord import node_record
from kurm.domain.topology import Topology, path, place
from kurm.operator.render import topology
from kurm.slurm.conf import parse
from unit.operator.render.demo import cluster, configured, node_set

GOLDEN = Path(__file__).parent / "golden"
TREE = {"type": "tree", "nodeLabels": ["topology.kubernetes.io/zone", "example.com/rack"]}
BLOCK = {"type": "block", "nodeLabels": ["example.com/domain"], "blockSizes": [2, 4]}
LABELS = [
    {"topology.kubernetes.io/zone": "eu1", "example.com/rack": "r10", "example.com/domain": "d10"},
    {"topology.kubernetes.io/zone": "eu1", "example.com/rack": "r9", "example.com/domain": "d9"},
    {"topology.kubernetes.io/zone": "eu2", "example.com/rack": "r9", "example.com/domain": "d9"},
    {"topology.kubernetes.io/zone": "eu2"},
    {"topology.kubernetes.io/zone": "true", "example.com/rack": "1", "example.com/domain": "1e3"},
    {},
]


def _same(text: str, name: str) -> None:
    golden = GOLDEN / name
    if os.environ.get("KURM_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), "a renderer has changed: see the first lines of test_golden.py"


@pytest.mark.parametrize("kind", [TREE, BLOCK], ids=["tree", "block"])
def test_topology_is_rendered_as_committed(kind: dict[str, object]) -> None:
    """By the numbers in the names, the unlabelled last; no node stands in it."""
    of = cluster(topology=kind)
    assert of.spec.topology
    found = configured(of, places={path(of.spec.topology, labels) for labels in LABELS})
    _same(found.files["topology.yaml"], f"topology-{kind['type']}.yaml")
    assert parse(found.files["slurm.conf"]).get("TopologyPlugin") == f"topology/{kind['type']}"


def test_gres_are_rendered_as_committed() -> None:
    """By product label and count; a label that is not there, and one that nobody should have written."""
    gpus = node_set("gpus", slurm={"gres": {"nvidia.com/gpu": {}, "example.com/fpga": {}}})
    nodes = [("g1", 8, "NVIDIA-H100-80GB-HBM3"), ("g2", 8, "NVIDIA-H100-80GB-HBM3"), ("g3", 4, "NVIDIA-H100-80GB-HBM3")]
    nodes += [("g4", 8, ""), ("g5", 8, "L4 File=/dev/sda\nName=gpu"), ("g6", 1, "NVIDIA-L4")]
    records = {
        name: node_record(
            "gpus",
            gpus.spec,
            {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": str(count), "example.com/fpga": "2"},
            {"nvidia.com/gpu.product": product},
        )
        for name, count, product in nodes
    }
    found = configured(cluster(), gpus, records=records)
    _same(found.files["gres.conf"], "gres.conf")
    assert parse(found.files["slurm.conf"]).get("GresTypes") == "fpga,gpu"


@pytest.mark.parametrize(
    ("kind", "places"),
    [(None, {("eu1", "eu1/r1")}), (TREE, set()), (TREE, {("unlabelled",)}), (BLOCK, {("unlabelled",)})],
)
def test_an_empty_topology_is_never_applied(kind: dict[str, object] | None, places: set[tuple[str, ...]]) -> None:
    """A plugin without its file would keep slurmctld waiting; the status says why there is none."""
    of = cluster(topology=kind) if kind else cluster()
    found = configured(of, places=places)
    assert "topology.yaml" not in found.files
    assert parse(found.files["slurm.conf"]).get("TopologyPlugin") is None
    note = topology.note(of.spec.topology, places)
    assert note == (f"spec.topology: no claimed node has the label {kind['nodeLabels'][0]}: "  # type: ignore[index]
                    "Slurm runs without a topology" if kind else "")  # fmt: skip


@given(
    st.sampled_from([TREE, BLOCK]),
    st.lists(st.dictionaries(st.sampled_from([*LABELS[0]]), st.text(max_size=80), max_size=3), max_size=6),
)
def test_every_place_is_in_the_file(kind: dict[str, object], nodes: list[dict[str, str]]) -> None:
    """Slurm takes no record in a block that it does not have; and each switch is there once, below one other."""
    of = cluster(topology=kind).spec.topology
    assert isinstance(of, Topology)
    places = {path(of, labels) for labels in nodes}
    files = topology.files(of, places)
    assert files == topology.files(of, sorted(places, reverse=True))
    if not files:
        return
    (found,) = yaml.safe_load(files["topology.yaml"])
    assert (found["topology"], found["cluster_default"]) == ("default", True)
    leaves = {place(of, labels).rpartition(":")[2] for labels in nodes} | {"unlabelled"}
    if of.type == "block":
        assert {one["block"] for one in found["block"]["blocks"]} == leaves
        return
    switches = found["tree"]["switches"]
    names, children = [one["switch"] for one in switches], [one.get("children", "") for one in switches]
    below = [child for text in children for child in text.split(",") if child]
    assert sorted(below) == sorted(set(names) - {"root"})
    assert {name for name, text in zip(names, children, strict=True) if not text} == leaves
