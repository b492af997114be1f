"""The Kubernetes objects that the scheduler reads, as far as it reads them, and what they are called."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kurm.domain import signals
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.partition import Partition
from kurm.domain.podspec import JobSpec, JobStatus, PodSpec
from kurm.domain.schedulerspec import Scheduler
from kurm.domain.spec import GROUP, VERSION
from kurm.kube.resources import NODES, PODS, Condition, Narrow, Object, Resource

MANAGER = "kurm-scheduler"
"""Our field manager."""
NODE_SET = signals.NODE_SET
JOB, SLOT, ALLOCATION, EPOCH, GATE = signals.JOB, signals.SLOT, signals.ALLOCATION, signals.EPOCH, signals.GATE
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint with which a person says that a node is switched off (Kubernetes, "Non-graceful node shutdown")."""
OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have ended for good."""
SCHEDULED, DISRUPTED = "PodScheduled", "DisruptionTarget"
"""Conditions of a pod (Kubernetes, "Pod Lifecycle")."""


class Taint(Narrow):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Narrow):
    """What people want of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Narrow):
    """One condition of a node, without the time of its heartbeat, which says nothing."""

    type: str = ""
    status: str = "Unknown"
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
    def ready(self) -> bool:
        """Whether its kubelet takes pods; one of which nothing is said does."""
        found = next((one for one in self.status.conditions if one.type == "Ready"), None)
        return found is None or found.status == "True"

    @property
    def out_of_service(self) -> bool:
        """Whether somebody says that it is switched off."""
        return any(taint.key == OUT_OF_SERVICE for taint in self.spec.taints)

    @property
    def unheard_since(self) -> datetime | None:
        """Since when nobody has heard of its kubelet; None if it is heard of."""
        ready = next((one for one in self.status.conditions if one.type == "Ready"), None)
        return ready.last_transition_time if ready is not None and ready.status == "Unknown" else None


class PodStatus(Narrow):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object):
    """A pod: one of ours, or one that another scheduler has put on a node of the pool."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def over(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in OVER

    @property
    def leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None

    def condition(self, kind: str) -> Condition | None:
        """Return one of its conditions, None if it was never set."""
        return next((one for one in self.status.conditions if one.type == kind), None)


class BatchJob(Object):
    """A Job of Kubernetes, which may make a gang of its pods."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class NodeSet(Object):
    """A NodeSet, of this cluster or of another one in the namespace."""

    spec: NodeSetSpec


class ClusterSpec(Narrow):
    """What of our own cluster is for pods to follow."""

    scheduler: Scheduler | None = None
    partitions: tuple[Partition, ...] = ()
    dead_after: str = "5m"


class SlurmCluster(Object):
    """Our own cluster."""

    spec: ClusterSpec = ClusterSpec()


OWN_PODS = PODS.of(Pod)
POOL_NODES = NODES.of(Node)
JOBS = Resource(BatchJob, group="batch", version="v1", kind="Job", plural="jobs")
NODE_SETS = Resource(NodeSet, group=GROUP, version=VERSION, kind="NodeSet", plural="nodesets")
SLURM_CLUSTERS = Resource(SlurmCluster, group=GROUP, version=VERSION, kind="SlurmCluster", plural="slurmclusters")
