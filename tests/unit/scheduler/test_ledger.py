"""What is known of Slurm's jobs: lists, hints and our own calls, in any order; on virtual time."""

import asyncio
import time

import pytest

from kurm.domain.owner import Job, Phase
from kurm.scheduler.ledger import Ledger
from kurm.slurm.controller import Allocation, Allocations, JobEvent

pytestmark = pytest.mark.looptime(noop_cycles=8)


def listed(*jobs: tuple[int, str, str], epoch: str = "e") -> Allocations:
    """Return a list: id, owner, state."""
    found = [
        Allocation(number, f"shop/{owner}.x", state, f"kurm:c:{owner}", nodes="n1") for number, owner, state in jobs
    ]
    return Allocations(epoch, tuple(found))


def ledger(*jobs: tuple[int, str, str]) -> tuple[Ledger, list[str]]:
    """Return a ledger that has read one list, and who is to be looked at from now on."""
    made, looked = Ledger(lambda: "c"), list[str]()
    made.replace(listed(*jobs), now())
    made.on_change(looked.append)
    return made, looked


def now() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


def states(of: Ledger, owner: str) -> list[tuple[int, Phase]] | None:
    """Return an owner's jobs."""
    jobs = of.jobs(owner)
    return None if jobs is None else [(job.id, job.phase) for job in jobs]


async def test_before_the_first_list_nothing_is_known() -> None:
    """Not even that there is nothing."""
    made = Ledger(lambda: "c")
    assert made.jobs("a") is None
    made.replace(listed(), now())
    assert made.jobs("a") == ()


async def test_a_preempted_job_has_its_grace() -> None:
    """Until GraceTime is over: when Slurm began with it says nothing of that."""
    made = Ledger(lambda: "c")
    told = Allocation(
        1, "shop/a.x", "RUNNING", "kurm:c:a", nodes="n1", preempt=int(time.time()) - 2, ends=int(time.time()) + 28
    )
    made.replace(Allocations("e", (told,)), now())
    (job,) = made.jobs("a") or ()
    assert job.ends_at is not None
    assert 20 < job.ends_at - now() < 29


async def test_jobs_of_other_clusters_are_not_ours() -> None:
    """The signature tells; ids and names do not."""
    made = Ledger(lambda: "other")
    made.replace(listed((1, "a", "RUNNING")), now())
    assert made.jobs("a") == ()


async def test_a_list_that_was_asked_for_before_our_call_does_not_undo_it() -> None:
    """Neither what we were given nor what we have ended."""
    made, _ = ledger((1, "a", "RUNNING"))
    begun = now()
    await asyncio.sleep(1)
    made.made("b", 2, Phase.RUNNING, name="shop/b.x")
    made.cancelled(1)
    made.replace(listed((1, "a", "RUNNING")), begun)
    assert (states(made, "a"), states(made, "b")) == ([], [(2, Phase.RUNNING)])


async def test_a_hint_is_newer_than_a_list_that_is_on_its_way() -> None:
    """A start and an end that the log has told are not taken back."""
    made, looked = ledger((1, "a", "PENDING"), (2, "b", "RUNNING"))
    begun = now()
    await asyncio.sleep(1)
    made.heard(JobEvent(1, "started", "n2"))
    made.heard(JobEvent(2, "ended"))
    made.replace(listed((1, "a", "PENDING"), (2, "b", "RUNNING")), begun)
    assert (states(made, "a"), states(made, "b")) == ([(1, Phase.RUNNING)], [])
    assert looked == ["a", "b"]
    assert made.ended("b") == {2: ""}


async def test_a_lost_answer_makes_its_owner_unknown_until_a_later_list() -> None:
    """One that was asked for before tells nothing of it."""
    made, looked = ledger()
    begun = now()
    await asyncio.sleep(1)
    made.unsure("a")
    made.replace(listed(), begun)
    assert made.jobs("a") is None
    await asyncio.sleep(1)
    made.replace(listed((1, "a", "RUNNING")), now())
    assert states(made, "a") == [(1, Phase.RUNNING)]
    assert looked == ["a"]


async def test_a_new_life_of_slurmctld_makes_all_unknown() -> None:
    """Then the list has what it still knows; what is missing was forgotten, and has not ended."""
    made, looked = ledger((1, "a", "RUNNING"), (2, "b", "RUNNING"))
    made.open = True
    assert made.renew("later")
    assert (made.jobs("a"), made.open) == (None, False)
    await asyncio.sleep(1)
    made.replace(listed((2, "b", "RUNNING"), epoch="later"), now())
    assert (states(made, "a"), states(made, "b")) == ([], [(2, Phase.RUNNING)])
    assert (made.ended("a"), made.ended("b")) == ({}, {})
    assert set(looked) == {"a", "b"}


async def test_an_id_that_is_given_to_another_owner_is_no_longer_the_first_ones() -> None:
    """After a crash slurmctld counts from where it had saved."""
    made, _ = ledger((1, "a", "RUNNING"))
    await asyncio.sleep(1)
    made.replace(listed((1, "b", "RUNNING"), epoch="later"), now())
    assert (states(made, "a"), states(made, "b")) == ([], [(1, Phase.RUNNING)])


async def test_what_was_given_in_a_life_that_has_ended_is_asked_for_again() -> None:
    """The list is of the next life, and may have been asked for before the answer came: nobody knows."""
    made, _ = ledger()
    begun = now()
    await asyncio.sleep(1)
    made.made("a", 1, Phase.RUNNING, name="shop/a.x")
    made.replace(listed(epoch="later"), begun)
    assert made.jobs("a") is None
    await asyncio.sleep(1)
    made.replace(listed(epoch="later"), now())
    assert made.jobs("a") == ()


