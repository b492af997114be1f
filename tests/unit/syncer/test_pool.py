"""What is made of Kubernetes' objects: the pod by which a node is decided, and what a node's conditions say."""

from datetime import UTC, datetime

import msgspec
import pytest

from kurm.domain import agreement
from kurm.domain.causes import Told
from kurm.kube.resources import Condition, ObjectMeta
from kurm.syncer.objects import RELEASE, Node, Pod, PodStatus
from kurm.syncer.pool import decisive

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAYS = Pod(
    metadata=ObjectMeta(name="workers-n1", uid="stays"), status=PodStatus(conditions=(Condition("Ready", "True"),))
)
RELEASED = Pod(metadata=ObjectMeta(name="workers-n1", uid="released", annotations={RELEASE: "scaling in"}))
GOES = Pod(metadata=ObjectMeta(name="workers-n1", uid="goes", deletion_timestamp=NOW))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((), None),
        ((GOES,), agreement.Pod("goes", terminating=True)),
        ((GOES, STAYS), agreement.Pod("stays", ready=True)),
        ((RELEASED, STAYS), agreement.Pod("stays", ready=True)),
        ((GOES, RELEASED), agreement.Pod("released", release="scaling in")),
    ],
)
def test_one_that_shall_stay_comes_before_one_that_goes(pods: tuple[Pod, ...], expected: agreement.Pod | None) -> None:
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
