"""The syncer between a real API server and a real slurmctld."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from integration.slurm.lab import CONF
from integration.syncer.stage import Stage, until
from kurm.domain.signals import SLURM_READY
from kurm.kube.resources import EVENTS, NODES, Key, Object
from kurm.slurm import nodes
from kurm.slurm.cluster import reconfigure
from kurm.syncer.objects import SLURM_CLUSTERS
from kurm.web import health

IN_SERVICE = (False, "")


async def drain_of(stage: Stage, name: str) -> tuple[bool, str]:
    """Return whether a node drains, and its reason."""
    record = (await stage.records())[name]
    return record.draining, record.reason


async def test_fifty_claimed_nodes_get_fifty_marked_records(stage: Stage, prefix: str) -> None:
    """One creation for all of them, one mark for each, three lists; and in quiet nothing but a list now and then."""
    names = [f"{prefix}{number}" for number in range(50)]
    await stage.claim(names, pods=False)
    async with stage.syncer() as syncer:
        await until(stage.marked, set(names))
        await until(lambda: _idle(syncer))
        calls = dict(syncer.records.session.traffic.calls)
        await asyncio.sleep(3)
        after = syncer.records.session.traffic.total
    assert (calls["POST new/node/"], calls["POST nodes/"]) == (1, 50)
    assert sum(calls.values()) <= 60
    assert after - sum(calls.values()) <= 1
    record = (await stage.records())[names[0]]
    assert (record.cpus, record.real_memory, record.features) == (4, 3584, ("nodeset:workers",))


async def _idle(syncer: object) -> bool:
    rounds = syncer.rounds  # type: ignore[attr-defined]
    return not (len(rounds.queue) or rounds.queue.working or rounds.queue.delayed)


async def test_a_released_node_may_go_when_its_job_has_ended(stage: Stage, prefix: str) -> None:
    """The drain waits for the job, and the pod says so; taken back it is in service; given up its record goes."""
    one = f"{prefix}1"
    await stage.claim([one])
    await stage.taking_jobs(one)
    async with stage.syncer():
        job = await stage.start_job(one)
        await stage.release(one)
        await until(lambda: drain_of(stage, one), (True, "kurm: scaling in"))

        async def told() -> str:
            condition = (await stage.conditions(one)).get(SLURM_READY)
            return condition.reason if condition else ""

        await until(told, "Draining")
        await stage.delete_pod(one)
        await stage.pod(one)  # a pod that was made anew is told the same, and does not go either
        await stage.release(one)
        await until(told, "Draining")
        assert not await stage.drained(one)
        await stage.end_job(job)
        await until(lambda: stage.drained(one))
        await stage.release(one, reason=None)
        await until(lambda: drain_of(stage, one), IN_SERVICE)
        await until(lambda: stage.drained(one), expected=False)
        await stage.release(one)
        await until(lambda: stage.drained(one))
        await stage.delete_pod(one)
        await stage.unclaim(one)
        await until(stage.records, {})

        async def reasons() -> bool:
            return b'"SlurmDrained"' in await stage.kube.request("GET", EVENTS.path(namespace=stage.place))

        await until(reasons)


async def test_a_job_keeps_the_record_of_a_node_that_nobody_claims(stage: Stage, prefix: str) -> None:
    """It is drained and stays until the job ends, also without a pod."""
    one = f"{prefix}1"
    await stage.claim([one], pods=False)
    await stage.taking_jobs(one)
    job = await stage.start_job(one)
    async with stage.syncer():
        await stage.unclaim(one)
        await until(lambda: drain_of(stage, one), (True, "kurm: no longer in a NodeSet"))
        await asyncio.sleep(1.5)
        assert set(await stage.records()) == {one}
        await stage.end_job(job)
        await until(stage.records, {})


async def test_what_is_not_ours_is_not_touched(stage: Stage, prefix: str) -> None:
    """Neither an administrator's record, nor one of a claimed node's name, nor an administrator's drain."""
    mine, taken = f"{prefix}mine", f"{prefix}taken"
    theirs = nodes.NewNode(names=(f"{prefix}theirs", taken), cpus=1, real_memory=1)
    async with stage.session() as slurm:
        await nodes.create_nodes(slurm, theirs)
    await stage.update(f"{prefix}theirs", state="DRAIN", reason="kurm: looks like ours", extra="inventory 7")
    await stage.claim([mine, taken])
    async with stage.syncer():
        await until(stage.marked, {mine})
        before = {name: record for name, record in (await stage.records()).items() if name != mine}
        await stage.update(mine, state="DRAIN", reason="fan is loud")
        await stage.release(mine)
        await until(lambda: stage.drained(mine))
        await stage.release(mine, reason=None)
        await stage.release(taken)
        await asyncio.sleep(1.5)
        after = await stage.records()
    assert (after[mine].draining, after[mine].reason) == (True, "fan is loud")
    assert {name: record for name, record in after.items() if name != mine} == before
    assert not await stage.drained(taken)


