"""What becomes of a NodeSet's nodes and pods, as tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.operator.pods import (
    OUTDATED,
    Claim,
    Create,
    Delete,
    Expose,
    GiveUp,
    Instruction,
    Pod,
    Protect,
    Release,
    Requeue,
    Slot,
    Stay,
    Tell,
    Told,
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
        (wanted(Pod(release=TOLD, outdated=True, requeue_due="T")), [Requeue("n1", "T")]),
        (wanted(Pod(release=TOLD, outdated=True, requeue_at="T")), [Requeue("n1", "")]),
        (wanted(Pod(up=False, outdated=True)), [Release("n1", OUTDATED)]),
        (unwanted(), [GiveUp("n1")]),
        (unwanted(Pod(release=TOLD, requeue_at="T", requeue_due="U")), [Requeue("n1", "U")]),
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


def test_of_nodes_that_are_out_the_newest_pod_goes_first() -> None:
    """It may have been renewed just now: then its node is out because of us, and another would be one too many."""
    slots = [Slot(f"n{made}", claimed=True, pod=Pod(outdated=True, made=made)) for made in (1, 3, 2)]
    found = plan(slots, can_make=True, slurm_gone=False)
    assert [Release("n3", OUTDATED)] == [one for one in found if isinstance(one, Release)]


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


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (Pod(ready=True), []),
        (Pod(ready=True, protected=False), [Protect("n1")]),
        (Pod(proven=True), [Expose("n1")]),
        (Pod(proven=True, protected=False), []),
        (Pod(protected=False), [Protect("n1")]),
        (Pod(proven=True, going=True), []),
        (Pod(proven=True, release=TOLD, answered=True), [Delete("n1", TOLD)]),
        (None, []),
    ],
)
def test_a_cordoned_node(pod: Pod | None, expected: list[Instruction]) -> None:
    """Its pod may be evicted while Slurm says that nothing runs there, and is made anew after the cordon only."""
    assert plan([Slot("n1", claimed=True, pod=pod, cordoned=True)], can_make=True, slurm_gone=False) == expected


def test_a_pod_is_exposed_for_a_cordon_only() -> None:
    """Drained for another reason it stays: nobody has asked for its node to be emptied."""
    proven = Pod(proven=True, ready=True)
    assert plan([wanted(proven)], can_make=True, slurm_gone=False) == []
    exposed = Pod(proven=True, ready=True, protected=False)
    assert plan([wanted(exposed)], can_make=True, slurm_gone=False) == [Protect("n1")]


def test_a_claimed_node_is_told() -> None:
    """Until it is given up: then its condition goes with the claim."""
    told = Told(status=True, reason="Draining", message="kurm: cordoned")
    claimed = Slot("n1", claimed=True, pod=IN_SERVICE, untold=told)
    assert plan([claimed], can_make=True, slurm_gone=False) == [Tell("n1", told)]
    given_up = Slot("n1", claimed=True, wanted=False, untold=told)
    assert plan([given_up], can_make=True, slurm_gone=False) == [GiveUp("n1")]


def test_while_it_is_not_known_what_a_pod_is_to_be_none_is_told_to_stay() -> None:
    """It may have been told to go because it is outdated."""
    assert plan([wanted(LEAVING)], can_make=False, slurm_gone=False) == []


PODS = st.builds(
    Pod,
    release=st.sampled_from(["", TOLD]),
    answered=st.booleans(),
    ready=st.booleans(),
    up=st.booleans(),
    outdated=st.booleans(),
    going=st.booleans(),
    proven=st.booleans(),
    protected=st.booleans(),
)


@given(PODS, *[st.booleans()] * 3)
def test_a_pod_is_deleted_only_when_slurm_has_answered(
    pod: Pod,
    is_wanted: bool,  # noqa: FBT001
    can_make: bool,  # noqa: FBT001
    cordoned: bool,  # noqa: FBT001
) -> None:
    """Whatever else is so: a pod that runs, of a cluster that is there. Nor is any other given to the eviction API."""
    slot = Slot("n1", claimed=True, wanted=is_wanted, reason="scaling in", pod=pod, cordoned=cordoned)
    found = plan([slot], can_make=can_make, slurm_gone=False)
    for one in found:
        assert not isinstance(one, GiveUp)
        assert not isinstance(one, Delete) or (pod.release and pod.answered and not pod.going)
        assert not isinstance(one, Expose) or (pod.proven and cordoned)
    deleted = any(isinstance(one, Delete) for one in found)
    if not pod.protected and not (pod.proven and cordoned) and not pod.going and not deleted:
        assert Protect("n1") in found
