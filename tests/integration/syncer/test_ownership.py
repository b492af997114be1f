"""Drains for what Kubernetes says, and whose they are: a real API server, and a real slurmctld that remembers."""

import asyncio
from datetime import UTC, datetime

from integration.syncer.stage import Stage, until
from integration.syncer.test_syncer import IN_SERVICE, drain_of
from kurm.domain.signals import (
    SLURM_ALLOCATED,
    SLURM_DRAINED,
    SLURM_DRAINING,
    SLURM_JOBS,
    SLURM_JOBS_END,
    SLURM_READY,
    SLURM_REASON,
    SLURM_STATE,
)
from kurm.slurm import jobs
from kurm.syncer.conditions import rfc3339

CORDONED = (True, "kurm: cordoned")
BY_ADMIN = (True, "fan is loud")


async def comment_of(stage: Stage, name: str) -> str:
    """Return the comment of a node's record."""
    return (await stage.records())[name].comment


async def holding(stage: Stage, name: str) -> set[str]:
    """Return which conditions of a node's pod hold."""
    return {kind for kind, one in (await stage.conditions(name)).items() if one.status == "True"}


async def end_of(stage: Stage, job: int) -> str:
    """Return when a job ends by its time limit, as an annotation has it."""
    async with stage.session() as slurm:
        end = (await jobs.get_job(slurm, job)).end_time.value
    assert end
    return rfc3339(datetime.fromtimestamp(end, UTC))


async def ready_reason(stage: Stage, name: str) -> str:
    """Return why the pod's node is in service or not, in a word."""
    condition = (await stage.conditions(name)).get(SLURM_READY)
    return condition.reason if condition else ""


async def test_a_cordon_drains_and_its_end_resumes(stage: Stage, prefix: str) -> None:
    """With a person's words; the pod says what Slurm says, and a job is waited for."""
    one = f"{prefix}1"
    await stage.claim([one])
    await stage.taking_jobs(one)
    async with stage.syncer():
        job = await stage.start_job(one)
        await stage.cordon(one)
        await until(lambda: drain_of(stage, one), CORDONED)
        await until(lambda: holding(stage, one), {SLURM_DRAINING})
        expected = {SLURM_STATE: "DRAINING", SLURM_REASON: "kurm: cordoned", SLURM_ALLOCATED: "true", SLURM_JOBS: "1"}
        expected[SLURM_JOBS_END] = await end_of(stage, job)
        await until(lambda: stage.annotations(one), expected)
        await stage.cordon(one, words="disk errors")
        await until(lambda: drain_of(stage, one), (True, "kurm: cordoned: disk errors"))
        await stage.end_job(job)
        await until(lambda: holding(stage, one), {SLURM_DRAINED})
        expected = {SLURM_STATE: "DRAINED", SLURM_REASON: "kurm: cordoned: disk errors", SLURM_ALLOCATED: "false"}
        await until(lambda: stage.annotations(one), expected)
        await stage.uncordon(one)
        await until(lambda: drain_of(stage, one), IN_SERVICE)
        await until(lambda: comment_of(stage, one), "")
        await until(lambda: stage.drained(one), expected=False)
        # What is no longer said is taken back from the pod.
        await until(lambda: stage.annotations(one), {SLURM_STATE: "UP", SLURM_ALLOCATED: "false"})


async def test_candidates_for_scaling_in_say_when_their_jobs_end(stage: Stage, prefix: str) -> None:
    """Asked for only while a NodeSet has more nodes than it wants; nobody else bears the annotations."""
    one, two = f"{prefix}1", f"{prefix}2"
    await stage.claim([one, two])
    await stage.taking_jobs(one, two)
    async with stage.syncer() as syncer:
        await until(lambda: comment_of(stage, two), "")
        first, last = await stage.start_job(one), await stage.start_job(one)
        calls = syncer.records.session.traffic.calls
        assert calls["GET jobs/state/"] == 0
        await stage.node_set("workers", replicas=1)
        ends = max(await end_of(stage, first), await end_of(stage, last))

        async def told(name: str) -> tuple[str | None, ...]:
            found = await stage.annotations(name)
            return tuple(found.get(key) for key in (SLURM_ALLOCATED, SLURM_JOBS, SLURM_JOBS_END))

        await until(lambda: told(one), ("true", "2", ends))
        assert (await told(two))[1:] == (None, None)
        await stage.end_job(last)
        ends = await end_of(stage, first)
        await until(lambda: told(one), ("true", "1", ends))
        await stage.node_set("workers")
        await until(lambda: told(one), ("true", None, None))
        await asyncio.sleep(1.0)
        before = calls["GET jobs/state/"]
        await asyncio.sleep(6.0)
        assert calls["GET jobs/state/"] == before


async def test_a_thousand_cordons_are_few_calls(stage: Stage, prefix: str) -> None:
    """Drain and memory are one call for all of them: here forty."""
    names = [f"{prefix}{number}" for number in range(40)]
    await stage.claim(names, pods=False)
    async with stage.syncer() as syncer:
        await until(stage.marked, set(names))
        before = syncer.records.session.traffic.calls["POST nodes/"]
        await stage.cordon(*names)

        async def drained() -> set[tuple[bool, str, str]]:
            return {(one.draining, one.reason, one.comment) for one in (await stage.records()).values()}

        await until(drained, {(True, "kurm: cordoned", "[kurm: drained=cordoned]")})
        # The cordons come one after another, a few milliseconds each: several rounds, and never one for each.
        assert syncer.records.session.traffic.calls["POST nodes/"] - before <= len(names) / 2


