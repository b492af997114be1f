"""A small server of HTTP: routes that answer with JSON. A connection is kept for the next request.

The scheduler asks for each pod that it places alone: a connection for each costs both sides more than the answer does.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

DEADLINE = 5.0
"""Seconds for a request to arrive, and for its answer to leave."""
IDLE = 60.0
"""Seconds until the next request of a connection has arrived; our clients give one up after 30."""
KEPT = 32
"""Connections at the same time beyond which none is kept for a next request."""
MOST = 32
"""Answers at the same time; two of them are a syncer's and a scheduler's, which wait for news."""
BODY = 4096
"""Most bytes of a request's body."""


@dataclass(frozen=True)
class Request:
    """A request; names of headers are in lower case."""

    route: str
    """`GET /hints`."""
    query: str
    headers: Mapping[str, str]
    body: bytes
    last: bool = False
    """Whether the connection is not to be kept."""


Answer = tuple[HTTPStatus, Any]
"""A status, and what is told as JSON; None for nothing."""
Route = Callable[[Request], Awaitable[Answer]]


class Server:
    """Answers by routes, which are named by method and path: `GET /hints`."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self._answering = self._open = 0

    async def serve(self, port: int) -> asyncio.Server:
        """Answer on all addresses. Raises OSError."""
        return await asyncio.start_server(self._connected, port=port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        within = DEADLINE
        try:
            while await self._one(reader, writer, within):
                within = IDLE
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asks asks again
        finally:
            self._open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, within: float) -> bool:
        """Answer a request that arrives in time; return whether another one may follow."""
        async with asyncio.timeout(within):
            request = await _read(reader)
        self._answering += 1  # until it has left: who does not read what was asked for holds all of it here
        try:
            status, found = await self._answer(request)
            kept = not request.last and self._open <= KEPT
            async with asyncio.timeout(DEADLINE):
                writer.write(_written(status, found, kept=kept))
                await writer.drain()
        finally:
            self._answering -= 1
        return kept

    async def _answer(self, request: Request) -> Answer:
        if self._answering > MOST:
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        route = self.routes.get(request.route)
        return await route(request) if route else (HTTPStatus.NOT_FOUND, None)


def _written(status: HTTPStatus, found: Any, *, kept: bool) -> bytes:
    body = json.dumps(found).encode() if found is not None else b""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'keep-alive' if kept else 'close'}\r\n\r\n"
    )
    return head.encode() + body


async def _read(reader: asyncio.StreamReader) -> Request:
    """Read a request. Raises ValueError for what is none."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    path, _, query = target.partition("?")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= BODY:
        raise ValueError(f"a body of {length} bytes")
    last = version != "HTTP/1.1" or headers.get("connection", "").lower() == "close"
    return Request(f"{method} {path}", query, headers, await reader.readexactly(length), last)
