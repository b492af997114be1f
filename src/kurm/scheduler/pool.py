"""What Kubernetes says: pods that are ours to place, foreign ones on our nodes, the nodes, and who owns them."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.owner import Health
from kurm.domain.schedulerspec import Scheduler
from kurm.domain.selection import claim
from kurm.domain.spec import seconds
from kurm.kube.cache import Cache, Change
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection
from kurm.scheduler.objects import (
    JOBS,
    NODE_SET,
    NODE_SETS,
    OWN_PODS,
    POOL_NODES,
    SLURM_CLUSTERS,
    BatchJob,
    Node,
    NodeSet,
    Pod,
    SlurmCluster,
)

OLDEST = 120.0
"""Seconds. In quiet times the API server speaks once a minute on each watch (Pace.silence is 90 s): a view that is
older than this misses what has happened since, and nothing is done by it."""
DEAD_AFTER = 300.0
"""Seconds, the default of `SlurmCluster.spec.deadAfter`."""
DAEMON_SET = "DaemonSet"
INSTANCE = "app.kubernetes.io/instance"
"""Label of a cluster's pods: its name."""
_NO_SCHEDULER = Scheduler()


class Pool:
    """The caches, and what is read off them. `scheduler` is the schedulerName of the pods that we place."""

    def __init__(
        self,
        session: Session,
        namespace: str,
        cluster: str,
        *,
        scheduler: str,
        pace: Pace | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.namespace, self.name, self.scheduler = namespace, cluster, scheduler
        self._now = now
        ours = Selection(fields=f"spec.schedulerName={scheduler}")
        on_node = {"node": lambda pod: [pod.spec.node_name] if pod.spec.node_name else []}
        self.pods: Cache[Pod] = Cache(session, OWN_PODS, ours, indexes=on_node | {"uid": _uid}, pace=pace)
        others = Selection(fields=f"spec.schedulerName!={scheduler},spec.nodeName!=")
        slurmd = {"slurmd": lambda pod: [pod.spec.node_name] if self.is_slurmd(pod) else []}
        self.foreign: Cache[Pod] = Cache(session, OWN_PODS, others, indexes=on_node | slurmd, pace=pace)
        self.nodes: Cache[Node] = Cache(
            session,
            POOL_NODES,
            Selection(labels=NODE_SET),
            indexes={"claim": lambda node: [node.metadata.labels.get(NODE_SET, "")]},
            pace=pace,
        )
        self.node_sets: Cache[NodeSet] = Cache(session, NODE_SETS, Selection(namespace=namespace), pace=pace)
        self.jobs: Cache[BatchJob] = Cache(session, JOBS, indexes={"uid": _uid}, pace=pace)
        one = Selection(namespace=namespace, fields=f"metadata.name={cluster}")
        self.clusters: Cache[SlurmCluster] = Cache(session, SLURM_CLUSTERS, one, pace=pace)
        self._claims: dict[str, str] = {}
        self.node_sets.on_change(self._file_node_set)

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        """All of them."""
        return self.pods, self.foreign, self.nodes, self.node_sets, self.jobs, self.clusters

    @property
    def cluster(self) -> SlurmCluster | None:
        """The SlurmCluster itself."""
        return self.clusters.get(Key(self.namespace, self.name))

    @property
    def settings(self) -> Scheduler:
        """What the SlurmCluster says of pods."""
        cluster = self.cluster
        return (cluster.spec.scheduler if cluster else None) or _NO_SCHEDULER

    @property
    def problem(self) -> str:
        """Why nothing may be concluded from what is not there, for people; empty while all is well."""
        for cache in self.caches:
            if not cache.synced:
                return f"{cache.resource}: {cache.problem or 'the list is still being read'}"
            if cache.age > OLDEST:
                return f"{cache.resource}: not heard of for {cache.age:.0f} s: {cache.problem or 'no reason is known'}"
        if self.cluster is None:
            return f"there is no SlurmCluster {self.namespace}/{self.name}"
        return ""

    async def run(self) -> None:
        """Follow the API server; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self.caches:
                tasks.create_task(cache.run())

    def is_slurmd(self, pod: Pod) -> bool:
        """Whether a pod is one of our cluster's slurmds."""
        ours = pod.metadata.namespace == self.namespace and pod.metadata.labels.get(INSTANCE) == self.name
        return ours and _runs_slurmd(pod)

    def slurmd(self, node: str) -> tuple[Pod, ...]:
        """Return the slurmd pods on a node; more than one while it is replaced."""
        return self.foreign.by("slurmd", node)

    def node_set(self, node: Node) -> str:
        """Return the name of the NodeSet of our cluster that has claimed a node; empty for none."""
        return self._claims.get(node.metadata.labels.get(NODE_SET, ""), "")

    @property
    def own_node_sets(self) -> dict[str, NodeSetSpec]:
        """The NodeSets of our cluster, by name."""
        return {one.metadata.name: one.spec for one in self.node_sets if one.spec.cluster_ref.name == self.name}

    def owns(self, name: str) -> bool:
        """Whether a node is our cluster's."""
        found = self.nodes.get(Key("", name))
        return found is not None and bool(self.node_set(found))

    def health(self, name: str) -> Health:
        """Return what is known of a node."""
        node = self.nodes.get(Key("", name))
        if node is None:
            return Health.GONE
        if node.out_of_service:
            return Health.DEAD
        since = node.unheard_since
        if since is None:
            return Health.WELL
        return Health.DEAD if self._now() >= since + self.dead_after else Health.SILENT

    @property
    def dead_after(self) -> timedelta:
        """For how long a node is not heard of before it is dead."""
        cluster = self.cluster
        return timedelta(seconds=(seconds(cluster.spec.dead_after) if cluster else None) or DEAD_AFTER)

    def _file_node_set(self, _: Change[NodeSet]) -> None:
        ours = (one for one in self.node_sets if one.spec.cluster_ref.name == self.name)
        self._claims = {claim(self.namespace, one.metadata.name): one.metadata.name for one in ours}


def is_guest(pod: Pod) -> bool:
    """Whether a foreign pod takes a share of its node that nobody has reserved."""
    owners = pod.metadata.owner_references
    # A static pod is its node's own: the kubelet runs it whatever anybody says, as a DaemonSet does.
    return not _runs_slurmd(pod) and not any(one.kind in {DAEMON_SET, "Node"} for one in owners)


def _runs_slurmd(pod: Pod) -> bool:
    labels = pod.metadata.labels
    return labels.get("app.kubernetes.io/component") == "slurmd" and NODE_SET in labels


def _uid(obj: Any) -> list[str]:
    return [obj.metadata.uid]
