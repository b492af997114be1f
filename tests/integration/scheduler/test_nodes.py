"""Pods on nodes that are silent, dead or down: none is ended for nothing, and none stands without a job."""

import asyncio

import pytest

from integration.scheduler.stage import Stage, until
from kurm.kube.resources import EVENTS, PODS, Key
from kurm.scheduler.objects import SLURM_CLUSTERS

pytestmark = pytest.mark.timeout(180)


async def bound(stage: Stage, name: str = "web") -> str:
    """Make a pod that fills its node, and return that."""
    await stage.pod(name, cpu="4")
    await until(lambda: stage.bound(name), 1)
    return await stage.node_of(name)


async def reported(stage: Stage) -> bool:
    """Whether an event tells of a pod that stays Terminating."""
    return b'"TerminatingForever"' in await stage.kube.request("GET", EVENTS.path(namespace=stage.place))


async def test_a_pod_has_a_job_again_when_its_node_is_back(stage: Stage) -> None:
    """Slurm has ended its job while nobody heard of the node, where the pod ran on."""
    async with stage.scheduler():
        node = await bound(stage)
        await stage.hear(node, "Unknown")
        await stage.set_node(node, "down")
        await until(stage.jobs, {})
        await asyncio.sleep(2)  # until the scheduler has seen that
        await stage.set_node(node, "resume")
        await stage.hear(node)
        await until(stage.jobs, {"web": ("RUNNING", "pin", node)})
        assert not await stage.leaving("web")


async def test_a_pod_runs_on_where_slurm_gives_out_nothing(stage: Stage) -> None:
    """Its node is down for Slurm alone: nobody can be given its share, and it has a job when the node is back."""
    async with stage.scheduler():
        node = await bound(stage)
        await stage.set_node(node, "down")
        await until(stage.jobs, {})
        await asyncio.sleep(8)  # twice as long as for a share that was given to others
        assert not await stage.leaving("web")
        await stage.set_node(node, "resume")
        await until(stage.jobs, {"web": ("RUNNING", "pin", node)})
        assert not await stage.leaving("web")


async def test_what_a_silent_node_held_is_free_when_it_is_dead(stage: Stage) -> None:
    """Until then its containers may run on, also those of a pod that somebody has deleted by force."""
    async with stage.scheduler():
        node = await bound(stage)
        before = await stage.jobs()
        await stage.hear(node, "Unknown")
        await stage.kube.delete(PODS, Key(stage.place, "web"), grace=0)
        await asyncio.sleep(4)
        assert before == await stage.jobs()
        await stage.hear(node, "Unknown", for_seconds=600)
        await until(stage.jobs, {})


async def test_a_pod_that_stays_terminating_on_a_dead_node_is_told_of_and_by_policy_deleted(stage: Stage) -> None:
    """Nobody but its kubelet could say that it is gone; who sets the policy says that dead nodes are switched off."""
    async with stage.scheduler():
        node = await bound(stage)
        await stage.kube.delete(PODS, Key(stage.place, "web"))
        await stage.hear(node, "Unknown")
        await asyncio.sleep(3)
        assert not await reported(stage)
        await stage.hear(node, "Unknown", for_seconds=600)
        await until(lambda: reported(stage))
        assert await stage.leaving("web")
        assert {"web"} == set(await stage.jobs())
        policy = {"spec": {"scheduler": {"terminatingForever": "delete"}}}
        await stage.kube.patch(SLURM_CLUSTERS, Key(stage.place, "demo"), policy)
        await until(stage.jobs, {})
        assert b'"web"' not in await stage.kube.request("GET", PODS.path(namespace=stage.place))
