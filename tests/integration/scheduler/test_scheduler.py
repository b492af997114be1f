"""Pods through a real Slurm's queue, on a real API server: placed, released, ended, pinned again."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from integration.scheduler.stage import Stage, until
from kurm.kube.errors import Unreachable
from kurm.kube.resources import PODS, Key
from kurm.scheduler.prospects import Wish
from kurm.scheduler.scheduler import Scheduler
from kurm.scheduler.sight import Case

pytestmark = pytest.mark.timeout(180)


async def test_a_pod_is_bound_and_its_job_ends_with_it(stage: Stage) -> None:
    """In squeue it has its name, and the pod shows its job; when it has ended, so has the job."""
    async with stage.scheduler():
        await stage.pod("web")
        await until(lambda: stage.bound("web"), 1)
        pod = await stage.get("web")
        assert {"web": ("RUNNING", "services", pod.spec.node_name)} == await stage.jobs()
        assert pod.metadata.uid == pod.metadata.annotations["kurm.dev/allocation"]
        await stage.end("web")
        await until(stage.jobs, {})


async def test_a_pod_that_finds_no_room_waits_in_the_queue(stage: Stage) -> None:
    """It is told that it waits, and is bound when another pod leaves."""
    async with stage.scheduler():
        fillers = [f"filler-{number}" for number in range(3)]
        for name in fillers:
            await stage.pod(name, cpu="4")
        await until(lambda: stage.bound(*fillers), 3)
        await stage.pod("late", cpu="4")
        await until(lambda: stage.reason("late"), "SlurmQueue")
        assert (await stage.jobs())["late"][0] == "PENDING"
        await stage.end("filler-1")
        await until(lambda: stage.bound("late"), 1)
        assert len(await stage.jobs()) == 3


async def test_a_cancelled_job_ends_its_pod(stage: Stage) -> None:
    """The pod is told why, and deleted with its grace."""
    async with stage.scheduler():
        await stage.pod("web")
        await until(lambda: stage.bound("web"), 1)
        await stage.scancel("web")
        await until(lambda: stage.leaving("web"))
        told = (await stage.get("web")).condition("DisruptionTarget")
        assert told is not None
        assert (told.status, told.reason) == ("True", "SlurmJobEnded")


async def test_a_pod_deleted_by_force_frees_its_share(stage: Stage) -> None:
    """Nobody confirms its end; the start gate of its node is what holds the next job."""
    async with stage.scheduler():
        await stage.pod("web")
        await until(lambda: stage.bound("web"), 1)
        await stage.kube.delete(PODS, Key(stage.place, "web"), grace=0)
        await until(stage.jobs, {})


async def test_a_restarted_scheduler_finds_what_it_left(stage: Stage) -> None:
    """What is bound stays, what went meanwhile is released, what came is placed; nothing is asked for twice."""
    async with stage.scheduler("one"):
        for name in ("stays", "goes"):
            await stage.pod(name)
        await until(lambda: stage.bound("stays", "goes"), 2)
    before = await stage.jobs()
    await stage.end("goes")
    await stage.pod("comes")
    async with stage.scheduler("two"):
        await until(lambda: stage.bound("comes"), 1)
        await until(lambda: _names(stage), {"stays", "comes"})
        assert before["stays"] == (await stage.jobs())["stays"]


async def test_a_second_scheduler_stands_by(stage: Stage) -> None:
    """It writes nothing while the first one leads, and goes on at once when that has given the Lease back."""
    async with AsyncExitStack() as later:
        async with stage.scheduler("one") as first:
            await stage.pod("early")
            await until(lambda: stage.bound("early"), 1)
            second = await later.enter_async_context(stage.scheduler("two"))
            await stage.pod("next")
            await until(lambda: stage.bound("next"), 1)
            assert (first.leadership.leads, second.leadership.leads) == (True, False)
        before = await stage.jobs()
        await stage.pod("late")
        await until(lambda: stage.bound("late"), 1)
        assert second.leadership.leads
        assert before.items() <= (await stage.jobs()).items()


async def test_what_slurmctld_forgets_is_pinned_again(stage: Stage) -> None:
    """A kill -9 a moment after the binds: each pod has a job on its own node again, though others wait for it."""
    async with stage.scheduler():
        names = [f"web-{number}" for number in range(6)]
        for name in names:
            await stage.pod(name, cpu="2")
        await until(lambda: stage.bound(*names), 6)
        places = {name: await stage.node_of(name) for name in names}
        await stage.crash_slurmctld()
        await until(lambda: _places(stage), places)
        await stage.pod("late", cpu="2")
        await until(lambda: stage.reason("late"), "SlurmQueue")
        assert places == {name: await stage.node_of(name) for name in names}
        await stage.end("web-0")
        await until(lambda: stage.bound("late"), 1)


async def test_a_gang_is_bound_whole_or_not_at_all(stage: Stage) -> None:
    """It waits for the last of its pods, then for the last of its nodes; one allocation holds all of it."""
    async with stage.scheduler():
        await stage.pod("other", cpu="4")
        await until(lambda: stage.bound("other"), 1)
        words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "3"}
        for number in range(2):
            await stage.pod(f"ring-{number}", cpu="4", annotations=words)
        await until(lambda: stage.reason("ring-0"), "GangIncomplete")
        assert {"other"} == await _names(stage)
        await stage.pod("ring-2", cpu="4", annotations=words)
        await until(lambda: stage.reason("ring-2"), "SlurmQueue")
        assert await stage.bound("ring-0", "ring-1", "ring-2") == 0
        await stage.end("other")
        await until(lambda: stage.bound("ring-0", "ring-1", "ring-2"), 3)
        assert {"ring"} == await _names(stage)
        assert stage.nodes == [await stage.node_of(f"ring-{number}") for number in range(3)]
        await stage.end("ring-0", "ring-1", "ring-2")
        await until(stage.jobs, {})


async def test_a_gang_is_bound_whole_though_the_api_server_died_amid_it(stage: Stage) -> None:
    """It never heard of some binds. Their pods count on no node meanwhile, or there would be no room for them."""
    async with stage.scheduler():
        hang_up_on(stage, "ring-2", "ring-6", "ring-10", "ring-11")
        await stage.gang("ring", 12)  # all that the three nodes have
        await until(lambda: stage.bound(*(f"ring-{number}" for number in range(12))), 12)


def hang_up_on(stage: Stage, *names: str) -> None:
    """Have the API server not be there as these pods are to be bound, the first time."""
    left, bind = set(names), stage.kube.bind

    async def lost(pod: Key, node: str, **what: Any) -> None:
        if pod.name in left:
            left.remove(pod.name)
            raise Unreachable(stage.kube.config.server, "it hung up", "nothing")
        await bind(pod, node, **what)

    stage.kube.bind = lost  # type: ignore[method-assign]


async def test_a_replaced_pod_of_a_gang_takes_its_slot(stage: Stage) -> None:
    """The others run on; the allocation is the same."""
    async with stage.scheduler():
        await stage.gang("ring", 3, cpu="4")
        ring = [f"ring-{number}" for number in range(3)]
        await until(lambda: stage.bound(*ring), 3)
        before, place = await stage.jobs(), await stage.node_of("ring-1")
        await stage.end("ring-1")
        words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "3"}
        await stage.pod("ring-1", cpu="4", annotations=words)
        await until(lambda: stage.bound("ring-1"), 1)
        assert place == await stage.node_of("ring-1")
        assert before == await stage.jobs()


async def test_a_gang_is_pinned_node_by_node(stage: Stage) -> None:
    """One job for three pods is forgotten; afterwards there is a job for each of its nodes, and for who comes there."""
    async with stage.scheduler():
        await stage.gang("ring", 3, cpu="4")
        ring = [f"ring-{number}" for number in range(3)]
        await until(lambda: stage.bound(*ring), 3)
        await stage.crash_slurmctld()
        await until(lambda: _names(stage), {f"ring@{node}" for node in stage.nodes})
        before, place = await stage.jobs(), await stage.node_of("ring-1")
        await stage.end("ring-1")
        words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "3"}
        await stage.pod("ring-1", cpu="4", annotations=words)
        await until(lambda: stage.node_of("ring-1"), place)
        assert before == await stage.jobs()


async def test_a_foreign_pod_on_the_pool_has_its_share(stage: Stage) -> None:
    """Somebody else has bound it: Slurm must not sell what it takes."""
    async with stage.scheduler():
        await stage.pod("guest", cpu="4", node=stage.nodes[0], scheduler="somebody")
        await until(stage.jobs, {"guest": ("RUNNING", "pin", stage.nodes[0])})
        await stage.end("guest")
        await until(stage.jobs, {})


async def test_without_slurm_pods_wait_and_are_told(stage: Stage) -> None:
    """They are placed when it is back; what runs is not touched."""
    async with stage.scheduler():
        await stage.pod("runs")
        await until(lambda: stage.bound("runs"), 1)
        await asyncio.sleep(6)  # slurmctld saves its state every five seconds
        await asyncio.to_thread(stage.machine.kill_controller)
        await stage.pod("waits")
        await until(lambda: stage.reason("waits"), "SlurmAway")
        await asyncio.to_thread(stage.machine.start_slurmctld)
        await until(lambda: stage.bound("runs", "waits"), 2)
        await until(lambda: _names(stage), {"runs", "waits"})
        assert not await stage.leaving("runs")


async def test_a_pod_that_comes_while_slurm_is_away_for_a_moment_is_not_forgotten(stage: Stage) -> None:
    """It was looked at in vain, and nothing else happens that would soon have it looked at again."""
    async with stage.scheduler() as scheduler:
        await stage.pod("runs")
        await until(lambda: stage.bound("runs"), 1)
        await asyncio.sleep(3)  # what the first one has moved is over
        away_at_the_first_look(scheduler)
        await stage.pod("comes")
        await until(lambda: stage.bound("comes"), 1, within=10)


async def test_the_gate_opens_though_slurm_is_away_as_the_last_of_an_owner_goes(stage: Stage) -> None:
    """Its pod is gone and its job has just been cancelled: nothing but the closed gate knows of it any more."""
    async with stage.scheduler("one"):
        await stage.pod("goes")
        await until(lambda: stage.bound("goes"), 1)
    await stage.end("goes")
    async with stage.scheduler("two") as scheduler:
        away_after_a_cancellation(scheduler)
        await stage.pod("comes")
        await until(lambda: stage.bound("comes"), 1, within=20)


async def test_the_gate_stays_closed_for_who_was_looked_at_in_vain(stage: Stage) -> None:
    """Slurmctld has forgotten a pod's job, and slurmrestd hangs up as it is to be pinned: it is pinned all the same."""
    async with stage.scheduler() as scheduler:
        await stage.pod("runs", cpu="4")
        await until(lambda: stage.bound("runs"), 1)
        place = await stage.node_of("runs")
        away_at_the_first_look(scheduler, epoch=scheduler.ledger.epoch)
        await stage.crash_slurmctld()
        await until(lambda: _places(stage), {"runs": place})
        assert not await stage.leaving("runs")


def away_after_a_cancellation(scheduler: Scheduler) -> None:
    """Have Slurm be away just when the first job has been cancelled."""
    cancelled = scheduler.ledger.cancelled

    def away(job: int) -> None:
        cancelled(job)
        scheduler.ledger.cancelled = cancelled  # type: ignore[method-assign]
        scheduler.ledger.lose("slurmrestd hung up")

    scheduler.ledger.cancelled = away  # type: ignore[method-assign]


def away_at_the_first_look(scheduler: Scheduler, epoch: str = "") -> None:
    """Have Slurm be away for a moment as an owner is looked at next; with an epoch in the life that comes after it."""
    sight = scheduler.placer.sight
    look = sight.case

    def case(owner: str, wish: Wish | None = None) -> Case:
        if scheduler.ledger.epoch != epoch and scheduler.ledger.known:
            sight.case = look  # type: ignore[method-assign]
            scheduler.ledger.lose("an answer was lost")
        return look(owner, wish)

    sight.case = case  # type: ignore[method-assign]


async def _names(stage: Stage) -> set[str]:
    return set(await stage.jobs())


async def _places(stage: Stage) -> dict[str, str]:
    return {name: nodes for name, (state, _, nodes) in (await stage.jobs()).items() if state == "RUNNING"}
