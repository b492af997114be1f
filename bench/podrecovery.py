"""What becomes of pods when the scheduler or slurmctld is killed, and how long it takes."""

import asyncio
import time

from podfigures import SETTLE, Bench, Figures, running, warm
from podload import PLACE, Load, Shape
from podworld import MARK, Contender, PodWorld

from kurm.slurm.wire import Answer, number

SAVED = 7.0
"""Seconds after which slurmctld has surely saved what it was told: it does so within 5."""
BATCH_JOBS = 100
HELD = Shape(cpus=48, selector={MARK: "true"})
"""One of them to a node, on nodes that batch jobs wait for."""


async def scheduler(bench: Bench, contender: Contender) -> None:
    """Kill the scheduler while pods are created, and start it again: until the first and the last of them is bound."""
    load = bench.load
    with running(bench, contender) as first:
        await warm(bench, contender)
        creating = asyncio.create_task(load.create(100, contender.scheduler_name, rate=50))
        await asyncio.sleep(1)
        load.ended = lambda: None
        bench.world.kill(first)
    names = await creating
    begun = time.monotonic()
    late = [name for name in names if name not in load.bound]
    with running(bench, contender):
        await load.all_bound(names, within=SETTLE)
        times = [load.bound[name][0] - begun for name in late]
        figures = {"unbound": len(late), "start_to_first_s": round(min(times), 2), "to_last_s": round(max(times), 2)}
        bench.note("scheduler killed", contender, figures)
        await load.clear()


async def controller(bench: Bench, contender: Contender, pods: int) -> None:
    """Kill slurmctld right after pods were bound, with batch jobs waiting for their nodes.

    The jobs are eligible only after the pods are bound, for a job that is made later would be forgotten with them.
    """
    world, load = bench.world, bench.load
    with running(bench, contender):
        await warm(bench, contender)
        await load.clear()  # each pod is to have a node to itself
        eligible = time.time() + SAVED + pods / 20
        await submit(world, round(eligible))
        await asyncio.sleep(SAVED)
        names = await load.create(pods, contender.scheduler_name, HELD)
        await load.all_bound(names, within=SETTLE)
        acknowledged = max(load.bound[name][0] for name in names)
        world.kill_controller()
        killed = time.monotonic()
        await asyncio.sleep(max(0.0, eligible + 1 - time.time()))
        figures = await restarted(world, load, contender, names)
        figures = {"acknowledged": pods, "acknowledged_to_killed_s": round(killed - acknowledged, 2)} | figures
        bench.note("slurmctld killed", contender, figures)
        await load.clear()
    await cancel(world)


async def restarted(world: PodWorld, load: Load, contender: Contender, names: list[str]) -> Figures:
    """Start slurmctld again; return what it still knew, and how long it took until all pods were held again."""
    world.machine.start_slurmctld()
    async with asyncio.timeout(60):
        while (queue := await ask(world)) is None:  # noqa: ASYNC110 - it is asked of a program
            await asyncio.sleep(0.05)
    back = time.monotonic()
    known = len(held(queue, load) & set(names))
    given_away, pinned = 0, 0.0
    (after,) = await load.create(1, contender.scheduler_name)
    while not pinned and time.monotonic() < back + SETTLE:
        given_away = max(
            given_away, sum(name.startswith("batch-") and state == "RUNNING" for name, _, state, _ in queue)
        )
        if set(names) <= held(queue, load):
            pinned = time.monotonic()
        await asyncio.sleep(0.1)
        queue = await ask(world) or queue
    await load.all_bound([after], within=SETTLE)
    return {
        "remembered": known,
        "back_to_all_held_s": round(pinned - back, 2) if pinned else None,
        "held_at_last": len(held(queue, load) & set(names)),
        "given_away": given_away,
        "batch_jobs_waiting": sum(name.startswith("batch-") and state == "PENDING" for name, _, state, _ in queue),
        "then_to_next_bind_s": round(max(0.0, load.bound[after][0] - max(pinned, load.made[after])), 2),
    }


async def ask(world: PodWorld) -> list[tuple[str, str, str, str]] | None:
    """Return Slurm's queue; None while slurmctld does not answer."""
    try:
        return await asyncio.to_thread(world.queue)
    except RuntimeError:
        return None


def held(queue: list[tuple[str, str, str, str]], load: Load) -> set[str]:
    """Return the pods of which a running job holds the node that they are bound to."""
    found = set()
    for job, _, state, node in queue:
        place, _, rest = job.partition("/")
        pod = rest.partition(".")[0]
        if state == "RUNNING" and place == PLACE and pod in load.bound and load.bound[pod][1] == node:
            found.add(pod)
    return found


async def submit(world: PodWorld, eligible: int) -> None:
    """Submit batch jobs that ask for a whole one of the marked nodes each, from a time on."""
    for index in range(BATCH_JOBS):
        job = {
            "name": f"batch-{index}",
            "partition": "batch",
            "flags": ["EXTERNAL_JOB"],
            "tasks": 1,
            "cpus_per_task": 60,
            "memory_per_node": number(1024),
            "constraints": MARK,
            "begin_time": number(eligible),
            "current_working_directory": "/tmp",  # noqa: S108 - the lab's own
            "environment": ["PATH=/usr/bin:/bin"],
        }
        await world.slurm.request(Answer, "POST", "job/submit", body={"job": job})


async def cancel(world: PodWorld) -> None:
    """End the batch jobs."""
    await asyncio.to_thread(world.machine.slurm, "scancel", "--partition", "batch")
