"""NodeSets on a real API server: nodes claimed and given back, pods made, released and made anew."""

import asyncio

from integration.operator.stage import MISSING, Stage, until
from kurm.domain.signals import NODE_SET, RELEASE
from kurm.kube.resources import NODES, Key
from kurm.operator.objects import ALL_NODES, CLUSTER_PODS, NODE_SETS, SLURM_CLUSTERS
from kurm.operator.operator import Operator

READY = {"Ready": ("True", "Ready")}


async def test_scaling_in_waits_for_jobs_and_touches_no_other_pod(stage: Stage) -> None:
    """Four nodes, then two: those with a job keep their pod until it ends; then four again, with the same two."""
    nodes = await stage.add_nodes(4)
    await stage.cluster()
    await stage.node_set(replicas=4)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        first = await _uids(stage)
        assert sorted(first) == nodes
        stage.crew.busy.update(nodes)
        await stage.kube.scale(NODE_SETS, Key(stage.place, "workers"), 2)
        await until(lambda: _of(stage, "Reconciling"), ("True", "Draining"))
        await until(lambda: _figures(stage, "desired", "current", "draining"), (2, 4, 2))
        assert await _uids(stage) == first
        stage.crew.busy.clear()
        await until(stage.claimed, dict.fromkeys(nodes[:2], "workers"))
        await until(stage.node_set_conditions, READY)
        assert await _uids(stage) == {node: first[node] for node in nodes[:2]}
        await stage.kube.scale(NODE_SETS, Key(stage.place, "workers"), 4)
        await until(lambda: _count(stage), 4)
        await until(stage.node_set_conditions, READY)
        again = await _uids(stage)
        assert {node: again[node] for node in nodes[:2]} == {node: first[node] for node in nodes[:2]}


async def test_a_release_that_is_taken_back(stage: Stage) -> None:
    """Scaled in and out again while jobs run: the pods are told to stay, and none is replaced."""
    nodes = await stage.add_nodes(2)
    stage.crew.busy.update(nodes)
    await stage.cluster()
    await stage.node_set(replicas=2)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        first = await _uids(stage)
        await stage.node_set(replicas=0)
        await until(lambda: _released(stage), set(nodes))
        await stage.node_set(replicas=2)
        await until(lambda: _released(stage), set())
        await until(stage.node_set_conditions, READY)
        assert await _uids(stage) == first


async def test_an_answer_to_an_earlier_release_is_none(stage: Stage) -> None:
    """A syncer that stops after it has said "drained" may be wrong by now: a new release waits for a new answer."""
    (node,) = await stage.add_nodes(1)
    stage.crew.busy.add(node)
    await stage.cluster()
    await stage.node_set(replicas=1)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        stage.crew.syncing = False
        said = [{"type": "kurm.dev/SlurmDrained", "status": "True", "message": "scaling in since yesterday"}]
        pod = (await stage.pods())[node]
        await stage.kube.patch(CLUSTER_PODS, pod.key, {"status": {"conditions": said}}, subresource="status")
        await stage.node_set(replicas=0)
        await until(lambda: _released(stage), {node})
        await asyncio.sleep(1.0)
        assert (await stage.pods())[node].metadata.uid == pod.metadata.uid


async def test_taints_and_labels_of_others_stay(stage: Stage) -> None:
    """The claim is a label and a taint, and goes without a trace; a taint that is taken off is put back."""
    (node,) = await stage.add_nodes(1, rack="r1")
    foreign = [{"key": "example.org/gpu", "effect": "PreferNoSchedule", "value": "yes"}]
    key = Key("", node)
    await stage.kube.patch(ALL_NODES, key, {"spec": {"taints": foreign}})
    await stage.cluster()
    await stage.node_set()

    async def taints() -> set[tuple[str, str]]:
        return {(one.key, one.value) for one in (await stage.kube.get(ALL_NODES, key)).spec.taints}

    ours, theirs = ("kurm.dev/pool", f"{stage.place}.workers"), ("example.org/gpu", "yes")
    async with stage.operator():
        await until(taints, {ours, theirs})
        await stage.kube.patch(ALL_NODES, key, {"spec": {"taints": foreign}})
        await until(taints, {ours, theirs})
        await stage.kube.delete(NODE_SETS, Key(stage.place, "workers"))
        await until(taints, {theirs})
        labels = (await stage.kube.get(ALL_NODES, key)).metadata.labels
        assert (labels.get("rack"), labels.get(NODE_SET)) == ("r1", None)


async def test_a_pod_that_has_ended_or_is_lost_is_made_anew(stage: Stage) -> None:
    """By its phase, and by whoever deletes it."""
    (node,) = await stage.add_nodes(1)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        first = (await stage.pods())[node]
        await stage.kube.patch(CLUSTER_PODS, first.key, {"status": {"phase": "Failed"}}, subresource="status")
        await until(lambda: _is_new(stage, node, first.metadata.uid))
        second = (await stage.pods())[node]
        await stage.kube.delete(CLUSTER_PODS, second.key, grace=0)
        await until(lambda: _is_new(stage, node, second.metadata.uid))


