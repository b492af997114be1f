"""The Kubernetes objects that the syncer reads, as far as it reads them, and what they are called."""

from collections.abc import Mapping

import msgspec

from kurm.domain import agreement
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.slurmcluster import SlurmClusterStatus
from kurm.domain.spec import GROUP, VERSION
from kurm.kube.resources import NODES, PODS, Condition, Narrow, Object, Resource

MANAGER = "kurm-syncer"
"""Our field manager."""
NODE_SET, RELEASE = agreement.NODE_SET, agreement.RELEASE
SLURM_READY, SLURM_DRAINED = agreement.SLURM_READY, agreement.SLURM_DRAINED
OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have ended for good."""


class NodeStatus(Narrow):
    """What a node has; conditions are left out, they change every few minutes."""

    allocatable: Mapping[str, str] = msgspec.field(default_factory=dict)


class Node(Object):
    """A Kubernetes node that some NodeSet has claimed."""

    status: NodeStatus = NodeStatus()


class PodSpec(Narrow):
    """Where the pod is."""

    node_name: str = ""


class PodStatus(Narrow):
    """How the pod is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object):
    """A slurmd pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> Condition | None:
        """Return one of its conditions, None if it was never set."""
        return next((one for one in self.status.conditions if one.type == kind), None)


class NodeSet(Object):
    """A NodeSet, of this cluster or of another one in the namespace."""

    spec: NodeSetSpec


class SlurmCluster(Object):
    """Our own cluster."""

    status: SlurmClusterStatus = SlurmClusterStatus()


CLAIMED_NODES = NODES.of(Node)
SLURMD_PODS = PODS.of(Pod)
NODE_SETS = Resource(NodeSet, group=GROUP, version=VERSION, kind="NodeSet", plural="nodesets")
SLURM_CLUSTERS = Resource(SlurmCluster, group=GROUP, version=VERSION, kind="SlurmCluster", plural="slurmclusters")


def slurmd_pods(cluster: str) -> str:
    """Return the label selector of a cluster's slurmd pods."""
    name, instance, component = (f"app.kubernetes.io/{word}" for word in ("name", "instance", "component"))
    return f"{name}=slurm,{instance}={cluster},{component}=slurmd"
