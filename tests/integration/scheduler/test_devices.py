"""Pods that ask for GPUs: what a node has of them is one pod's, in Slurm and in Kubernetes alike."""

import asyncio

import pytest

from integration.scheduler.stage import Stage, until
from kurm.scheduler import sight
from kurm.slurm import nodes

pytestmark = pytest.mark.timeout(180)


async def held(stage: Stage) -> dict[str, int]:
    """Return how many GPUs Slurm has given away of each node that has some."""
    async with stage.session() as session:
        answer = await nodes.list_nodes(session)
    found = {node.name: node.gres_used for node in (answer.nodes if answer else None) or () if node.gres}
    return {name: int(used.removeprefix("gpu:h100:").partition("(")[0]) for name, used in found.items()}


async def saved(stage: Stage, gres: str) -> None:
    """Wait until slurmctld has saved a node with so much, which it does up to five seconds late."""
    state = stage.machine.folder / "state/state/node_state"
    await until(lambda: asyncio.sleep(0, gres.encode() in state.read_bytes()))


async def test_a_pod_with_gpus_holds_all_that_its_node_has(stage: Stage) -> None:
    """However many it asks for; the next one has another node, and one without GPUs fits beside it."""
    first, second, _ = stage.nodes
    await stage.equip({first: 2, second: 2})
    async with stage.scheduler():
        await stage.pod("one", gpus=1)
        await stage.pod("two", gpus=2)
        await until(lambda: stage.bound("one", "two"), 2)
        assert {await stage.node_of("one"), await stage.node_of("two")} == {first, second}
        assert await held(stage) == {first: 2, second: 2}
        await stage.pod("plain-1", cpu="3")
        await stage.pod("plain-2", cpu="3")
        await until(lambda: stage.bound("plain-1", "plain-2"), 2)
        await stage.pod("three", gpus=1)
        await until(lambda: stage.reason("three"), "SlurmQueue")
        freed = await stage.node_of("two")
        await stage.end("two")
        await until(lambda: stage.node_of("three"), freed)
        assert await held(stage) == {first: 2, second: 2}


async def test_of_nodes_with_other_numbers_the_smallest_that_does_is_taken(stage: Stage) -> None:
    """A pod that asks more than any node has is told so."""
    small, large, _ = stage.nodes
    await stage.equip({small: 2, large: 4})
    async with stage.scheduler():
        await stage.pod("one", gpus=1)
        await until(lambda: stage.node_of("one"), small)
        await stage.pod("three", gpus=3)
        await until(lambda: stage.node_of("three"), large)
        assert await held(stage) == {small: 2, large: 4}
        await stage.pod("eight", gpus=8)
        await until(lambda: stage.reason("eight"), "Infeasible")


async def test_what_slurmctld_forgets_of_gpus_is_pinned_again(stage: Stage) -> None:
    """With its GPUs: nobody else gets them."""
    first, *_ = stage.nodes
    await stage.equip({first: 2})
    await saved(stage, "gpu:h100:2")
    async with stage.scheduler():
        await stage.pod("one", gpus=1)
        await until(lambda: stage.node_of("one"), first)
        await stage.crash_slurmctld()
        await until(lambda: held(stage), {first: 2})
        assert [(state, node) for state, _, node in (await stage.jobs()).values()] == [("RUNNING", first)]
        await stage.pod("two", gpus=1)
        await until(lambda: stage.reason("two"), "SlurmQueue")


async def queued_behind(stage: Stage) -> str:
    """Fill a node with 2 GPUs and one with 4; return the job of a pod `late` that waits for the smaller one."""
    await stage.pod("one", gpus=1)
    await stage.pod("three", gpus=3)
    await until(lambda: stage.bound("one", "three"), 2)
    await stage.pod("late", gpus=1)
    await until(lambda: stage.reason("late"), "SlurmQueue")
    (queued,) = (await stage.slurm("squeue", "-ah", "-t", "PD", "-o", "%i")).split()
    return queued


async def test_a_pod_in_the_queue_may_have_a_node_with_another_number(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its job, and so its place; what it gets is the whole of that node all the same."""
    monkeypatch.setattr(sight, "AMENDED_FOR", 1.0)
    small, large, _ = stage.nodes
    await stage.equip({small: 2, large: 4})
    async with stage.scheduler():
        queued = await queued_behind(stage)
        await stage.end("three")
        await until(lambda: stage.node_of("late"), large)
        assert (await stage.get("late")).metadata.annotations["kurm.dev/job"] == queued
        assert await held(stage) == {small: 2, large: 4}


async def test_a_grant_of_another_number_is_given_back(stage: Stage) -> None:
    """Slurm has granted less than the whole of a node that came after the pod was queued. It is asked anew."""
    small, large, _ = stage.nodes
    await stage.equip({small: 2, large: 4})
    async with stage.scheduler():
        queued = await queued_behind(stage)
    await stage.slurm("scontrol", "update", f"jobid={queued}", f"excnodelist={small}")
    await stage.scancel("three")
    await until(lambda: held(stage), {small: 2, large: 2})
    await stage.end("three")
    async with stage.scheduler("two"):
        await until(lambda: stage.bound("late"), 1, within=60)
        assert await held(stage) == {small: 2, large: 4}


async def test_a_forgotten_pod_gets_all_of_its_own_node_again(stage: Stage) -> None:
    """Not what it would be given now, where a node with fewer is free."""
    small, large, _ = stage.nodes
    await stage.equip({small: 2, large: 4})
    async with stage.scheduler():
        await stage.pod("one", gpus=1)
        await until(lambda: stage.node_of("one"), small)
        await stage.pod("two", gpus=1)
        await until(lambda: stage.node_of("two"), large)
        await stage.end("one")
        await saved(stage, "gpu:h100:4")
        await stage.forget()
        await until(lambda: held(stage), {small: 0, large: 4})
        assert not await stage.leaving("two")
