"""A SlurmCluster's objects: rendered from what it asks for and names, applied, and taken away when no longer wanted."""

import base64
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from kurm.domain.gres import GRES
from kurm.domain.noderecord import NodeRecord, node_record
from kurm.domain.selection import claim
from kurm.domain.slurmcluster import ExternalDatabase, SlurmClusterSpec
from kurm.domain.spec import Json
from kurm.domain.topology import Path, path
from kurm.kube.errors import Forbidden, Invalid
from kurm.kube.resources import Key, Object
from kurm.kube.session import Session
from kurm.operator import inputs, schedulernames, volumes
from kurm.operator.caches import Caches
from kurm.operator.conditions import Trouble
from kurm.operator.inputs import Inputs, Reference
from kurm.operator.keys import Keys, NotOursError
from kurm.operator.objects import DISPENSABLE, KINDS, OPTIONAL, Node, NodeSet, SlurmCluster, made_for, owned_by_another
from kurm.operator.render import cluster as rendering
from kurm.operator.render import topology
from kurm.operator.render.configuration import Configuration, configuration
from kurm.operator.render.errors import MissingError, SpecError
from kurm.operator.render.pods import Cluster, Images
from kurm.operator.settling import Settling
from kurm.operator.writes import Writes

log = structlog.get_logger("kurm.operator")

Content = Mapping[Reference, Mapping[str, str]]


@dataclass
class Assembled:
    """What came of it."""

    cluster: Cluster
    configuration: Configuration | None = None
    """None if it cannot be rendered."""
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    """As the API server has them now, by kind and name."""
    troubles: list[Trouble] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unserved: list[str] = field(default_factory=list)
    """Kinds of what was left out because the API server does not have such objects."""
    unsettled: float = 0.0
    """Seconds until nodes that have changed are looked at; 0 if the configuration is of nodes as they are."""


@dataclass(frozen=True)
class Shape:
    """What a configuration takes from the claimed nodes."""

    records: Mapping[str, NodeRecord]
    """Of those with GRES, by name: gres.conf needs no others."""
    places: Collection[Path]
    asked: object
    """By which topology and NodeSets: with another one it is made anew at once."""


