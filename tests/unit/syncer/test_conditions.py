"""What a pod's conditions say."""

from datetime import UTC, datetime

import pytest

from kurm.domain.agreement import Said
from kurm.kube.resources import Condition, ObjectMeta
from kurm.syncer.conditions import conditions
from kurm.syncer.objects import SLURM_DRAINED, SLURM_READY, Pod, PodStatus

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
IN_SERVICE = Said(ready=True, drained=False, reason="InService", message="")
DRAINING = Said(ready=False, drained=False, reason="Draining", message="kurm: scaling in")
DRAINED = Said(ready=False, drained=True, reason="Drained", message="kurm: scaling in")


def pod(*held: Condition) -> Pod:
    """Return a pod with these conditions."""
    return Pod(metadata=ObjectMeta(name="workers-n1"), status=PodStatus(conditions=held))


@pytest.mark.parametrize(
    ("said", "ready", "drained"),
    [
        (IN_SERVICE, ("True", "InService"), ("False", "NotDrained")),
        (DRAINING, ("False", "Draining"), ("False", "Draining")),
        (DRAINED, ("False", "Drained"), ("True", "Drained")),
    ],
)
def test_both_conditions(said: Said, ready: tuple[str, str], drained: tuple[str, str]) -> None:
    """Ready and drained are told apart from both being false."""
    found = conditions(pod(), said)
    assert [(one.type, one.status, one.reason) for one in found] == [(SLURM_READY, *ready), (SLURM_DRAINED, *drained)]


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    """So a condition that says what it said is equal to it, and is not written."""
    held = pod(
        Condition(SLURM_READY, "False", "Draining", "kurm: scaling in", LONG_AGO),
        Condition(SLURM_DRAINED, "False", "Draining", "", LONG_AGO),
    )
    assert conditions(held, DRAINING) == list(held.status.conditions)
    ready, drained = conditions(held, DRAINED)
    assert ready.last_transition_time == LONG_AGO
    assert drained.last_transition_time is not None
    assert drained.last_transition_time > LONG_AGO
