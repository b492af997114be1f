"""What a Kubernetes node says of Slurm, and how little is written for it."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kurm.domain.signals import SLURM_DRAIN, SLURM_READY, SLURM_REASON
from kurm.operator.objects import Node, Pod
from kurm.operator.pods import Told
from kurm.operator.slurmdrain import NO_POD, manifest, untold

BEFORE, NOW = "2026-11-21T17:00:00Z", datetime(2026, 11, 21, 18, tzinfo=UTC)
SERVES = Told(status=False, reason="InService", message="")
DRAINING = Told(status=True, reason="Draining", message="kurm: cordoned: disk errors")
GONE = Told(status=True, reason=NO_POD, message="no slurmd runs there")


def _node(held: Told | None) -> Node:
    conditions = []
    if held is not None:
        said = {"status": str(held.status), "reason": held.reason, "message": held.message}
        conditions.append({"type": SLURM_DRAIN, "lastTransitionTime": BEFORE, **said})
    return msgspec.convert({"metadata": {"name": "n1"}, "status": {"conditions": conditions}}, Node)


def _pod(said: str = "", reason: str = "", *, going: bool = False) -> Pod:
    conditions = [{"type": SLURM_READY, "status": str(said == "InService"), "reason": said}] if said else []
    metadata: dict[str, Any] = {"name": "workers-n1", "annotations": {SLURM_REASON: reason} if reason else {}}
    metadata |= {"deletionTimestamp": BEFORE} if going else {}
    return msgspec.convert({"metadata": metadata, "status": {"conditions": conditions}}, Pod)


@pytest.mark.parametrize(
    ("held", "pod", "expected"),
    [
        (None, None, None),
        (None, _pod(), None),
        (None, _pod("InService"), None),
        (None, _pod("Draining", DRAINING.message), DRAINING),
        (SERVES, _pod("InService"), None),
        (SERVES, _pod("Draining", DRAINING.message), DRAINING),
        (DRAINING, _pod("Draining", DRAINING.message), None),
        (DRAINING, _pod("Draining", DRAINING.message, going=True), None),
        (DRAINING, None, None),
        (DRAINING, _pod(), None),
        (DRAINING, _pod("InService"), SERVES),
        (SERVES, None, GONE),
        (GONE, None, None),
    ],
)
def test_only_what_is_new_is_said(held: Told | None, pod: Pod | None, expected: Told | None) -> None:
    """A node that was never out of service says nothing; one whose pod is replaced says what it said."""
    assert untold(_node(held), pod) == expected


def test_the_time_is_that_of_the_status() -> None:
    """Another reason is no transition; what is taken away is an empty list of ours."""
    drained = Told(status=True, reason="Drained", message=DRAINING.message)
    (one,) = manifest(_node(DRAINING), drained, NOW)["conditions"]
    assert (one["status"], one["reason"], one["lastTransitionTime"]) == ("True", "Drained", BEFORE)
    (one,) = manifest(_node(SERVES), drained, NOW)["conditions"]
    assert one["lastTransitionTime"] == "2026-11-21T18:00:00Z"
    assert manifest(_node(DRAINING), None, NOW) == {"conditions": []}
