"""What Slurm is told of a node: what is there less the reserve, in whole CPUs and MiB, and no more."""

import re
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.gres import Gres
from kurm.domain.noderecord import MEBIBYTE, NodeRecord, TooFewError, node_record, quantity
from kurm.domain.nodeset import NodeSetSpec


def _spec(**fields: object) -> NodeSetSpec:
    return msgspec.convert({"clusterRef": {"name": "demo"}} | fields, NodeSetSpec)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("15890m", "15.89"),
        ("64Gi", str(64 << 30)),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("2E", "2000000000000000000"),
        ("1.5k", "1500"),
        ("100n", "0.0000001"),
    ],
)
def test_quantities_are_kubernetes(text: str, number: str) -> None:
    """`E` alone is a suffix, before digits an exponent."""
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "Gi", "1KB", "1 Gi", "0x10"])
def test_what_is_no_quantity_is_said(text: str) -> None:
    """A word of nothing would become a node of nothing."""
    with pytest.raises(ValueError, match="is no quantity"):
        quantity(text)


def test_a_record_is_what_is_left_of_the_node() -> None:
    """Whole CPUs, MiB, GRES by device file, the mark of the NodeSet before the user's features."""
    spec = _spec(
        reserve={"cpu": 1, "memory": "1Gi"},
        slurm={"gres": {"nvidia.com/gpu": {"type": "h100"}}, "features": ["fast"], "weight": 7},
    )
    assert node_record("gpu", spec, {"cpu": "15890m", "memory": "64Gi", "nvidia.com/gpu": "8"}) == NodeRecord(
        cpus=14,
        real_memory=63 * 1024,
        gres=(Gres("gpu", "h100", 8, "/dev/nvidia[0-7]"),),
        features=("nodeset:gpu", "fast"),
        weight=7,
    )


@pytest.mark.parametrize(
    ("allocatable", "resource"),
    [
        ({"cpu": "999m", "memory": "1Gi", "nvidia.com/gpu": "1"}, "cpu"),
        ({"cpu": "1", "memory": "512Mi", "nvidia.com/gpu": "1"}, "memory"),
        ({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "0"}, "nvidia.com/gpu"),
        ({"cpu": "1", "memory": "1Gi"}, "nvidia.com/gpu"),
        ({}, "cpu"),
    ],
)
def test_a_node_that_is_too_small_makes_no_record(allocatable: dict[str, str], resource: str) -> None:
    """One whose GPUs are not announced yet would stay without them for the record's life."""
    with pytest.raises(TooFewError) as raised:
        node_record("x", _spec(slurm={"gres": {"nvidia.com/gpu": {}}}), allocatable)
    assert raised.value.resource == resource


def test_a_feature_cannot_pretend_to_be_a_node_sets_mark() -> None:
    """It would put the nodes into another NodeSet's partitions."""
    with pytest.raises(ValueError, match=re.escape("spec.slurm.features: 'nodeset:other' must not begin with")):
        node_record("x", _spec(slurm={"features": ["nodeset:other"]}), {"cpu": "1", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("words", "labels", "features"),
    [
        ({"zone": "zone"}, {"zone": "eu1"}, ("zone-eu1",)),
        ({"zone": ""}, {"zone": "eu1"}, ("eu1",)),
        ({"zone": "zone"}, {"zone": ""}, ("zone",)),
        ({"zone": ""}, {"zone": ""}, ()),
        ({"zone": "zone"}, {}, ()),
        ({"a": "x", "b": "x"}, {"a": "1", "b": "1"}, ("x-1",)),
        ({"zone": "zone"}, {"zone": "eu1,Weight=7"}, ("zone-eu1_Weight_7-df486650a7",)),
        ({"x": ""}, {"x": "own"}, ("own",)),
    ],
)
def test_features_come_from_labels(words: dict[str, str], labels: dict[str, str], features: tuple[str, ...]) -> None:
    """A word and the value; each feature once, after those that are the same on all nodes."""
    spec = _spec(slurm={"features": ["fast", "own"], "featureLabels": words})
    record = node_record("x", spec, {"cpu": "1", "memory": "1Gi"}, labels)
    assert record.features == ("nodeset:x", "fast", "own", *(one for one in features if one != "own"))


def test_the_gres_of_a_claim_stay() -> None:
    """A label that has changed, and a device plugin that is away for a minute, leave the record as it was made."""
    spec = _spec(slurm={"gres": {"nvidia.com/gpu": {}}})
    labels, settled = {"nvidia.com/gpu.product": "H200"}, '{"nvidia.com/gpu":"gpu:h100:8"}'
    room = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "0"}
    assert node_record("x", spec, room, labels, settled=settled).gres == (Gres("gpu", "h100", 8, "/dev/nvidia[0-7]"),)
    with pytest.raises(TooFewError):
        node_record("x", spec, room, labels)


@given(
    cpu=st.integers(0, 300_000),
    memory=st.integers(0, 1 << 44),
    reserve_cpu=st.integers(0, 100),
    reserve_memory=st.integers(0, 1 << 20),
)
def test_slurm_never_has_more_than_the_node(cpu: int, memory: int, reserve_cpu: int, reserve_memory: int) -> None:
    """What the record and the reserve hold together is at most what Kubernetes can give out there."""
    spec = _spec(reserve={"cpu": reserve_cpu, "memory": f"{reserve_memory}Ki"})
    try:
        record = node_record("x", spec, {"cpu": f"{cpu}m", "memory": str(memory)})
    except TooFewError:
        assert cpu < (reserve_cpu + 1) * 1000 or memory < reserve_memory * 1024 + MEBIBYTE
        return
    assert 1000 <= 1000 * record.cpus <= cpu - 1000 * reserve_cpu < 1000 * (record.cpus + 1)
    left = memory - 1024 * reserve_memory
    assert MEBIBYTE <= MEBIBYTE * record.real_memory <= left < MEBIBYTE * (record.real_memory + 1)
