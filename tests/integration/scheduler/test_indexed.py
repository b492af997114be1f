"""Indexed Jobs: gangs by themselves, whose pods have ranks. The test is the controller that makes the pods."""

import asyncio

import pytest

from integration.scheduler.stage import Stage, until
from kurm.domain.gangs import COMPLETION_INDEX
from kurm.kube.resources import PODS, Key, Object
from kurm.kube.session import Deletion
from kurm.scheduler.objects import JOBS

pytestmark = pytest.mark.timeout(180)

SIZE = 4
NAMES = [f"train-{rank}" for rank in range(SIZE)]


async def made(stage: Stage) -> Object:
    """Make an Indexed Job whose pods run at once, without them."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    spec = {"completions": SIZE, "parallelism": SIZE, "completionMode": "Indexed", "template": template}
    return await stage.kube.create(
        JOBS.of(Object), {"metadata": {"name": "train", "namespace": stage.place}, "spec": spec}
    )


async def start(stage: Stage, job: Object, *ranks: int) -> None:
    """Make the pods of these ranks. Two of them fit a node."""
    for rank in ranks:
        await stage.pod(NAMES[rank], cpu="2", job=job, annotations={COMPLETION_INDEX: str(rank)})


async def places(stage: Stage) -> list[str]:
    """Return where the pods are, by their ranks."""
    return [await stage.node_of(name) for name in NAMES]


async def test_a_rank_is_replaced_after_slurmctld_has_forgotten_its_gang(stage: Stage) -> None:
    """What was one job is one for each node by then, and the slots' numbers are no ranks any more."""
    async with stage.scheduler():
        job = await made(stage)
        await start(stage, job, 0, 1, 2, 3)
        await until(lambda: stage.bound(*NAMES), SIZE)
        before = await places(stage)
        assert [stage.nodes[0]] * 2 + [stage.nodes[1]] * 2 == before
        await stage.crash_slurmctld()
        await until(stage.jobs, {f"train@{node}": ("RUNNING", "pin", node) for node in set(before)})
        held = await stage.jobs()
        await stage.end(NAMES[0])
        await start(stage, job, 0)
        await until(lambda: places(stage), before)
        assert held == await stage.jobs()


async def test_ranks_that_have_succeeded_are_not_waited_for_when_the_others_begin_anew(stage: Stage) -> None:
    """Their Job makes no pods for them any more: what is left is the gang, and has one allocation again."""
    async with stage.scheduler():
        job = await made(stage)
        await start(stage, job, 0, 1, 2, 3)
        await until(lambda: stage.bound(*NAMES), SIZE)
        await stage.end(*NAMES)
        await until(stage.jobs, {})
        done = {"status": {"completedIndexes": "0,2", "succeeded": 2}}
        await start(stage, job, 1, 3)
        await until(lambda: stage.reason(NAMES[1]), "GangIncomplete")
        await stage.kube.patch(JOBS.of(Object), Key(stage.place, "train"), done, subresource="status")
        await until(lambda: stage.bound(NAMES[1], NAMES[3]), 2)
        assert list(await stage.jobs()) == ["train"]
        await stage.end(NAMES[1], NAMES[3])
        await until(stage.jobs, {})


async def test_a_gang_whose_job_was_deleted_before_its_pods_keeps_its_allocation(stage: Stage) -> None:
    """Also after a restart of the scheduler, and of slurmctld: each pod says by what it was bound."""
    async with stage.scheduler():
        job = await made(stage)
        await start(stage, job, 0, 1, 2, 3)
        await until(lambda: stage.bound(*NAMES), SIZE)
    held = await stage.jobs()
    await stage.kube.delete(JOBS.of(Object), job.key, owned=Deletion.BACKGROUND)
    async with stage.scheduler("two") as two:
        await until(lambda: asyncio.sleep(0, two.ledger.open))
        await asyncio.sleep(3)
        assert held == await stage.jobs()
        nodes = set(await places(stage))
        await stage.forget()
        await until(stage.jobs, {f"train@{node}": ("RUNNING", "pin", node) for node in nodes})
        assert not any([await stage.leaving(name) for name in NAMES])
        await stage.end(*NAMES)
        await until(stage.jobs, {})


async def test_a_gang_is_as_large_as_its_job_says_now(stage: Stage) -> None:
    """An Indexed Job can be made smaller or larger. What runs makes room for a larger one, and begins anew."""
    async with stage.scheduler():
        job = await made(stage)
        await start(stage, job, 0, 1)
        await until(lambda: stage.reason(NAMES[0]), "GangIncomplete")
        await resize(stage, 2)
        await until(lambda: stage.bound(*NAMES[:2]), 2)
        await resize(stage, 3)
        await start(stage, job, 2)
        for name in NAMES[:2]:
            await until(lambda name=name: stage.leaving(name))  # type: ignore[misc]  # mypy knows no lambda's defaults
        await stage.end(*NAMES[:2])
        await start(stage, job, 0, 1)
        await until(lambda: stage.bound(*NAMES[:3]), 3)


async def resize(stage: Stage, size: int) -> None:
    """Change for how many pods the Job is."""
    await stage.kube.patch(
        JOBS.of(Object), Key(stage.place, "train"), {"spec": {"completions": size, "parallelism": size}}
    )


async def test_a_gang_that_has_ended_says_nothing_of_the_next_of_its_name(stage: Stage) -> None:
    """Its pods are still there to be read; the next one may be larger."""
    async with stage.scheduler():
        await stage.gang("ring", 2)
        await until(lambda: stage.bound("ring-0", "ring-1"), 2)
        for name in ("ring-0", "ring-1"):
            ended = {"status": {"phase": "Succeeded"}}
            await stage.kube.patch(PODS, Key(stage.place, name), ended, subresource="status")
        await until(stage.jobs, {})
        words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "3"}
        again = [f"again-{number}" for number in range(3)]
        for name in again:
            await stage.pod(name, annotations=words)
        await until(lambda: stage.bound(*again), 3)


async def test_annotations_that_are_mended_are_heeded(stage: Stage) -> None:
    """A pod that was refused for want of one has its gang as soon as it is there."""
    async with stage.scheduler():
        await stage.pod("alone", annotations={"slurm.kurm.dev/gang": "ring"})
        await until(lambda: stage.reason("alone"), "Refused")
        size = {"metadata": {"annotations": {"slurm.kurm.dev/gang-size": "1"}}}
        await stage.kube.patch(PODS, Key(stage.place, "alone"), size)
        await until(lambda: stage.bound("alone"), 1)
        assert list(await stage.jobs()) == ["ring"]


async def test_a_gang_that_waits_is_as_large_as_its_pods_say_now(stage: Stage) -> None:
    """Their annotations are changed one after the other; a Job may stop to be a gang at all."""
    async with stage.scheduler():
        words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "4"}
        for name in ("ring-0", "ring-1"):
            await stage.pod(name, annotations=words)
        job = await made(stage)
        await start(stage, job, 0)
        for name in ("ring-0", "ring-1", NAMES[0]):
            await until(lambda name=name: stage.reason(name), "GangIncomplete")  # type: ignore[misc]
        for name in ("ring-0", "ring-1"):
            size = {"metadata": {"annotations": {"slurm.kurm.dev/gang-size": "2"}}}
            await stage.kube.patch(PODS, Key(stage.place, name), size)
        await until(lambda: stage.bound("ring-0", "ring-1"), 2)
        await resize(stage, 1)
        await until(lambda: stage.bound(NAMES[0]), 1)
        assert sorted(await stage.jobs()) == ["ring", NAMES[0]]
