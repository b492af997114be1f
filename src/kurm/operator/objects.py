"""The Kubernetes objects that the operator reads, as far as it reads them, and what they are called."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kurm.domain.nodeset import NodeSetSpec, NodeSetStatus
from kurm.domain.slurmcluster import SlurmClusterSpec, SlurmClusterStatus
from kurm.domain.spec import GROUP, VERSION
from kurm.kube import resources
from kurm.kube.resources import CONFIG_MAPS, NODES, PODS, Condition, Key, Narrow, Object, Resource
from kurm.operator.render.names import OWNER_UID

MANAGER = "kurm-operator"
"""Our field manager."""
MANAGED = "app.kubernetes.io/managed-by=kurm"
"""Label selector of all that we make."""
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
REVISION = "controller-revision-hash"
"""Label of a StatefulSet's pods: which revision of its template."""
FINALIZER = f"{GROUP}/operator"
"""Of SlurmClusters and NodeSets: what the garbage collector cannot take away has to be given back."""
OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have ended for good."""


class SlurmCluster(Object):
    """A SlurmCluster."""

    spec: SlurmClusterSpec
    status: SlurmClusterStatus = SlurmClusterStatus()


class NodeSet(Object):
    """A NodeSet."""

    spec: NodeSetSpec
    status: NodeSetStatus = NodeSetStatus()

    @property
    def cluster(self) -> Key:
        """The SlurmCluster that it names."""
        return Key(self.metadata.namespace, self.spec.cluster_ref.name)


class Taint(Narrow):
    """A node's taint, whole: the list of them can only be written as a whole."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(Narrow):
    """What keeps pods off a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Node(Object):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: resources.NodeStatus = resources.NodeStatus()

    def condition(self, kind: str) -> Condition | None:
        """Return one of its conditions, None if it was never set."""
        return next((one for one in self.status.conditions if one.type == kind), None)

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it is well, and has been heard of."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)


class Waiting(Narrow):
    """Why a container does not run yet, or not again."""

    reason: str = ""
    message: str = ""


class Terminated(Narrow):
    """How a container has ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Narrow):
    """One of both, or neither while it runs."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Narrow):
    """How a container is, and how it was before it was restarted."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodSpec(Narrow):
    """Where the pod is."""

    node_name: str = ""