async def test_a_node_that_is_not_ready_and_one_with_a_chosen_condition(stage: Stage, prefix: str) -> None:
    """The strongest cause stands in the reason; one after the other goes, and the drain with the last."""
    one = f"{prefix}1"
    await stage.claim([one])
    async with stage.syncer(drain_conditions=["KernelDeadlock"]):
        await until(stage.marked, {one})
        await stage.condition(one, "Ready", "Unknown", "Kubelet stopped posting node status.")
        await until(lambda: drain_of(stage, one), (True, "kurm: node not ready: Kubelet stopped posting node status."))
        await stage.condition(one, "KernelDeadlock", "True", "docker hung")
        await until(lambda: drain_of(stage, one), (True, "kurm: KernelDeadlock: docker hung"))
        await stage.cordon(one)
        await until(lambda: drain_of(stage, one), CORDONED)
        await stage.condition(one, "KernelDeadlock", "False")
        await stage.uncordon(one)
        await until(lambda: drain_of(stage, one), (True, "kurm: node not ready: Kubelet stopped posting node status."))
        await stage.condition(one, "OutOfPaper", "True", "nobody has chosen this one")
        await stage.condition(one, "Ready", "True")
        await until(lambda: drain_of(stage, one), IN_SERVICE)


async def test_an_administrators_drain_survives_everything(stage: Stage, prefix: str) -> None:
    """Cordon, uncordon, a pod made anew, a syncer and a slurmctld started again."""
    one = f"{prefix}1"
    await stage.claim([one])
    async with stage.syncer() as syncer:
        await until(stage.marked, {one})
        await stage.update(one, state="DRAIN", reason="fan is loud", comment="inventory 7")
        syncer.records.hint(one)
        await until(lambda: ready_reason(stage, one), "Drained")
        assert (await stage.annotations(one))[SLURM_REASON] == "fan is loud"
        await stage.cordon(one)
        await asyncio.sleep(0.5)
        await stage.uncordon(one)
        await stage.cordon(one)
        await stage.delete_pod(one)
        await stage.pod(one)
        await asyncio.sleep(0.5)
    await asyncio.to_thread(stage.lab.stop_controller)
    await asyncio.to_thread(stage.lab.start_controller)
    async with stage.syncer():
        await until(lambda: ready_reason(stage, one), "Drained")
        await stage.uncordon(one)
        await asyncio.sleep(1)
        assert await drain_of(stage, one) == BY_ADMIN
        assert await comment_of(stage, one) == "inventory 7"


async def test_a_resume_against_a_standing_cordon_is_respected(stage: Stage, prefix: str) -> None:
    """By the next syncer, too, and after slurmctld was started again; the next cordon drains."""
    one = f"{prefix}1"
    await stage.claim([one])
    await stage.taking_jobs(one)
    async with stage.syncer() as syncer:
        await stage.update(one, comment="inventory 7")
        await stage.cordon(one, words="disk errors")
        await until(lambda: drain_of(stage, one), (True, "kurm: cordoned: disk errors"))
        assert await comment_of(stage, one) == "inventory 7 [kurm: drained=cordoned]"
        await until(lambda: stage.drained(one))
        await stage.update(one, state="RESUME")
        syncer.records.hint(one)
        await until(lambda: comment_of(stage, one), "inventory 7 [kurm: overridden=cordoned]")
        await until(lambda: stage.drained(one), expected=False)
    await asyncio.to_thread(stage.lab.stop_controller)
    await asyncio.to_thread(stage.lab.start_controller)
    async with stage.syncer():
        await asyncio.sleep(1)
        assert await drain_of(stage, one) == IN_SERVICE
        await stage.condition(one, "Ready", "False", "container runtime is down")
        await until(lambda: drain_of(stage, one), (True, "kurm: node not ready: container runtime is down"))
        await stage.condition(one, "Ready", "True")
        await until(lambda: drain_of(stage, one), IN_SERVICE)
        await stage.uncordon(one)
        await until(lambda: comment_of(stage, one), "inventory 7")
        await stage.cordon(one)
        await until(lambda: drain_of(stage, one), (True, "kurm: cordoned: disk errors"))


async def test_a_resume_while_no_syncer_runs_is_respected_by_the_next(stage: Stage, prefix: str) -> None:
    """Nobody saw it happen: what Slurm remembers says it."""
    one = f"{prefix}1"
    await stage.claim([one])
    async with stage.syncer():
        await until(stage.marked, {one})
        await stage.cordon(one)
        await until(lambda: drain_of(stage, one), CORDONED)
    await stage.update(one, state="RESUME")
    async with stage.syncer():
        await until(lambda: comment_of(stage, one), "[kurm: overridden=cordoned]")
        await asyncio.sleep(0.5)
        assert await drain_of(stage, one) == IN_SERVICE
