"""Indexed Jobs: gangs by themselves, whose pods have ranks. The test is the controller that makes the pods."""

from integration.scheduler.stage import Stage, until
from kurm.domain.gangs import COMPLETION_INDEX
from kurm.kube.resources import Key, Object
from kurm.scheduler.objects import JOBS

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
