"""What the checker calls a breach, and what it does not."""

import msgspec
from msgspec import structs

from chaos.history import Fault, Line, NodeSeen, Request
from unit.chaos.story import always, deed, found, job, pod, promises, quiet, silent, told

KILL, BACK = Fault(at=5.0, kind="kill", target="slurmctld"), Fault(at=6.0, kind="kill", target="slurmctld", over=True)


def test_a_pod_with_its_allocation_keeps_all_promises() -> None:
    """It waits, is bound by a job that runs, is deleted, and its job ends with it."""
    life = [pod(1), pod(2, node="n1"), *always(2, 20, job("a", "n1")), deed(20, "delete")]
    end = [pod(20.2, node="n1", terminating=True), deed(21, "gone"), pod(21.1, node="n1", gone=True)]
    assert promises([*life, *end], quiet(22, 37), always(22, 36.9)) == []


# P1


def test_p1_a_pod_stays_bound_without_an_allocation() -> None:
    """Slurm answered for more than 10 s, and no job stood for the pod."""
    breach, *others = found(pod(1, node="n1"), always(2, 20))
    assert (breach.promise, breach.begun, breach.at, others) == ("P1", 2.0, 12.5, [])
    assert frozenset({"a"}) == breach.subjects


def test_p1_a_job_on_another_node_is_no_allocation_of_it() -> None:
    """It must be where the pod is."""
    assert promises(pod(1, node="n1"), always(2, 20, job("a", "n2"))) == ["P1"]


def test_p1_a_job_that_waits_is_no_allocation() -> None:
    """Nor does one that is leaving its node."""
    assert promises(pod(1, node="n1"), always(2, 20, job("a"))) == ["P1"]
    assert promises(pod(1, node="n1"), always(2, 20, job("a", "n1", state="COMPLETING"))) == ["P1"]


def test_p1_time_in_which_slurm_did_not_answer_does_not_count() -> None:
    """Nobody can pin anything then; it goes on where it was when slurmctld is back."""
    away = [pod(1, node="n1"), *always(2, 10), *silent(10.5, 60), *always(60.5, 62)]
    assert promises(away) == []
    assert promises(away, always(62.5, 64)) == ["P1"]


def test_p1_a_gap_without_any_answer_does_not_count() -> None:
    """The recorder itself may have been held up."""
    assert promises(pod(1, node="n1"), told(2), told(30), told(31)) == []


def test_p1_time_in_which_a_fault_kept_the_scheduler_away_does_not_count() -> None:
    """It was killed each time before it could pin: what is counted is what it had."""
    for target, kind in (("scheduler", "kill"), ("scheduler", "pause"), ("kube-apiserver", "kill")):
        away, back = (Fault(at=at, kind=kind, target=target, over=over) for at, over in ((5.1, False), (25.1, True)))
        assert promises(pod(1, node="n1"), away, back, always(2, 30)) == []
        assert promises(pod(1, node="n1"), away, back, always(2, 40)) == ["P1"]


def test_p1_a_pod_that_is_told_to_end_does_not_stay() -> None:
    """Its grace period may be long."""
    bound = pod(1, node="n1")
    assert promises(bound, always(2, 5), pod(6, node="n1", terminating=True), always(6, 40), deed(5.5, "delete")) == []


def test_p1_pinned_in_time_it_begins_anew() -> None:
    """9 s without, pinned, and 9 s without again."""
    bare = always(2, 11), always(12, 21), always(22, 31)
    assert promises(pod(1, node="n1"), bare[0], told(11.5, job("a", "n1")), bare[1], told(21.5, job("a", "n1"))) == []


def test_p1_on_a_dead_node_nothing_is_promised() -> None:
    """Slurm's jobs there are requeued, and Kubernetes' pods are waited for."""
    assert promises(NodeSeen(at=0.5, name="n1", ready=False), pod(1, node="n1"), always(2, 40)) == []


def test_p1_a_node_lives_that_slurm_has_down_when_it_is_back() -> None:
    """Nobody can pin anything there, and nobody is given anything; from its return on there are ten seconds."""
    lost = [pod(1, node="n1"), *always(2, 20, job("a", "n1")), *always(20.5, 40, down="n1")]
    assert promises(lost, always(40.5, 50)) == []
    assert promises(lost, always(40.5, 52)) == ["P1"]


