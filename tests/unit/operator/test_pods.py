"""What becomes of a NodeSet's nodes and pods, as tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.operator.pods import (
    OUTDATED,
    Claim,
    Create,
    Delete,
    GiveUp,
    Instruction,
    Pod,
    Release,
    Slot,
    Stay,
    plan,
)

IN_SERVICE = Pod(ready=True)
TOLD = "scaling in since 2026-11-21T18:00:00.000Z"
LEAVING = Pod(release=TOLD)
DRAINED = Pod(release=TOLD, answered=True)


def wanted(pod: Pod | None = None, *, claimed: bool = True, whole: bool = True) -> Slot:
    """Return a node that is to stay or to come."""
    return Slot("n1", claimed, whole and claimed, pod=pod)


def unwanted(pod: Pod | None = None, *, claimed: bool = True) -> Slot:
    """Return a node that is to go."""
    return Slot("n1", claimed, claimed, wanted=False, reason="scaling in", pod=pod)


@pytest.mark.parametrize(
    ("slot", "expected"),
    [
        (wanted(claimed=False), [Claim("n1"), Create("n1")]),
        (wanted(), [Create("n1")]),
        (wanted(IN_SERVICE), []),
        (wanted(IN_SERVICE, whole=False), [Claim("n1")]),
        (wanted(Pod()), []),
        (wanted(Pod(going=True)), []),
        (wanted(Pod(over=True)), [Delete("n1", "it has ended")]),
        (wanted(Pod(ready=True, orphaned=True)), [Delete("n1", "its SlurmCluster is gone")]),
        (wanted(LEAVING), [Stay("n1")]),
        (wanted(DRAINED), [Delete("n1", TOLD)]),
        (wanted(Pod(ready=True, outdated=True)), [Release("n1", OUTDATED)]),
        (wanted(Pod(outdated=True)), [Release("n1", OUTDATED)]),
        (wanted(Pod(release=TOLD, outdated=True)), []),
        (unwanted(), [GiveUp("n1")]),
        (unwanted(claimed=False), []),
        (unwanted(IN_SERVICE), [Release("n1", "scaling in")]),
        (unwanted(LEAVING), []),
        (unwanted(DRAINED), [Delete("n1", TOLD)]),
        (unwanted(Pod(over=True)), [Delete("n1", "it has ended")]),
        (unwanted(Pod(going=True)), []),
        (unwanted(Pod(release=TOLD, answered=True, going=True)), []),
    ],
)
def test_one_node(slot: Slot, expected: list[Instruction]) -> None:
    """Each row is one state and what comes next."""
    assert expected == plan([slot], can_make=True, slurm_gone=False)


def test_without_a_slurm_nobody_is_waited_for() -> None:
    """A SlurmCluster that is deleted takes its queue with it: there are no jobs that could be kept."""
    assert plan([unwanted(IN_SERVICE)], can_make=False, slurm_gone=True) == [Delete("n1", "its SlurmCluster is gone")]


def test_what_cannot_be_rendered_is_not_begun() -> None:
    """No node is claimed for a pod that nobody can make; what leaves goes on leaving."""
    slots = [wanted(claimed=False), Slot("n2", claimed=True, wanted=False, reason="scaling in", pod=IN_SERVICE)]
    assert plan(slots, can_make=False, slurm_gone=False) == [Release("n2", "scaling in")]


@pytest.mark.parametrize(
    ("away", "expected"),
    [
        ([], ["n1"]),
        ([Pod()], []),
        ([None], []),
        ([Pod(outdated=True)], ["n9"]),
        ([Pod(ready=True, release="x", outdated=True)], []),
    ],
)
def test_a_new_template_takes_one_node_at_a_time(away: list[Pod | None], expected: list[str]) -> None:
    """None while another one is away; one that is out of service anyway costs nothing."""
    fleet = [Slot(f"n{number}", claimed=True, pod=Pod(ready=True, outdated=True)) for number in (1, 2, 3)]
    fleet += [Slot("n9", claimed=True, pod=pod) for pod in away]
    found = plan(fleet, can_make=True, slurm_gone=False)
    assert expected == [one.node for one in found if isinstance(one, Release)]


PODS = st.builds(
    Pod,
    release=st.sampled_from(["", TOLD]),
    answered=st.booleans(),
    ready=st.booleans(),
    outdated=st.booleans(),
    going=st.booleans(),
)


@given(PODS, st.booleans(), st.booleans())
def test_a_pod_is_deleted_only_when_slurm_has_answered(pod: Pod, is_wanted: bool, can_make: bool) -> None:  # noqa: FBT001
    """Whatever else is so: a pod that runs, of a cluster that is there."""
    slot = Slot("n1", claimed=True, wanted=is_wanted, reason="scaling in", pod=pod)
    for one in plan([slot], can_make=can_make, slurm_gone=False):
        assert not isinstance(one, GiveUp)
        assert not isinstance(one, Delete) or (pod.release and pod.answered and not pod.going)
