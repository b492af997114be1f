"""What the API server holds, here: fed by a watch, read without waiting.

A cache is one asyncio task's property: reads between two awaits are of one moment. `snapshot()` keeps a moment for
longer, for a decision that awaits on its way.

A change only says "look at this key again". Handlers are told old and new so that they can find the keys of whom it may
concern (a pod's owner, both nodes of a move), never to act upon.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NoReturn, TypeAlias, TypeVar

import msgspec
import structlog

from kurm.kube.errors import NotSynced
from kurm.kube.resources import Key, Object, Resource
from kurm.kube.session import Session
from kurm.kube.sharing import Parts
from kurm.kube.watch import Apply, Delete, Event, Init, InitApply, InitDone, Pace, Selection, Watcher

log = structlog.get_logger("kurm.kube")

_OBJECTS = None

T = TypeVar("T", bound=Object)
Bucket: TypeAlias = dict[Key, T]
Index: TypeAlias = dict[Hashable, Bucket[T]]
KeyFunction: TypeAlias = Callable[[T], Iterable[Hashable]]


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The object at `key` became, changed or went: `old` is None, neither is, `new` is None.

    An object that was deleted and made again under its name is told as two changes, even if the watch saw only one.
    """

    key: Key
    old: T | None
    new: T | None


Handler: TypeAlias = Callable[[Change[T]], None]


class View(Generic[T]):
    """The reads: of a living cache, or of a snapshot. What is returned is shared and frozen."""

    def __init__(self, objects: Bucket[T], indexes: dict[str, Index[T]]) -> None:
        self._objects = objects
        self._indexes = indexes

    def get(self, key: Key) -> T | None:
        """Return the object at a key, None if there is none."""
        return self._objects.get(key)

    def by(self, index: str, value: Hashable) -> tuple[T, ...]:
        """Return the objects that a declared index files under a value, in no promised order."""
        return tuple(self._indexes[index].get(value, {}).values())

    def values(self, index: str) -> tuple[Hashable, ...]:
        """Return the values that an index files anything under."""
        return tuple(self._indexes[index])

    def keys(self) -> tuple[Key, ...]:
        """Return all keys."""
        return tuple(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)


class Cache(View[T]):
    """One selection of one resource, kept up to date by `run`.

    `indexes` are declared by name: a function from an object to the values that it is filed under, such as
    `{"node": lambda pod: [pod.spec.node_name]}`. It must depend on the object alone.
    """

    def __init__(
        self,
        session: Session,
        resource: Resource[T],
        selection: Selection | None = None,
        *,
        indexes: Mapping[str, KeyFunction[T]] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._functions = dict(indexes or {})
        super().__init__({}, {name: {} for name in self._functions})
        self.resource = resource
        self._watcher = Watcher(session, resource, selection, pace=pace)
        self._handlers: list[Handler[T]] = []
        self._parts = Parts()
        self._arriving: Bucket[T] | None = None
        self._synced = asyncio.Event()
        # The tables that no snapshot shares, so that they may be changed in place: _OBJECTS, an index by its name, a
        # bucket by index and value. None: no snapshot was ever taken, all are ours.
        self._own: set[Hashable] | None = None

    @property
    def synced(self) -> bool:
        """Whether a whole list was ever held. It stays so: how old the view is, `age` tells."""
        return self._synced.is_set()

    @property
    def problem(self) -> str | None:
        """Why the server is not heard at the moment, for people; None while all is well."""
        return self._watcher.problem

    @property
    def age(self) -> float:
        """Seconds since the server was last heard (infinite if never): the view may lack what happened since.

        In quiet times the API server speaks once a minute (a bookmark), so only an age of more than `Pace.silence`
        means that something is wrong.
        """
        heard = self._watcher.heard_at
        return float("inf") if heard is None else asyncio.get_running_loop().time() - heard

    def on_change(self, handler: Handler[T]) -> None:
        """Call `handler` at each change from now on, and once for each object that is there. It must not wait."""
        self._handlers.append(handler)
        for key, obj in tuple(self._objects.items()):
            self._tell(handler, Change(key, None, obj))

    async def wait_synced(self, deadline: float) -> None:
        """Wait until a whole list is held; after `deadline` seconds raise NotSynced, which says why it is not."""
        try:
            async with asyncio.timeout(deadline):
                await self._synced.wait()
        except TimeoutError as error:
            reason = self.problem or "the list is still being read"
            raise NotSynced(f"{self.resource}: no whole list after {deadline:g} s: {reason}") from error

    def snapshot(self) -> View[T]:
        """Return this moment, to be kept. It costs nothing now, and later one copy of each table that changes."""
        self._own = set()
        return View(self._objects, self._indexes)

    async def run(self) -> NoReturn:
        """Follow the API server; never ends, cancel it."""
        await self._watcher.run(self.feed)

    def feed(self, event: Event[T]) -> None:
        """Take in one event of the watch."""
        match event:
            case Apply(obj):
                self._parts.share(obj)
                self._put(obj.key, obj)
            case Delete(obj):
                self._put(obj.key, None)
            case Init():
                self._arriving = {}
            case InitApply(obj):
                self._arrive(obj)
            case InitDone():
                self._swap_in()

    def _arrive(self, obj: T) -> None:
        if self._arriving is None:
            raise ValueError(f"{self.resource}: InitApply without Init")
        # What we have already is kept instead of its twin, so that a second list of the same costs no memory.
        old = self._objects.get(obj.key)
        if old is not None and _same(old, obj):
            self._arriving[obj.key] = old
        else:
            self._parts.share(obj)
            self._arriving[obj.key] = obj

    def _swap_in(self) -> None:
        arrived, self._arriving = self._arriving or {}, None
        for key in self.keys():
            if key not in arrived:
                self._put(key, None)
        for key, obj in arrived.items():
            self._put(key, obj)
        self._synced.set()

    def _put(self, key: Key, new: T | None) -> None:
        old = self._objects.get(key)
        if old is new or (old is not None and new is not None and _same(old, new)):
            return
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self._put(key, None)
            old = None
        self._file(key, old, new)
        change = Change(key, old, new)
        for handler in self._handlers:
            self._tell(handler, change)

    def _file(self, key: Key, old: T | None, new: T | None) -> None:
        if self._claim(_OBJECTS):
            self._objects = dict(self._objects)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        for name, function in self._functions.items():
            before = set(function(old)) if old is not None else set()
            after = set(function(new)) if new is not None else set()
            for value in before - after:
                bucket = self._bucket(name, value)
                del bucket[key]
                if not bucket:
                    del self._indexes[name][value]
            if new is not None:
                for value in after:
                    self._bucket(name, value)[key] = new

    def _bucket(self, name: str, value: Hashable) -> Bucket[T]:
        if self._claim(name):
            self._indexes = self._indexes | {name: dict(self._indexes[name])}
        index = self._indexes[name]
        if self._claim((name, value)):
            index[value] = dict(index.get(value, {}))
        return index.setdefault(value, {})

    def _claim(self, table: Hashable) -> bool:
        """Whether a table must be copied before it is changed; it is ours from now on."""
        if self._own is None or table in self._own:
            return False
        self._own.add(table)
        return True

    def _tell(self, handler: Handler[T], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception:
            # One reader's mistake must not stop the watch for all others.
            log.exception("a change handler failed", resource=str(self.resource), key=str(change.key))


def _same(old: T, new: T) -> bool:
    a, b = old.metadata, new.metadata
    return a.uid == b.uid and a.resource_version == b.resource_version != ""
