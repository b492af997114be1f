"""What is made of Kubernetes' objects: the pod by which a node is decided, and what a node's conditions say."""

from datetime import UTC, datetime

import msgspec
import pytest

from kurm.domain import world
from kurm.domain.causes import Told
from kurm.syncer.objects import Node
from kurm.syncer.pool import decisive, moment

STAYS = world.Pod("stays", ready=True)
RELEASED = world.Pod("released", release="scaling in")
GOES = world.Pod("goes", terminating=True)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((), None),
        ((GOES,), GOES),
        ((GOES, STAYS), STAYS),
        ((RELEASED, STAYS), STAYS),
        ((GOES, RELEASED), RELEASED),
    ],
)
def test_one_that_shall_stay_comes_before_one_that_goes(
    pods: tuple[world.Pod, ...], expected: world.Pod | None
) -> None:
    """Two are on a node only while one takes the other's place."""
    assert decisive(pods) == expected


def test_a_heartbeat_changes_nothing_of_a_node() -> None:
    """The times of its conditions are not read, and nothing is decided by them."""
    beats = [
        {
            "metadata": {"name": "n1"},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "False", "message": "no", "lastHeartbeatTime": time}]
            },
        }
        for time in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z")
    ]
    first, second = (msgspec.convert(one, Node) for one in beats)
    assert first == second
    assert (first.spec.unschedulable, first.told) == (True, {"Ready": Told("False", "no")})


def test_what_is_dead_is_unheard_of_or_said_to_be_out_of_service() -> None:
    """A node that says itself that it is not ready is alive."""
    turned = "2026-01-01T00:00:00Z"

    def node(status: str, *taints: str) -> Node:
        ready = {"type": "Ready", "status": status, "lastTransitionTime": turned}
        spec = {"taints": [{"key": taint, "effect": "NoExecute"} for taint in taints]}
        return msgspec.convert({"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": [ready]}}, Node)

    assert node("Unknown").unheard_since == moment(turned)
    assert node("False").unheard_since is None
    assert node("True", "node.kubernetes.io/out-of-service").out_of_service
    assert not node("Unknown", "node.kubernetes.io/unreachable").out_of_service


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00:00", None),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_a_time_that_is_none_is_no_time(text: str, expected: datetime | None) -> None:
    """An annotation is anybody's to write: what cannot be read requeues nobody."""
    assert expected == moment(text)