def test_p1_a_slot_for_two_pods_of_a_gang_is_one_too_few() -> None:
    """Each of its pods needs a slot on its own node."""
    pods = [pod(1, uid, node="n1", owner="load/g", members=2) for uid in ("a", "b")]
    assert promises(pods, always(2, 20, job("load/g", "n1", cpus=4))) == []
    assert promises(pods, always(2, 20, job("load/g", "n1", cpus=2))) == ["P1"]


# P2


def test_p2_two_jobs_hold_one_slot() -> None:
    """At one moment; that is enough."""
    (breach,) = found(pod(1), told(2, job("a", "n1", id=4), job("a", "n2", id=5)))
    assert (breach.promise, breach.sentence) == ("P2", "jobs 4 and 5 both hold the slots of a (a)")


def test_p2_one_that_waits_or_leaves_holds_nothing() -> None:
    """A second one in the queue cannot start while the first lives."""
    leaving = job("a", "n2", id=5, state="COMPLETING")
    assert promises(pod(1), told(2, job("a", "n1", id=4), job("a", id=6), leaving)) == []


def test_p2_a_gang_pinned_again_has_a_job_for_each_node() -> None:
    """Two for one node are one too many, and so is one beside the gang's own."""
    one, two = job("g", "n1", id=1, name="g@n1"), job("g", "n2", id=2, name="g@n2")
    assert promises(told(2, one, two)) == []
    assert promises(told(2, one, two, job("g", "n1", id=3, name="g@n1"))) == ["P2"]
    assert {"P2"} == set(promises(told(2, one, two, job("g", "n2", id=3, name="g"))))


# P3


def test_p3_what_a_pod_holds_is_given_to_a_batch_job() -> None:
    """Its job was forgotten by slurmctld, and another one took its place: no 10 s are allowed here."""
    given = told(7, job("", "n1", id=9, cpus=8))
    (breach,) = found(pod(1, node="n1"), told(2, job("a", "n1")), KILL, BACK, given)
    assert breach.promise == "P3"
    assert "n1" in breach.subjects
    assert "hold 10 and 1000" in breach.sentence


def test_p3_a_job_that_had_ended_is_not_given_anything_when_slurmctld_takes_it_for_running() -> None:
    """Its state was saved before the job ended and the pod got its place; no slurmd knows of the job any more."""
    old = job("", "n1", id=9, cpus=8, started=2.0)
    life = told(3, old), pod(4, node="n1"), told(4.5, job("a", "n1", started=4.0)), KILL, BACK
    assert promises(*life, told(7, old)) == []
    assert promises(*life, told(7, job("", "n1", id=10, cpus=8, started=6.0))) == ["P3"]


def test_p3_slurmctlds_log_tells_of_an_end_just_before_its_death() -> None:
    """No truth was asked for between the two, and what it has saved still has the job."""
    before = [pod(1, node="n1"), told(3, job("a", "n1"), job("", "n1", id=9, cpus=6, started=0.5))]
    line = Line(at=4.5, who="slurmctld", text="job_signal: 9 of running JobId=9 successful 0x4")
    after = [KILL, BACK, told(7, job("", "n1", id=9, cpus=7, started=0.5))]
    assert promises(*before, *after) == ["P3"]
    assert promises(*before, line, *after) == []


def test_what_was_asked_before_slurmctlds_death_is_not_the_first_word_of_its_next_life() -> None:
    """Told after the return it still knows nothing of what slurmctld takes for running then."""
    old, new = job("", "n1", id=9, cpus=8, started=2.0), job("a", "n1", started=4.0)
    life = told(3, old), pod(4, node="n1"), told(4.5, new), KILL, BACK
    late = msgspec.structs.replace(told(6.5, new), asked=4.9)
    assert promises(*life, late, told(7, old)) == []


