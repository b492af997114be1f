"""Keys and passwords: drawn once into Secrets, and never written again."""

import base64
import secrets
from collections.abc import Callable, Iterator

from kurm.domain.slurmcluster import CompanionDatabase
from kurm.domain.spec import Json
from kurm.kube.errors import AlreadyExists
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.operator.caches import Caches
from kurm.operator.objects import MANAGED, SECRETS, Content, owned_by_another
from kurm.operator.render import keys, names
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster
from kurm.operator.writes import Writes


class NotOursError(Exception):
    """An object of a name that we need is there, and is not ours to use; the message says what to do."""


class Keys:
    """Makes them where they are missing."""

    def __init__(self, session: Session, caches: Caches, writes: Writes) -> None:
        self._session, self._caches, self._writes = session, caches, writes

    async def ensure(self, cluster: Cluster) -> str:
        """Make what is missing; return the companion database's password, empty if there is none.

        Raises NotOursError for a Secret that somebody else has made, or that still belongs to an earlier cluster.
        """
        held = {name: await self._held(cluster, name, make) for name, make in _wanted(cluster)}
        companion = held.get(cluster.component(Part.DATABASE))
        return base64.b64decode(companion.data.get(names.PASSWORD, "")).decode() if companion else ""

    async def _held(self, cluster: Cluster, name: str, make: Callable[[], Json]) -> Content:
        key = Key(cluster.namespace, name)
        found: Content | None = self._caches.made["Secret"].get(key)
        if found is None:
            try:
                return await self._writes.create(SECRETS, make())
            except AlreadyExists:  # made a moment ago, or by somebody else
                found = await self._session.get(SECRETS, key)
        label, _, value = MANAGED.partition("=")
        if found.metadata.labels.get(label) != value:
            raise NotOursError(
                f"there is a Secret {name!r} that Kurm has not made: delete it, or give it the label {MANAGED} to have "
                "it used as it is"
            )
        if owned_by_another(found, cluster.uid):
            raise NotOursError(f"Secret {name!r} belongs to an earlier resource of this name, and is about to go")
        return found


def _wanted(cluster: Cluster) -> Iterator[tuple[str, Callable[[], Json]]]:
    def draw(length: int) -> bytes:
        return secrets.token_bytes(length)

    yield (
        names.keys(cluster.name),
        lambda: keys.keys(cluster, draw(keys.SLURM_KEY_BYTES), draw(keys.JWT_KEY_BYTES)),
    )
    yield names.host_keys(cluster.name), lambda: keys.host_keys(cluster, draw(keys.SEED_BYTES))
    if cluster.spec.accounting.enabled and isinstance(cluster.spec.accounting.database, CompanionDatabase):
        yield cluster.component(Part.DATABASE), lambda: keys.database_password(cluster, draw(keys.SEED_BYTES))
