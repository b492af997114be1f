"""How often Slurm is asked, and what is known when, on virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kurm.slurm.session import Session
from kurm.syncer.records import SINGLES, Pace, Records
from unit.slurm.fake_slurm import FakeSlurm, Token

pytestmark = pytest.mark.looptime(noop_cycles=8)


@asynccontextmanager
async def following(fake: FakeSlurm) -> AsyncIterator[tuple[Records, list[str]]]:
    """Follow a fake slurmrestd; the list names the nodes that were told to have changed, `*` that all are known."""
    async with fake.serve(), Session(f"http://127.0.0.1:{fake.port}", Token()) as session:
        records, told = Records(session, pace=Pace()), list[str]()
        records.on_change(told.append, lambda: told.append("*"))
        task = asyncio.create_task(records.run())
        await asyncio.sleep(0.5)
        yield records, told
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(records: Records) -> set[str] | None:
    """Return the names of all records, None while they are not known."""
    return None if records.known is None else set(records.known)


async def test_a_quiet_slurm_is_asked_for_nothing_but_whether_anything_changed() -> None:
    """In 300 s one whole list, and a conditional one in 5 s at most; nothing is told twice."""
    fake = FakeSlurm()
    fake.put("n1")
    async with following(fake) as (records, told):
        assert (told, set(records.known or ())) == (["n1", "*"], {"n1"})
        await asyncio.sleep(290)
        assert told == ["n1", "*"]
        assert fake.asked.count("nodes/") == 1
        assert len(fake.asked) <= 2 + 290 / 5


async def test_a_hint_is_one_get() -> None:
    """However many hints there are of one node in a moment."""
    fake = FakeSlurm()
    fake.put("n1")
    fake.put("n2")
    async with following(fake) as (records, told):
        fake.put("n1", "IDLE", "DRAIN", reason="fan")
        before = len(fake.asked)
        for _ in range(100):
            records.hint("n1")
        await asyncio.sleep(0.1)
        assert fake.asked[before:] == ["node/n1"]
        assert told[-1] == "n1"
        assert (records.known or {})["n1"].reason == "fan"


async def test_many_hints_are_one_list() -> None:
    """More than SINGLES nodes cost as much as all."""
    fake = FakeSlurm()
    names = [f"n{number}" for number in range(SINGLES + 1)]
    for name in names:
        fake.put(name)
    async with following(fake) as (records, _):
        before = len(fake.asked)
        records.hint(*names)
        await asyncio.sleep(0.1)
        assert [route.partition("=")[0] for route in fake.asked[before:]] == ["nodes/?update_time"]


async def test_of_a_state_only_that_is_told_which_does_not_change_with_each_job() -> None:
    """A node that is given its second job is the same to us: nobody looks at it again, and no pod is written to."""
    fake = FakeSlurm()
    started = {"set": True, "infinite": False, "number": 1_700_000_000}
    fake.put("n1", "MIXED", "CLOUD", "DYNAMIC_NORM", "INVALID_REG", slurmd_start_time=started, comment="inventory 7")
    async with following(fake) as (records, told):
        record = (records.known or {})["n1"]
        assert (record.attached, record.flags, record.comment) == (True, ("INVALID_REG",), "inventory 7")
        told.clear()
        fake.put("n1", "ALLOCATED", "CLOUD", "INVALID_REG", slurmd_start_time=started, comment="inventory 7")
        records.hint("n1")
        await asyncio.sleep(1)
        assert told == []


async def test_what_nobody_hints_at_is_seen_by_the_net() -> None:
    """A record that was made, changed or deleted by somebody else is known within seconds."""
    fake = FakeSlurm()
    fake.put("n1")
    fake.put("n2")
    async with following(fake) as (records, _):
        fake.put("n1", "DOWN")
        fake.put("n3")
        del fake.nodes["n2"]
        await asyncio.sleep(6)
        known = records.known or {}
        assert (set(known), known["n1"].down) == ({"n1", "n3"}, True)


async def test_nodes_that_wait_for_slurm_are_looked_at_each_second() -> None:
    """One by one, as long as they are few; a busy one twice, because jobs are counted for a list only."""
    fake = FakeSlurm()
    fake.put("n1", "MIXED", "DRAIN")
    fake.put("n2")
    async with following(fake) as (records, _):
        records.waiting.add("n1")
        await asyncio.sleep(0.1)
        before = len(fake.asked)
        await asyncio.sleep(4)
        looks = fake.asked[before:].count("node/n1")
        assert 3 <= looks / 2 <= 5
        assert fake.asked[before:].count("node/n2") == 0
        fake.put("n1", "IDLE", "DRAIN")
        await asyncio.sleep(1.2)
        assert not (records.known or {})["n1"].busy


async def test_a_slurmctld_that_is_away_is_not_an_empty_one() -> None:
    """Nothing is known then; all is read anew when it is back, with what it has lost."""
    fake = FakeSlurm()
    fake.put("n1")
    fake.put("n2")
    async with following(fake) as (records, told):
        fake.away = True
        await asyncio.sleep(6)
        assert "does not answer" in records.problem
        assert names(records) is None
        del fake.nodes["n2"]
        fake.away = False
        before = len(told)
        await asyncio.sleep(20)
        assert names(records) == {"n1"}
        assert told[before:] == ["n2", "*"]


async def test_a_list_that_waited_for_slurmctld_makes_none_of_the_others_rare() -> None:
    """One took 19 s because slurmctld came back meanwhile, one 13 s because it was gone for as long.

    What is lost after that is seen by the net all the same.
    """
    fake = FakeSlurm()
    fake.put("n1")
    async with following(fake) as (records, _):
        fake.away = True
        await asyncio.sleep(6)
        fake.away, fake.slow = False, 19.0
        await asyncio.sleep(31)
        assert names(records) == {"n1"}
        fake.slow = 0.0
        await asyncio.sleep(10)
        fake.put("n2")
        fake.slow = 13.0
        await asyncio.sleep(20)
        assert names(records) == {"n1", "n2"}
        fake.slow = 0.0
        fake.nodes.clear()
        fake.changed = fake.clock = fake.clock + 1
        await asyncio.sleep(11)
        assert names(records) == set()


async def test_a_sleeper_that_wakes_a_clock_tick_early_sleeps_again() -> None:
    """1.1 + 2.2 is more than 3.3 to a computer: a net due by the sum is not due by the clock, and time must go on."""
    fake = FakeSlurm()
    async with fake.serve(), Session(f"http://127.0.0.1:{fake.port}", Token()) as session:
        for _ in range(100):
            records = Records(session, pace=Pace())
            task = asyncio.create_task(records.run())
            await asyncio.sleep(15.000001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
