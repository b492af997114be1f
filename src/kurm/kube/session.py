"""A session with one API server: typed reads, and writes that say what they expect.

Reads are narrow, so writes are too: `create`, `patch`, `apply` and `delete` send only what they mean. `replace` takes
the whole object as a mapping and no struct, because a narrow struct would erase every field that it does not hold.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from kurm.kube.config import Config
from kurm.kube.errors import DecodeError
from kurm.kube.resources import PODS, Key, Object, Page, Resource
from kurm.kube.traffic import Traffic
from kurm.kube.transport import DEADLINE_SECONDS, Transport

T = TypeVar("T", bound=Object)

# Small enough that decoding one page does not hold up the event loop (about 5 ms), large enough to cost few requests.
PAGE = 500


class Patch(StrEnum):
    """The kinds of patch, by their media types."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # JSON is YAML; the server takes only this name in every version


class Deletion(StrEnum):
    """What happens to the objects that an object owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Session:
    """Speaks to one API server. Every call answers or raises within `deadline` seconds (its own, else the session's).

    Raises, all of them KubeError: ApiError and its kinds when the server refuses, Unreachable when it does not answer,
    DecodeError when an answer does not fit the declared struct, ConfigError when credentials cannot be read.
    """

    def __init__(self, config: Config, *, deadline: float = DEADLINE_SECONDS) -> None:
        self.config = config
        self.deadline = deadline
        self._transport = Transport(config)

    @property
    def traffic(self) -> Traffic:
        """What was asked so far."""
        return self._transport.traffic

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def get(self, resource: Resource[T], key: Key, *, deadline: float | None = None) -> T:
        """Read one object."""
        return _decoded(resource, key, await self.request("GET", resource.path(key), deadline=deadline))

    async def pages(
        self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = "", size: int = PAGE
    ) -> AsyncIterator[Page[T]]:
        """Read a list page by page, all of one moment. A Gone in the middle means: begin again."""
        token = ""
        while True:
            page = await self.page(resource, namespace=namespace, labels=labels, fields=fields, size=size, token=token)
            yield page
            token = page.metadata.continue_
            if not token:
                return

    async def page(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        size: int = PAGE,
        token: str = "",
        deadline: float | None = None,
    ) -> Page[T]:
        """Read one page of a list: the first, or the one that the previous page's `continue` names.

        `labels` and `fields` are selectors in the API's own syntax. No resourceVersion is sent, so the list is never
        older than the request (since Kubernetes 1.31 from the server's memory, not from etcd).
        """
        query = {"limit": str(size), "continue": token} | selectors(labels, fields)
        query = {name: value for name, value in query.items() if value}
        body = await self.request("GET", resource.path(namespace=namespace), query=query, deadline=deadline)
        try:
            return resource.page_decoder.decode(body)
        except msgspec.DecodeError as error:
            raise _misfit(resource, body, error) from error

    async def list(
        self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """Read a whole list. For what must be followed, use a Cache."""
        following = self.pages(resource, namespace=namespace, labels=labels, fields=fields)
        return tuple([item async for page in following for item in page.items or ()])

    async def create(
        self, resource: Resource[T], body: T | Mapping[str, Any], *, namespace: str = "", deadline: float | None = None
    ) -> T:
        """Create an object, in `namespace` or in the one that it names. AlreadyExists if its name is taken."""
        manifest = resource.manifest(body)
        metadata = manifest.get("metadata") or {}
        namespace = namespace or metadata.get("namespace", "")
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource}: {metadata.get('name')!r} needs a namespace: it is a namespaced resource")
        path = resource.path(namespace=namespace)
        answer = await self.request("POST", path, body=manifest, deadline=deadline)
        return _decoded(resource, Key(namespace, metadata.get("name", "")), answer)

    async def replace(
        self,
        resource: Resource[T],
        key: Key,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        deadline: float | None = None,
    ) -> T:
        """Replace a whole object. Conflict if `metadata.resourceVersion` is in the body and no longer current."""
        path = resource.path(key, subresource=subresource)
        return _decoded(resource, key, await self.request("PUT", path, body=resource.manifest(body), deadline=deadline))

    async def patch(
        self,
        resource: Resource[T],
        key: Key,
        body: object,
        *,
        kind: Patch = Patch.MERGE,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> T:
        """Change a part of an object. A `metadata.resourceVersion` or `.uid` in it is a precondition (Conflict)."""
        path = resource.path(key, subresource=subresource)
        answer = await self.request("PATCH", path, body=body, media=kind, query=query, deadline=deadline)
        return _decoded(resource, key, answer)

    async def delete(
        self,
        resource: Resource[T],
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        owned: Deletion | None = None,
        deadline: float | None = None,
    ) -> None:
        """Ask for an object's deletion: only if it is still this `uid` and this `resource_version` (else Conflict).

        `grace` is in seconds; 0 forces, which for a pod means that nobody knows whether it still runs.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options |= {"preconditions": {name: value for name, value in wanted.items() if value}}
        options |= {"gracePeriodSeconds": grace} if grace is not None else {}
        options |= {"propagationPolicy": owned} if owned else {}
        await self.request("DELETE", resource.path(key), body=options, deadline=deadline)

    async def bind(
        self,
        pod: Key,
        node: str,
        *,
        uid: str,
        annotations: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> None:
        """Bind a pod to a node, and annotate it, in one write. Conflict if it is bound, or no longer this `uid`."""
        metadata = {"name": pod.name, "namespace": pod.namespace, "uid": uid, "annotations": annotations or {}}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        # The answer to a Binding is a Status, not a Binding: a decoder would raise after the pod was bound.
        await self.request("POST", PODS.path(pod, subresource="binding"), body=body, deadline=deadline)

    async def evict(self, pod: Key, *, uid: str = "", grace: int | None = None, deadline: float | None = None) -> None:
        """Ask a pod to leave its node; TooManyRequests, without waiting, while a disruption budget forbids it."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        options |= {"gracePeriodSeconds": grace} if grace is not None else {}
        metadata = {"name": pod.name, "namespace": pod.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        path = PODS.path(pod, subresource="eviction")
        await self.request("POST", path, body=body, deadline=deadline, patient=False)

    async def scale(self, resource: Resource[T], key: Key, replicas: int, *, deadline: float | None = None) -> None:
        """Set the number of replicas by the scale subresource."""
        path = resource.path(key, subresource="scale")
        await self.request("PATCH", path, body={"spec": {"replicas": replicas}}, media=Patch.MERGE, deadline=deadline)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        media: str = "application/json",
        query: Mapping[str, str] | None = None,
        deadline: float | None = None,
        patient: bool = True,
    ) -> bytes:
        """Send any request (`body` as JSON) and return the answer's bytes. For what has no method of its own here."""
        return await self._transport.send(
            method,
            path,
            query=query,
            body=None if body is None else msgspec.json.encode(body),
            media=media,
            deadline=self.deadline if deadline is None else deadline,
            patient=patient,
        )

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], silence: float, gulp: float = 0.0
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """Open an answer that does not end by itself (a watch, a log), as chunks of bytes; see Transport.stream."""
        times = {"deadline": self.deadline, "silence": silence, "gulp": gulp}
        async with self._transport.stream(path, query=query, **times) as chunks:
            yield chunks


def selectors(labels: str, fields: str) -> dict[str, str]:
    """Return the query parameters of a label selector and a field selector."""
    return {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def _decoded(resource: Resource[T], key: Key, body: bytes) -> T:
    try:
        return resource.decoder.decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(f"{resource} {key}: {error}") from error


def _misfit(resource: Resource[T], body: bytes, error: msgspec.DecodeError) -> DecodeError:
    """Find the object that broke its page: "items[317]" alone would send nobody anywhere."""
    try:
        whole = msgspec.json.decode(body, type=Page[Object])
    except msgspec.DecodeError:
        return DecodeError(f"{resource}: the list cannot be read: {error}")
    for item, raw in zip(whole.items or (), msgspec.json.decode(body, type=_RawPage).items, strict=True):
        try:
            resource.decoder.decode(raw)
        except msgspec.DecodeError as detail:
            return DecodeError(f"{resource} {item.key}: {detail}")
    return DecodeError(f"{resource}: the list cannot be read: {error}")


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw] = []
