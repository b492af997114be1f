"""The memory of a fake API server: objects, their history, and the rules of writing that our code relies on."""

import copy
import itertools
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


class Refusal(Exception):  # noqa: N818 - what the server answers
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}}
        self.body |= {"code": code, "reason": reason, "message": message, "details": details}


@dataclass(frozen=True)
class Event:
    """One change in the server's history; `before` tells whether a selector has to be left or entered."""

    revision: int
    collection: str
    before: Json | None
    after: Json | None


@dataclass
class Objects:
    """All objects by collection ("group/version/plural") and (namespace, name), and the history since `compacted`."""

    revision: int = 100
    compacted: int = 0
    stored: dict[str, dict[tuple[str, str], Json]] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    owned: dict[str, dict[str, set[tuple[str, ...]]]] = field(default_factory=dict)  # uid -> manager -> leaves
    serial: "itertools.count[int]" = field(default_factory=itertools.count)

    def collection(self, name: str) -> dict[tuple[str, str], Json]:
        """Return a collection, empty if nothing was ever written to it."""
        return self.stored.setdefault(name, {})

    def read(self, collection: str, key: tuple[str, str]) -> Json:
        """Return an object, or refuse with NotFound."""
        found = self.collection(collection).get(key)
        if found is None:
            raise Refusal(404, "NotFound", f'{collection} "{key[1]}" not found')
        return found

    def create(self, collection: str, namespace: str, body: Json) -> Json:
        """Create an object, or refuse with AlreadyExists."""
        made = copy.deepcopy(body)
        metadata = made.setdefault("metadata", {})
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{next(self.serial):05x}")
        key = (namespace, metadata["name"])
        if key in self.collection(collection):
            raise Refusal(409, "AlreadyExists", f'{collection} "{key[1]}" already exists')
        metadata |= {"uid": str(uuid.UUID(int=next(self.serial) + 1)), "generation": 1}
        metadata |= {"namespace": namespace} if namespace else {}
        return self._store(collection, key, None, made)

    def write(self, collection: str, key: tuple[str, str], body: Json) -> Json:
        """Write an object over what is there; nothing happens if nothing differs. Refuses by its preconditions."""
        before = self.read(collection, key)
        self.check(before, body.get("metadata", {}))
        after = copy.deepcopy(body)
        for name in ("uid", "resourceVersion", "namespace", "generation", "deletionTimestamp"):
            if name in before["metadata"]:
                after["metadata"][name] = before["metadata"][name]
        if after == before:
            return before
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        if "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers"):
            return self._remove(collection, key)
        return self._store(collection, key, before, after)

    def merge(self, collection: str, key: tuple[str, str], patch: Json) -> Json:
        """Apply a JSON merge patch."""
        before = self.read(collection, key)
        self.check(before, patch.get("metadata", {}))
        return self.write(collection, key, merged(before, patch))

    def apply(self, collection: str, key: tuple[str, str], manifest: Json, manager: str, *, force: bool) -> Json:
        """Apply server-side: ours are the leaves that we name; what we no longer name goes, unless others own it."""
        if key not in self.collection(collection):
            if manifest.get("metadata", {}).get("uid"):
                raise Refusal(409, "Conflict", "uid mismatch: the object is not there")
            made = self.create(collection, key[0], manifest)
            self.owned[made["metadata"]["uid"]] = {manager: set(leaves(manifest))}
            return made
        before = self.read(collection, key)
        self.check(before, manifest.get("metadata", {}))
        owners = self.owned.setdefault(before["metadata"]["uid"], {})
        wanted = set(leaves(manifest))
        others = {leaf for name, theirs in owners.items() if name != manager for leaf in theirs}
        clash = sorted(leaf for leaf in wanted & others if value(before, leaf) != value(manifest, leaf))
        if clash and not force:
            raise Refusal(409, "Conflict", "conflict", causes=[{"reason": "FieldManagerConflict", "field": str(clash)}])
        after = copy.deepcopy(before)
        for leaf in owners.get(manager, set()) - wanted - others:
            drop(after, leaf)
        owners[manager] = wanted
        for name, theirs in owners.items():
            if name != manager:
                theirs.difference_update(clash)
        return self.write(collection, key, merged(after, manifest, erase=False))

    def delete(self, collection: str, key: tuple[str, str], preconditions: Mapping[str, str]) -> Json:
        """Delete an object, or mark it when finalizers hold it."""
        before = self.read(collection, key)
        self.check(before, preconditions)
        if before["metadata"].get("finalizers"):
            if "deletionTimestamp" in before["metadata"]:
                return before
            after = merged(before, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
            return self._store(collection, key, before, after)
        return self._remove(collection, key)

    def compact(self, *, keep: int = 0) -> None:
        """Forget the history but its last `keep` events: whoever is behind gets 410."""
        forgotten = self.history[: len(self.history) - keep]
        if forgotten:
            self.compacted = forgotten[-1].revision
            self.history = self.history[len(forgotten) :]

    @staticmethod
    def check(before: Json, wanted: Mapping[str, str]) -> None:
        """Refuse with Conflict when a UID or a resourceVersion is not what is there."""
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != before["metadata"][name]:
                raise Refusal(409, "Conflict", f"precondition failed: {name} is {before['metadata'][name]}")

    def _store(self, collection: str, key: tuple[str, str], before: Json | None, after: Json) -> Json:
        self.revision += 1
        after["metadata"]["resourceVersion"] = str(self.revision)
        self.collection(collection)[key] = after
        self.history.append(Event(self.revision, collection, before, after))
        return after

    def _remove(self, collection: str, key: tuple[str, str]) -> Json:
        self.revision += 1
        gone = self.collection(collection).pop(key)
        self.history.append(Event(self.revision, collection, gone, None))
        return gone


def merged(old: Json, patch: Json, *, erase: bool = True) -> Json:
    """Return a JSON merge patch applied (RFC 7396); without `erase` a null is a value like any other."""
    result = dict(old)
    for name, new in patch.items():
        if new is None and erase:
            result.pop(name, None)
        elif isinstance(new, dict):
            result[name] = merged(result.get(name) if isinstance(result.get(name), dict) else {}, new, erase=erase)  # type: ignore[arg-type]
        else:
            result[name] = copy.deepcopy(new)
    return result


_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")}


def leaves(manifest: Json, at: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    """Return the paths of a manifest's leaves; lists count as one leaf."""
    for name, content in manifest.items():
        path = (*at, name)
        if isinstance(content, dict) and content:
            yield from leaves(content, path)
        elif path not in _IDENTITY:
            yield path


def value(obj: Json, leaf: tuple[str, ...]) -> Any:
    """Return what stands at a leaf."""
    content: Any = obj
    for name in leaf:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def drop(obj: Json, leaf: tuple[str, ...]) -> None:
    """Remove a leaf."""
    for name in leaf[:-1]:
        obj = obj.get(name, {})
    obj.pop(leaf[-1], None)