class PodStatus(Narrow):
    """How the pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    host_ip: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object):
    """A pod of a cluster."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> Condition | None:
        """Return one of its conditions, None if it was never set."""
        return next((one for one in self.status.conditions if one.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether one of its conditions is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def going(self) -> bool:
        """Whether it was told to end."""
        return self.metadata.deletion_timestamp is not None

    @property
    def ready(self) -> bool:
        """Whether it answers, and is to stay."""
        return self.holds("Ready") and not self.going


class WorkloadSpec(Narrow):
    """How many pods."""

    replicas: int = 1


class WorkloadStatus(Narrow):
    """How far a StatefulSet or a Deployment has come."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    update_revision: str = ""
    conditions: tuple[Condition, ...] = ()


class Workload(Object):
    """A StatefulSet or a Deployment."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ServicePort(Narrow):
    """A port of a Service."""

    port: int = 0
    node_port: int = 0


class ServiceSpec(Narrow):
    """How a Service is reached within the cluster and on its nodes."""

    type: str = ""
    cluster_ip: str = ""
    ports: tuple[ServicePort, ...] = ()


class Ingress(Narrow):
    """An address of a load balancer."""

    ip: str = ""
    hostname: str = ""


class LoadBalancer(Narrow):
    """Addresses of a load balancer."""

    ingress: tuple[Ingress, ...] = ()


class ServiceStatus(Narrow):
    """How a Service is reached from outside."""

    load_balancer: LoadBalancer = LoadBalancer()


class Service(Object):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class Claims(Narrow):
    """How much a claim asks for."""

    requests: Mapping[str, str] = msgspec.field(default_factory=dict)


class VolumeClaimSpec(Narrow):
    """What a claim asks for."""

    resources: Claims = Claims()
    storage_class_name: str = ""


class VolumeClaim(Object):
    """A PersistentVolumeClaim."""

    spec: VolumeClaimSpec = VolumeClaimSpec()


class Content(Object):
    """A ConfigMap or a Secret, with what is in it: a Secret's values are in base64."""

    data: Mapping[str, str] = msgspec.field(default_factory=dict)


SLURM_CLUSTERS = Resource(SlurmCluster, group=GROUP, version=VERSION, kind="SlurmCluster", plural="slurmclusters")
NODE_SETS = Resource(NodeSet, group=GROUP, version=VERSION, kind="NodeSet", plural="nodesets")
ALL_NODES = NODES.of(Node)
CLUSTER_PODS = PODS.of(Pod)
STATEFUL_SETS = Resource(Workload, group="apps", version="v1", kind="StatefulSet", plural="statefulsets")
DEPLOYMENTS = Resource(Workload, group="apps", version="v1", kind="Deployment", plural="deployments")
BUDGETS = Resource(Object, group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
SERVICES = Resource(Service, version="v1", kind="Service", plural="services")
VOLUME_CLAIMS = Resource(VolumeClaim, version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
SECRETS = Resource(Content, version="v1", kind="Secret", plural="secrets")
CONTENT_MAPS = CONFIG_MAPS.of(Content)
SERVICE_ACCOUNTS = Resource(Object, version="v1", kind="ServiceAccount", plural="serviceaccounts")
_RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(Object, group=_RBAC, version="v1", kind="Role", plural="roles")
ROLE_BINDINGS = Resource(Object, group=_RBAC, version="v1", kind="RoleBinding", plural="rolebindings")
CLUSTER_ROLE_BINDINGS = Resource(
    Object, group=_RBAC, version="v1", kind="ClusterRoleBinding", plural="clusterrolebindings", namespaced=False
)
_ADMISSION = "admissionregistration.k8s.io"
VALIDATING_BINDINGS = Resource(
    Object,
    group=_ADMISSION,
    version="v1",
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    namespaced=False,
)
MUTATING_BINDINGS = Resource(
    Object,
    group=_ADMISSION,
    version="v1",
    kind="MutatingAdmissionPolicyBinding",
    plural="mutatingadmissionpolicybindings",
    namespaced=False,
)

KINDS: Mapping[str, Resource[Any]] = {
    each.kind: each
    for each in (
        STATEFUL_SETS,
        DEPLOYMENTS,
        BUDGETS,
        SERVICES,
        VOLUME_CLAIMS,
        SECRETS,
        CONFIG_MAPS,
        SERVICE_ACCOUNTS,
        ROLES,
        ROLE_BINDINGS,
        CLUSTER_ROLE_BINDINGS,
        VALIDATING_BINDINGS,
        MUTATING_BINDINGS,
    )
}
"""What a cluster is made of, but its pods. Of ConfigMaps that we write the metadata is enough."""
OPTIONAL = frozenset({MUTATING_BINDINGS.kind})
"""Of those, what is served by newer versions of Kubernetes only (1.36)."""
DISPENSABLE = (
    *("StatefulSet", "Deployment", "Service", "ConfigMap"),
    *("ClusterRoleBinding", VALIDATING_BINDINGS.kind, MUTATING_BINDINGS.kind),
)
"""What is deleted when it is no longer rendered. Never a volume or a key: accounting that is switched off and on again
finds its records. And no Secret with a configuration, because it stands among those with keys."""


def owned_by(obj: Object, uid: str) -> bool:
    """Whether the resource of that UID is the object's controller."""
    return any(one.controller and one.uid == uid for one in obj.metadata.owner_references)


def made_for(obj: Object, uid: str) -> bool:
    """Whether an object is that SlurmCluster's: owned by it, or, if cluster-wide, marked with its UID."""
    marked = not obj.metadata.namespace and obj.metadata.annotations.get(OWNER_UID) == uid
    return marked or owned_by(obj, uid)


def owned_by_another(obj: Object, uid: str) -> bool:
    """Whether an object has a controller, and that is another one: it belongs to one that had the name before."""
    owners = [one.uid for one in obj.metadata.owner_references if one.controller]
    return bool(owners) and uid not in owners
