"""The one door through which the operator writes: only while it leads, counted, and one line of log for each write."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog

from kurm.kube.apply import Applier, add_finalizer, remove_finalizer
from kurm.kube.errors import KubeError, NotFound
from kurm.kube.lease import LeadershipLost
from kurm.kube.resources import Key, Object, Resource
from kurm.kube.session import Session
from kurm.operator.metrics import Metrics
from kurm.operator.objects import FINALIZER, MANAGER

log = structlog.get_logger("kurm.operator")

T = TypeVar("T", bound=Object)
_MANAGER = {"fieldManager": MANAGER}


class Writes:
    """Writes objects; every call raises LeadershipLost before it writes if the Lease has run out."""

    def __init__(self, session: Session, *, leads: Callable[[], bool], metrics: Metrics) -> None:
        self._session, self._leads, self._metrics = session, leads, metrics
        self._applier = Applier(session, MANAGER)
        self._newer: dict[tuple[str, Key], dict[str, Any]] = {}

    def latest(self, resource: Resource[T], seen: T) -> T:
        """Return an object as our own last write has left it, if it is seen as it was before that.

        A cache that has not yet heard of our own status would have a condition turn twice.
        """
        newer = self._newer.get((str(resource), seen.key), {})
        if seen.metadata.resource_version not in newer:
            self._newer.pop((str(resource), seen.key), None)
        while found := newer.get(seen.metadata.resource_version):
            seen = found
        return seen

    async def apply(
        self, resource: Resource[T], manifest: Mapping[str, Any], *, seen: T | None, subresource: str = ""
    ) -> T:
        """Make an object what the manifest says, unless it is that already; see Applier.apply."""
        self._may(resource, "apply")
        metadata = manifest["metadata"]
        with self._counted(resource, "apply"):
            answer = await self._applier.apply(resource, manifest, seen=seen, subresource=subresource)
        if answer is not seen:
            self._metrics.wrote("apply", str(resource))
            changed = seen is None or seen.metadata.resource_version != answer.metadata.resource_version
            if changed and not subresource:
                log.info("applied", kind=resource.kind, namespace=metadata.get("namespace", ""), name=metadata["name"])
        return answer

    async def apply_status(self, resource: Resource[T], of: T, status: Mapping[str, Any]) -> T:
        """Make our part of a status what is given; Conflict if it is another object by now. Return it as it is then."""
        metadata = {"name": of.metadata.name, "namespace": of.metadata.namespace, "uid": of.metadata.uid}
        answer = await self.apply(resource, {"metadata": metadata, "status": status}, seen=of, subresource="status")
        self._remember(resource, of, answer)
        return answer

    async def create(self, resource: Resource[T], manifest: Mapping[str, Any], **fields: str) -> T:
        """Create an object; AlreadyExists if its name is taken. `fields` stand on the line of log."""
        self._may(resource, "create")
        with self._counted(resource, "create"):
            made = await self._session.create(resource, manifest)
        self._wrote("create", resource, made.key, **fields)
        return made

    async def patch(self, resource: Resource[T], key: Key, body: Mapping[str, Any], **fields: str) -> T:
        """Change a part of an object; a `metadata.resourceVersion` or `.uid` in it is a precondition (Conflict)."""
        self._may(resource, "patch")
        with self._counted(resource, "patch"):
            changed = await self._session.patch(resource, key, body, query=_MANAGER)
        self._wrote("patch", resource, key, **fields)
        return changed

    async def delete(self, resource: Resource[T], obj: T, *, exact: bool = False, **fields: str) -> None:
        """Ask for the deletion of this very object; nothing happens if it is gone. Conflict if it is another one.

        `exact`: only if nothing of it has changed since.
        """
        version = obj.metadata.resource_version if exact else ""
        self._may(resource, "delete")
        with self._counted(resource, "delete"):
            try:
                await self._session.delete(resource, obj.key, uid=obj.metadata.uid, resource_version=version)
            except NotFound:
                return
        self._wrote("delete", resource, obj.key, **fields)

    async def hold(self, resource: Resource[T], obj: T) -> T:
        """Put our finalizer on an object that is to be given back before it goes."""
        if FINALIZER in obj.metadata.finalizers:
            return obj
        self._may(resource, "patch")
        with self._counted(resource, "patch"):
            held = await add_finalizer(self._session, resource, obj, FINALIZER)
        self._wrote("patch", resource, obj.key, what="finalizer")
        self._remember(resource, obj, held)
        return held

    async def let_go(self, resource: Resource[T], obj: T) -> None:
        """Take our finalizer from an object: nothing is left to be given back."""
        if FINALIZER not in obj.metadata.finalizers:
            return
        self._may(resource, "patch")
        with self._counted(resource, "patch"):
            await remove_finalizer(self._session, resource, obj, FINALIZER)
        self._wrote("patch", resource, obj.key, what="finalizer removed")

    def forget(self, resource: Resource[T], key: Key) -> None:
        """Forget an object that is gone."""
        self._applier.forget(resource, key)
        self._newer.pop((str(resource), key), None)

    def _remember(self, resource: Resource[T], before: T, after: T) -> None:
        if before.metadata.resource_version != after.metadata.resource_version:
            of = self._newer.setdefault((str(resource), before.key), {})
            of[before.metadata.resource_version] = after

    def _may(self, resource: Resource[T], verb: str) -> None:
        if not self._leads():
            raise LeadershipLost(f"the Lease ran out before a write ({verb} {resource})")

    def _counted(self, resource: Resource[T], verb: str) -> "_Counted":
        return _Counted(self._metrics, verb, str(resource))

    def _wrote(self, verb: str, resource: Resource[T], key: Key, **fields: str) -> None:
        self._metrics.wrote(verb, str(resource))
        log.info("written", verb=verb, kind=resource.kind, namespace=key.namespace, name=key.name, **fields)


class _Counted:
    """Counts a write that fails."""

    def __init__(self, metrics: Metrics, verb: str, resource: str) -> None:
        self._metrics, self._verb, self._resource = metrics, verb, resource

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KubeError):
            self._metrics.failed(self._verb, self._resource, type(error).__name__)
