"""What a NodeSet's status says, as tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kurm.domain import release
from kurm.domain.nodeset import ClusterRef, NodeSetSpec, NodeSetStatus, UpdateStrategy
from kurm.domain.selection import Selection
from kurm.operator.conditions import Trouble
from kurm.operator.nodesetstatus import PATIENCE, Facts, PodTrouble, again, differs, infeasible, judge, manifest
from kurm.operator.pods import Pod, Slot

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
READY = Pod(ready=True)
LEAVING = Pod(release="scaling in since then")
OUTDATED = Pod(ready=True, outdated=True)
BROKEN = Pod(up=False)
BEFORE = NOW - timedelta(hours=2)
WAITING = Pod(release=release.worded("x", NOW - timedelta(minutes=5)), outdated=True)
LATE = Pod(release=release.worded("x", BEFORE), outdated=True)
REQUEUE = {"when_busy": "requeue"}
ON_DELETE = {"update_strategy": UpdateStrategy(type="OnDelete")}
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
    spec = NodeSetSpec(cluster_ref=ClusterRef("demo"), replicas=replicas, **facts.pop("spec", {}))
    return judge(Facts(2, held or NodeSetStatus(), spec, chosen, found, **facts), NOW)


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
        (slots(Pod()), {"pod_trouble": PodTrouble("n0", Trouble("ErrImagePull", "x"))}, ("Stalled", "ErrImagePull")),
        (slots(READY, None), {"chosen": {"awaited": ("n0",)}}, ("Reconciling", "Choosing")),
        (slots(READY, LATE), {}, ("Stalled", "WaitsTooLong")),
        (slots(LATE, wanted=False), {"leaving": True}, ("Stalled", "WaitsTooLong")),
        (slots(LATE, wanted=False), {"leaving": True, "spec": REQUEUE}, ("Reconciling", "Draining")),
        (slots(OUTDATED), {"spec": ON_DELETE}, None),
        ([Slot("n0", claimed=True, cordoned=True)], {}, ("Reconciling", "Cordoned")),
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


@pytest.mark.parametrize(
    ("found", "facts", "expected"),
    [
        (slots(READY, READY, WAITING, OUTDATED), {}, "2 of 4 nodes updated; waiting for jobs on n2 since 17:55"),
        (
            slots(READY, WAITING),
            {"spec": REQUEUE},
            "1 of 2 nodes updated; waiting for jobs on n1 since 17:55; what still runs at 18:55 is requeued",
        ),
        (
            slots(LATE, OUTDATED),
            {},
            ("0 of 2 nodes updated; waiting for jobs on node n0 since 16:00, longer than spec.busyDeadline (1h)"),
        ),
        (
            slots(BROKEN, OUTDATED),
            {"pod_trouble": PodTrouble("n0", Trouble("ErrImagePull", "no such image"))},
            "1 of 2 nodes updated; stopped at n0: no such image",
        ),
        (
            slots(READY, Pod(), OUTDATED),
            {},
            ("2 of 3 nodes updated; out of service: node n1; spec.updateStrategy.maxUnavailable allows 1"),
        ),
        (
            slots(READY, OUTDATED),
            {"spec": ON_DELETE},
            "1 of 2 nodes updated; node n1 will be when the pod is deleted (OnDelete)",
        ),
        (
            slots(WAITING, wanted=False),
            {},
            "node n0 will be given back when no job is left there since 17:55",
        ),
    ],
)
def test_progress_is_told_in_a_sentence(found: list[Slot], facts: dict[str, Any], expected: str) -> None:
    """As `kubectl rollout status` has it: how many of how many, and what is waited for since when."""
    said = judged(found, **facts).conditions[0].message
    assert said.replace("2026-11-21T", "").replace(":00Z", "") == expected


def test_figures_that_are_not_known_are_not_given() -> None:
    """Nobody reads a zero where nothing is known."""
    assert "allocated" not in manifest(judged(slots(READY)))
    assert manifest(judged(slots(READY), allocated=0))["allocated"] == 0


def test_it_looks_again_when_a_wait_becomes_too_long() -> None:
    """Nothing else would happen at that moment."""
    spec = NodeSetSpec(cluster_ref=ClusterRef("demo"))
    chosen = Selection(keep=("n0", "n1"), claim=(), release=(), misfits=(), feasible=2, infeasible={})
    facts = Facts(1, NodeSetStatus(), spec, chosen, slots(WAITING, LATE))
    assert again(facts, NOW) == timedelta(minutes=55).total_seconds()
