"""ConfigMaps and Secrets that SlurmClusters name: each followed by a watch of its own, from when it is named.

One watch of one object by its name costs the API server next to nothing and us a connection; a cluster names a handful.
To watch all ConfigMaps and Secrets of a namespace instead would bring everybody's keys and files into our memory.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.slurmcluster import ExternalDatabase, SlurmClusterSpec
from kurm.kube.cache import Cache
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection
from kurm.operator.objects import CONTENT_MAPS, SECRETS, Content

DEADLINE = 10.0
"""Seconds for the first list of one object."""


@dataclass(frozen=True)
class Reference:
    """An object that a SlurmCluster names."""

    kind: str
    key: Key


def references(namespace: str, spec: SlurmClusterSpec) -> set[Reference]:
    """Return what a SlurmCluster in a namespace names. Pure."""
    scripts = spec.scripts
    sources = (*scripts.prolog, *scripts.epilog, *scripts.prolog_slurmctld, *scripts.epilog_slurmctld)
    found = {Reference("ConfigMap", Key(namespace, source.config_map_name)) for source in sources}
    place = spec.accounting.database
    if spec.accounting.enabled and isinstance(place, ExternalDatabase):
        found.add(Reference("Secret", Key(namespace, place.password.name)))
    return found


@dataclass
class _Followed:
    cache: Cache[Content]
    task: "asyncio.Task[object]"


class Inputs:
    """The watches. `changed` is told each cluster of whose objects one has changed."""

    def __init__(self, session: Session, changed: Callable[[Key], None], *, pace: Pace | None = None) -> None:
        self._session, self._changed, self._pace = session, changed, pace
        self._wanted: dict[Key, set[Reference]] = {}
        self._followed: dict[Reference, _Followed] = {}

    async def read(self, cluster: Key, wanted: Iterable[Reference]) -> Mapping[Reference, Mapping[str, str]]:
        """Return the content of those that are there, and follow them for this cluster from now on, and no others.

        Raises NotSynced if the API server does not tell in time.
        """
        references = set(wanted)
        self._want(cluster, references)
        found = {}
        for reference in references:
            cache = self._followed[reference].cache
            await cache.wait_synced(DEADLINE)
            if (held := cache.get(reference.key)) is not None:
                found[reference] = held.data
        return found

    def forget(self, cluster: Key) -> None:
        """Follow nothing any more for a cluster that is gone."""
        self._want(cluster, set())

    async def close(self) -> None:
        """End all watches."""
        tasks = [followed.task for followed in self._followed.values()]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _want(self, cluster: Key, references: set[Reference]) -> None:
        if references:
            self._wanted[cluster] = references
        else:
            self._wanted.pop(cluster, None)
        for reference in references - self._followed.keys():
            self._followed[reference] = self._follow(reference)
        for reference in self._followed.keys() - set().union(*self._wanted.values()):
            self._followed.pop(reference).task.cancel()

    def _follow(self, reference: Reference) -> _Followed:
        resource = SECRETS if reference.kind == "Secret" else CONTENT_MAPS
        selection = Selection(namespace=reference.key.namespace, fields=f"metadata.name={reference.key.name}")
        cache = Cache(self._session, resource, selection, pace=self._pace)
        cache.on_change(lambda _: self._tell(reference))
        return _Followed(cache, asyncio.create_task(cache.run()))

    def _tell(self, reference: Reference) -> None:
        for cluster, references in self._wanted.items():
            if reference in references:
                self._changed(cluster)
