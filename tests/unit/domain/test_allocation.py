"""The life of an allocation, step by step."""

from dataclasses import replace

from kurm.domain.allocation import (
    BIND_WITHIN,
    LOST_WITHIN,
    REPLACE_WITHIN,
    Stage,
    decide,
    stage,
)
from kurm.domain.making import VOLUMES_LOOK, VOLUMES_WITHIN
from kurm.domain.owner import Health, Job, Making, Obstacle, Phase, Pod, Snapshot
from kurm.domain.steps import (
    Allocate,
    Amend,
    Bind,
    Cancel,
    Doom,
    EndPod,
    Look,
    LookBack,
    Pin,
    Prepare,
    Report,
    Submit,
    Tell,
    Wait,
)

WELL = {"n1": Health.WELL, "n2": Health.WELL}
WAITS = Pod("a")
BOUND = Pod("a", "n1", job=5, epoch="e")
RUNS = Job(5, Phase.RUNNING, ("n1",), {"n1": 1})
PENDING = Snapshot((WAITS,), epoch="e", nodes=WELL)
AT_HOME = Snapshot((BOUND,), (RUNS,), epoch="e", nodes=WELL)
SILENT = Wait(10.0, "node n1 is silent: what ran there may run on")
GANG = tuple(Pod(name) for name in "abc")
GRANTED = Snapshot(GANG, (Job(7, Phase.RUNNING, ("n1", "n2"), {"n1": 2, "n2": 1}),), wanted=3, epoch="e", nodes=WELL)


def test_a_life_without_trouble() -> None:
    """Room, a job, its node, the bind; and when the pod is gone, the end of the job."""
    unseen = Job(5, Phase.RUNNING)
    life = [PENDING, replace(PENDING, jobs=(unseen,)), replace(PENDING, jobs=(RUNS,)), AT_HOME]
    life += [replace(AT_HOME, pods=()), Snapshot(epoch="e")]
    expected = [
        (Stage.PENDING, [Allocate()]),
        (Stage.GRANTED, [Look(5)]),
        (Stage.GRANTED, [Bind("a", 5, "n1", 0)]),
        (Stage.BOUND, []),
        (Stage.RELEASING, [Cancel(5, "its pods are gone")]),
        (Stage.GONE, []),
    ]
    assert expected == [(stage(seen), decide(seen)) for seen in life]


def test_without_room_it_waits_in_the_queue() -> None:
    """It asks once, and keeps its place; what its job excludes is kept up to date."""
    queued = replace(PENDING, jobs=(Job(5, Phase.QUEUED),))
    told = Tell("SlurmQueue", "waits in Slurm's queue as job 5")
    assert [Submit()] == decide(replace(PENDING, room=False))
    assert [Tell("SlurmAway", "Slurm's nodes are being read")] == decide(replace(PENDING, room=None))
    assert [told] == decide(queued)
    assert [Amend(5), told] == decide(replace(queued, outdated=True))


def test_what_is_unknown_is_left_alone() -> None:
    """Neither asked for again nor given back; whoever waits is told why."""
    assert [Tell("SlurmAway", "no answer")] == decide(replace(PENDING, jobs=None, problem="no answer"))
    assert decide(replace(AT_HOME, jobs=None)) == []


def test_an_obstacle_gives_back_what_was_asked() -> None:
    """An incomplete gang, or a refused pod, holds nothing."""
    obstacle = Obstacle("GangIncomplete", "1 of 3 pods are there", 5.0)
    seen = replace(PENDING, jobs=(Job(5, Phase.QUEUED),), obstacle=obstacle)
    expected = [Cancel(5, obstacle.message), Tell("GangIncomplete", obstacle.message), Wait(5.0, obstacle.message)]
    assert expected == decide(seen)


