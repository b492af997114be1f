"""A fake API server on a real socket of the loopback: what Kubernetes promises, and every way in which it fails us.

Faults are injected with `server.inject` and used up one by one, each by the next request or by the next event of a
stream, whichever it fits.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from aiohttp import web

from kurm.kube.config import Config
from unit.kube.fake_objects import Event, Json, Objects, Refusal


class Fault(Enum):
    """What goes wrong."""

    # of any request
    HANG_UP = auto()  # the connection is cut before an answer
    ANSWER_LOST = auto()  # the request is carried out, then the connection is cut
    BUSY = auto()  # 429 with Retry-After: 1
    UNAVAILABLE = auto()  # 503
    BROKEN = auto()  # 500
    FORGOTTEN = auto()  # 410 as an HTTP status
    NO_ANSWER = auto()  # the request is never answered
    # of a stream
    CUT = auto()  # half a line, then the connection is cut
    END = auto()  # the stream ends in good order
    GONE = auto()  # an ERROR event with 410
    ERROR = auto()  # an ERROR event with 500
    REPEAT = auto()  # the last events come once more, oldest last
    SILENT = auto()  # nothing comes any more, and the connection stays
    CRUMBS = auto()  # the next line comes byte by byte


STREAM = {Fault.CUT, Fault.END, Fault.GONE, Fault.ERROR, Fault.REPEAT, Fault.SILENT, Fault.CRUMBS}

REFUSALS = {
    Fault.BUSY: (429, "TooManyRequests", "too many requests"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable", "starting"),
    Fault.BROKEN: (500, "InternalError", "etcd says no"),
    Fault.FORGOTTEN: (410, "Expired", "too old resource version"),
}


@dataclass(frozen=True)
class Target:
    """What a path names."""

    collection: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, path: str) -> "Target":
        """Read a path of the API."""
        parts = path.strip("/").split("/")
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        version, rest = rest[0], rest[1:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = [*rest, "", ""][:3]
        return cls(f"{group}/{version}/{plural}", namespace, name, subresource)


@dataclass
class FakeApi:
    """The server. `objects` may be changed directly (somebody else's writes); call `changed()` after."""

    objects: Objects = field(default_factory=Objects)
    requests: list[str] = field(default_factory=list)
    bookmarks_every: float = 60.0
    latency: float = 0.0  # before a request is carried out
    lag: float = 0.0  # after it, before the answer
    down: bool = False
    retry_after: int = 1
    token: str = ""  # the only one that is let in, if set
    url: str = ""
    streams: int = 0

    def __post_init__(self) -> None:
        self._news = asyncio.Event()
        self._continued: dict[str, tuple[int, list[Json]]] = {}
        self._open: dict[int, web.Request] = {}
        self._dead: set[int] = set()
        self._request_faults: deque[Fault] = deque()
        self._stream_faults: deque[Fault] = deque()

    @property
    def config(self) -> Config:
        """How to reach it."""
        return Config(server=self.url)

    def changed(self) -> None:
        """Wake the streams."""
        self._news.set()
        self._news = asyncio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FakeApi"]:
        """Serve on a free port of the loopback."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr] # aiohttp tells it nowhere else
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def inject(self, *faults: Fault) -> None:
        """Let these go wrong next."""
        for fault in faults:
            (self._stream_faults if fault in STREAM else self._request_faults).append(fault)

    def go_away(self) -> None:
        """Cut all streams, and answer nobody until `down` is False."""
        self.down = True
        for request in self._open.values():
            hang_up(request)

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._stream_faults.clear()
        self._request_faults.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.requests.append(f"{request.method} {request.path_qs}")
        if self.latency:
            await asyncio.sleep(self.latency)
        fault = self._request_faults.popleft() if self._request_faults else None
        if self.down or fault is Fault.HANG_UP:
            return hang_up(request)
        try:
            if fault is Fault.NO_ANSWER:
                await asyncio.sleep(3600)
            self._admit(request, fault)
            if request.query.get("watch") == "true":
                return await self._watch(request, Target.of(request.path))
            body = await request.read()
            code, answer = self._answer(request, Target.of(request.path), json.loads(body) if body else {})
        except Refusal as refusal:
            headers = {"Retry-After": str(self.retry_after)} if refusal.code == 429 else {}
            return web.json_response(refusal.body, status=refusal.code, headers=headers)
        if self.lag:
            await asyncio.sleep(self.lag)
        return hang_up(request) if fault is Fault.ANSWER_LOST else web.json_response(answer, status=code)

    def _admit(self, request: web.Request, fault: Fault | None) -> None:
        if fault in REFUSALS:
            raise Refusal(*REFUSALS[fault])
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _answer(self, request: web.Request, target: Target, body: Json) -> tuple[int, Json]:  # noqa: C901, PLR0911 - verbs
        objects, key = self.objects, (target.namespace, target.name)
        match request.method, target:
            case "GET", Target(name=""):
                return 200, self._list(request, target)
            case "GET", _:
                return 200, objects.read(target.collection, key)
        try:
            match request.method, target.subresource:
                case "POST", "binding":
                    return 201, self._bind(target, body)
                case "POST", "eviction":
                    raise Refusal(429, "TooManyRequests", "budget", causes=[{"reason": "DisruptionBudget"}])
                case "POST", _:
                    return 201, objects.create(target.collection, target.namespace, body)
                case "PUT", _:
                    return 200, objects.write(target.collection, key, body)
                case "PATCH", _ if "apply-patch" in request.content_type:
                    force = request.query.get("force") == "true"
                    manager = request.query["fieldManager"]
                    return 200, objects.apply(target.collection, key, body, manager, force=force)
                case "PATCH", _:
                    return 200, objects.merge(target.collection, key, body)
                case "DELETE", _:
                    return 200, objects.delete(target.collection, key, body.get("preconditions", {}))
                case method, _:
                    raise Refusal(405, "MethodNotAllowed", f"{method} is not allowed")
        finally:
            self.changed()

    def _bind(self, target: Target, body: Json) -> Json:
        key = (target.namespace, target.name)
        before = self.objects.read(target.collection, key)
        self.objects.check(before, {"uid": body["metadata"].get("uid", "")})
        if before.get("spec", {}).get("nodeName"):
            raise Refusal(409, "Conflict", f"pod {target.name} is already assigned to a node")
        patch = {"spec": {"nodeName": body["target"]["name"]}}
        patch["metadata"] = {"annotations": body["metadata"].get("annotations", {})}
        self.objects.merge(target.collection, key, patch)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _list(self, request: web.Request, target: Target) -> Json:
        token = request.query.get("continue", "")
        if token:
            at, rest = self._continued.pop(token, (-1, []))
            if at < self.objects.compacted:
                raise Refusal(410, "Expired", "the continue token is too old")
        else:
            at = self.objects.revision
            collection = self.objects.collection(target.collection)
            rest = [collection[key] for key in sorted(collection) if selects(request, target, collection[key])]
        size = int(request.query.get("limit", "0")) or len(rest) or 1
        page, rest = rest[:size], rest[size:]
        metadata = {"resourceVersion": str(at)}
        if rest:
            metadata["continue"] = f"token-{next(self.objects.serial)}"
            self._continued[metadata["continue"]] = (at, rest)
        return {"metadata": metadata, "items": page}

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        at = int(request.query.get("resourceVersion") or self.objects.revision)
        if at < self.objects.compacted:
            raise Refusal(410, "Expired", "too old resource version")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        self.streams += 1
        self._open[id(request)] = request
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(float(request.query.get("timeoutSeconds", "3600"))):
                    await self._stream(request, target, answer, at)
            if id(request) in self._dead:
                await asyncio.sleep(36_000)  # not even the server's own time limit is heard of any more
            with contextlib.suppress(ConnectionError):
                await answer.write_eof()
        finally:
            del self._open[id(request)]
            self._dead.discard(id(request))
        return answer

    async def _stream(self, request: web.Request, target: Target, answer: web.StreamResponse, at: int) -> None:
        sent: deque[Json] = deque(maxlen=3)
        while True:
            news = self._news
            if at < self.objects.compacted and at < self.objects.revision:
                await answer.write(line("ERROR", Refusal(410, "Expired", "too old").body))
                return
            told_up_to = max(at, self.objects.revision)
            for event in [event for event in self.objects.history if event.revision > at]:
                if event.collection == target.collection and (told := seen(request, target, event)):
                    sent.append(told)
                    if await self._send(request, answer, told, sent):
                        return
            at = told_up_to
            try:
                async with asyncio.timeout(self.bookmarks_every):
                    await news.wait()
            except TimeoutError:  # never the newest revision: a change of this very moment was not told yet
                await answer.write(line("BOOKMARK", {"metadata": {"resourceVersion": str(at)}}))

    async def _send(self, request: web.Request, answer: web.StreamResponse, told: Json, sent: Iterable[Json]) -> bool:
        """Send one event, or fail at it. Return whether the stream is over."""
        content = json.dumps(told).encode() + b"\n"
        fault = self._stream_faults.popleft() if self._stream_faults else None
        match fault:
            case Fault.CUT:
                await answer.write(content[: len(content) // 2])
                hang_up(request)
            case Fault.SILENT:
                self._dead.add(id(request))
            case Fault.GONE:
                await answer.write(line("ERROR", Refusal(410, "Expired", "too old").body))
            case Fault.ERROR:
                await answer.write(line("ERROR", Refusal(500, "InternalError", "etcd").body))
            case Fault.CRUMBS:
                for at in range(0, len(content), 7):
                    await answer.write(content[at : at + 7])
                    await asyncio.sleep(0)
            case Fault.REPEAT:
                for again in (told, *reversed(tuple(sent))):
                    await answer.write(json.dumps(again).encode() + b"\n")
            case None:
                await answer.write(content)
        return fault in {Fault.CUT, Fault.SILENT, Fault.GONE, Fault.ERROR, Fault.END}


def line(kind: str, obj: Json) -> bytes:
    """Return a line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def seen(request: web.Request, target: Target, event: Event) -> Json | None:
    """Return a change as a watcher with these selectors is told of it."""
    before = event.before is not None and selects(request, target, event.before)
    after = event.after is not None and selects(request, target, event.after)
    match before, after:
        case False, True:
            return {"type": "ADDED", "object": event.after}
        case True, True:
            return {"type": "MODIFIED", "object": event.after}
        case True, False:
            gone: Any = event.before
            metadata = gone["metadata"] | {"resourceVersion": str(event.revision)}
            return {"type": "DELETED", "object": gone | {"metadata": metadata}}
    return None


def selects(request: web.Request, target: Target, obj: Json) -> bool:
    """Whether an object is of this namespace and fits the selectors (equality only)."""
    if target.namespace and obj["metadata"].get("namespace") != target.namespace:
        return False
    labels = obj["metadata"].get("labels", {})
    fields = {"metadata.name": obj["metadata"]["name"], "spec.nodeName": obj.get("spec", {}).get("nodeName", "")}
    return all(
        found.get(name, "") == wanted
        for parameter, found in (("labelSelector", labels), ("fieldSelector", fields))
        for name, _, wanted in (term.partition("=") for term in request.query.get(parameter, "").split(",") if term)
    )


def hang_up(request: web.Request) -> web.Response:
    """Cut the connection."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
