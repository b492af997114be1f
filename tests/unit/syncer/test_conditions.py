"""What a pod's conditions say."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kurm.domain.report import Said
from kurm.domain.signals import (
    SLURM_ALLOCATED,
    SLURM_DOWN,
    SLURM_DRAINED,
    SLURM_DRAINING,
    SLURM_JOBS,
    SLURM_JOBS_END,
    SLURM_READY,
    SLURM_REASON,
    SLURM_STATE,
)
from kurm.kube.resources import Condition, ObjectMeta
from kurm.syncer.conditions import annotations, conditions
from kurm.syncer.jobs import Load
from kurm.syncer.objects import Pod, PodStatus

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
IN_SERVICE = Said(ready=True, drained=False, reason="InService", message="")
DRAINING = Said(ready=False, drained=False, reason="Draining", message="kurm: scaling in")
DRAINED = Said(ready=False, drained=True, reason="Drained", message="kurm: scaling in")
DOWN = Said(ready=False, drained=False, reason="Down", message="Not responding")
OVERRIDDEN = Said(ready=True, drained=False, reason="Overridden", message="it was resumed in Slurm although: cordoned")


def pod(*held: Condition) -> Pod:
    """Return a pod with these conditions."""
    return Pod(metadata=ObjectMeta(name="workers-n1"), status=PodStatus(conditions=held))


@pytest.mark.parametrize(
    ("said", "holds", "reasons"),
    [
        (IN_SERVICE, SLURM_READY, ("InService", "NotDraining", "NotDrained", "NotDown")),
        (OVERRIDDEN, SLURM_READY, ("Overridden", "NotDraining", "NotDrained", "NotDown")),
        (DRAINING, SLURM_DRAINING, ("Draining", "Draining", "Draining", "NotDown")),
        (DRAINED, SLURM_DRAINED, ("Drained", "NotDraining", "Drained", "NotDown")),
        (DOWN, SLURM_DOWN, ("Down", "NotDraining", "NotDrained", "Down")),
    ],
)
def test_one_condition_holds_at_a_time(said: Said, holds: str, reasons: tuple[str, ...]) -> None:
    """The others are there, too, and say that they do not: so `kubectl wait` has something to wait for."""
    found = conditions(pod(), said)
    assert [one.type for one in found] == [SLURM_READY, SLURM_DRAINING, SLURM_DRAINED, SLURM_DOWN]
    assert [one.type for one in found if one.status == "True"] == [holds]
    assert tuple(one.reason for one in found) == reasons


def test_annotations_say_what_slurm_says() -> None:
    """One without anything to say is not there, so that an apply takes away what it said before."""
    assert annotations(replace(IN_SERVICE, state="UP")) == {SLURM_STATE: "UP"}
    drained = replace(DRAINED, state="DRAINED", slurm_reason="fan is loud")
    assert annotations(drained) == {SLURM_STATE: "DRAINED", SLURM_REASON: "fan is loud"}
    assert annotations(IN_SERVICE) == {}
    idle = replace(IN_SERVICE, state="UP", allocated=False)
    assert annotations(idle) == {SLURM_STATE: "UP", SLURM_ALLOCATED: "false"}
    some = {SLURM_STATE: "UP", SLURM_ALLOCATED: "true", SLURM_JOBS: "2"}
    assert annotations(idle, Load(2, None)) == some | {SLURM_JOBS_END: "never"}
    assert annotations(idle, Load(2, 1_767_225_600)) == some | {SLURM_JOBS_END: "2026-01-01T00:00:00Z"}


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    """So a condition that says what it said is equal to it, and is not written."""
    held = pod(
        Condition(SLURM_READY, "False", "Draining", "kurm: scaling in", LONG_AGO),
        Condition(SLURM_DRAINING, "True", "Draining", "kurm: scaling in", LONG_AGO),
        Condition(SLURM_DRAINED, "False", "Draining", "", LONG_AGO),
        Condition(SLURM_DOWN, "False", "NotDown", "", LONG_AGO),
    )
    assert conditions(held, DRAINING) == list(held.status.conditions)
    ready, _, drained, _ = conditions(held, DRAINED)
    assert ready.last_transition_time == LONG_AGO
    assert drained.last_transition_time is not None
    assert drained.last_transition_time > LONG_AGO