def test_an_ended_job_ends_its_pod_and_a_forgotten_one_is_pinned() -> None:
    """They look alike from here: a bound pod without a job. The epoch tells, and Slurm's word for the end."""
    lost = replace(AT_HOME, jobs=())
    assert [LookBack(5)] == decide(lost)
    ended = replace(lost, ended={5: "CANCELLED"})
    assert [EndPod("a", "SlurmJobEnded", "Slurm job 5 has ended: CANCELLED")] == decide(ended)
    assert [Pin("n1", 1, ("a",))] == decide(replace(lost, epoch="later"))
    assert [Pin("n1", 1, ("a",))] == decide(replace(lost, ended={5: "NODE_FAIL"}))


def test_a_pod_whose_node_is_silent_is_left_as_it_is() -> None:
    """Slurm has ended its job; whether the pod is pinned or gone is known when the node is back, or dead."""
    lost = replace(AT_HOME, jobs=(), ended={5: "NODE_FAIL"}, nodes={"n1": Health.SILENT})
    assert decide(lost) == [SILENT]
    assert [Pin("n1", 1, ("a",))] == decide(replace(lost, nodes=WELL))
    assert decide(replace(lost, nodes={"n1": Health.DEAD})) == []


def test_a_node_on_which_slurm_starts_nothing_is_waited_for() -> None:
    """What the pod has lost there is given to nobody, so it runs on; also if there was no room a moment ago."""
    lost = replace(
        AT_HOME,
        jobs=(),
        epoch="later",
        taken=frozenset({"n1"}),
        closed={"n1": "node n1 is DOWN in Slurm: no reason is given"},
    )
    assert [Wait(3.0, "node n1 is DOWN in Slurm: no reason is given")] == decide(lost)
    assert [Pin("n1", 1, ("a",))] == decide(replace(lost, closed={}, taken=frozenset()))


def test_a_share_that_was_given_away_ends_the_pod() -> None:
    """It could be pinned never more; somebody else's job is there."""
    seen = replace(AT_HOME, jobs=(), epoch="later", taken=frozenset({"n1"}))
    (end,) = decide(seen)
    assert isinstance(end, EndPod)
    assert (end.pod, end.reason) == ("a", "SlotTaken")


def test_of_two_jobs_the_one_stays_by_which_the_pod_is_bound() -> None:
    """Also if the other one is older, as one that slurmctld has revived."""
    revived = Job(3, Phase.RUNNING, ("n2",), {"n2": 1})
    assert [Cancel(3, "another job stands for the same pods")] == decide(replace(AT_HOME, jobs=(revived, RUNS)))


def test_preemption_takes_as_long_as_there_is_grace() -> None:
    """The pod gets what is left; when it is gone, so is the job, without waiting for the rest."""
    taken = replace(RUNS, ends_at=130.0)
    seen = replace(AT_HOME, jobs=(taken,), now=100.0)
    assert [EndPod("a", "PreemptedBySlurm", "Slurm takes back job 5", within=30.0)] == decide(seen)
    assert decide(replace(seen, pods=(replace(BOUND, leaving=True),))) == []
    assert [Cancel(5, "it makes room for another")] == decide(replace(seen, pods=()))


def test_a_silent_node_holds_what_ran_there() -> None:
    """The pod is gone from Kubernetes, and its containers may run on: until the node is back, or dead."""
    gone = replace(AT_HOME, pods=(), nodes={"n1": Health.SILENT})
    assert decide(gone) == [SILENT]
    assert [Cancel(5, "its pods are gone")] == decide(replace(gone, nodes={"n1": Health.DEAD}))


def test_terminating_for_ever_is_told_or_resolved() -> None:
    """Its node is dead, whether Slurm has noticed or not: by policy it is deleted by force, or a person is told."""
    silent = replace(AT_HOME, pods=(replace(BOUND, leaving=True),), nodes={"n1": Health.SILENT})
    assert decide(silent) == [SILENT]
    for jobs in ((RUNS,), ()):
        stuck = replace(silent, jobs=jobs, nodes={"n1": Health.DEAD})
        (told,) = decide(stuck)
        assert isinstance(told, Report)
        (forced,) = decide(replace(stuck, force=True))
        assert isinstance(forced, EndPod)
        assert forced.within == 0.0


