"""`kubectl drain` on a real API server with Kubernetes' own disruption controller: no job is ever evicted."""

import asyncio

import pytest

from integration.operator.stage import OPERATOR, Stage, until
from kurm.domain.signals import PROTECTED, SLURM_DRAIN
from kurm.kube.errors import Conflict, TooManyRequests
from kurm.kube.events import Recorder
from kurm.kube.resources import Condition, Key
from kurm.kube.session import Session
from kurm.operator.caches import Caches
from kurm.operator.errands import Errands
from kurm.operator.fleet import Circumstances, muster
from kurm.operator.metrics import Metrics
from kurm.operator.objects import ALL_NODES, CLUSTER_PODS, NODE_SETS
from kurm.operator.pods import Expose
from kurm.operator.writes import Writes

READY = {"Ready": ("True", "Ready")}


async def test_a_node_is_emptied_when_its_jobs_have_ended(stage: Stage) -> None:
    """Eviction is refused before; then the pod goes, stays away while the node is cordoned, and is back at once."""
    (node,) = await stage.add_nodes(1)
    stage.crew.busy.add(node)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        first = (await stage.pods())[node]
        with pytest.raises(TooManyRequests, match="disruption budget"):
            await stage.kube.evict(first.key)
        await stage.cordon(node)
        await until(lambda: _drain(stage, node), ("True", "Draining"))
        with pytest.raises(TooManyRequests):
            await stage.kube.evict(first.key)
        stage.crew.busy.clear()
        await until(lambda: _evicted(stage, first.key))
        await until(stage.pods, {})
        await until(lambda: _of(stage, "Reconciling"), ("True", "Cordoned"))
        await asyncio.sleep(1.0)
        assert await stage.pods() == {}
        assert await stage.claimed() == {node: "workers"}
        await stage.cordon(node, lift=True)
        await until(stage.node_set_conditions, READY)
        second = (await stage.pods())[node]
        assert second.metadata.uid != first.metadata.uid
        with pytest.raises(TooManyRequests):
            await stage.kube.evict(second.key)


async def test_the_label_is_put_back(stage: Stage) -> None:
    """When a job has come all the same, and when the node is uncordoned: the pod is the same one all along."""
    (node,) = await stage.add_nodes(1)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        uid = (await stage.pods())[node].metadata.uid
        await stage.cordon(node)
        await until(lambda: _protected(stage, node), expected=False)
        stage.crew.busy.add(node)
        await until(lambda: _protected(stage, node))
        stage.crew.busy.clear()
        await until(lambda: _protected(stage, node), expected=False)
        await stage.cordon(node, lift=True)
        await until(lambda: _protected(stage, node))
        await until(stage.node_set_conditions, READY)
        assert (await stage.pods())[node].metadata.uid == uid


async def test_a_syncer_that_is_away_proves_nothing(stage: Stage) -> None:
    """What it has said may be old by now: the pod is protected until it is back."""
    (node,) = await stage.add_nodes(1)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.cordon(node)
        await until(lambda: _protected(stage, node), expected=False)
        stage.crew.syncing = False
        stage.crew.down.add("syncer")
        await until(lambda: _protected(stage, node))
        stage.crew.syncing = True
        stage.crew.down.clear()
        await until(lambda: _protected(stage, node), expected=False)


async def test_a_pod_that_has_changed_is_not_exposed(stage: Stage) -> None:
    """Between the look and the write the syncer may have taken its word back: the API server refuses the write."""
    (node,) = await stage.add_nodes(1)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
    async with Session(stage.server.config(OPERATOR, None)) as session:
        caches = Caches(session)
        following = asyncio.create_task(caches.run())
        await caches.wait_synced()
        fleet = muster(caches, await stage.get_node_set(), Circumstances())
        following.cancel()
        said = {"metadata": {"annotations": {"example.org/said": "another thing"}}}
        await stage.kube.patch(CLUSTER_PODS, fleet.pods[node].key, said)
        writes = Writes(session, leads=lambda: True, metrics=Metrics())
        errands = Errands(session, writes, Recorder(session, "kurm.dev/test", "test"))
        outcome = await errands.run(fleet, [Expose(node)], None)
        assert isinstance(outcome.error, Conflict)
        assert await _protected(stage, node)


async def test_a_node_says_what_slurm_says(stage: Stage) -> None:
    """Drained with Slurm's reason, in service again, and nothing when it is no longer ours; others' conditions stay."""
    nodes = await stage.add_nodes(2)
    last = nodes[1]
    stage.crew.busy.add(last)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.node_set(replicas=1)
        assert await _drain(stage, last) is None
        await stage.cordon(last)
        await until(lambda: _drain(stage, last), ("True", "Draining"))
        told = await _condition(stage, last)
        assert told.message == "kurm: because the stage has it so"
        await stage.cordon(last, lift=True)
        await until(lambda: _drain(stage, last), ("False", "InService"))
        since = (await _condition(stage, last)).last_transition_time
        assert since is not None
        assert told.last_transition_time is not None
        assert since >= told.last_transition_time
        stage.crew.busy.clear()
        await stage.kube.delete(NODE_SETS, Key(stage.place, "workers"))
        await until(stage.claimed, {})
        assert await _drain(stage, last) is None
        assert (await stage.kube.get(ALL_NODES, Key("", last))).ready


async def _condition(stage: Stage, node: str) -> Condition:
    found = (await stage.kube.get(ALL_NODES, Key("", node))).condition(SLURM_DRAIN)
    return found or Condition()


async def _drain(stage: Stage, node: str) -> tuple[str, str] | None:
    found = await _condition(stage, node)
    return (found.status, found.reason) if found.type else None


async def _protected(stage: Stage, node: str) -> bool:
    return (await stage.pods())[node].metadata.labels.get(PROTECTED) == "true"


async def _evicted(stage: Stage, pod: Key) -> bool:
    try:
        await stage.kube.evict(pod)
    except TooManyRequests:
        return False
    return True


async def _of(stage: Stage, kind: str) -> tuple[str, str] | None:
    return (await stage.node_set_conditions()).get(kind)
