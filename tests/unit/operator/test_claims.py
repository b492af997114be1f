"""A claim is one label and one taint, and nothing of anybody else's."""

import pytest

from kurm.domain.agreement import NODE_SET
from kurm.kube.resources import ObjectMeta
from kurm.operator import claims
from kurm.operator.objects import Node, NodeSpec, Taint

MINE, KEY = "slurm.workers", "kurm.dev/pool"
OURS = Taint(KEY, MINE, "NoSchedule")
FOREIGN = Taint("example.org/x", "y", "NoExecute", "2026-01-01T00:00:00Z")
FENCED = Taint(KEY, "", "NoSchedule")


def node(*taints: Taint, claim: str = "") -> Node:
    """Return a node."""
    labels = {NODE_SET: claim} if claim else {}
    return Node(ObjectMeta("n1", uid="u", resource_version="7", labels=labels), NodeSpec(taints=taints))


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
    patch = claims.taking(node(*before), MINE, KEY)
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7", "labels": {NODE_SET: MINE}}
    written = [
        Taint(one["key"], one.get("value", ""), one["effect"], one.get("timeAdded", ""))
        for one in patch["spec"]["taints"]
    ]
    assert after == written
    assert claims.whole(node(*after, claim=MINE), MINE, KEY)


@pytest.mark.parametrize(
    ("before", "after"), [([OURS], None), ([FOREIGN, OURS], [FOREIGN]), ([FENCED], [FENCED]), ([], None)]
)
def test_giving_up(before: list[Taint], after: list[Taint] | None) -> None:
    """Only what bears our claim goes."""
    patch = claims.giving_up(node(*before, claim=MINE), MINE)
    assert patch["metadata"]["labels"] == {NODE_SET: None}
    found = patch["spec"]["taints"]
    assert (None if after is None else [one.key for one in after]) == (found and [one["key"] for one in found])


@pytest.mark.parametrize("held", [node(OURS), node(claim=MINE), node(OURS, claim="other.set")])
def test_half_a_claim_is_mended(held: Node) -> None:
    """Whoever takes off the label or the taint."""
    assert not claims.whole(held, MINE, KEY)
