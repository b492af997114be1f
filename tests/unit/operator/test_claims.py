"""A claim is one label, one taint and the GRES that are settled with it, and nothing of anybody else's."""

import msgspec
import pytest

from kurm.domain.gres import GRES
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.signals import NODE_SET
from kurm.kube.resources import NodeStatus, ObjectMeta
from kurm.operator import claims
from kurm.operator.objects import Node, NodeSpec, Taint

MINE, KEY = "slurm.workers", "kurm.dev/pool"
OURS = Taint(KEY, MINE, "NoSchedule")
FOREIGN = Taint("example.org/x", "y", "NoExecute", "2026-01-01T00:00:00Z")
FENCED = Taint(KEY, "", "NoSchedule")


PRODUCT = "nvidia.com/gpu.product"
EIGHT = {"nvidia.com/gpu": "8"}


def spec(**slurm: object) -> NodeSetSpec:
    """Return a NodeSet's spec."""
    return msgspec.convert({"clusterRef": {"name": "demo"}, "taintKey": KEY, "slurm": slurm}, NodeSetSpec)


def node(
    *taints: Taint,
    claim: str = "",
    gres: str | None = None,
    allocatable: dict[str, str] | None = None,
    product: str = "",
) -> Node:
    """Return a node; one that is claimed has no GRES if none are given."""
    labels = ({NODE_SET: claim} if claim else {}) | ({PRODUCT: product} if product else {})
    settled = "{}" if gres is None and claim else gres
    annotations = {GRES: settled} if settled else {}
    return Node(
        ObjectMeta("n1", uid="u", resource_version="7", labels=labels, annotations=annotations),
        NodeSpec(taints=taints),
        NodeStatus(allocatable=allocatable or {}),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [OURS]),
        ([FOREIGN], [FOREIGN, OURS]),
        ([FENCED], [FENCED]),
        ([Taint("old", MINE, "NoSchedule")], [OURS]),
        ([OURS, FOREIGN], [OURS, FOREIGN]),
    ],
)
def test_taking(before: list[Taint], after: list[Taint]) -> None:
    """Others' taints stay as they are, with the time at which they came; ours of another key goes."""
    patch = claims.taking(node(*before), MINE, spec())
    version = {"uid": "u", "resourceVersion": "7"}
    assert patch["metadata"] == version | {"labels": {NODE_SET: MINE}, "annotations": {GRES: "{}"}}
    written = [
        Taint(one["key"], one.get("value", ""), one["effect"], one.get("timeAdded", ""))
        for one in patch["spec"]["taints"]
    ]
    assert after == written
    assert claims.whole(node(*after, claim=MINE), MINE, spec())


@pytest.mark.parametrize(
    ("before", "after"), [([OURS], None), ([FOREIGN, OURS], [FOREIGN]), ([FENCED], [FENCED]), ([], None)]
)
def test_giving_up(before: list[Taint], after: list[Taint] | None) -> None:
    """Only what bears our claim goes."""
    patch = claims.giving_up(node(*before, claim=MINE), MINE)
    assert (patch["metadata"]["labels"], patch["metadata"]["annotations"]) == ({NODE_SET: None}, {GRES: None})
    found = patch["spec"]["taints"]
    assert (None if after is None else [one.key for one in after]) == (found and [one["key"] for one in found])


@pytest.mark.parametrize(
    "held", [node(OURS), node(claim=MINE), node(OURS, claim="other.set"), node(OURS, claim=MINE, gres="")]
)
def test_half_a_claim_is_mended(held: Node) -> None:
    """Whoever takes off the label, the taint or the annotation."""
    assert not claims.whole(held, MINE, spec())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (node(product="NVIDIA-H100", allocatable=EIGHT), '{"nvidia.com/gpu":"gpu:nvidia-h100:8"}'),
        (
            node(product="NVIDIA-H200", claim=MINE, gres='{"nvidia.com/gpu":"gpu:nvidia-h100:8"}'),
            '{"nvidia.com/gpu":"gpu:nvidia-h100:8"}',
        ),
        (
            node(claim="other.set", gres='{"nvidia.com/gpu":"gpu:nvidia-h100:8"}', allocatable=EIGHT),
            '{"nvidia.com/gpu":"gpu:8"}',
        ),
        (node(claim=MINE, gres="gpu:8\nName=gpu", allocatable=EIGHT), '{"nvidia.com/gpu":"gpu:8"}'),
        (node(claim=MINE, gres="", allocatable={}), None),
    ],
)
def test_gres_are_settled_by_the_claim(before: Node, after: str | None) -> None:
    """The first that could be told stay; another's, and what we have not written, is nothing to go by."""
    patch = claims.taking(before, MINE, spec(gres={"nvidia.com/gpu": {}}))
    assert patch["metadata"]["annotations"] == {GRES: after}
