"""NodeSets that are updated and scaled in while jobs run, on a real API server; syncers are played."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from integration.operator.stage import Stage, until
from kurm.domain import release
from kurm.domain.signals import RELEASE, REQUEUE_AT
from kurm.kube.resources import Key
from kurm.operator import nodesets
from kurm.operator.objects import CLUSTER_PODS, NODE_SETS, Pod
from kurm.operator.render import names

READY = {"Ready": ("True", "Ready")}
OTHER = "registry.example/kurm/other:1"


async def test_an_update_waits_for_jobs_and_keeps_to_its_budget(stage: Stage) -> None:
    """Five nodes, two at a time: a job holds up its own node, and the status says so; none is out beyond the two."""
    nodes = await stage.add_nodes(5)
    held = nodes[1]
    stage.crew.busy.add(held)
    await stage.cluster()
    strategy = {"maxUnavailable": "40%"}
    await stage.node_set(updateStrategy=strategy)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        first = (await stage.pods())[held].metadata.uid
        async with _most_out(stage, len(nodes)) as out:
            await stage.node_set(updateStrategy=strategy, image=OTHER)
            await until(lambda: _message(stage), f"4 of 5 nodes updated; waiting for jobs on {held}")
            assert (await stage.pods())[held].metadata.uid == first
            assert await _figures(stage, "updated", "draining", "allocated") == (4, 1, 1)
            stage.crew.busy.clear()
            await until(lambda: _figures(stage, "updated", "ready"), (5, 5))
        assert max(out) == 2
        await until(stage.node_set_conditions, READY)


async def test_a_node_that_is_out_for_another_reason_is_one_of_the_budget(stage: Stage) -> None:
    """One is cordoned with a job on it: nothing else is begun until it is back."""
    nodes = await stage.add_nodes(3)
    stage.crew.busy.add(nodes[2])
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.cordon(nodes[2])
        await until(lambda: _figures(stage, "ready", "draining"), (2, 1))
        await stage.node_set(image=OTHER)
        await until(lambda: _message(stage), f"0 of 3 nodes updated; waiting for jobs on {nodes[2]}")
        await asyncio.sleep(1.0)
        assert await _released(stage) == {nodes[2]}
        stage.crew.busy.clear()
        await until(lambda: _count(stage), 2)
        await asyncio.sleep(1.0)
        assert (await _released(stage), await _figures(stage, "ready", "updated")) == (set(), (2, 0))
        await stage.cordon(nodes[2], lift=True)
        await until(lambda: _figures(stage, "updated", "ready"), (3, 3))


async def test_of_nodes_that_are_out_the_newest_pod_goes_first(stage: Stage) -> None:
    """It may be one that was renewed just now, whose node is not back yet: then it is out because of us."""
    nodes = await stage.add_nodes(1)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await asyncio.sleep(1.1)  # Kubernetes tells when a pod was made in whole seconds
        nodes += await stage.add_nodes(1)
        stage.crew.busy.update(nodes)
        await until(lambda: _figures(stage, "ready"), (2,))
        for node in nodes:
            await stage.cordon(node)
        await until(lambda: _figures(stage, "ready", "draining"), (0, 2))
        await stage.node_set(image=OTHER)
        await until(lambda: _released(stage), {nodes[1]})


async def test_on_delete_a_pod_is_replaced_when_somebody_deletes_it(stage: Stage) -> None:
    """And the status says how many are outdated; an update that was on its way is taken back."""
    nodes = await stage.add_nodes(2)
    stage.crew.busy.update(nodes)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.node_set(image=OTHER)
        await until(lambda: _released(stage), {nodes[0]})
        first = await _templates(stage)
        await stage.node_set(image=OTHER, updateStrategy={"type": "OnDelete"})
        await until(lambda: _released(stage), set())
        outdated = f"0 of 2 nodes updated; nodes {nodes[0]}, {nodes[1]} will be when the pod is deleted (OnDelete)"
        await until(lambda: _message(stage), outdated)
        await until(stage.node_set_conditions, READY)  # the crew has yet to lift the drain
        assert await _templates(stage) == first
        await stage.kube.delete(CLUSTER_PODS, (await stage.pods())[nodes[1]].key)
        await until(lambda: _figures(stage, "updated", "ready"), (1, 2))
        assert (await _templates(stage))[nodes[0]] == first[nodes[0]]


async def test_busy_nodes_go_by_when_they_are_free(stage: Stage) -> None:
    """An idle one first; nothing else is chosen before each busy one has said when its jobs end."""
    nodes = await stage.add_nodes(4)
    stage.crew.busy.update(nodes[:3])
    stage.crew.ends = {nodes[1]: "2036-11-21T18:00:00Z", nodes[0]: "2036-11-21T19:00:00Z"}
    stage.crew.tells_ends = False
    await stage.cluster()
    await stage.node_set(replicas=4)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.kube.scale(NODE_SETS, Key(stage.place, "workers"), 2)
        await until(lambda: _of(stage, "Reconciling"), ("True", "Choosing"))
        await until(lambda: _nodes(stage), nodes[:3])
        assert await _released(stage) == set()
        stage.crew.tells_ends = True
        await until(lambda: _released(stage), {nodes[1]})
        await until(lambda: _of(stage, "Reconciling"), ("True", "Draining"))


async def test_a_choice_is_not_put_off_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A syncer that does not answer holds up no scaling in; its nodes are waited for all the same."""
    monkeypatch.setattr(nodesets, "CHOICE", 6.0)
    nodes = await stage.add_nodes(2)
    stage.crew.busy.update(nodes)
    stage.crew.tells_ends = False
    await stage.cluster()
    await stage.node_set(replicas=2)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.node_set(replicas=1)
        await until(lambda: _of(stage, "Reconciling"), ("True", "Choosing"))
        await until(lambda: _released(stage), {nodes[1]})


