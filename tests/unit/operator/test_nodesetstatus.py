"""What a NodeSet's status says, as tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kurm.domain.nodeset import NodeSetStatus
from kurm.domain.selection import Selection
from kurm.operator.conditions import Trouble
from kurm.operator.nodesetstatus import PATIENCE, Facts, differs, infeasible, judge
from kurm.operator.pods import Pod, Slot

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
READY = Pod(ready=True)
LEAVING = Pod(release="scaling in since then")
AWAY = "the syncer of SlurmCluster demo cannot be asked what runs there"


def slots(*pods: Pod | None, wanted: bool = True, start: int = 0) -> list[Slot]:
    """Return claimed nodes with these pods."""
    return [Slot(f"n{start + number}", claimed=True, wanted=wanted, pod=pod) for number, pod in enumerate(pods)]


def judged(
    found: list[Slot], replicas: int | None = None, held: NodeSetStatus | None = None, **facts: Any
) -> NodeSetStatus:
    """Return the status."""
    kept = tuple(slot.node for slot in found if slot.wanted)
    release = tuple(slot.node for slot in found if not slot.wanted)
    given = {"keep": kept, "claim": (), "release": release, "misfits": (), "feasible": len(found), "infeasible": {}}
    chosen = Selection(**given | facts.pop("chosen", {}))
    return judge(Facts(2, held or NodeSetStatus(), replicas, chosen, found, **facts), NOW)


def conditions(status: NodeSetStatus) -> dict[str, tuple[str, str]]:
    """Return status and reason by type."""
    return {one.type: (one.status, one.reason) for one in status.conditions}


def test_as_many_as_are_desired() -> None:
    """Ready, and nothing that is only there while it is True."""
    status = judged(slots(READY, READY), 2)
    assert (status.desired, status.current, status.updated, status.ready, status.unavailable) == (2, 2, 2, 2, 0)
    assert conditions(status) == {"Ready": ("True", "Ready")}


@pytest.mark.parametrize(
    ("found", "facts", "expected"),
    [
        (slots(READY, Pod()), {"replicas": 2}, ("Reconciling", "Starting")),
        (slots(READY, None), {"replicas": 2}, ("Reconciling", "Starting")),
        (slots(READY), {"replicas": 2}, ("Stalled", "TooFewNodes")),
        (slots(), {}, ("Stalled", "NoNodes")),
        (slots(), {"replicas": 0}, None),
        (slots(READY, Pod(ready=True, outdated=True)), {"replicas": 2}, ("Reconciling", "RollingOut")),
        ([*slots(READY), *slots(LEAVING, wanted=False, start=5)], {"replicas": 1}, ("Reconciling", "Draining")),
        ([*slots(READY), *slots(Pod(going=True), wanted=False, start=5)], {"replicas": 1}, ("Reconciling", "Leaving")),
        (slots(LEAVING, wanted=False), {"silent": AWAY, "leaving": True}, ("Reconciling", "SlurmAway")),
        (slots(LEAVING, wanted=False), {"leaving": True}, ("Reconciling", "Draining")),
        (slots(Pod()), {"pod_trouble": Trouble("ErrImagePull", "x")}, ("Stalled", "ErrImagePull")),
        (slots(READY), {"troubles": [Trouble("InvalidSpec", "x")]}, ("Stalled", "InvalidSpec")),
    ],
)
def test_what_keeps_it_from_being_ready(
    found: list[Slot], facts: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    """One condition beside Ready, with the same reason."""
    told = conditions(judged(found, **facts))
    if expected is None:
        assert told == {"Ready": ("True", "Ready")}
    else:
        assert told == {"Ready": ("False", expected[1]), expected[0]: ("True", expected[1])}


@pytest.mark.parametrize(
    ("waited", "word"), [(0.0, "Reconciling"), (PATIENCE - 1, "Reconciling"), (PATIENCE, "Stalled")]
)
def test_a_person_is_called_when_slurm_is_away_for_long(waited: float, word: str) -> None:
    """And it stays so until Slurm is back; nothing is deleted in either case."""
    leaving = slots(LEAVING, wanted=False)
    first = judged(leaving, silent=AWAY, leaving=True)
    (ready, waiting) = first.conditions
    older = msgspec.structs.replace(waiting, last_transition_time=NOW - timedelta(seconds=waited))
    held = msgspec.structs.replace(first, conditions=(ready, older))
    second = judged(leaving, held=held, silent=AWAY, leaving=True)
    assert conditions(second)[word] == ("True", "SlurmAway")
    third = judged(leaving, held=second, silent=AWAY, leaving=True)
    assert conditions(third) == conditions(second)


def test_reasons_are_counted() -> None:
    """The most frequent first, with five nodes as examples."""
    reasons = {f"n{number}": "NotReady" for number in range(7)} | {"a": "Claimed"}
    found = [(one.reason, one.nodes, one.examples) for one in infeasible(reasons)]
    assert found == [("NotReady", 7, ("n0", "n1", "n2", "n3", "n4")), ("Claimed", 1, ("a",))]


def test_the_same_facts_are_no_difference() -> None:
    """Whatever order the API server keeps lists in that are known by a key."""
    status = judged(slots(READY), chosen={"infeasible": {"a": "Claimed", "b": "NotReady"}}, replicas=2)
    turned = msgspec.structs.replace(
        status, conditions=tuple(reversed(status.conditions)), infeasible=tuple(reversed(status.infeasible))
    )
    assert not differs(status, turned)
    assert differs(status, judged(slots(READY, READY), 2))
