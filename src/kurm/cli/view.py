"""What is read of the Kubernetes API for a person who asks: plain lists, side by side, and what is made of them."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kurm.cli.errors import CommandError
from kurm.cli.trouble import EVENTS, SLURM_PODS, Pod, newest, trouble
from kurm.domain import diagnosis, standing
from kurm.domain.diagnosis import PodTrouble
from kurm.domain.load import Load
from kurm.domain.nodeset import NodeSetSpec, NodeSetStatus
from kurm.domain.report import Said
from kurm.domain.selection import Candidate, Taint, claim
from kurm.domain.signals import NODE_SET, RELEASE, SLURM_DRAINED, SLURM_READY
from kurm.domain.slurmcluster import SlurmClusterSpec, SlurmClusterStatus
from kurm.domain.spec import GROUP, VERSION
from kurm.kube.errors import Forbidden, NotFound
from kurm.kube.resources import NODES, Condition, Node, Object, Resource
from kurm.kube.session import Session
from kurm.operator.render.names import Part
from kurm.syncer.objects import OVER

T = TypeVar("T")
S = TypeVar("S", bound=Object)

_LABEL = "app.kubernetes.io/"
LISTED = 8
"""How many names a sentence lists of what there is instead."""
EXPLAINED = 20
"""Of how many pods that are not ready the events are asked for: those of more would say nothing new."""


class SlurmCluster(Object):
    """A SlurmCluster."""

    spec: SlurmClusterSpec = SlurmClusterSpec()
    status: SlurmClusterStatus = SlurmClusterStatus()


class NodeSet(Object):
    """A NodeSet."""

    spec: NodeSetSpec
    status: NodeSetStatus = NodeSetStatus()


CLUSTERS = Resource(SlurmCluster, group=GROUP, version=VERSION, kind="SlurmCluster", plural="slurmclusters")
NODE_SETS = Resource(NodeSet, group=GROUP, version=VERSION, kind="NodeSet", plural="nodesets")


@dataclass
class View:
    """All of it, at about one moment."""

    clusters: Sequence[SlurmCluster] = ()
    node_sets: Sequence[NodeSet] = ()
    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] | None = None
    """None if they cannot be read, as `unknown` says."""
    unknown: list[str] = field(default_factory=list)
    """What could not be read, each in a sentence."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """The newest warning about each pod that is not ready, by its UID."""

    def pods_of(self, cluster: SlurmCluster) -> list[Pod]:
        """Return the pods of a cluster's components, and of its nodes."""
        mine = (pod for pod in self.pods if pod.metadata.namespace == cluster.metadata.namespace)
        return [pod for pod in mine if pod.metadata.labels.get(f"{_LABEL}instance") == cluster.metadata.name]

    def troubles(self, cluster: SlurmCluster) -> dict[str, list[PodTrouble]]:
        """Return why pods of a cluster's components are not ready, by component; those of its nodes are not in it."""
        found: dict[str, list[PodTrouble]] = defaultdict(list)
        for pod in self.pods_of(cluster):
            if (part := component(pod)) != Part.SLURMD and (told := trouble(pod, self.warnings)):
                found[part].append(PodTrouble(pod.metadata.name, *told))
        return found

    def node_sets_of(self, cluster: SlurmCluster) -> list[NodeSet]:
        """Return the NodeSets of a cluster."""
        mine = (one for one in self.node_sets if one.metadata.namespace == cluster.metadata.namespace)
        return [one for one in mine if one.spec.cluster_ref.name == cluster.metadata.name]

    def facts(self) -> list[standing.Node]:
        """Return the Kubernetes nodes, each with the slurmd pod on it that is to stay before one that is to go."""
        slurmds: dict[str, Pod] = {}
        for pod in self.pods:
            if component(pod) == Part.SLURMD and pod.status.phase not in OVER:
                known = slurmds.get(pod.spec.node_name)
                if known is None or RELEASE in known.metadata.annotations:
                    slurmds[pod.spec.node_name] = pod
        return [self._fact(node, slurmds.get(node.metadata.name)) for node in self.nodes or ()]

    def _fact(self, node: Node, pod: Pod | None) -> standing.Node:
        ready = condition(node.status.conditions, "Ready")
        slurmd = self.slurmd(pod) if pod is not None else None
        candidate = Candidate(
            name=node.metadata.name,
            labels=node.metadata.labels,
            taints=tuple(Taint(taint.key, taint.effect, taint.value) for taint in node.spec.taints),
            allocatable=node.status.allocatable,
            ready=ready is not None and ready.status == "True",
            unschedulable=node.spec.unschedulable,
            claim=node.metadata.labels.get(NODE_SET, ""),
            releasing=slurmd is not None and bool(slurmd.release),
            serving=pod is not None and pod.ready,
            drained=pod is not None and drained(pod),
            load=Load.of(pod.metadata.annotations) if pod is not None else Load(),
        )
        return standing.Node(candidate, (ready.message or ready.reason) if ready else "", slurmd)

    def slurmd(self, pod: Pod) -> standing.Slurmd:
        """Return what a slurmd pod tells of its node."""
        told = trouble(pod, self.warnings)
        return standing.Slurmd(
            name=pod.metadata.name,
            ready=pod.ready,
            trouble=told.why if told else "",
            stuck=told is not None and told.stuck,
            release=pod.metadata.annotations.get(RELEASE, ""),
            said=said(pod),
        )

    def cluster_facts(self, cluster: SlurmCluster) -> diagnosis.Cluster:
        """Return what the diagnosis takes of a SlurmCluster."""
        meta = cluster.metadata
        return diagnosis.Cluster(
            meta.namespace,
            meta.name,
            meta.generation,
            cluster.status,
            self.troubles(cluster),
            deleting=meta.deletion_timestamp is not None,
        )

    def node_set_facts(self, node_set: NodeSet, nodes: Sequence[standing.Node]) -> diagnosis.NodeSet:
        """Return what the diagnosis takes of a NodeSet. Raises ValueError as `standings` does."""
        meta, spec = node_set.metadata, node_set.spec
        mine = claim(meta.namespace, meta.name)
        return diagnosis.NodeSet(
            meta.namespace,
            meta.name,
            meta.generation,
            spec,
            node_set.status,
            None if self.nodes is None else standing.standings(meta.name, spec, mine, nodes),
            deleting=meta.deletion_timestamp is not None,
        )


