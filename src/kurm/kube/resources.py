"""Kubernetes resources: where each kind lives in the API, and the narrow structs that hold what is used of it.

A struct holds only the fields that its reader uses: the rest of an object is skipped by the decoder and costs no memory
(20,000 whole pods are 1 GB as dicts). Define your own next to the code that reads it::

    class WorkerSpec(Narrow):
        node_name: str = ""

    class Worker(Object):
        spec: WorkerSpec = WorkerSpec()

    WORKERS = PODS.of(Worker)

Structs are frozen, because a cache shares them between its readers, and free of the garbage collector (`gc=False`),
because a full collection over 20,000 pods costs a second otherwise. Declare `X | None` where Kubernetes sends null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, TypeVar, dataclass_transform

import msgspec
from msgspec import Struct, StructMeta, field

# Kubernetes writes these words whole in capitals, except at the front of a name: podIP, containerID, but uid.
_CAPITALS = {"ip": "IP", "ips": "IPs", "id": "ID", "pid": "PID", "ipc": "IPC", "uid": "UID", "uuid": "UUID"}
_CAPITALS |= {"cidr": "CIDR", "cidrs": "CIDRs", "url": "URL", "api": "API", "ttl": "TTL"}


def camel(name: str) -> str:
    """Return a Python field's name as Kubernetes writes it: `pod_ip` is `podIP`, `node_name` is `nodeName`."""
    first, *rest = name.split("_")
    return first + "".join(_CAPITALS.get(word, word.capitalize()) for word in rest)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class NarrowMeta(StructMeta):
    """Tells type checkers that whatever derives from Narrow is frozen too, so that nobody has to say it again."""


class Narrow(Struct, metaclass=NarrowMeta, frozen=True, gc=False, omit_defaults=True, rename=camel):
    """A part of a Kubernetes object: the fields that are used, each with what its absence means."""


class Key(Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """Which object: its namespace ("" for cluster-wide resources) and its name. Never identity: that is the UID."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Narrow):
    """Who an object belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Narrow):
    """What every object says of itself; `managedFields` and its like are left out on purpose."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class Object(Narrow):
    """Any Kubernetes object, of which only the metadata is kept. Base of all others."""

    metadata: ObjectMeta

    @property
    def key(self) -> Key:
        """The object's namespace and name."""
        return Key(self.metadata.namespace, self.metadata.name)


class Dynamic(Object):
    """An object of a kind that was not known when the code was written: spec and status as plain JSON."""

    spec: Any = None
    status: Any = None


class ListMeta(Narrow):
    """What a list says of itself."""

    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int = 0


T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Object)


class Page(Struct, Generic[T], gc=False):
    """One page of a list, as the API server sends it. `items` may be null (a Go list that was never filled)."""

    metadata: ListMeta
    items: list[T] | None = None


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of object in the API, and the struct that its objects are read into."""

    struct: type[T]
    version: str
    kind: str
    plural: str
    group: str = ""
    namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def of(self, narrow: type[S]) -> "Resource[S]":
        """Return the same resource, read into another struct."""
        return Resource(narrow, self.version, self.kind, self.plural, self.group, self.namespaced)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, key: Key | None = None, *, namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of one object, of its subresource, or of the collection (of one namespace, or of all)."""
        if key is not None:
            if self.namespaced and not key.namespace:
                raise ValueError(f"{self}: {key.name!r} needs a namespace: {self.kind} is a namespaced resource")
            if not key.name:
                raise ValueError(f"{self}: an object's name must not be empty")
            namespace = key.namespace
        if namespace and not self.namespaced:
            raise ValueError(f"{self}: {self.kind} is cluster-wide and takes no namespace, not {namespace!r}")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [self.plural]
        parts += [key.name] if key else []
        parts += [subresource] if subresource else []
        return "/".join(parts)

    @cached_property
    def decoder(self) -> "msgspec.json.Decoder[T]":
        """Decodes one object from bytes."""
        return msgspec.json.Decoder(self.struct)

    @cached_property
    def page_decoder(self) -> "msgspec.json.Decoder[Page[T]]":
        """Decodes one page of a list from bytes, straight into the struct."""
        return msgspec.json.Decoder(Page[self.struct])  # type: ignore[name-defined]

    def manifest(self, body: T | Mapping[str, Any]) -> dict[str, Any]:
        """Return an object as JSON to be sent, with `apiVersion` and `kind` filled in; a wrong kind is a ValueError."""
        content = dict(body) if isinstance(body, Mapping) else msgspec.to_builtins(body, str_keys=True)
        ours = {"apiVersion": self.api_version, "kind": self.kind}
        for name, value in ours.items():
            if content.get(name, value) != value:
                raise ValueError(f"{self}: {name} is {content[name]!r}, must be {value!r}")
        return ours | content


def micro_time(moment: datetime) -> str:
    """Return a `meta/v1` MicroTime: always six digits, as its Go parser insists (isoformat drops them when zero)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseSpec(Narrow):
    """`coordination.k8s.io/v1` LeaseSpec. Times are the holder's wall clock: to be shown, never to be reckoned with."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(Object):
    """Who leads."""

    spec: LeaseSpec = LeaseSpec()


class Condition(Narrow):
    """A condition of a pod, a node or one of our own resources."""

    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Resources(Narrow):
    """What a container asks for, as Kubernetes quantities."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


class Container(Narrow):
    """A container's name and its share of the node."""

    name: str = ""
    resources: Resources = Resources()


class PodSpec(Narrow):
    """Where a pod may go, where it is and what it takes."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str] = field(default_factory=dict)


class PodStatus(Narrow):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    pod_ip: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Pod(Object):
    """A pod, as a scheduler sees it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Narrow):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Narrow):
    """What an operator says of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Narrow):
    """What a node has, and how it is."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(Object):
    """A node, as a scheduler sees it."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


PODS = Resource(Pod, version="v1", kind="Pod", plural="pods")
NODES = Resource(Node, version="v1", kind="Node", plural="nodes", namespaced=False)
NAMESPACES = Resource(Object, version="v1", kind="Namespace", plural="namespaces", namespaced=False)
CONFIG_MAPS = Resource(Object, version="v1", kind="ConfigMap", plural="configmaps")
LEASES = Resource(Lease, group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
EVENTS = Resource(Object, group="events.k8s.io", version="v1", kind="Event", plural="events")