def test_what_slurmctld_answered_while_it_was_being_killed_is_not_its_next_lifes_first_word() -> None:
    """It takes a moment until all of its processes are found and ended."""
    old, new = job("", "n1", id=9, cpus=8, started=2.0), job("a", "n1", started=4.0)
    dead = msgspec.structs.replace(KILL, at=5.2, done=True)
    life = told(3, old), pod(4, node="n1"), told(4.5, new), KILL, dead, BACK
    late = msgspec.structs.replace(told(6.5, new), asked=5.1)
    assert promises(*life, late, told(7, old)) == []


def test_p3_memory_counts_too() -> None:
    """CPUs would suffice."""
    assert promises(pod(1, node="n1", memory=15_950), told(2, job("", "n1", cpus=1))) == ["P3"]


def test_p3_a_pod_that_is_not_gone_holds_its_node() -> None:
    """Terminating or not: its containers run."""
    ending = pod(3, node="n1", terminating=True), deed(2.9, "delete")
    assert promises(pod(1, node="n1"), *ending, told(4, job("", "n1", id=9, cpus=8))) == ["P3"]


def test_p3_when_its_end_was_sent_it_holds_nothing() -> None:
    """Late news of an end that came before the job is no breach."""
    end = deed(3, "gone"), pod(5, node="n1", gone=True)
    assert promises(pod(1, node="n1"), deed(2, "delete"), *end, told(4, job("", "n1", id=9, cpus=8))) == []


def test_p3_a_pod_that_was_bound_while_slurm_was_asked_does_not_count() -> None:
    """The answer may be of a moment before."""
    assert promises(pod(3.99, node="n1"), told(4, job("", "n1", id=9, cpus=8))) == []


def test_p3_what_people_took_by_scancel_is_theirs() -> None:
    """Until it has an allocation again; then it is the pod's."""
    taken = [pod(1, node="n1"), deed(2, "scancel"), deed(2.1, "scancel", done=True)]
    given = told(7, job("", "n1", id=9, cpus=8))
    assert promises(taken, given) == []
    assert promises(taken, told(5, job("a", "n1")), given) == ["P3"]


def test_p3_a_pin_that_people_took_is_not_given_back_by_the_pins_of_other_nodes() -> None:
    """A gang that was pinned node by node: of one node its job was ended, and its pods there are on their way out."""
    gang = [pod(1, "a1", node="n1", owner="a", members=2), pod(1, "a2", node="n2", owner="a", members=2)]
    here, there = job("a", "n1", name="a@n1"), job("a", "n2", id=2, name="a@n2")
    taken = [deed(at, "scancel", detail="a@n1", done=done) for at, done in ((3, False), (3.1, True))]
    given = job("", "n1", id=9, cpus=8)
    assert promises(gang, told(2, here, there), taken, told(4, there), told(7, given, there)) == []
    assert promises(gang, told(2, here, there), taken, told(4, here, there), told(7, given, there)) == ["P3"]


def test_p3_what_was_lost_with_a_node_is_owed_again_once_there_is_a_job() -> None:
    """Slurm has ended its job with the node, and may give its share to others before it is pinned; not after that."""
    lost = [pod(1, node="n1"), *always(2, 4, job("a", "n1")), *always(4.5, 8, down="n1")]
    taken, pinned = told(9, job("", "n1", id=9, cpus=8)), told(8.5, job("a", "n1", id=2))
    assert promises(lost, taken) == []
    assert promises(lost, pinned, taken) == ["P3"]


def test_p3_of_pods_whose_node_was_sold_twice_any_may_have_jobs_until_all_fits() -> None:
    """Both have lost their jobs, others have come, one has a job again; slurmctld forgets it, and the other has one."""
    pods, others = [pod(1, "a", node="n1", cpus=3), pod(1, "b", node="n1")], job("", "n1", id=9, cpus=5)
    first = job("a", "n1", id=2, cpus=3)
    lost = [*pods, *always(2, 4, job("a", "n1", cpus=3), job("b", "n1", id=3)), *always(4.5, 8, down="n1")]
    again = structs.replace(KILL, at=10.0), structs.replace(BACK, at=11.0)
    sold, forgotten = [told(9, others, first), *again], told(14, others, job("b", "n1", id=4))
    assert promises(lost, sold, forgotten) == []
    assert promises(lost, sold, told(14, others, job("b", "n1", id=4), job("", "n1", id=5, cpus=1))) == ["P3"]
    fits_again = told(9.5, first, job("b", "n1", id=4))
    assert promises(lost, sold, fits_again, forgotten) == ["P3"]


