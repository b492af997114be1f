"""What Kubernetes says of a cluster's nodes: who has claimed them, their pods, the records that they are to have."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kurm.domain.causes import of_node
from kurm.domain.gres import GRES
from kurm.domain.noderecord import NodeRecord, TooFewError, gres_of, node_record
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.selection import LABEL_LENGTH, claim
from kurm.domain.signals import NODE_SET, PROTECTED, RELEASE, REQUEUE_AT, SLURM_READY
from kurm.domain.topology import place
from kurm.domain.world import Claim, Pod
from kurm.kube.cache import Cache, Change
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection
from kurm.syncer import objects
from kurm.syncer.alarms import Alarms
from kurm.syncer.objects import CLAIMED_NODES, NODE_SETS, OVER, SLURM_CLUSTERS, SLURMD_PODS
from kurm.syncer.told import Told

OLDEST = 120.0
"""Seconds. In quiet times the API server speaks once a minute on each watch (Pace.silence is 90 s): a view that is
older than this misses what has happened since, and nothing is done by it."""
DEAD_AFTER = 300.0
"""Seconds, the default of `SlurmCluster.spec.deadAfter`."""


class Pool:
    """The four caches, and both Kubernetes sides of `kurm.domain.world.World`, node by node."""

    def __init__(
        self,
        session: Session,
        namespace: str,
        cluster: str,
        *,
        drain_conditions: Collection[str] = (),
        dead_after: float = DEAD_AFTER,
        pace: Pace | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`drain_conditions`: types of node conditions for which nodes are drained while they are True.

        `dead_after`: seconds for which a node is not heard of before it is held for dead.
        """
        self.namespace, self.name = namespace, cluster
        self.drain_conditions, self.dead_after = drain_conditions, timedelta(seconds=dead_after)
        self.told = Told()
        self._now = now
        self._look_at: list[Callable[[str], None]] = []
        self._alarms = Alarms(self.look_at, now)
        own = Selection(namespace=namespace)
        self.nodes = Cache(
            session,
            CLAIMED_NODES,
            Selection(labels=NODE_SET),
            indexes={"claim": lambda node: [node.metadata.labels.get(NODE_SET, "")]},
            pace=pace,
        )
        self.pods = Cache(
            session,
            SLURMD_PODS,
            Selection(namespace=namespace, labels=objects.slurmd_pods(cluster)),
            indexes={
                "node": lambda pod: [pod.spec.node_name],
                "nodeset": lambda pod: [pod.metadata.labels.get(NODE_SET, "")],
            },
            pace=pace,
        )
        self.node_sets = Cache(session, NODE_SETS, own, pace=pace)
        one = Selection(namespace=namespace, fields=f"metadata.name={cluster}")
        self.clusters = Cache(session, SLURM_CLUSTERS, one, pace=pace)
        self._claims: dict[str, objects.NodeSet] = {}
        self.node_sets.on_change(self._file_node_set)
        self.nodes.on_change(self._heed_node)
        self.pods.on_change(self._heed_pod)

    @property
    def caches(
        self,
    ) -> tuple[Cache[objects.Node], Cache[objects.Pod], Cache[objects.NodeSet], Cache[objects.SlurmCluster]]:
        """All of them."""
        return self.nodes, self.pods, self.node_sets, self.clusters

    @property
    def cluster(self) -> objects.SlurmCluster | None:
        """The SlurmCluster itself."""
        return self.clusters.get(Key(self.namespace, self.name))

    @property
    def problem(self) -> str:
        """Why nothing may be concluded from what is not there, for people; empty while all is well."""
        for cache in self.caches:
            if not cache.synced:
                return f"{cache.resource}: {cache.problem or 'the list is still being read'}"
            if cache.age > OLDEST:
                return f"{cache.resource}: not heard of for {cache.age:.0f} s: {cache.problem or 'no reason is known'}"
        if self.cluster is None:
            # Also what an API server that has lost everything looks like: then all claims are gone, too.
            return f"there is no SlurmCluster {self.namespace}/{self.name}"
        return ""

    async def run(self) -> None:
        """Follow the API server; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self.caches:
                tasks.create_task(cache.run())

    def on_change(self, look_at: Callable[[str], None]) -> None:
        """Call `look_at` with the name of each node about which something may have changed."""
        self._look_at.append(look_at)

        def tell(names: Iterable[str]) -> None:
            for name in names:
                if name:  # a pod that is on no node yet
                    look_at(name)

        self.nodes.on_change(lambda change: look_at(change.key.name))
        self.pods.on_change(lambda change: tell({pod.spec.node_name for pod in _both(change)}))
        self.node_sets.on_change(lambda change: tell(self._nodes_of(change)))
        self.clusters.on_change(lambda change: tell(self._names() if _moved(change) else ()))

    def look_at(self, node: str) -> None:
        """Have everybody look at a node again: something of it is known that no cache has told."""
        for look_at in self._look_at:
            look_at(node)

    def known(self, node: str) -> bool:
        """Whether it is known to whom a node belongs. A label may come before the NodeSet that it names."""
        found = self.nodes.get(Key("", node))
        label = found.metadata.labels.get(NODE_SET, "") if found else ""
        return label in self._claims or not label.startswith(f"{self.namespace}."[: LABEL_LENGTH - 11])

    def claim(self, node: str) -> Claim | None:
        """Return our cluster's claim on a node, None if there is none."""
        found = self.nodes.get(Key("", node))
        node_set = self._claims.get(found.metadata.labels.get(NODE_SET, "")) if found else None
        if found is None or node_set is None or node_set.spec.cluster_ref.name != self.name:
            return None
        name, uid = node_set.metadata.name, found.metadata.uid
        causes = of_node(
            cordoned=found.spec.unschedulable,
            annotations=found.metadata.annotations,
            conditions=found.told,
            chosen=self.drain_conditions,
            dead=self._dead(found),
        )
        try:
            record, outdated = self._record(node_set, found)
            return Claim(uid, record, causes=causes, outdated=outdated)
        except TooFewError as error:
            return Claim(uid, None, unfit=f"Kubernetes' node {node} has too little: {error}", causes=causes)
        except ValueError as error:
            return Claim(uid, None, unfit=f"NodeSet {name}: {error}", causes=causes)

    def _record(self, node_set: objects.NodeSet, node: objects.Node) -> tuple[NodeRecord, str]:
        """Return the record of a claimed node, and what of it stays though the node says another thing by now."""
        name, spec = node_set.metadata.name, node_set.spec
        allocatable, labels = node.status.allocatable, node.metadata.labels
        settled = node.metadata.annotations.get(GRES, "")
        record = node_record(name, spec, allocatable, labels, settled=settled)
        topology = self.cluster.spec.topology if self.cluster else None
        return replace(record, topology=place(topology, labels)), _outdated(record, spec, node) if settled else ""

    def claimed(self) -> set[str]:
        """Return the names of all nodes that our cluster has claimed."""
        return {name for name in self._names() if self.claim(name)}

    def pods_on(self, node: str) -> tuple[objects.Pod, ...]:
        """Return the slurmd pods on a node that have not ended, the newest last; more than one only at a change."""
        pods = (self.told.newest(pod) for pod in self.pods.by("node", node) if pod.status.phase not in OVER)
        return tuple(sorted(pods, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.uid)))

    def pod(self, node: str) -> Pod | None:
        """Return the pod by which a node is decided, None if there is none."""
        return decisive(map(self._as_decided, self.pods_on(node)))

    def ready(self, node: str) -> bool:
        """Whether the kubelet says that slurmd on a node answers."""
        return any(pod.ready for pod in self.pods_on(node))

    def candidates(self) -> set[str]:
        """Return the nodes of NodeSets that have more pods that shall stay than they want: some of them will go."""
        found: set[str] = set()
        for node_set in self.node_sets:
            wanted = node_set.spec.replicas
            if wanted is None or node_set.spec.cluster_ref.name != self.name:
                continue
            pods = self.pods.by("nodeset", node_set.metadata.name)
            if len(pods) > wanted:
                kept = [pod.spec.node_name for pod in pods if RELEASE not in pod.metadata.annotations]
                found.update(kept if len(kept) > wanted else ())
        return found

    def _as_decided(self, pod: objects.Pod) -> Pod:
        requeue_at = moment(pod.metadata.annotations.get(REQUEUE_AT, ""))
        return Pod(
            pod.metadata.uid,
            pod.metadata.annotations.get(RELEASE, ""),
            terminating=pod.metadata.deletion_timestamp is not None,
            ready=pod.ready,
            address=pod.status.pod_ip,
            told=pod.condition(SLURM_READY) is not None,
            protected=pod.metadata.labels.get(PROTECTED) == "true",
            proven=self.told.proven(pod),
            overdue=requeue_at is not None and requeue_at <= self._now(),
        )

    def _dead(self, node: objects.Node) -> str:
        """Return why a node is held for dead, in words; empty if it is not."""
        if node.out_of_service:
            return "out of service"
        since = node.unheard_since
        if since is None or self._now() < since + self.dead_after:
            return ""
        return f"not heard of since {since:%Y-%m-%dT%H:%M:%SZ}"

    def _heed_node(self, change: Change[objects.Node]) -> None:
        since = change.new.unheard_since if change.new is not None else None
        self._alarms.set(change.key.name, "dead", since + self.dead_after if since else None)

    def _heed_pod(self, change: Change[objects.Pod]) -> None:
        """Have the node looked at when its release has waited long enough."""
        for pod in (change.old, change.new):
            if pod is not None and pod.spec.node_name:
                said = pod.metadata.annotations.get(REQUEUE_AT, "") if pod is change.new else ""
                self._alarms.set(pod.spec.node_name, f"requeue {pod.metadata.uid}", moment(said))
        if change.new is not None:
            self.told.seen(change.new)
        elif change.old is not None:
            self.told.forget(change.old)

    def _names(self) -> list[str]:
        return [node.metadata.name for node in self.nodes]

    def _nodes_of(self, change: Change[objects.NodeSet]) -> set[str]:
        label = claim(self.namespace, change.key.name)
        return {node.metadata.name for node in self.nodes.by("claim", label)}

    def _file_node_set(self, change: Change[objects.NodeSet]) -> None:
        label = claim(self.namespace, change.key.name)
        if change.new is None:
            self._claims.pop(label, None)
        else:
            self._claims[label] = change.new