async def read(session: Session, namespace: str) -> View:
    """Read clusters, node sets and pods of a namespace (of all if it is ""), and all nodes.

    Without the right to read nodes or pods the view says so. Raises CommandError if Kurm is not installed, KubeError.
    """
    view = View()
    labels = f"{_LABEL}name=slurm"
    try:
        view.clusters, view.node_sets, pods, view.nodes = await asyncio.gather(
            session.list(CLUSTERS, namespace=namespace),
            session.list(NODE_SETS, namespace=namespace),
            _optional(view, "pods", session.list(SLURM_PODS, namespace=namespace, labels=labels)),
            _optional(view, "nodes", session.list(NODES)),
        )
    except NotFound as error:
        raise CommandError(f"Kurm is not installed at {session.config.server}: it knows no {CLUSTERS}") from error
    view.pods = pods or ()
    view.warnings = await warnings(session, view.pods)
    return view


async def _optional(view: View, what: str, reading: Awaitable[Sequence[T]]) -> Sequence[T] | None:
    try:
        return await reading
    except Forbidden as error:
        view.unknown.append(f"Nothing is known of {what}: {error.message}")
        return None


async def warnings(session: Session, pods: Iterable[Pod]) -> dict[str, str]:
    """Return the newest warning about each pod that is not ready, by its UID; none without the right to read events."""
    asked = [pod.metadata for pod in pods if trouble(pod)][:EXPLAINED]
    answers = await asyncio.gather(
        *(
            session.list(EVENTS, namespace=meta.namespace, fields=f"involvedObject.uid={meta.uid},type=Warning")
            for meta in asked
        ),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Forbidden):
            raise answer
    return newest(event for answer in answers if not isinstance(answer, BaseException) for event in answer)


def component(pod: Pod) -> str:
    """Return which component a pod belongs to: the label says it."""
    return pod.metadata.labels.get(f"{_LABEL}component", "")


def condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of that type, None if there is none."""
    return next((one for one in conditions if one.type == kind), None)


def drained(pod: Pod) -> bool:
    """Return whether the syncer has said that Slurm gives the pod's node no jobs, and has none there."""
    found = pod.condition(SLURM_DRAINED)
    return found is not None and found.status == "True"


def said(pod: Pod) -> Said | None:
    """Return what the syncer has written into a slurmd pod's conditions; None if it never did."""
    ready, drained = pod.condition(SLURM_READY), pod.condition(SLURM_DRAINED)
    if ready is None:
        return None
    # "Drained" that was said of an earlier release is no answer to this one.
    release = pod.metadata.annotations.get(RELEASE, "")
    over = drained is not None and drained.status == "True" and release in {"", drained.message}
    return Said(ready=ready.status == "True", drained=over, reason=ready.reason, message=ready.message)


async def choose(session: Session, namespace: str, name: str) -> SlurmCluster:
    """Return the SlurmCluster of that name, or the only one there is in the namespace if no name is given.

    Raises CommandError that names those that there are.
    """
    try:
        here = await session.list(CLUSTERS, namespace=namespace)
    except NotFound as error:
        raise CommandError(f"Kurm is not installed at {session.config.server}: it knows no {CLUSTERS}") from error
    found = [cluster for cluster in here if name in {"", cluster.metadata.name}]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(cluster.metadata.name for cluster in found))
        raise CommandError(f"there are several SlurmClusters in namespace {namespace}: {names}; name one")
    raise CommandError(await absent(session, CLUSTERS, namespace, name))


async def absent(session: Session, resource: Resource[S], namespace: str, name: str) -> str:
    """Return the sentence that an object is not there, and which there are, those of the namespace first."""
    where = f" in namespace {namespace}" if namespace else ""
    what = f"there is no {resource.kind}{f' {name!r}' if name else ''}{where}"
    try:
        known = [one.key for one in await session.list(resource)]
    except Forbidden:
        known = [one.key for one in await session.list(resource, namespace=namespace)]
    if not known:
        return f"{what}, nor any other"
    near = sorted(known, key=lambda key: (key.namespace != namespace, str(key)))
    return f"{what}; there is {diagnosis.some([str(key) for key in near], LISTED)}"
