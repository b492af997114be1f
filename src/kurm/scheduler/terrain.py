"""Feeds `kurm.domain.placing` from the caches: nodes, what pods take of them, and the rules of the SlurmCluster."""

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import structlog

from kurm.domain import feasibility, gres
from kurm.domain.asks import Rules
from kurm.domain.noderecord import node_record
from kurm.domain.placing import Placing
from kurm.domain.podresources import NOTHING, Resources, size_of
from kurm.domain.podspec import host_ports
from kurm.domain.selection import Taint
from kurm.kube.cache import Change
from kurm.scheduler.objects import Node, NodeSet, Pod, SlurmCluster
from kurm.scheduler.pool import Pool

log = structlog.get_logger("kurm.scheduler")

PARTS = 1024
"""Equal parts of nodes that are remembered, to be kept once."""
T = TypeVar("T", bound=Hashable)


class Terrain:
    """What is known of where pods can go. `changed` is called when pods that could not be placed may be placed now."""

    def __init__(self, pool: Pool, changed: Callable[[], None]) -> None:
        self._pool, self._changed = pool, changed
        self._parts: dict[Hashable, Hashable] = {}
        self._moved: Callable[[str], None] = lambda _: None
        self._begun: Callable[[], None] = lambda: None
        self._fenced = self._taints()
        self.placing = Placing(self._fenced)
        self.rules = self._rules()
        pool.clusters.on_change(self._heed_cluster)
        pool.node_sets.on_change(self._heed_node_set)
        pool.nodes.on_change(self._heed_node)
        for cache in (pool.pods, pool.foreign):
            cache.on_change(self._heed_pod)

    def on_node(self, moved: Callable[[str], None], begun: Callable[[], None]) -> None:
        """Call `moved` with each node that has changed, `begun` when all is known anew: Slurm's room is not, then."""
        self._moved, self._begun = moved, begun

    def count(self, pod: Pod, node: str) -> None:
        """Count a pod on a node, where it is or is just being bound."""
        stays = pod.spec.scheduler_name != self._pool.scheduler
        self.placing.occupancy.put(pod.metadata.uid, node, size_of(pod.spec), host_ports(pod.spec), stays=stays)

    def discount(self, pod: Pod) -> None:
        """Count a pod where it is, and no longer where it was to be bound and is not."""
        if pod.spec.node_name:
            self.count(pod, pod.spec.node_name)
        else:
            self.placing.occupancy.drop(pod.metadata.uid)

    def _heed_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or pod.over:
            if change.old is not None:
                self.placing.occupancy.drop(change.old.metadata.uid)
        elif pod.spec.node_name:
            self.count(pod, pod.spec.node_name)

    def _heed_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self.placing.drop_node(change.key.name)
        elif not self.placing.put_node(self._node(change.new)):
            return
        else:
            self._moved(change.key.name)
        self._changed()

    def _heed_node_set(self, _: Change[NodeSet]) -> None:
        if (taints := self._taints()) != self._fenced:
            self._begin_anew(taints)
        for node in self._pool.nodes:
            self.placing.put_node(self._node(node))
        self.rules = self._rules()
        self._changed()

    def _heed_cluster(self, _: Change[SlurmCluster]) -> None:
        self.rules = self._rules()
        self._changed()

    def _begin_anew(self, taints: set[str]) -> None:
        """Know everything anew: which taints are the pool's own cannot be changed of what is known."""
        self._fenced, self.placing = taints, Placing(taints)
        for pod in (*self._pool.pods, *self._pool.foreign):
            if pod.spec.node_name and not pod.over:
                self.count(pod, pod.spec.node_name)
        self._begun()

    def _rules(self) -> Rules:
        cluster, node_sets = self._pool.cluster, self._pool.own_node_sets
        return Rules(self._pool.settings, cluster.spec.partitions if cluster else (), node_sets)

    def _taints(self) -> set[str]:
        return {spec.taint_key for spec in self._pool.own_node_sets.values()} or {"kurm.dev/pool"}

    def _node(self, node: Node) -> feasibility.Node:
        metadata = node.metadata
        name, settled = self._pool.node_set(node), metadata.annotations.get(gres.GRES, "")
        spec = self._pool.own_node_sets.get(name)
        cpus = memory = 0
        found = {}
        if spec is not None:
            try:
                record = node_record(name, spec, node.status.allocatable, metadata.labels, settled=settled)
                cpus, memory = record.cpus, record.real_memory
                found = gres.read(settled) or {}
            except ValueError as error:
                log.debug("a node has no record", node=metadata.name, why=str(error))
        return feasibility.Node(
            name=metadata.name,
            labels=metadata.labels,
            taints=self._one(tuple(Taint(one.key, one.effect, one.value) for one in node.spec.taints)),
            unschedulable=node.spec.unschedulable,
            ready=node.ready,
            allocatable=self._one(_resources(node)),
            node_set=name,
            cpus=cpus,
            memory=memory,
            gres=found,
        )

    def _one(self, part: T) -> T:
        """Return the equal one that came first: nodes are many, and of few kinds."""
        if len(self._parts) >= PARTS:
            self._parts.clear()
        return cast("T", self._parts.setdefault(part, part))


def _resources(node: Node) -> Resources:
    try:
        return Resources.of(node.status.allocatable)
    except ValueError:
        return NOTHING