def test_p3_a_gang_loses_its_job_on_all_nodes_with_one_of_them() -> None:
    """The others are pinned each by itself; until then nobody owes them anything."""
    pods = [pod(1, uid, node=node, owner="load/g", members=2) for uid, node in (("a", "n1"), ("b", "n2"))]
    lost = [*pods, Fault(at=2, kind="down", target="node", detail="n1"), told(3, down="n1")]
    back = Fault(at=4, kind="down", target="node", detail="n1", over=True)
    taken = told(6, job("", "n2", id=9, cpus=8))
    assert promises(lost, back, taken) == []
    assert promises(lost, back, told(5, job("load/g", "n2", id=2, name="g@n2")), taken) == ["P3"]


def test_p3_after_the_bounded_wait_only_the_start_gate_is_left() -> None:
    """The scheduler was away for more than a minute after slurmctld's return."""
    late = told(70, job("", "n1", id=9, cpus=8))
    answered = Request(at=8.0, asked=8.0, to="init", method="POST", path="/open", status=200)
    assert promises(pod(1, node="n1"), KILL, BACK, told(7), late) == []
    assert promises(pod(1, node="n1"), KILL, BACK, told(7), answered, late) == ["P3"]


# P4


def test_p4_a_pod_is_ended_without_a_cause() -> None:
    """Nobody has deleted it, and nobody has touched its job."""
    assert promises(pod(1, node="n1"), told(2, job("a", "n1")), pod(3, node="n1", terminating=True)) == ["P4"]
    assert promises(pod(1), pod(3, gone=True)) == ["P4"]


def test_p4_an_end_with_a_cause_is_none() -> None:
    """The load deleted it, its containers ended, or people ended its job."""
    ending = pod(3, node="n1", terminating=True)
    for kind in ("delete", "force", "end", "gone", "scancel", "preempt"):
        assert promises(pod(1, node="n1"), deed(2, kind), ending) == []


def test_p4_a_share_that_slurmctld_gave_to_a_job_that_had_ended_is_lost_with_a_cause() -> None:
    """Its pods were still there when somebody had cancelled it, and slurmctld takes it for running once more."""
    old, new = job("b", "n1", id=9, cpus=8, started=2.0), job("a", "n1", started=4.0)
    life = told(3, old), pod(4, node="n1"), told(4.5, new), KILL, BACK
    ended = pod(12, node="n1", terminating=True)
    assert promises(*life, told(7, old), ended) == []
    assert promises(*life, told(7), ended) == ["P4"]


def test_p4_a_pod_is_ended_while_its_node_is_given_to_nobody() -> None:
    """Its share is there still. When the node is back others may have it, and that is a cause."""
    lost, ended = [pod(1, node="n1"), *always(2, 8, down="n1")], pod(10, node="n1", terminating=True)
    assert promises(lost, ended) == ["P4"]
    assert promises(lost, told(9), ended) == []


def test_p4_a_gang_ends_with_its_member() -> None:
    """One pod of it was deleted, so the others may be undone."""
    pods = [pod(1, uid, node="n1", owner="load/g", members=2) for uid in ("a", "b")]
    assert (
        promises(pods, deed(2, "delete", "a"), pod(3, "b", node="n1", owner="load/g", members=2, terminating=True))
        == []
    )


def test_p4_after_the_quiet_whoever_waits_says_why() -> None:
    """A condition with a reason and a message."""
    waits = [pod(1, cpus=8), *always(2, 20, job("b", "n1"), job("b2", "n2", id=2), job("a", id=3, cpus=8))]
    held = [pod(1, "b", node="n1"), pod(1, "b2", node="n2")]
    assert promises(waits, held, quiet(4, 19)) == ["P4"]
    told_why = pod(3, cpus=8, reason="SlurmQueue", message="Slurm: Resources; job 3, place 1 of 1")
    assert promises(waits, held, told_why, quiet(4, 19)) == []