async def test_a_reconfigure_of_slurm_or_other_features_change_no_size(stage: Stage, prefix: str) -> None:
    """Features and weight follow the NodeSet while jobs run; the record stays what it is."""
    one = f"{prefix}1"
    await stage.claim([one])
    await stage.taking_jobs(one)
    async with stage.syncer() as syncer:
        job = await stage.start_job(one)
        await stage.node_set("workers", features=["ssd"], weight=7)

        async def described() -> tuple[tuple[str, ...], int]:
            record = (await stage.records())[one]
            return record.features, record.weight

        await until(described, (("nodeset:workers", "ssd"), 7))
        async with stage.session() as slurm:
            await reconfigure(slurm)
        # Slurm forgets a weight that was changed; whoever has it reconfigured says so, and all is looked at again.
        syncer._reconfigured()
        await until(described, (("nodeset:workers", "ssd"), 7))
        assert (await stage.records())[one].busy
        await stage.end_job(job)


async def test_one_bad_node_holds_up_no_other(stage: Stage, prefix: str) -> None:
    """Slurm will not make the record of one node: the others of its call are there, and its pod is told why."""
    good, bad = [f"{prefix}1", f"{prefix}3"], f"{prefix}2"
    stage.lab.write_conf(CONF + "GresTypes=gpu\n")
    stage.lab.write_conf(f"NodeName={prefix}[1,3] Name=gpu Type=h100 File=/dev/nvidia[0-7]\n", "gres.conf")
    await asyncio.to_thread(stage.lab.stop_controller)
    await asyncio.to_thread(stage.lab.start_controller)
    await with_gpus(stage, sorted([*good, bad]))
    async with stage.syncer() as syncer:
        await until(stage.marked, set(good))
        assert (await stage.records())[good[0]].gres == "gpu:h100:8"
        await until(lambda: asyncio.sleep(0, syncer.rounds.queue.failures(bad) > 1))
        assert "Invalid argument" in syncer.records.refused[bad]
        stage.lab.write_conf(f"NodeName={prefix}[1-3] Name=gpu Type=h100 File=/dev/nvidia[0-7]\n", "gres.conf")
        await until(stage.marked, {*good, bad})
        await until(lambda: asyncio.sleep(0, syncer.records.refused), expected={})


async def test_no_record_is_made_without_its_gres(stage: Stage, prefix: str) -> None:
    """Where GresTypes does not name a GRES Slurm makes the record without it, silently and for good: so we wait."""
    one = f"{prefix}1"
    await with_gpus(stage, [one])
    async with stage.syncer() as syncer:
        await until(lambda: asyncio.sleep(0, syncer.rounds.queue.failures(one) > 1))
        assert await stage.records() == {}
        assert "GresTypes does not name gpu" in syncer.records.refused[one]


async def with_gpus(stage: Stage, names: list[str]) -> None:
    """Claim nodes with eight GPUs each."""
    await stage.node_set("workers", gres={"nvidia.com/gpu": {"type": "h100"}})
    await stage.claim(names, pods=False)
    for name in names:
        resources = {"nvidia.com/gpu": "8"}
        status = {"status": {"allocatable": resources, "capacity": resources}}
        await stage.kube.patch(NODES.of(Object), Key("", name), status, subresource="status")