class Assembly:
    """Brings a cluster's objects about. Every step can be repeated, and cut off between any two."""

    def __init__(self, session: Session, caches: Caches, writes: Writes, inputs: Inputs, images: Images) -> None:
        self._caches, self._writes, self._inputs, self._images = caches, writes, inputs, images
        self._keys = Keys(session, caches, writes)
        self._shapes: dict[Key, Shape] = {}
        self.settling = Settling()

    def forget(self, key: Key) -> None:
        """Forget a cluster that is gone."""
        self._shapes.pop(key, None)
        self.settling.forget(key)

    async def bring_about(self, of: SlurmCluster) -> Assembled:
        """Make all objects of a cluster what they ought to be; what cannot be is a trouble and no error.

        Raises KubeError for what may pass by itself.
        """
        metadata = of.metadata
        spec, taken = self._scheduled(of)
        made = Assembled(Cluster(metadata.namespace, metadata.name, metadata.uid, spec, self._images))
        made.troubles += [taken] if taken else []
        named = await self._inputs.read(of.key, inputs.references(metadata.namespace, of.spec))
        made.troubles += self._missing_node_sets(of)
        try:
            shape = self._shape(of, made)
            made.notes += filter(None, [topology.note(of.spec.topology, shape.places)])
            made.configuration = self._configuration(made.cluster, named, shape)
            companion = await self._keys.ensure(made.cluster)
            password = _password(of, named) or companion
            manifests = rendering.objects(made.cluster, made.configuration, database_password=password)
        except MissingError as error:
            made.troubles.append(Trouble(f"Missing{error.kind}", str(error)))
        except SpecError as error:
            made.troubles.append(Trouble("CannotBeRendered", str(error)))
        except NotOursError as error:
            made.troubles.append(Trouble("NotOurs", str(error)))
        else:
            for manifest in manifests:
                await self._apply(made, manifest)
            await self._prune(made, manifests)
        return made

    def _scheduled(self, of: SlurmCluster) -> tuple[SlurmClusterSpec, Trouble | None]:
        """Return what a cluster asks for, without its scheduler if that has another one's name, and a word about it."""
        if of.spec.scheduler is None:
            return of.spec, None
        taken = schedulernames.taken(of, self._caches.clusters.by("scheduler", of.spec.scheduler.name))
        return (of.spec, None) if taken is None else (msgspec.structs.replace(of.spec, scheduler=None), taken)

    def _configuration(self, cluster: Cluster, named: Content, shape: Shape) -> Configuration:
        node_sets = self._caches.node_sets.by("cluster", Key(cluster.namespace, cluster.name))
        return configuration(
            cluster,
            {one.metadata.name: one.spec for one in node_sets},
            config_maps={ref.key.name: data for ref, data in named.items() if ref.kind == "ConfigMap"},
            records=shape.records,
            places=shape.places,
            nodes=len(self._caches.nodes),
        )

    def _shape(self, of: SlurmCluster, made: Assembled) -> Shape:
        """Return what the nodes give, as it was before they began to change if they still do."""
        node_sets = self._caches.node_sets.by("cluster", of.key)
        asked = (of.spec.topology, {(one.metadata.uid, one.metadata.generation) for one in node_sets})
        held, left = self._shapes.get(of.key), self.settling.left(of.key)
        if held is not None and held.asked == asked and (left or not self.settling.noted(of.key)):
            made.unsettled = left
            return held
        self.settling.forget(of.key)
        records: dict[str, NodeRecord] = {}
        places: set[Path] = set()
        for one in node_sets:
            for node in self._caches.nodes.by("claim", claim(one.metadata.namespace, one.metadata.name)):
                if (record := _record(one, node)) is not None and record.gres:
                    records[node.metadata.name] = record
                if of.spec.topology is not None:
                    places.add(path(of.spec.topology, node.metadata.labels))
        self._shapes[of.key] = Shape(records, places, asked)
        return self._shapes[of.key]

    def _missing_node_sets(self, of: SlurmCluster) -> list[Trouble]:
        here = {one.metadata.name for one in self._caches.node_sets.by("cluster", of.key)}
        return [
            Trouble(
                "MissingNodeSet",
                f"spec.partitions[{number}].nodeSets: there is no NodeSet {name!r} of this cluster in this namespace",
            )
            for number, partition in enumerate(of.spec.partitions)
            for name in partition.node_sets
            if name not in here
        ]

    async def _apply(self, made: Assembled, manifest: Json) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        resource = KINDS[kind]
        if kind in OPTIONAL and not self._caches.serves(kind):
            made.unserved.append(kind)
            made.notes.append(f"{kind} {name} is left out: this Kubernetes has no such objects")
            return
        key = Key(made.cluster.namespace if resource.namespaced else "", name)
        seen = self._caches.made[kind].get(key)
        if seen is not None and owned_by_another(seen, made.cluster.uid):
            message = f"{kind} {name} belongs to an earlier SlurmCluster of this name, and is about to go"
            made.troubles.append(Trouble("EarlierCluster", message, stuck=False))
            return
        if kind == "PersistentVolumeClaim":
            manifest, note = volumes.fitted(manifest, seen)
            made.notes += [note] if note else []
            if seen is not None and volumes.satisfied(manifest, seen):
                return
        try:
            made.objects[kind, name] = await self._writes.apply(resource, manifest, seen=seen)
        except (Invalid, Forbidden) as error:
            log.warning("refused", kind=kind, name=name, why=error.message)
            made.troubles.append(Trouble("Refused", f"{kind} {name}: the API server says: {error.message}"))

    async def _prune(self, made: Assembled, manifests: Iterable[Json]) -> None:
        wanted = {(one["kind"], one["metadata"]["name"]) for one in manifests}
        for kind in DISPENSABLE:
            for obj in self._caches.made[kind].by("cluster", Key(made.cluster.namespace, made.cluster.name)):
                if (kind, obj.metadata.name) not in wanted and made_for(obj, made.cluster.uid):
                    await self._writes.delete(KINDS[kind], obj, why="no longer asked for")


def _record(node_set: NodeSet, node: Node) -> NodeRecord | None:
    """Return the record of a claimed node; None if it has too little (now), which the NodeSet says."""
    meta = node.metadata
    try:
        return node_record(
            node_set.metadata.name,
            node_set.spec,
            node.status.allocatable,
            meta.labels,
            settled=meta.annotations.get(GRES, ""),
        )
    except ValueError:
        return None


def _password(of: SlurmCluster, named: Content) -> str:
    """Return the external database's password, empty without one. Raises MissingError, SpecError."""
    place, field_name = of.spec.accounting.database, "spec.accounting.external.password"
    if not of.spec.accounting.enabled or not isinstance(place, ExternalDatabase):
        return ""
    secret = place.password
    data = named.get(Reference("Secret", Key(of.metadata.namespace, secret.name)))
    if data is None:
        raise MissingError(field_name, "Secret", secret.name)
    if secret.key not in data:
        raise MissingError(field_name, "Secret", secret.name, secret.key)
    try:
        return base64.b64decode(data[secret.key]).decode()
    except UnicodeDecodeError as error:
        raise SpecError(field_name, "it is no text in UTF-8") from error
