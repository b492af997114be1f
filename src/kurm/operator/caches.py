"""What the operator sees of Kubernetes: its caches, and how long ago the API server was last heard."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kurm.domain.signals import NODE_SET
from kurm.kube.cache import Cache
from kurm.kube.errors import NotSynced
from kurm.kube.resources import Key, Object
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection
from kurm.operator import schedulernames
from kurm.operator.objects import (
    ALL_NODES,
    CLUSTER_PODS,
    COMPONENT,
    INSTANCE,
    KINDS,
    MANAGED,
    NODE_SETS,
    OPTIONAL,
    SLURM_CLUSTERS,
    Node,
    NodeSet,
    Pod,
    SlurmCluster,
    VolumeClaim,
    Workload,
)
from kurm.operator.render.names import Part

OLDEST = 120.0
"""Seconds. In quiet times the API server speaks once a minute on each watch (Pace.silence is 90 s)."""
LOOK = 0.1
"""Seconds between two looks whether the API server serves what it need not serve."""


class Caches:
    """All that is watched, cluster-wide: of what we make only what bears our label."""

    def __init__(self, session: Session, *, pace: Pace | None = None) -> None:
        ours = Selection(labels=MANAGED)
        self.clusters: Cache[SlurmCluster] = Cache(
            session, SLURM_CLUSTERS, indexes={"scheduler": schedulernames.wanted}, pace=pace
        )
        self.node_sets: Cache[NodeSet] = Cache(
            session, NODE_SETS, indexes={"cluster": lambda node_set: [node_set.cluster]}, pace=pace
        )
        self.nodes: Cache[Node] = Cache(
            session,
            ALL_NODES,
            indexes={"claim": lambda node: [node.metadata.labels.get(NODE_SET, "")]},
            pace=pace,
        )
        self.pods: Cache[Pod] = Cache(
            session, CLUSTER_PODS, ours, indexes={"part": _part, "node set": _node_set}, pace=pace
        )
        self.made: Mapping[str, Cache[Any]] = {
            kind: Cache(session, resource, ours, indexes={"cluster": lambda obj: [cluster_of(obj)]}, pace=pace)
            for kind, resource in KINDS.items()
        }

    def __iter__(self) -> Iterator[Cache[Any]]:
        yield from (self.clusters, self.node_sets, self.nodes, self.pods)
        yield from self.made.values()

    @property
    def problem(self) -> str:
        """Why nothing may be concluded from what is not there, for people; empty while all is well."""
        for cache in self:
            if self._unserved(cache):
                continue
            if not cache.synced:
                return f"{cache.resource}: {cache.problem or 'the list is still being read'}"
            if cache.age > OLDEST:
                return f"{cache.resource}: not heard of for {cache.age:.0f} s: {cache.problem or 'no reason is known'}"
        return ""

    async def run(self) -> None:
        """Follow the API server; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self:
                tasks.create_task(cache.run())

    async def wait_synced(self) -> None:
        """Wait until every list is whole: what is not there yet would be taken for deleted."""
        for cache in self:
            while not cache.synced and not self._unserved(cache):
                with contextlib.suppress(NotSynced):
                    await cache.wait_synced(LOOK if cache.resource.kind in OPTIONAL else float("inf"))

    def serves(self, kind: str) -> bool:
        """Whether the API server has such objects, as far as is known."""
        return self.made[kind].synced

    def _unserved(self, cache: Cache[Any]) -> bool:
        """Whether a list may be done without, and was not to be had."""
        return cache.resource.kind in OPTIONAL and not cache.synced and cache.problem is not None

    def pods_of(self, cluster: Key, part: Part) -> list[Pod]:
        """Return the pods of a component, by name."""
        return sorted(self.pods.by("part", (cluster, part.value)), key=lambda pod: pod.metadata.name)

    def workload(self, kind: str, key: Key) -> Workload | None:
        """Return a StatefulSet or a Deployment of ours."""
        found: Workload | None = self.made[kind].get(key)
        return found

    def volume_claim(self, key: Key) -> VolumeClaim | None:
        """Return a claim of ours."""
        found: VolumeClaim | None = self.made["PersistentVolumeClaim"].get(key)
        return found


def cluster_of(obj: Object) -> Key:
    """Return the SlurmCluster whose label an object bears. A ClusterRoleBinding tells the namespace in its name."""
    namespace = obj.metadata.namespace or obj.metadata.name.partition(".")[2].partition(".")[0]
    return Key(namespace, obj.metadata.labels.get(INSTANCE, ""))


def node_set_of(pod: Pod) -> Key | None:
    """Return the NodeSet of a slurmd pod; None for another component's."""
    name = pod.metadata.labels.get(NODE_SET)
    return Key(pod.metadata.namespace, name) if name else None


def _part(pod: Pod) -> list[tuple[Key, str]]:
    return [(cluster_of(pod), pod.metadata.labels.get(COMPONENT, ""))]


def _node_set(pod: Pod) -> list[Key]:
    found = node_set_of(pod)
    return [found] if found else []