async def test_slurmctld_killed_and_its_state_lost(stage: Stage, prefix: str) -> None:
    """While it is away nothing is concluded; all records are back after it is, also when it has forgotten them."""
    names = {f"{prefix}{number}" for number in range(4)}
    await stage.claim(sorted(names))
    async with stage.syncer() as syncer:
        await until(stage.marked, names)
        await stage.release(f"{prefix}0")
        await until(lambda: stage.drained(f"{prefix}0"))
        await asyncio.to_thread(stage.lab.kill_controller)
        await stage.release(f"{prefix}1")

        async def away() -> bool:
            return syncer.records.known is None

        await until(away)
        assert await stage.drained(f"{prefix}0")
        for path in (stage.lab.folder / "state").iterdir():
            path.unlink()
        await asyncio.to_thread(stage.lab.start_controller)
        await until(stage.marked, names)
        for name in (f"{prefix}0", f"{prefix}1"):
            await until(lambda name=name: drain_of(stage, name), (True, "kurm: scaling in"))  # type: ignore[misc]
            await until(lambda name=name: stage.drained(name))  # type: ignore[misc]
        assert await drain_of(stage, f"{prefix}2") == IN_SERVICE


async def test_slurmrestd_killed(stage: Stage, prefix: str) -> None:
    """The same with the way to slurmctld."""
    await stage.claim([f"{prefix}0"])
    async with stage.syncer() as syncer:
        await until(stage.marked, {f"{prefix}0"})
        await asyncio.to_thread(stage.lab.kill_rest)
        await stage.claim([f"{prefix}1"])
        await until(lambda: asyncio.sleep(0, "slurmrestd" in syncer.rounds.stopped))
        await asyncio.to_thread(stage.lab.start_rest)
        await until(stage.marked, {f"{prefix}0", f"{prefix}1"})


async def test_two_syncers_never_write_at_once(stage: Stage, prefix: str) -> None:
    """The second waits, knows both sides meanwhile, and goes on at once when the first has given the Lease back."""
    names = [f"{prefix}{number}" for number in range(3)]
    async with AsyncExitStack() as later:
        async with stage.syncer("one") as first:
            await stage.claim(names[:1])
            await until(stage.marked, set(names[:1]))
            second = await later.enter_async_context(stage.syncer("two"))
            await stage.claim(names[1:2])
            await until(stage.marked, set(names[:2]))
            assert (first.leadership.leads, second.leadership.leads) == (True, False)
            assert second.records.session.traffic.calls["POST nodes/"] == 0
            assert second.records.known is not None
        await stage.claim(names[2:])
        await until(stage.marked, set(names))
        assert second.leadership.leads


async def test_a_cluster_that_is_gone_from_kubernetes_ends_nothing(stage: Stage, prefix: str) -> None:
    """An API server that has lost everything shows no claims, and no SlurmCluster either."""
    one = f"{prefix}0"
    await stage.claim([one], pods=False)
    async with stage.syncer() as syncer:
        await until(stage.marked, {one})
        await stage.kube.delete(SLURM_CLUSTERS, Key(stage.place, "demo"))
        await until(lambda: asyncio.sleep(0, bool(syncer.pool.problem)))
        await stage.unclaim(one)
        await asyncio.sleep(1.0)
        assert await drain_of(stage, one) == IN_SERVICE


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_health_and_metrics(stage: Stage, path: str) -> None:
    """They answer, and mean it."""
    import aiohttp  # noqa: PLC0415 - the only test that asks

    async with (
        stage.syncer() as syncer,
        health.serve(0, syncer, host="127.0.0.1") as port,
        aiohttp.ClientSession() as http,
    ):

        async def answered() -> int:
            async with http.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status

        await asyncio.sleep(0.2)
        await until(answered, 200)
        if path == "/readyz":
            await asyncio.to_thread(stage.lab.kill_rest)
            syncer.records.expire()
            await until(answered, 503)