async def test_jobs_are_requeued_where_that_is_asked_for(stage: Stage) -> None:
    """The pod says when, from the moment of its release; waiting for longer than allowed calls for a person."""
    (node,) = await stage.add_nodes(1)
    stage.crew.busy.add(node)
    await stage.cluster()
    await stage.node_set(whenBusy="requeue", busyDeadline="10m")
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        await stage.node_set(replicas=0, whenBusy="requeue", busyDeadline="10m")
        await until(lambda: _released(stage), {node})
        since = release.since((await _pod(stage, node)).metadata.annotations[RELEASE])
        assert since is not None
        await until(lambda: _requeue(stage, node), f"{since + timedelta(minutes=10):%Y-%m-%dT%H:%M:%SZ}")
        await until(lambda: _of(stage, "Reconciling"), ("True", "Draining"))
        await stage.node_set(replicas=0, busyDeadline="2s")
        await until(lambda: _requeue(stage, node), None)
        await until(lambda: _of(stage, "Stalled"), ("True", "WaitsTooLong"))
        stage.crew.busy.clear()
        await until(stage.claimed, {})
        await until(stage.node_set_conditions, READY)


@asynccontextmanager
async def _most_out(stage: Stage, number: int) -> AsyncIterator[list[int]]:
    """Look all the while at how many nodes are out of service."""
    out = [0]

    async def look() -> None:
        while True:
            pods = (await stage.pods()).values()
            out.append(number - sum(pod.holds("kurm.dev/SlurmReady") and not pod.going for pod in pods))
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        yield out
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def _message(stage: Stage) -> str:
    """Return what Ready says, without since when."""
    conditions = (await stage.get_node_set()).status.conditions
    return next((one.message for one in conditions if one.type == "Ready"), "").partition(" since ")[0]


async def _of(stage: Stage, kind: str) -> tuple[str, str] | None:
    return (await stage.node_set_conditions()).get(kind)


async def _pod(stage: Stage, node: str) -> Pod:
    return (await stage.pods())[node]


async def _requeue(stage: Stage, node: str) -> str | None:
    return (await _pod(stage, node)).metadata.annotations.get(REQUEUE_AT)


async def _released(stage: Stage) -> set[str]:
    return {node for node, pod in (await stage.pods()).items() if RELEASE in pod.metadata.annotations}


async def _templates(stage: Stage) -> dict[str, str]:
    return {node: pod.metadata.annotations[names.TEMPLATE_HASH] for node, pod in (await stage.pods()).items()}


async def _nodes(stage: Stage) -> list[str]:
    return sorted(await stage.pods())


async def _count(stage: Stage) -> int:
    return len(await stage.pods())


async def _figures(stage: Stage, *names: str) -> tuple[int | None, ...]:
    status = (await stage.get_node_set()).status
    return tuple(getattr(status, name) for name in names)
