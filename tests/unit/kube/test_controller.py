"""The controller: from changes to work."""

import asyncio
import contextlib

import pytest
import structlog

from kurm.kube.cache import Cache
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.errors import Conflict, NotSynced, Status
from kurm.kube.resources import PODS, Key, Pod
from kurm.kube.session import Session
from unit.kube.fake_api import FakeApi

pytestmark = pytest.mark.looptime
A, B = Key("x", "a"), Key("x", "b")


def write(api: FakeApi, name: str) -> None:
    """Somebody makes a pod."""
    api.objects.create("/v1/pods", "x", {"metadata": {"name": name}})
    api.changed()


async def test_each_object_is_looked_at_once_the_cache_is_whole(session: Session, api: FakeApi) -> None:
    """Nothing is reconciled before the list is whole; then every object is, and each that changes is again."""
    write(api, "a")
    cache: Cache[Pod] = Cache(session, PODS)
    seen: list[tuple[Key, bool]] = []

    async def reconcile(key: Key) -> Result:
        seen.append((key, key in cache))
        return DONE

    controller: Controller[Key] = Controller("test", reconcile)
    controller.watch(cache, lambda change: [change.key])
    tasks = [asyncio.create_task(cache.run()), asyncio.create_task(controller.run())]
    await asyncio.sleep(1)
    write(api, "b")
    api.objects.delete("/v1/pods", ("x", "a"), {})
    await asyncio.sleep(1)
    await controller.stop()
    tasks[0].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    assert seen == [(A, True), (B, True), (A, False)]


async def test_without_a_list_nothing_is_done_and_the_reason_is_told(session: Session, api: FakeApi) -> None:
    """A part of a list would make the rest look deleted: the controller gives up instead, and says why."""
    api.down = True
    cache: Cache[Pod] = Cache(session, PODS)

    async def never(key: Key) -> Result:
        pytest.fail(f"{key} was reconciled")

    controller: Controller[Key] = Controller("test", never)
    controller.watch(cache, lambda change: [change.key])
    watching = asyncio.create_task(cache.run())
    with pytest.raises(NotSynced, match="after 30 s: no answer from"):
        await controller.run(sync_within=30)
    watching.cancel()


async def test_answers_and_errors_decide_when_to_look_again() -> None:
    """DONE: not again. Again(30): after 30 s. An error: soon, then later, and the log names controller, key and why."""
    at: list[float] = []
    answers: list[Result | Exception] = [
        Again(30, "grace ends"),
        RuntimeError("broken"),
        Conflict(Status(code=409, message="changed")),
        TimeoutError(),
        DONE,
    ]
    loop = asyncio.get_running_loop()

    async def reconcile(_: Key) -> Result:
        at.append(round(loop.time()))
        answer = answers[len(at) - 1]
        if isinstance(answer, Exception):
            raise answer
        await asyncio.sleep(0)
        return answer

    controller: Controller[Key] = Controller("test", reconcile)
    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(controller.run())
        controller.queue.add(A)
        await asyncio.sleep(1000)
        await controller.stop()
        await running
    assert at == [0, 30, 30, 30, 30]
    told = [(entry["log_level"], entry["event"], entry["key"]) for entry in logs]
    assert told == [
        ("error", "reconcile failed", "x/a"),
        ("debug", "read again", "x/a"),
        ("warning", "to be tried again", "x/a"),
    ]


async def test_a_reconcile_that_hangs_is_cut_off() -> None:
    """A wait without end ends at the deadline, and the worker is free for others."""
    seen: list[Key] = []

    async def reconcile(key: Key) -> Result:
        seen.append(key)
        if seen == [A]:
            await asyncio.Event().wait()
        return DONE

    controller: Controller[Key] = Controller("test", reconcile, deadline=5)
    running = asyncio.create_task(controller.run())
    controller.queue.add(A)
    controller.queue.add(B)
    await asyncio.sleep(6)
    await controller.stop()
    await running
    assert seen == [A, B, A]


async def test_stopping_finishes_what_is_in_work() -> None:
    """Shutdown lets the running reconcile end, within its deadline."""
    ended: list[Key] = []

    async def reconcile(key: Key) -> Result:
        await asyncio.sleep(3)
        ended.append(key)
        return DONE

    controller: Controller[Key] = Controller("test", reconcile, workers=2)
    running = asyncio.create_task(controller.run())
    controller.queue.add(A)
    await asyncio.sleep(1)
    await controller.stop(within=5)
    await running
    assert ended == [A]
    controller = Controller("test", reconcile)
    running = asyncio.create_task(controller.run())
    controller.queue.add(A)
    await asyncio.sleep(1)
    with pytest.raises(TimeoutError):
        await controller.stop(within=1)
    running.cancel()
