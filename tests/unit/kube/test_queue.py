"""The queue: each key once, none by two at a time, failures later and later. All on virtual time."""

import asyncio
import itertools
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from kurm.kube.backoff import Backoff
from kurm.kube.queue import Queue, QueueClosed
from unit.kube.virtual import run_virtually

pytestmark = pytest.mark.looptime


async def taken(queue: Queue[str]) -> list[str]:
    """Take and finish whatever is due now."""
    found = []
    while len(queue):
        key = await queue.take()
        queue.done(key)
        found.append(key)
    return found


async def test_a_key_waits_once() -> None:
    """Added three times, it is looked at once, in the order of its first addition."""
    queue: Queue[str] = Queue()
    for key in "abaa":
        queue.add(key)
    assert await taken(queue) == ["a", "b"]


async def test_a_key_in_work_is_kept_for_after() -> None:
    """What is added while it is worked on is not given to another worker, and not lost."""
    queue: Queue[str] = Queue()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await taken(queue) == ["a"]


async def test_the_earliest_time_wins() -> None:
    """Of several times the first counts, whichever way round they come, and it counts once."""
    queue: Queue[str] = Queue()
    queue.add("a", after=10)
    queue.add("a", after=5)
    queue.add("b", after=5)
    queue.add("b", after=10)
    await asyncio.sleep(4.9)
    assert await taken(queue) == []
    await asyncio.sleep(0.2)
    assert await taken(queue) == ["a", "b"]
    await asyncio.sleep(100)
    assert await taken(queue) == []


async def test_a_look_now_replaces_a_look_later() -> None:
    """Who looks at a key says anew when to look again, so the old time is forgotten."""
    queue: Queue[str] = Queue()
    queue.add("a", after=10)
    queue.add("a")
    assert await taken(queue) == ["a"]
    await asyncio.sleep(100)
    assert (await taken(queue), queue.delayed) == ([], 0)


async def test_a_later_look_asked_for_while_in_work_is_kept() -> None:
    """`Again` is asked for before `done`: its time runs from the asking."""
    queue: Queue[str] = Queue()
    queue.add("a")
    await queue.take()
    queue.add("a", after=10)
    await asyncio.sleep(4)
    queue.done("a")
    await asyncio.sleep(5.9)
    assert await taken(queue) == []
    await asyncio.sleep(0.2)
    assert await taken(queue) == ["a"]


async def test_failures_wait_longer_and_longer_until_forgotten() -> None:
    """Delays double up to the most, and begin anew after a success."""
    queue: Queue[str] = Queue(backoff=Backoff(first=1, most=5, jitter=0))
    assert [queue.retry("a") for _ in range(5)] == [1, 2, 4, 5, 5]
    queue.forget("a")
    assert (queue.retry("a"), queue.retry("b")) == (1, 1)


async def test_its_depth_and_its_oldest_can_be_read() -> None:
    """What metrics will show: due, later, in work, and how long the first has been due."""
    queue: Queue[str] = Queue()
    queue.add("a")
    queue.add("b", after=60)
    await asyncio.sleep(3)
    assert (len(queue), queue.delayed, queue.working, round(queue.oldest)) == (1, 1, 0, 3)
    await queue.take()
    assert (len(queue), queue.delayed, queue.working, queue.oldest) == (0, 1, 1, 0)


async def test_closing_drains() -> None:
    """What is due is finished, what is due later is dropped, nothing new is taken, and then all takers are told."""
    queue: Queue[str] = Queue()
    for key, after in (("a", 0), ("b", 0), ("later", 60)):
        queue.add(key, after=after)
    idle = asyncio.create_task(Queue[str]().take())
    first = await queue.take()
    queue.close()
    queue.add("c")
    drained = asyncio.create_task(queue.drained())
    assert (first, await queue.take()) == ("a", "b")
    queue.done("a")
    await asyncio.sleep(1)
    assert not drained.done()
    queue.done("b")
    await asyncio.sleep(1)
    assert drained.done()
    with pytest.raises(QueueClosed):
        await queue.take()
    idle.cancel()


async def test_a_waiting_taker_is_told_of_the_end() -> None:
    """Who waits for a key of a queue that closes does not wait for ever."""
    queue: Queue[str] = Queue()
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(1)
    queue.close()
    with pytest.raises(QueueClosed):
        await waiting


async def test_a_cancelled_taker_passes_its_key_on() -> None:
    """A worker that is cancelled in the moment it is woken does not take the key with it."""
    queue: Queue[str] = Queue()
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await asyncio.sleep(1)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled()


async def test_done_without_take_is_refused() -> None:
    """A worker that gives back what it never took is wrong, and told so."""
    with pytest.raises(ValueError, match="'a' is not in work"):
        Queue[str]().done("a")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from("abc"), st.sampled_from([0.0, 0.0, 1.0, 5.0])),
            st.tuples(st.just("wait"), st.just(""), st.sampled_from([0.0, 0.5, 2.0, 10.0])),
        ),
        max_size=40,
    ),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from([0.0, 0.7, 3.0]), st.booleans()), min_size=1, max_size=5),
)
@settings(max_examples=200)
def test_no_key_is_lost_or_shared(steps: list[tuple[str, str, float]], workers: int, works: list[Any]) -> None:
    """Whatever is added whenever, with workers that take time and fail: never two on one key, and none forgotten.

    After the last time that somebody asked for a key, somebody began to look at it.
    """

    async def story() -> None:
        queue: Queue[str] = Queue(backoff=Backoff(first=1, most=2, jitter=0.5))
        busy: set[str] = set()
        order = itertools.count()
        begun: dict[str, int] = {}
        asked: dict[str, int] = {}
        plan = iter(works * 50)  # at most 250 turns of 3 s and a wait of 2 s: over well before the end of the story

        async def work() -> None:
            while True:
                try:
                    key = await queue.take()
                except QueueClosed:
                    return
                assert key not in busy
                busy.add(key)
                begun[key] = next(order)
                seconds, fails = next(plan, (0.0, False))
                await asyncio.sleep(seconds)
                busy.remove(key)
                if fails:
                    asked[key] = next(order)
                    queue.retry(key)
                else:
                    queue.forget(key)
                queue.done(key)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
            for what, key, seconds in steps:
                if what == "add":
                    queue.add(key, after=seconds)
                    asked[key] = next(order)
                else:
                    await asyncio.sleep(seconds)
            await asyncio.sleep(2000)
            assert {key for key, when in asked.items() if begun.get(key, -1) < when} == set()
            assert (len(queue), queue.delayed, queue.working) == (0, 0, 0)
            queue.close()

    run_virtually(story())


@pytest.mark.looptime(False)  # noqa: FBT003 - as looptime has it: uvloop has a clock of its own
def test_a_key_comes_on_the_loop_of_the_daemons_too() -> None:
    """Uvloop counts milliseconds: it rings early, and calls at once what is due in less than half of one."""

    async def story() -> list[int]:
        queue: Queue[int] = Queue()
        for number in range(300):
            queue.add(number, after=number * 0.00037)
        async with asyncio.timeout(5):
            return sorted([await queue.take() for _ in range(300)])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert list(range(300)) == runner.run(story())