def test_p4_after_the_quiet_reasons_are_true() -> None:
    """No job is in the queue, Slurm is not away, the gang is whole, the pod is feasible."""
    for reason in ("SlurmQueue", "SlurmAway", "GangIncomplete", "Infeasible", "Refused"):
        assert promises(pod(1, reason=reason, message="because"), always(2, 20), quiet(4, 19)) == ["P4"]
    assert (
        promises(
            pod(1, reason="Refused", message="because"),
            deed(1, "create", detail="refused"),
            always(2, 20),
            quiet(4, 19),
        )
        == []
    )
    alone = pod(1, owner="load/g", members=2, reason="GangIncomplete", message="1 of 2")
    assert promises(alone, always(2, 20), quiet(4, 19)) == []


def test_p4_the_first_of_the_queue_fits_and_waits() -> None:
    """Slurm has room for it, also where a batch job would make room, and has not been told to look."""
    waits = pod(1, reason="SlurmQueue", message="Slurm: None; job 3")
    full = job("b", "n1", cpus=8), pod(1, "b", node="n1", cpus=8)
    assert promises(waits, full[1], always(2, 20, full[0], job("a", id=3)), quiet(4, 19)) == ["P4"]
    batch = job("", "n2", id=7, cpus=8)
    assert promises(waits, full[1], always(2, 20, full[0], batch, job("a", id=3)), quiet(4, 19)) == ["P4"]
    both = job("c", "n2", id=4, cpus=8), pod(1, "c", node="n2", cpus=8)
    assert promises(waits, full[1], both[1], always(2, 20, full[0], both[0], job("a", id=3)), quiet(4, 19)) == []


def test_p4_room_that_has_just_come_is_no_breach() -> None:
    """Slurm looks at its queue each second or so."""
    waits = [pod(1, reason="SlurmQueue", message="Slurm: Resources; job 3"), pod(1, "b", node="n1", cpus=8)]
    both = job("b", "n1", cpus=8), job("c", "n2", id=4, cpus=8)
    rest = pod(1, "c", node="n2", cpus=8), deed(16, "delete", "c"), deed(16.5, "gone", "c")
    jobs = [*always(2, 17, *both, job("a", id=3)), *always(17.5, 18.9, both[0], job("a", id=3))]
    assert promises(waits, *rest, jobs, quiet(4, 19)) == []


def test_p4_a_job_outlives_its_pod() -> None:
    """Running or waiting: nobody is left who needs it."""
    gone = [pod(1, node="n1"), deed(3, "delete"), deed(3, "gone"), pod(3.1, node="n1", gone=True)]
    assert promises(gone, always(2, 20, job("a", "n1")), quiet(4, 19)) == ["P4"]
    assert promises(gone, always(2, 20, job("a")), quiet(4, 19)) == ["P4"]
    assert promises(always(2, 20, job("never-seen", "n1")), quiet(4, 19)) == ["P4"]


def test_p4_a_gang_is_bound_all_or_none() -> None:
    """The third pod is there, and waits."""
    pods = [pod(1, uid, node="n1", owner="load/g", members=3) for uid in ("a", "b")]
    third = pod(1, "c", owner="load/g", members=3, reason="SlurmQueue", message="Slurm: Priority; job 1")
    assert promises(pods, third, always(2, 20, job("load/g", "n1", cpus=6)), quiet(4, 19)) == ["P4"]


def test_p4_slurm_comes_back() -> None:
    """It answers, and its partitions are open."""
    assert promises(told(2), silent(3, 18), quiet(4, 19)) == ["P4"]
    assert promises(always(2, 19, gate="closed"), quiet(4, 19)) == ["P4"]


def test_p4_what_goes_is_gone_after_the_quiet() -> None:
    """A deletion that is never confirmed is stuck, whoever's fault it is."""
    ending = [pod(1, node="n1"), deed(2, "delete"), pod(2.1, node="n1", terminating=True)]
    assert promises(ending, always(2, 20, job("a", "n1")), quiet(4, 19)) == ["P4"]


def test_a_breach_is_told_once() -> None:
    """The same pod, the same promise: each moment of it is no breach of its own."""
    assert promises(pod(1, node="n1"), always(2, 60)) == ["P1"]