async def test_a_new_template_is_rolled_out_node_by_node(stage: Stage) -> None:
    """An image that cannot be pulled stops at one node; set right, all pods are made anew, never two at a time."""
    nodes = await stage.add_nodes(3)
    await stage.cluster()
    await stage.node_set()
    least = len(nodes)
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        first = await _uids(stage)
        await stage.node_set(image=MISSING)
        await until(lambda: _of(stage, "Stalled"), ("True", "ImagePullBackOff"))
        assert len(set((await _uids(stage)).values()) & set(first.values())) == len(nodes) - 1

        async def done() -> bool:
            nonlocal least
            status = (await stage.get_node_set()).status
            least = min(least, status.ready)
            return status.updated == status.ready == len(nodes)

        await stage.node_set(image="registry.example/kurm/other:1")
        await until(done)
        assert least >= len(nodes) - 1


async def test_without_a_syncer_nothing_is_deleted(stage: Stage) -> None:
    """A NodeSet that is deleted waits, and says for whom; when the SlurmCluster goes too it is over."""
    (node,) = await stage.add_nodes(1)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, READY)
        stage.crew.syncing = False
        stage.crew.down.add("syncer")
        await stage.kube.delete(NODE_SETS, Key(stage.place, "workers"))
        await until(lambda: _of(stage, "Reconciling"), ("True", "SlurmAway"))
        assert sorted(await stage.pods()) == [node]
        await stage.kube.delete(SLURM_CLUSTERS, Key(stage.place, "demo"))
        await until(stage.claimed, {})
        await until(stage.pods, {})


async def test_what_keeps_it_from_its_nodes_is_said(stage: Stage) -> None:
    """Too few nodes with the reasons of the others, a missing SlurmCluster, an affinity that is none."""
    ready, cordoned = await stage.add_nodes(2)
    await stage.kube.patch(NODES, Key("", cordoned), {"spec": {"unschedulable": True}})
    await stage.node_set(replicas=2)
    async with stage.operator():
        await until(lambda: _of(stage, "Stalled"), ("True", "MissingSlurmCluster"))
        await stage.cluster()
        await until(lambda: _of(stage, "Stalled"), ("True", "TooFewNodes"))
        figures = ("desired", "feasible", "current", "ready", "unavailable")
        await until(lambda: _figures(stage, *figures), (2, 1, 1, 1, 1))
        status = (await stage.get_node_set()).status
        assert ("Unschedulable", 1, (cordoned,)) in {(one.reason, one.nodes, one.examples) for one in status.infeasible}
        assert sorted(await stage.claimed()) == [ready]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": "all"}}
        await stage.node_set(replicas=2, affinity={"nodeAffinity": required})
        await until(lambda: _of(stage, "Stalled"), ("True", "InvalidSpec"))
        assert sorted(await stage.claimed()) == [ready]


async def test_two_node_sets_share_the_nodes(stage: Stage) -> None:
    """Each node is one's; what one gives back the other takes."""
    nodes = await stage.add_nodes(3)
    await stage.cluster()
    await stage.node_set("first", replicas=2)
    await stage.node_set("rest", replicas=2)
    async with stage.operator():
        await until(lambda: _shares(stage), [1, 2])
        await stage.node_set("first", replicas=1)
        await stage.node_set("rest")
        await until(lambda: _shares(stage), [1, 2])
        await until(lambda: stage.node_set_conditions("rest"), READY)
        await until(lambda: _nodes(stage), nodes)


async def test_a_node_costs_two_writes(stage: Stage) -> None:
    """The claim and the pod. That it is in service is not said of a node that was never out of it."""
    nodes = await stage.add_nodes(40)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator() as operator:
        await until(stage.node_set_conditions, READY)
        assert _writes(operator, "nodes") == len(nodes)
        assert _writes(operator, "pods") == len(nodes)


def _writes(operator: Operator, resource: str) -> float:
    lines = [line.split() for line in operator.metrics.text().decode().splitlines() if not line.startswith("#")]
    return sum(
        float(value)
        for name, value in lines
        if name.startswith("kurm_operator_writes_total{") and f'resource="{resource}"' in name
    )


async def _of(stage: Stage, kind: str) -> tuple[str, str] | None:
    return (await stage.node_set_conditions()).get(kind)


async def _uids(stage: Stage) -> dict[str, str]:
    return {node: pod.metadata.uid for node, pod in (await stage.pods()).items()}


async def _count(stage: Stage) -> int:
    return len(await stage.pods())


async def _nodes(stage: Stage) -> list[str]:
    return sorted(await stage.pods())


async def _figures(stage: Stage, *names: str) -> tuple[int, ...]:
    status = (await stage.get_node_set()).status
    return tuple(getattr(status, name) for name in names)


async def _released(stage: Stage) -> set[str]:
    return {node for node, pod in (await stage.pods()).items() if RELEASE in pod.metadata.annotations}


async def _is_new(stage: Stage, node: str, uid: str) -> bool:
    pod = (await stage.pods()).get(node)
    return pod is not None and pod.metadata.uid != uid and pod.ready


async def _shares(stage: Stage) -> list[int]:
    claims = list((await stage.claimed()).values())
    return sorted(claims.count(name) for name in set(claims))