def test_a_node_that_is_deleted_or_no_longer_ours_ends_nothing_by_force() -> None:
    """Kubernetes deletes the pods of a node that is gone; one that has left the NodeSet may be as alive as before."""
    leaving = replace(AT_HOME, pods=(replace(BOUND, leaving=True),), nodes={}, force=True)
    assert decide(leaving) == []
    assert decide(replace(leaving, jobs=())) == []


def test_a_granted_node_that_became_unfit_is_given_back() -> None:
    """Cordoned since, or full by its kubelet's account: the pod asks anew, and avoids it."""
    seen = replace(PENDING, jobs=(RUNS,), unfit={"n1": "it is cordoned"})
    assert [Cancel(5, "node n1: it is cordoned", avoid=("n1",))] == decide(seen)


def test_a_grant_that_cannot_be_used_is_given_back_in_time() -> None:
    """Whatever keeps the API server from binding: the nodes are not to lie idle for it."""
    seen = replace(PENDING, jobs=(RUNS,), now=BIND_WITHIN + 1)
    assert [Cancel(5, "its pods could not be bound in 60 s")] == decide(seen)


def test_a_gang_is_bound_in_the_order_of_its_nodes() -> None:
    """Several pods share a node, and one with a rank has its own slot."""
    assert [Bind("a", 7, "n1", 0), Bind("b", 7, "n1", 1), Bind("c", 7, "n2", 2)] == decide(GRANTED)
    ranked = tuple(Pod(name, rank=2 - index) for index, name in enumerate("abc"))
    assert {("a", 2), ("b", 1), ("c", 0)} == {
        (act.pod, act.slot) for act in decide(replace(GRANTED, pods=ranked)) if isinstance(act, Bind)
    }


def test_a_replacement_takes_the_free_slot() -> None:
    """The others are not touched."""
    pods = (Pod("a", "n1", 7, "e", rank=0), Pod("d"), Pod("c", "n2", 7, "e", rank=2))
    assert [Bind("d", 7, "n1", 1)] == decide(replace(GRANTED, pods=pods))


def test_a_replacement_in_a_gang_that_was_pinned_again_takes_what_is_free_under_its_rank() -> None:
    """Pins come in any order, so the slots' numbers are no ranks; who has the rank is waited for all the same."""
    others = (Pod("a", "n1", 9, "e", rank=0), Pod("b", "n2", 8, "e", rank=1))
    pins = (
        Job(8, Phase.RUNNING, ("n2",), {"n2": 2}, pinned=True),
        Job(9, Phase.RUNNING, ("n1",), {"n1": 1}, pinned=True),
    )
    seen = replace(GRANTED, pods=(*others, Pod("d", rank=2)), jobs=pins)
    assert [Bind("d", 8, "n2", 2)] == decide(seen)
    old = Pod("c", "n2", 8, "e", rank=2, leaving=True)
    assert [act for act in decide(replace(seen, pods=(*seen.pods, old))) if isinstance(act, Bind)] == []


def test_a_pin_stands_by_for_who_comes_in_the_place_of_its_only_pod() -> None:
    """It is given back if the gang has slots enough without it, or needs none there any more."""
    here, there = (Job(job, Phase.RUNNING, (node,), {node: 1}, pinned=True) for job, node in ((8, "n1"), (9, "n2")))
    seen = replace(GRANTED, pods=(Pod("a", "n1", 8, "e", rank=0),), jobs=(here, there), wanted=2)
    assert decide(seen) == []
    assert [Bind("d", 9, "n2", 1)] == decide(replace(seen, pods=(*seen.pods, Pod("d", rank=1))))
    spare = [Cancel(9, "another job stands for the same pods")]
    assert spare == decide(replace(seen, finished=1))
    assert spare == decide(replace(seen, jobs=(replace(here, slots={"n1": 2}), there)))


