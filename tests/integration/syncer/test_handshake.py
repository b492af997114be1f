"""Drains are lifted only for pods that nobody can evict; nodes that are dead or overdue have their jobs requeued."""

import asyncio
from datetime import UTC, datetime, timedelta

from integration.slurm.hints import served
from integration.syncer.stage import Stage, until
from integration.syncer.test_ownership import CORDONED, comment_of, ready_reason
from integration.syncer.test_syncer import IN_SERVICE, drain_of
from kurm.domain.signals import SLURM_DRAINED
from kurm.slurm import jobs
from kurm.syncer.conditions import rfc3339


async def test_an_uncordoned_node_waits_until_its_pod_is_protected(stage: Stage, prefix: str) -> None:
    """The operator had taken the label off: the proof is taken back first, and jobs come when the label is back."""
    one = f"{prefix}1"
    await stage.claim([one])
    await stage.taking_jobs(one)
    async with stage.syncer():
        await stage.cordon(one)
        await until(lambda: stage.drained(one))
        await stage.protect(one, protected=False)
        await stage.uncordon(one)
        await until(lambda: ready_reason(stage, one), "Resuming")
        proof = (await stage.conditions(one))[SLURM_DRAINED]
        assert (proof.status, proof.reason) == ("False", "Resuming")
        await asyncio.sleep(0.5)
        assert await drain_of(stage, one) == CORDONED
        await stage.protect(one)
        await until(lambda: drain_of(stage, one), IN_SERVICE)
        await until(lambda: ready_reason(stage, one), "InService")


async def state_of(stage: Stage, job: int) -> tuple[str, ...]:
    """Return what became of a job."""
    async with stage.session() as slurm:
        return (await jobs.get_job(slurm, job)).job_state


async def test_a_dead_nodes_jobs_end_and_it_comes_back(stage: Stage, prefix: str) -> None:
    """Not before it was not heard of for `dead_after`; what is left of it in Slurm goes when it is back."""
    one, two = f"{prefix}1", f"{prefix}2"
    await stage.claim([one, two])
    await stage.taking_jobs(one, two)
    async with stage.syncer(dead_after=12.0):
        job, other = await stage.start_job(one), await stage.start_job(two)
        await stage.update(two, state="DRAIN", reason="fan is loud")
        for name in (one, two):
            await stage.condition(name, "Ready", "Unknown", "Kubelet stopped posting node status.")
        await until(lambda: drain_of(stage, one), (True, "kurm: node not ready: Kubelet stopped posting node status."))
        assert await state_of(stage, job) == ("RUNNING",)
        await until(lambda: state_of(stage, job), ("NODE_FAIL",), within=40)
        await until(lambda: state_of(stage, other), ("NODE_FAIL",))
        drained, reason = await drain_of(stage, one)
        assert (drained, reason.startswith("kurm: node dead: not heard of since ")) == (True, True)
        assert await drain_of(stage, two) == (True, "fan is loud")
        await stage.condition(one, "Ready", "True")
        await until(lambda: drain_of(stage, one), IN_SERVICE)
        await until(lambda: comment_of(stage, one), "")
        assert "IDLE" in (await stage.records())[one].state
        await until(lambda: ready_reason(stage, one), "InService")


async def test_a_release_that_is_overdue_ends_its_jobs(stage: Stage, prefix: str) -> None:
    """Until then they are waited for; the reason of the drain stays, and the pod is told that it may go."""
    one = f"{prefix}1"
    await stage.claim([one])
    await stage.taking_jobs(one)
    async with stage.syncer():
        job = await stage.start_job(one)
        overdue = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=12)
        await stage.release(one, requeue_at=rfc3339(overdue))
        await until(lambda: drain_of(stage, one), (True, "kurm: scaling in"))
        assert await state_of(stage, job) == ("RUNNING",)
        await until(lambda: state_of(stage, job), ("NODE_FAIL",), within=40)
        assert datetime.now(UTC) >= overdue
        await until(lambda: stage.drained(one))
        assert await drain_of(stage, one) == (True, "kurm: scaling in")


async def test_what_an_administrator_does_is_told_at_once(stage: Stage, prefix: str) -> None:
    """The log of slurmctld hints at it: nobody lists all nodes, and nobody waits for the net."""
    names = [f"{prefix}{number}" for number in range(20)]
    await stage.claim(names)
    async with served(stage.lab) as address, stage.syncer(controller=address) as syncer:
        await until(stage.marked, set(names))
        await asyncio.sleep(2.0)
        calls = syncer.records.session.traffic.calls
        before = calls.copy()
        await stage.update(names[3], state="DRAIN", reason="fan is loud")
        await until(lambda: stage.drained(names[3]))
        asked = {route: count - before[route] for route, count in calls.items() if count != before[route]}
        assert asked.get("GET nodes/", 0) == 0
        assert asked.get("GET node/{}", 0) <= 3