def decisive(pods: Iterable[Pod]) -> Pod | None:
    """Return the pod by which a node is decided: one that shall stay before one that shall go, and is going."""
    return min(pods, key=lambda pod: (pod.terminating, bool(pod.release)), default=None)


def moment(text: str) -> datetime | None:
    """Return a time as annotations have it (RFC 3339); None for what is none, as somebody may have written it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _outdated(record: NodeRecord, spec: NodeSetSpec, node: objects.Node) -> str:
    if not (record.gres or spec.slurm.gres):
        return ""
    try:
        now = gres_of(spec, node.status.allocatable, node.metadata.labels)
    except ValueError as error:
        return f"its record keeps the GRES that it was made with, although: {error}"
    kept, told = (",".join(map(str, one)) or "no GRES" for one in (record.gres, (now[key] for key in sorted(now))))
    return "" if kept == told else f"its record keeps {kept} for its life, and the node would have {told} now"


def _moved(change: Change[objects.SlurmCluster]) -> bool:
    """Whether a SlurmCluster has come, or wants its nodes in other places."""
    return not (change.old and change.new) or change.old.spec.topology != change.new.spec.topology


def _both(change: Change[objects.Pod]) -> list[objects.Pod]:
    return [pod for pod in (change.old, change.new) if pod is not None]