def test_a_gang_whose_others_have_ended_for_good_begins_anew_without_them() -> None:
    """It keeps a slot for each rank, and nobody waits for those that come no more."""
    left = (Pod("b", rank=1), Pod("c", rank=2))
    seen = replace(GRANTED, pods=left, finished=1)
    assert [Bind("b", 7, "n1", 1), Bind("c", 7, "n2", 2)] == decide(seen)
    assert [Cancel(7, "it does not fit its pods any more")] == decide(replace(seen, pods=left[:1]))
    pinned = replace(seen, jobs=(Job(8, Phase.RUNNING, ("n1",), {"n1": 2}, pinned=True),), partial_since=0.0)
    bound = (Pod("b", "n1", 8, "e", rank=1), Pod("c", rank=2))
    assert Bind("c", 8, "n1", 2) in decide(replace(pinned, pods=bound, now=LOST_WITHIN))
    assert Doom(8) not in decide(replace(pinned, pods=bound, now=LOST_WITHIN))


def test_a_pod_is_bound_when_its_volumes_are_there() -> None:
    """They are made once its node is known; meanwhile it says what it waits for, and nobody waits for it."""
    waits = replace(PENDING, pods=(Pod("a", claims="data"),), jobs=(RUNS,), now=10.0)
    begun = Pod("a", claims="data", making=Making(5, "n1", since=9.0))
    assert [Prepare("a", 5, "n1")] == decide(waits)
    told = Tell("VolumeBinding", "claim data waits for a volume that node n1 can reach")
    assert [told, Wait(VOLUMES_LOOK, "volumes are being made")] == decide(replace(waits, pods=(begun,)))
    assert [Bind("a", 5, "n1", 0)] == decide(replace(waits, pods=(replace(begun, claims=""),)))
    assert [Prepare("a", 6, "n1")] == decide(replace(waits, pods=(begun,), jobs=(replace(RUNS, id=6),)))


def test_a_node_for_which_no_volume_is_made_is_given_back() -> None:
    """In time, or at once if the provisioner says so; with an event and a condition. A gang that runs in part waits."""
    making = Making(5, "n1", since=0.0)
    late = replace(PENDING, pods=(Pod("a", claims="data", making=making),), jobs=(RUNS,), now=VOLUMES_WITHIN + 1)
    why = "claim data has got no volume that node n1 can reach: not within 40 s"
    expected = [Report("a", "VolumeNotMade", why), Tell("VolumeNotMade", why), Cancel(5, why, avoid=("n1",))]
    assert expected == decide(late)
    refused = replace(late, pods=(Pod("a", claims="data", making=replace(making, refused=True)),), now=1.0)
    why = "claim data has got no volume that node n1 can reach: its provisioner refuses that"
    assert Cancel(5, why, avoid=("n1",)) == decide(refused)[-1]
    others = Pod("b", "n1", 5, "e", rank=0), replace(late.pods[0], rank=1)
    gang = replace(late, pods=others, jobs=(replace(RUNS, slots={"n1": 2}),), wanted=2)
    assert Prepare("a", 5, "n1") in decide(gang)
    assert not any(isinstance(act, Cancel) for act in decide(gang))


def test_a_gang_is_bound_when_the_volumes_of_all_are_there() -> None:
    """None of it before: one whose volume is never made would hold up those that run."""
    pods = Pod("a"), Pod("b", claims="data"), Pod("c")
    assert [Prepare("b", 7, "n1")] == decide(replace(GRANTED, pods=pods))


def test_the_pods_of_a_gang_go_where_their_volumes_are() -> None:
    """Each to a slot of its own node, whatever their order; a grant that lacks one is given back, and asked anew."""
    pods = (Pod("a", beyond=frozenset({"n1"})), Pod("b", beyond=frozenset({"n2"})), Pod("c"))
    assert decide(replace(GRANTED, pods=pods)) == [Bind("a", 7, "n2", 2), Bind("b", 7, "n1", 0), Bind("c", 7, "n1", 1)]
    lacking = (*pods[:2], Pod("c", beyond=frozenset({"n1"})))
    words = "from its nodes not all pods of the gang can reach their volumes"
    assert decide(replace(GRANTED, pods=lacking)) == [Cancel(7, words)]
    nobody = tuple(replace(pod, beyond=frozenset({"n1"})) for pod in pods)
    assert decide(replace(GRANTED, pods=nobody)) == [Cancel(7, words, avoid=("n1",))]


