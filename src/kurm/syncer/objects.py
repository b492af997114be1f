"""The Kubernetes objects that the syncer reads, as far as it reads them, and what they are called."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kurm.domain.causes import Told
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.slurmcluster import SlurmClusterStatus
from kurm.domain.spec import GROUP, VERSION
from kurm.domain.topology import Topology
from kurm.kube.resources import NODES, PODS, Condition, Narrow, Object, Resource

MANAGER = "kurm-syncer"
"""Our field manager."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint with which a person says that a node is switched off (Kubernetes, "Non-graceful node shutdown")."""
OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have ended for good."""


class Taint(Narrow):
    """What keeps pods off a node."""

    key: str = ""


class NodeSpec(Narrow):
    """What people want of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Narrow):
    """One condition of a node, without the time of its heartbeat, which says nothing."""

    type: str = ""
    status: str = "Unknown"
    message: str = ""
    last_transition_time: datetime | None = None


class NodeStatus(Narrow):
    """What a node has, and how it is."""

    allocatable: Mapping[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(Object):
    """A Kubernetes node that some NodeSet has claimed."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def told(self) -> dict[str, Told]:
        """Its conditions by their types."""
        return {one.type: Told(one.status, one.message) for one in self.status.conditions}

    @property
    def out_of_service(self) -> bool:
        """Whether somebody says that it is switched off."""
        return any(taint.key == OUT_OF_SERVICE for taint in self.spec.taints)

    @property
    def unheard_since(self) -> datetime | None:
        """Since when nobody has heard of its kubelet; None if it is heard of."""
        ready = next((one for one in self.status.conditions if one.type == "Ready"), None)
        return ready.last_transition_time if ready is not None and ready.status == "Unknown" else None


class PodSpec(Narrow):
    """Where the pod is."""

    node_name: str = ""


class PodStatus(Narrow):
    """How the pod is."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()


class Pod(Object):
    """A slurmd pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> Condition | None:
        """Return one of its conditions, None if it was never set."""
        return next((one for one in self.status.conditions if one.type == kind), None)

    @property
    def ready(self) -> bool:
        """Whether the kubelet says that slurmd answers."""
        found = self.condition("Ready")
        return found is not None and found.status == "True"


class NodeSet(Object):
    """A NodeSet, of this cluster or of another one in the namespace."""

    spec: NodeSetSpec


class ClusterSpec(Narrow):
    """What of our own cluster is for the records to follow."""

    topology: Topology | None = None


class SlurmCluster(Object):
    """Our own cluster."""

    spec: ClusterSpec = ClusterSpec()
    status: SlurmClusterStatus = SlurmClusterStatus()


CLAIMED_NODES = NODES.of(Node)
SLURMD_PODS = PODS.of(Pod)
NODE_SETS = Resource(NodeSet, group=GROUP, version=VERSION, kind="NodeSet", plural="nodesets")
SLURM_CLUSTERS = Resource(SlurmCluster, group=GROUP, version=VERSION, kind="SlurmCluster", plural="slurmclusters")


def slurmd_pods(cluster: str) -> str:
    """Return the label selector of a cluster's slurmd pods."""
    name, instance, component = (f"app.kubernetes.io/{word}" for word in ("name", "instance", "component"))
    return f"{name}=slurm,{instance}={cluster},{component}=slurmd"
