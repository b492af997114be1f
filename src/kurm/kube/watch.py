"""Following a list of objects for ever, in the language of whoever keeps them.

Every list is told as `Init`, one `InitApply` per object, `InitDone`; what follows as `Apply` and `Delete`. Whoever
swaps in at InitDone what came since Init can keep no ghost: an object whose deletion was missed is not in the new list.

What happens is decided by one pure function, `step(state, stimulus)`; `Watcher` only asks the API server what the state
calls for, and waits after failures. The states, and where each falls back to:

    Empty ──page, more to come──> Listing ──last page──> Listed ──stream opened──> Watching
      └──────────only page────────────────────────────────^  ^──────stream ended──────┘

- A failure that passes by itself (no connection, 429, 5xx) keeps the place: the same page, or the stream from the last
  version seen, is asked for again.
- Any other refusal loses it, and all begins again at Empty: 410 above all, which means that the server has forgotten
  the changes since our version; it comes as an HTTP status or as an ERROR event inside the stream.

The list is read in pages and not streamed (`sendInitialEvents`): docs/design/kubernetes-runtime.md has the measurement.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeAlias, TypeVar

import msgspec
import structlog

from kurm.kube.backoff import Backoff
from kurm.kube.errors import (
    DecodeError,
    InternalError,
    KubeError,
    ServiceUnavailable,
    Silent,
    Status,
    Timeout,
    TooManyRequests,
    Unreachable,
    from_status,
)
from kurm.kube.resources import Object, Page, Resource
from kurm.kube.session import Session, selectors

log = structlog.get_logger("kurm.kube")

T = TypeVar("T", bound=Object)


# What the consumer is told.


class Init(msgspec.Struct, frozen=True, gc=False):
    """A new list begins. Keep what you have until InitDone."""


class InitApply(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object of the new list."""

    object: T


class InitDone(msgspec.Struct, frozen=True, gc=False):
    """The new list is whole: what was not in it is gone."""