def test_a_pod_stays_where_its_volume_is_being_made() -> None:
    """When that of another one of its gang is there, and that one can go to fewer nodes than before."""
    slots = {"n1": 1, "n2": 1, "n3": 1}
    granted = replace(GRANTED, jobs=(Job(7, Phase.RUNNING, tuple(slots), slots),))
    begun = [Making(7, node, since=0.0) for node in slots]
    pods = tuple(Pod(name, claims="data", making=making) for name, making in zip("abc", begun, strict=True))
    made = (*pods[:2], replace(pods[2], claims="", beyond=frozenset({"n2"})))
    told = decide(replace(granted, pods=made))
    assert {type(step) for step in told} == {Tell, Wait}
    done = tuple(replace(pod, claims="") for pod in made)
    binds = [Bind("a", 7, "n1", 0), Bind("b", 7, "n2", 1), Bind("c", 7, "n3", 2)]
    assert binds == sorted(decide(replace(granted, pods=done)), key=lambda bind: bind.pod)  # type: ignore[union-attr]


def test_a_gang_that_is_not_whole_in_time_is_undone() -> None:
    """Bound pods end, then the job; whoever replaces them waits for a new one."""
    bound = (Pod("a", "n1", 7, "e", rank=0), Pod("b", "n1", 7, "e", rank=1))
    seen = replace(GRANTED, pods=bound, partial_since=0.0, now=10.0)
    assert [Wait(REPLACE_WITHIN - 10, "the gang is not whole yet")] == decide(seen)
    assert [Doom(7)] == decide(replace(seen, now=REPLACE_WITHIN))
    doomed = replace(seen, jobs=(replace(GRANTED.jobs[0], doomed=True),) if GRANTED.jobs else ())
    assert [act.pod for act in decide(doomed) if isinstance(act, EndPod)] == ["a", "b"]
    waiting = replace(doomed, pods=GANG)
    assert [Cancel(7, "its pods are gone"), Wait(1.0, "its earlier job is ending")] == decide(waiting)


def test_a_gang_of_which_slurm_has_forgotten_a_part_is_undone_soon() -> None:
    """Only what was bound could be pinned, and no slot will come for the others."""
    bound = (Pod("a", "n1", 7, "e", rank=0), Pod("b"), Pod("c"))
    pin = Job(9, Phase.RUNNING, ("n1",), {"n1": 1}, pinned=True)
    seen = replace(GRANTED, pods=bound, jobs=(pin,), partial_since=0.0, now=LOST_WITHIN - 1)
    assert Wait(1.0, "the gang is not whole yet") in decide(seen)
    assert Doom(9) in decide(replace(seen, now=LOST_WITHIN))


def test_a_forgotten_gang_is_pinned_node_by_node() -> None:
    """By one job for each node, with as many slots as pods are there."""
    bound = (Pod("a", "n1", 7, "e"), Pod("b", "n1", 7, "e"), Pod("c", "n2", 7, "e"))
    seen = replace(GRANTED, pods=bound, jobs=(), epoch="later")
    assert [Pin("n1", 2, ("a", "b")), Pin("n2", 1, ("c",))] == decide(seen)


def test_a_foreign_pod_is_pinned_and_never_ended() -> None:
    """Another scheduler has bound it: it has a share of the node, whatever Slurm does to its job."""
    guest = Pod("a", "n1", foreign=True)
    assert [Pin("n1", 1, ("a",))] == decide(replace(AT_HOME, pods=(guest,), jobs=()))
    assert [Pin("n1", 1, ("a",))] == decide(replace(AT_HOME, pods=(guest,), jobs=(), taken=frozenset({"n1"})))


def test_while_the_gate_is_closed_nothing_is_asked() -> None:
    """What is bound is pinned first; a request would be refused."""
    (told,) = decide(replace(PENDING, open=False))
    assert isinstance(told, Tell)
    assert told.reason == "SlurmAway"
