"""Server-side apply: the server merges what we want into what is there, and knows which fields are ours.

Applied is always the whole of what we want of an object: what we applied before and no longer name, the server removes.
`force` is on, because a reconciler that yields to others' values cannot bring about what it was asked for.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kurm.kube.errors import Conflict, NotFound
from kurm.kube.resources import Key, Object, Resource
from kurm.kube.session import Patch, Session

T = TypeVar("T", bound=Object)

# A Conflict here means that somebody else's finalizer came or went in between; several in a row are no accident.
ATTEMPTS = 5


class Applier:
    """Applies manifests under one field manager, and leaves out what would change nothing.

    An apply is left out if and only if the caller's view of the object (`seen`) has the UID and the resourceVersion
    with which the server answered our last apply of exactly this manifest. That is safe: the same version is the same
    object to the last byte, and the server has already said what it makes of this manifest there. It is cheap: one
    hash. Any other writer, even of a field that is not ours, costs one apply more, which the server answers without a
    write.
    """

    def __init__(self, session: Session, manager: str) -> None:
        self.session = session
        self.manager = manager
        self._answers: dict[tuple[str, Key, str], tuple[str, str, bytes]] = {}

    async def apply(
        self,
        resource: Resource[T],
        manifest: Mapping[str, Any],
        *,
        seen: T | None = None,
        subresource: str = "",
        force: bool = True,
        deadline: float | None = None,
    ) -> T:
        """Make an object what the manifest says; return it as it is then. It is created if it is not there.

        To apply only to the object that was seen and never to a new one of its name, write its `metadata.uid` into the
        manifest: the server answers Conflict then.
        """
        body = resource.manifest(manifest)
        metadata = body.get("metadata") or {}
        key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        place = (str(resource), key, subresource)
        digest = hashlib.blake2b(msgspec.json.encode(body, order="sorted"), digest_size=16).digest()
        if seen is not None and self._answers.get(place) == (*_version(seen), digest):
            return seen
        query = {"fieldManager": self.manager, "force": "true" if force else "false"}
        answer = await self.session.patch(
            resource, key, body, kind=Patch.APPLY, subresource=subresource, query=query, deadline=deadline
        )
        self._answers[place] = (*_version(answer), digest)
        return answer

    async def apply_status(
        self,
        resource: Resource[T],
        of: T,
        status: Mapping[str, Any],
        *,
        annotations: Mapping[str, str] | None = None,
        exactly: bool = False,
        deadline: float | None = None,
    ) -> T:
        """Make the status of the object that was seen what is given; Conflict if it is another one by now.

        With `exactly` it is Conflict also if anything of the object has changed since it was seen. Annotations go with
        it in the one write, where the kind's status subresource takes them: a pod's does.
        """
        identity = {"name": of.metadata.name, "namespace": of.metadata.namespace, "uid": of.metadata.uid}
        if exactly:
            identity["resourceVersion"] = of.metadata.resource_version
        metadata: dict[str, Any] = {name: value for name, value in identity.items() if value}
        metadata |= {"annotations": annotations} if annotations else {}
        manifest = {"metadata": metadata, "status": status}
        return await self.apply(resource, manifest, seen=of, subresource="status", deadline=deadline)

    def forget(self, resource: Resource[T], key: Key) -> None:
        """Forget an object that is gone."""
        for place in [place for place in self._answers if place[:2] == (str(resource), key)]:
            del self._answers[place]


async def add_finalizer(session: Session, resource: Resource[T], obj: T, finalizer: str) -> T:
    """Hold an object back from deletion until the finalizer is removed. Conflict if it is another one by now."""
    return await _change_finalizers(session, resource, obj, finalizer, present=True)


async def remove_finalizer(session: Session, resource: Resource[T], obj: T, finalizer: str) -> None:
    """Let an object go; nothing happens if it is gone, or another one of its name is there."""
    try:
        await _change_finalizers(session, resource, obj, finalizer, present=False)
    except NotFound:
        return
    except Conflict:
        try:
            current = await session.get(resource, obj.key)
        except NotFound:
            return
        if current.metadata.uid == obj.metadata.uid:
            raise


async def _change_finalizers(session: Session, resource: Resource[T], obj: T, finalizer: str, *, present: bool) -> T:
    # Not by apply: the list belongs to many, and what we apply elsewhere of this object would have to repeat ours.
    for attempt in range(1, ATTEMPTS + 1):
        others = [name for name in obj.metadata.finalizers if name != finalizer]
        wanted = [*others, finalizer] if present else others
        if tuple(wanted) == obj.metadata.finalizers:
            return obj
        identity = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version}
        try:
            return await session.patch(resource, obj.key, {"metadata": identity | {"finalizers": wanted}})
        except Conflict:
            current = await session.get(resource, obj.key)
            if current.metadata.uid != obj.metadata.uid or attempt == ATTEMPTS:
                raise
            obj = current
    raise AssertionError("unreachable")


def _version(obj: Object) -> tuple[str, str]:
    return obj.metadata.uid, obj.metadata.resource_version
