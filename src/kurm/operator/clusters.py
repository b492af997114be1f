"""SlurmClusters: each made what it asks for, and its status what it is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from kurm.domain.gres import GRES
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET, SLURM_READY
from kurm.domain.slurmcluster import NodeCounts
from kurm.kube.cache import Change
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.errors import NotFound
from kurm.kube.events import Recorder
from kurm.kube.resources import Key, Object
from kurm.kube.session import Session
from kurm.operator import clusterstatus, schedulernames, transitions
from kurm.operator.assembly import Assembled, Assembly
from kurm.operator.caches import Caches, cluster_of
from kurm.operator.clusterstatus import Component, Facts, kind_of
from kurm.operator.inputs import Inputs
from kurm.operator.metrics import Metrics
from kurm.operator.objects import (
    BUDGETS,
    CLUSTER_PODS,
    KINDS,
    SLURM_CLUSTERS,
    Node,
    Pod,
    Service,
    SlurmCluster,
    made_for,
)
from kurm.operator.render import names
from kurm.operator.render.configuration import table_size
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster, Images
from kurm.operator.writes import Writes

T = TypeVar("T", bound=Object)

WORKERS = 4
GATHER = 0.05
"""Seconds between a change of what we have made and the look at it: a cluster that is made comes as 20 changes."""
COUNT = 1.0
"""Seconds between a change of a compute node and its being counted."""
REFUSED = 60.0
"""Seconds until something that the API server has refused is tried again: a quota may have room by then."""


@dataclass(frozen=True)
class Rendered:
    """What compute nodes are made of."""

    cluster: Cluster
    slurmd_hash: str


class Clusters:
    """The controller. `rendered` has what could be rendered of each; `changed` is told a cluster for which it has."""

    def __init__(
        self,
        session: Session,
        caches: Caches,
        writes: Writes,
        *,
        images: Images,
        inputs: Inputs,
        recorder: Recorder,
        metrics: Metrics,
        changed: Callable[[Key], None],
    ) -> None:
        self.controller: Controller[Key] = Controller("clusters", self._timed, workers=WORKERS)
        self.rendered: dict[Key, Rendered] = {}
        self._session, self._caches, self._writes, self._inputs = session, caches, writes, inputs
        self._assembly = Assembly(session, caches, writes, inputs, images)
        self._recorder, self._metrics, self._changed = recorder, metrics, changed
        self._table = 0
        self._watch()

    def _watch(self) -> None:
        add, caches = self.controller.queue.add, self._caches
        caches.clusters.on_change(lambda change: add(change.key, after=COUNT if _told_only(change) else 0.0))
        caches.clusters.on_change(self._name_changed)
        for kind, cache in caches.made.items():
            # A disruption budget tells of each compute node that comes or goes, as its pod does.
            cache.on_change(self._made_changed(COUNT if kind == BUDGETS.kind else GATHER))
        caches.pods.on_change(self._pod_changed)
        caches.node_sets.on_change(
            lambda change: self._look_at({one.cluster for one in (change.old, change.new) if one}, GATHER)
        )
        caches.nodes.on_change(self._node_changed)

    def _name_changed(self, change: Change[SlurmCluster]) -> None:
        """Look at the clusters whose scheduler may have got its name by this, or lost it."""
        of = [schedulernames.wanted(one) if one else [] for one in (change.old, change.new)]
        if of[0] != of[1]:
            rivals = (one for name in (*of[0], *of[1]) for one in self._caches.clusters.by("scheduler", name))
            self._look_at({one.key for one in rivals}, GATHER)

    def _made_changed(self, after: float) -> Callable[[Change[Object]], None]:
        return lambda change: self._look_at(_clusters_of(change), after)

    def _look_at(self, clusters: Iterable[Key], after: float) -> None:
        for key in clusters:
            if key in self._caches.clusters:
                self.controller.queue.add(key, after=after)

    def _pod_changed(self, change: Change[Pod]) -> None:
        counted = any(NODE_SET in pod.metadata.labels for pod in (change.old, change.new) if pod)
        self._look_at(_clusters_of(change), COUNT if counted else GATHER)

    def _node_changed(self, change: Change[Node]) -> None:
        """Look at whose configuration or count of nodes a node is in, and at all when Slurm's table has to grow."""
        size = table_size(len(self._caches.nodes))
        if size != self._table:
            self._table = size
            self._look_at(self._caches.clusters.keys(), COUNT)
        told = [(one.metadata.labels, _settled(one), one.status.allocatable) for one in (change.old, change.new) if one]
        if len(told) == 1 or told[0] != told[1]:
            claims = {labels[NODE_SET] for labels, *_ in told if NODE_SET in labels}
            sets = (one for one in self._caches.node_sets if claim(one.key.namespace, one.key.name) in claims)
            clusters = {one.cluster for one in sets}
            for key in clusters:
                self._assembly.settling.changed(key)
            self._look_at(clusters, COUNT)

    async def _timed(self, key: Key) -> Result:
        with structlog.contextvars.bound_contextvars(cluster=str(key)), self._metrics.timed("clusters"):
            return await self._reconcile(key)

    async def _reconcile(self, key: Key) -> Result:
        cluster = self._caches.clusters.get(key)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            self._forget(key)
            return await self._give_back(cluster) if cluster is not None else DONE
        cluster = await self._writes.hold(SLURM_CLUSTERS, self._writes.latest(SLURM_CLUSTERS, cluster))
        made = await self._assembly.bring_about(cluster)
        self._tell(key, made)
        components = self._components(cluster, made)
        await self._replace_stuck(components)
        await self._write_status(cluster, made, components)
        if made.unsettled:
            return Again(made.unsettled, "its nodes are changing")
        if made.unserved:
            return Again(REFUSED, f"{', '.join(made.unserved)} may be served by now")
        return Again(REFUSED, "refused") if any(one.reason == "Refused" for one in made.troubles) else DONE

    async def _give_back(self, cluster: SlurmCluster) -> Result:
        """Take away what no owner takes with it. Compute nodes are given back by their NodeSets."""
        for kind, of in names.WIDE:
            resource, name = KINDS[kind], names.wide(of, cluster.metadata.namespace, cluster.metadata.name)
            try:
                binding = await self._session.get(resource, Key("", name))
            except NotFound:
                continue
            if made_for(binding, cluster.metadata.uid):
                await self._writes.delete(resource, binding, why="its SlurmCluster is deleted")
        await self._writes.let_go(SLURM_CLUSTERS, cluster)
        return DONE

    def _forget(self, key: Key) -> None:
        self._inputs.forget(key)
        self._assembly.forget(key)
        self._writes.forget(SLURM_CLUSTERS, key)
        if self.rendered.pop(key, None) is not None:
            self._changed(key)

    def _tell(self, key: Key, made: Assembled) -> None:
        """Let NodeSets know. What cannot be rendered leaves the last good one in force, if there was one."""
        if made.configuration is None:
            return
        rendered = Rendered(made.cluster, made.configuration.slurmd_hash)
        if self.rendered.get(key) != rendered:
            self.rendered[key] = rendered
            self._changed(key)

    def _components(self, cluster: SlurmCluster, made: Assembled) -> list[Component]:
        """Return the components, as the answers to our writes have them: a cache may not yet know of our last one."""
        found = []
        for part, desired in clusterstatus.desired(made.cluster.spec).items():
            kind, name = kind_of(part), made.cluster.component(part)
            answer = made.objects.get((kind, name)) or self._caches.workload(kind, Key(cluster.key.namespace, name))
            found.append(Component(part, desired, answer, self._caches.pods_of(cluster.key, part)))  # type: ignore[arg-type]
        return found

    async def _replace_stuck(self, components: Iterable[Component]) -> None:
        for component in components:
            if kind_of(component.part) == "StatefulSet":
                for pod in clusterstatus.stuck(component):
                    with structlog.contextvars.bound_contextvars(pod=str(pod.key), node=pod.spec.node_name):
                        await self._writes.delete(CLUSTER_PODS, pod, why="of an outdated template, and not ready")

    async def _write_status(self, cluster: SlurmCluster, made: Assembled, components: list[Component]) -> None:
        facts = Facts(
            generation=cluster.metadata.generation,
            held=cluster.status,
            components=components,
            configuration=made.configuration.hash if made.configuration else "",
            troubles=made.troubles,
            notes=made.notes,
            nodes=self._count(cluster.key),
            login_address=self._login_address(cluster.key),
        )
        wanted = clusterstatus.judge(facts, datetime.now(UTC))
        if clusterstatus.differs(cluster.status, wanted):
            await self._writes.apply_status(SLURM_CLUSTERS, cluster, clusterstatus.manifest(wanted))
            transitions.record(self._recorder, SLURM_CLUSTERS, cluster, cluster.status.conditions, wanted.conditions)

    def _count(self, key: Key) -> NodeCounts:
        sets = self._caches.node_sets.by("cluster", key)
        total = sum(len(self._caches.nodes.by("claim", claim(one.key.namespace, one.key.name))) for one in sets)
        ready = sum(pod.holds(SLURM_READY) and not pod.going for pod in self._caches.pods_of(key, Part.SLURMD))
        return NodeCounts(total, ready)

    def _login_address(self, key: Key) -> str:
        service: Service | None = self._caches.made["Service"].get(
            Key(key.namespace, names.component(key.name, Part.LOGIN))
        )
        return clusterstatus.login_address(service, self._caches.pods_of(key, Part.LOGIN))


def _told_only(change: Change[SlurmCluster]) -> bool:
    """Whether nothing but the status has changed, as after our own write of it.

    Counts may have moved on by then, and an answer to each answer would be a write for every node.
    """
    old, new = change.old, change.new
    return bool(old and new) and _wish(old) == _wish(new)


def _settled(node: Node) -> str:
    return node.metadata.annotations.get(GRES, "")


def _wish(cluster: SlurmCluster | None) -> object:
    if cluster is None:
        return None
    metadata = cluster.metadata
    return metadata.uid, metadata.generation, metadata.deletion_timestamp, metadata.finalizers


def _clusters_of(change: Change[T]) -> set[Key]:
    return {cluster_of(obj) for obj in (change.old, change.new) if obj}