class Apply(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object was made or changed."""

    object: T


class Delete(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object is gone, or fits the selector no longer. It is shown as it was last."""

    object: T


Event: TypeAlias = Init | InitApply[T] | InitDone | Apply[T] | Delete[T]


# Where we stand.


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing is known, or nothing that can be continued: ask for the first page. Falls back to itself."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Some pages were told: ask for the one that `token` names. Falls back to Empty when the token is refused (410)."""

    token: str


@dataclass(frozen=True, slots=True)
class Listed:
    """All is told up to `version`: open a stream from there. Falls back to Empty when that is forgotten (410)."""

    version: str


@dataclass(frozen=True, slots=True)
class Watching:
    """A stream is open, and all is told up to `version`.

    Falls back to Listed when it ends, to Empty when refused, or when the server fails at what comes next.
    """

    version: str


State: TypeAlias = Empty | Listing | Listed | Watching


# What we are told.


class Paged(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A page of the list came."""

    page: Page[T]


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The stream is open."""


class Changed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The stream brought an object, made or changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The stream brought a deletion; the object's resourceVersion is that of the deletion."""

    object: T


class Bookmarked(msgspec.Struct, frozen=True, gc=False):
    """The stream said that nothing else happened up to `version`."""

    version: str


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The stream ended in good order, as the server's time limit makes it."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A request or a stream failed."""

    error: KubeError


Stimulus: TypeAlias = Paged[T] | Opened | Changed[T] | Deleted[T] | Bookmarked | Ended | Failed

# Failures that pass by themselves, so the place in the list or in the stream is kept.
PASSING = (Unreachable, TooManyRequests, InternalError, ServiceUnavailable, Timeout)


def step(state: State, stimulus: Stimulus[T]) -> tuple[State, tuple[Event[T], ...]]:
    """Return the next state and what the consumer is told. Raises ValueError for what cannot happen in a state."""
    told: tuple[Event[T], ...] = ()
    match state, stimulus:  # the busiest edge comes first
        case Watching(version), (Changed(seen) | Deleted(seen)):
            if newer(seen.metadata.resource_version, version):
                state = Watching(seen.metadata.resource_version)
                told = (Delete(seen) if isinstance(stimulus, Deleted) else Apply(seen),)
        case _, Failed(error):
            state = _fall_back(state, error)
        case ((Empty() | Listing()), Paged(page)):
            state, told = _turn_page(state, page)
        case Listed(version), Opened():
            state = Watching(version)
        case Watching(version), Ended():
            state = Listed(version)
        case Watching(version), Bookmarked(latest):
            state = Watching(latest) if newer(latest, version) else state
        case _:
            raise ValueError(f"{type(stimulus).__name__} cannot come in {state}")
    return state, told


def _turn_page(state: Empty | Listing, page: Page[T]) -> tuple[State, tuple[Event[T], ...]]:
    events: tuple[Event[T], ...] = tuple(InitApply(item) for item in page.items or ())
    if isinstance(state, Empty):
        events = (Init(), *events)
    if page.metadata.continue_:
        return Listing(page.metadata.continue_), events
    return Listed(page.metadata.resource_version), (*events, InitDone())


def _fall_back(state: State, error: KubeError) -> State:
    # An internal error that the stream itself tells is of the events behind our version: etcd has compacted one that
    # the API server needs ("etcd event received with PrevKv=nil"), and says so again for ever from the same place.
    if not isinstance(error, PASSING) or (isinstance(state, Watching) and isinstance(error, InternalError)):
        return Empty()
    return Listed(state.version) if isinstance(state, Watching) else state


def newer(version: str, known: str) -> bool:
    """Whether a resourceVersion is past another one of the same resource.

    Kubernetes declares them comparable as numbers since 1.35 and has always made them so. A server that repeats an old
    event (a proxy, a replay after a reconnect) must not take an object back in time. What is no number counts as newer.
    """
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known


class Line(msgspec.Struct, gc=False):
    """One line of a stream. The object is decoded in a second step: what it is depends on the type."""

    type: str
    object: msgspec.Raw


_line = msgspec.json.Decoder(Line)
_metadata = msgspec.json.Decoder(Object)
_status = msgspec.json.Decoder(Status)


def read(resource: Resource[T], line: bytes) -> Stimulus[T]:
    """Return what a line of the stream means. Raises DecodeError naming the object if it does not fit the struct."""
    try:
        envelope = _line.decode(line)
        match envelope.type:
            case "ADDED" | "MODIFIED":
                return Changed(resource.decoder.decode(envelope.object))
            case "DELETED":
                return Deleted(resource.decoder.decode(envelope.object))
            case "BOOKMARK":
                return Bookmarked(_metadata.decode(envelope.object).metadata.resource_version)
            case "ERROR":
                return Failed(from_status(_status.decode(envelope.object)))
            case unknown:
                raise DecodeError(f"{resource}: the watch sent an event of unknown type {unknown!r}")
    except msgspec.DecodeError as error:
        raise DecodeError(f"{resource} {_named(line)}: {error}") from error


def _named(line: bytes) -> str:
    try:
        return str(_metadata.decode(_line.decode(line).object).key)
    except msgspec.DecodeError:
        return line[:100].decode(errors="replace")


class Lines:
    """Cuts chunks into lines of any length, in time linear to it. A half line at the end is never given out."""

    def __init__(self) -> None:
        self._held: list[bytes] = []  # a 3 MB line comes in hundreds of chunks: joined once, not once per chunk

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        head, *rest = chunk.split(b"\n")
        self._held.append(head)
        if not rest:
            return []
        whole = [b"".join(self._held), *rest[:-1]]
        self._held = [rest[-1]]
        return [line for line in whole if line]


# At most 5 s: a scheduler whose view is older than that cannot keep what it promises within ten (P1). Few processes
# watch, and none on a node: of each resource a server in trouble has a request of each of them in 2.5 to 5 s.
BACKOFF = Backoff(first=0.5, most=5.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a watcher is, in seconds."""

    backoff: Backoff = BACKOFF
    # After so long with streams the next failure counts as the first: an event alone proves nothing, since a server in
    # trouble may send one per connection. With minutes, each restart of a server that is started anew several times is
    # waited for as if it had never been back.
    forget_failures: float = 10.0
    # The API server ends a stream after this (and up to twice this, so that streams do not end together).
    stream: float = 300.0
    # The API server sends a bookmark every minute, but none of a resource that it has seen no event of since its start.
    # So a stream that is silent for longer is quiet or dead, and opened anew: a dead server does not answer that.
    silence: float = 90.0
    # A stream that ends in good order sooner than this is a failure: opened again at once it would be a busy loop.
    shortest_stream: float = 1.0
    # After what a chunk brought is told, so long is what follows left to gather. A wake-up for each single event costs
    # several times what the event does; the first one after quiet is told at once all the same.
    gulp: float = 0.02


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource: of one namespace or of all (""), by label selector and field selector."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


class Watcher(Generic[T]):
    """Follows one selection of one resource. `run` never ends; cancel it."""

    def __init__(
        self, session: Session, resource: Resource[T], selection: Selection | None = None, *, pace: Pace | None = None
    ) -> None:
        self.session = session
        self.resource = resource
        self.selection = selection or Selection()
        self.pace = pace or Pace()
        self.state: State = Empty()
        # Why nothing is heard, for people; None while all is well.
        self.problem: str | None = None
        # Event loop time when the server last said anything (a page, an event, a bookmark).
        self.heard_at: float | None = None
        self._failures = 0
        self._well_since: float | None = None  # when a stream was first opened after the last failure

    async def run(self, tell: Callable[[Event[T]], None]) -> NoReturn:
        """Follow, and tell every event in order. `tell` is called at once, and what it raises ends the watch."""
        while True:
            opened_at = self._now()
            try:
                if isinstance(self.state, Empty | Listing):
                    await self._list(tell)
                    continue
                await self._watch(tell)
                if self._now() - opened_at >= self.pace.shortest_stream:
                    continue
                problem = f"the watch ended within {self.pace.shortest_stream:g} s of its opening"
            except Silent as error:
                self._step(Failed(error), tell)
                log.debug("watch opened anew", resource=str(self.resource), why=str(error))
                continue
            except KubeError as error:
                self._step(Failed(error), tell)
                problem = str(error)
            await self._wait(problem)

    async def _list(self, tell: Callable[[Event[T]], None]) -> None:
        page = await self.session.page(
            self.resource,
            namespace=self.selection.namespace,
            labels=self.selection.labels,
            fields=self.selection.fields,
            token=self.state.token if isinstance(self.state, Listing) else "",
        )
        self._heard()
        self._step(Paged(page), tell)

    async def _watch(self, tell: Callable[[Event[T]], None]) -> None:
        version = self.state.version if isinstance(self.state, Listed | Watching) else ""
        limit = self.pace.stream * (1 + random.random())  # noqa: S311 - jitter is no secret
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": f"{limit:.0f}"}
        query |= {"resourceVersion": version} | selectors(self.selection.labels, self.selection.fields)
        path = self.resource.path(namespace=self.selection.namespace)
        async with self.session.stream(path, query=query, silence=self.pace.silence, gulp=self.pace.gulp) as chunks:
            self._heard()
            self._well_since = self._now() if self._well_since is None else self._well_since
            self._step(Opened(), tell)
            cut = Lines()
            async for chunk in chunks:
                self._heard()
                for line in cut.feed(chunk):
                    stimulus = read(self.resource, line)
                    if isinstance(stimulus, Failed):
                        raise stimulus.error
                    self._step(stimulus, tell)
        self._step(Ended(), tell)

    def _step(self, stimulus: Stimulus[T], tell: Callable[[Event[T]], None]) -> None:
        self.state, events = step(self.state, stimulus)
        for event in events:
            tell(event)

    def _heard(self) -> None:
        self.heard_at = self._now()
        self.problem = None

    async def _wait(self, problem: str) -> None:
        self.problem = problem
        well = self._well_since is not None and self._now() - self._well_since > self.pace.forget_failures
        self._failures, self._well_since = 1 if well else self._failures + 1, None
        delay = self.pace.backoff.delay(self._failures)
        log.warning("watch interrupted", resource=str(self.resource), problem=problem, again_in=round(delay, 2))
        await asyncio.sleep(delay)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
