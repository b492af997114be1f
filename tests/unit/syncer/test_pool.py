"""What is made of Kubernetes' objects: the pod by which a node is decided, and what a node's conditions say."""

import msgspec
import pytest

from kurm.domain import agreement
from kurm.domain.causes import Told
from kurm.syncer.objects import Node
from kurm.syncer.pool import decisive

STAYS = agreement.Pod("stays", ready=True)
RELEASED = agreement.Pod("released", release="scaling in")
GOES = agreement.Pod("goes", terminating=True)


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
    pods: tuple[agreement.Pod, ...], expected: agreement.Pod | None
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