async def test_a_freed_job_is_told_with_what_is_left() -> None:
    """For the account of Slurm's room."""
    made, freed = Ledger(lambda: "c"), list[tuple[str, int, int]]()
    made.on_moved(lambda owner, job, left: freed.append((owner, job.id, len(left))), lambda _: None)
    made.replace(listed((1, "a", "RUNNING"), (2, "a", "RUNNING")), now())
    made.cancelled(1)
    made.heard(JobEvent(2, "ended"))
    assert freed == [("a", 1, 1), ("a", 2, 0)]


async def test_a_start_that_only_the_list_has_seen_is_told() -> None:
    """No hint came, and so nobody has asked where it is; what it holds is not free any more."""
    made, started = Ledger(lambda: "c"), list[tuple[int, tuple[str, ...]]]()
    made.on_moved(lambda _owner, _job, _left: None, lambda job: started.append((job.id, job.hosts)))
    made.replace(listed((1, "a", "PENDING"), (2, "b", "RUNNING")), now())
    assert started == []
    for _ in range(2):
        await asyncio.sleep(10)
        made.replace(listed((1, "a", "RUNNING"), (2, "b", "RUNNING")), now())
        assert started == [(1, ("n1",))]


async def test_what_a_queued_job_asks_is_known_by_the_list_or_by_ourselves() -> None:
    """The later of the two; an init of before says nothing, which is no answer."""
    made, _ = ledger()
    told = Allocation(1, "shop/a.x", "PENDING", "kurm:c:a", gres="gres/gpu:h100:4,gres/fpga:1")
    made.replace(Allocations("e", (told, Allocation(2, "shop/b.x", "PENDING", "kurm:c:b"))), now())
    assert [entry.gres for job in (1, 2) if (entry := made.entry(job))] == [("gpu:h100:4", "fpga:1"), None]
    begun = now()
    await asyncio.sleep(1)
    made.amended(1, ("gpu:h100:8",))
    made.replace(Allocations("e", (told,)), begun)
    assert [entry.gres for job in (1,) if (entry := made.entry(job))] == [("gpu:h100:8",)]


async def test_what_a_list_was_too_old_to_tell_a_later_one_tells() -> None:
    """Though both say the same: the start of a job that was amended meanwhile, and of which no hint came."""
    made, _ = ledger((1, "a", "PENDING"))
    begun = now()
    await asyncio.sleep(1)
    made.amended(1, ("gpu:8",))
    made.replace(listed((1, "a", "RUNNING")), begun)
    assert states(made, "a") == [(1, Phase.QUEUED)]
    await asyncio.sleep(1)
    made.replace(listed((1, "a", "RUNNING")), now())
    assert states(made, "a") == [(1, Phase.RUNNING)]


async def test_a_withdrawn_job_is_remembered_until_there_is_another() -> None:
    """Somebody has cancelled it in the queue: it is not to come back at once."""
    made, _ = ledger((1, "a", "PENDING"))
    await asyncio.sleep(5)
    made.heard(JobEvent(1, "ended"))
    assert made.withdrawn("a") == now()
    made.made("a", 2, Phase.QUEUED, name="shop/a.x")
    assert made.withdrawn("a") is None


async def test_what_we_end_ourselves_nobody_has_withdrawn() -> None:
    """It is heard of before the answer is here: slurmctld came back with a bound pod's job in the queue."""
    made, looked = ledger((1, "a", "PENDING"), (2, "b", "RUNNING"))
    for job in (1, 2):
        made.cancelling(job)
    made.heard(JobEvent(1, "ended"))
    await asyncio.sleep(1)
    made.replace(listed(), now())
    assert (made.withdrawn("a"), made.ended("a"), made.ended("b")) == (None, {}, {})
    assert looked == ["a", "b"]


async def test_layouts_stay_while_a_job_is_the_same() -> None:
    """A second list does not cost a second look at each job."""
    made, _ = ledger((1, "a", "RUNNING"))
    made.looked(1, {"n1": 1})
    await asyncio.sleep(1)
    made.replace(listed((1, "a", "RUNNING")), now())
    (job,) = made.jobs("a") or (Job(0, Phase.QUEUED),)
    assert job.slots == {"n1": 1}


async def test_an_end_that_was_heard_while_slurm_was_away_is_looked_at_again() -> None:
    """Nothing could be done for its owner then, and the list that comes next does not name the job any more."""
    made, looked = ledger((1, "a", "RUNNING"))
    made.lose("slurmrestd is gone")
    made.heard(JobEvent(1, "ended"))
    assert (looked, made.jobs("a")) == (["a"], None)
    await asyncio.sleep(1)
    made.replace(listed(), now())
    assert (looked, states(made, "a"), made.ended("a")) == (["a", "a"], [], {1: ""})


async def test_when_slurm_answers_again_all_are_looked_at() -> None:
    """However short it was away, also who has no job: each look meanwhile was in vain."""
    made, calls = Ledger(lambda: "c"), list[str]()
    made.on_change(lambda _: None, lambda: calls.append("all"))
    made.replace(listed(), now())
    made.replace(listed(), now())
    assert calls == ["all"]
    made.lose("an answer was lost")
    made.replace(listed(), now())
    assert calls == ["all", "all"]
