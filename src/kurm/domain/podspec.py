"""What of a pod decides where it can be placed: narrow structs that API JSON is read straight into.

Names are Kubernetes' own (core/v1 PodSpec, batch/v1 JobSpec). An object of a scheduler holds them::

    class Pod(Object):
        spec: PodSpec = PodSpec()

and is then a `Pod` of this module, which every function about placing takes.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import field

from kurm.domain.selection import Requirement, Term, Toleration
from kurm.domain.spec import Spec

__all__ = ["Requirement", "Term", "Toleration"]

DO_NOT_SCHEDULE = "DoNotSchedule"
SIDECAR = "Always"
"""restartPolicy of an init container that runs on beside the others."""


class Present(Spec):
    """Something of which it is enough to know that it is there."""


class Resources(Spec):
    """What a container asks for, or a pod as a whole, as quantities."""

    requests: Mapping[str, str] = field(default_factory=dict)


class Port(Spec):
    """core/v1 ContainerPort, as far as it takes a port of the node."""

    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Spec):
    """A container, or an init container."""

    resources: Resources = Resources()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class ClaimRef(Spec):
    """core/v1 PersistentVolumeClaimVolumeSource."""

    claim_name: str = ""


class Volume(Spec):
    """A volume, as far as it is a claim."""

    name: str = ""
    persistent_volume_claim: ClaimRef | None = None
    ephemeral: Present | None = None


class NodeSelector(Spec):
    """core/v1 NodeSelector: one of the terms must hold."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(Spec):
    """What a pod requires of nodes; what it prefers is left to Slurm."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinity(Spec):
    """Whether a pod requires something of other pods, which Slurm cannot say."""

    required_during_scheduling_ignored_during_execution: tuple[Present, ...] = ()


class Affinity(Spec):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TopologySpread(Spec):
    """core/v1 TopologySpreadConstraint, as far as it forbids a node."""

    when_unsatisfiable: str = DO_NOT_SCHEDULE


class Named(Spec):
    """Something of which the name is enough."""

    name: str = ""


class PodSpec(Spec):
    """core/v1 PodSpec."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str] = field(default_factory=dict)
    resources: Resources | None = None
    """Of the pod as a whole."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    resource_claims: tuple[Named, ...] = ()
    scheduling_group: Present | None = None
    scheduling_gates: tuple[Named, ...] = ()
    """While there is any, nobody may bind the pod."""
    volumes: tuple[Volume, ...] = ()
    priority_class_name: str = ""
    scheduler_name: str = ""
    node_name: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None


class Owner(Protocol):
    """meta/v1 OwnerReference."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class Metadata(Protocol):
    """meta/v1 ObjectMeta."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def owner_references(self) -> Sequence[Owner]: ...


class Pod(Protocol):
    """A pod."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def spec(self) -> PodSpec: ...


class JobSpec(Spec):
    """batch/v1 JobSpec, as far as it makes a gang of its pods."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"


class JobStatus(Spec):
    """batch/v1 JobStatus, as far as it says which pods of an Indexed Job are not made any more: "0,2-4"."""

    completed_indexes: str = ""
    failed_indexes: str = ""


def claims(pod: Pod) -> tuple[str, ...]:
    """Return the names of the PersistentVolumeClaims that the pod uses, in its namespace; ephemeral ones, too."""
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(found)


def host_ports(spec: PodSpec) -> tuple[Port, ...]:
    """Return the ports of its node that the pod takes: those of its containers and sidecars."""
    if not any(container.ports for container in (*spec.containers, *spec.init_containers)):
        return ()
    sidecars = (one for one in spec.init_containers if one.restart_policy == SIDECAR)
    return tuple(port for one in (*spec.containers, *sidecars) for port in one.ports if port.host_port)


_encode = msgspec.json.Encoder().encode


def requests_key(spec: PodSpec) -> bytes:
    """Return what two pods have in common that take as much: pods of one template are counted once."""
    return _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))


def placing_key(spec: PodSpec) -> bytes:
    """Return what two pods have in common that may be placed alike, annotations aside.

    Volumes are not in it: of each pod of a ReplicaSet one is called otherwise.
    """
    return _encode(
        (
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.resource_claims,
            spec.scheduling_group,
            spec.priority_class_name,
            spec.active_deadline_seconds,
        )
    )
