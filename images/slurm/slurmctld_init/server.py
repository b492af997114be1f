"""A small server of HTTP: routes that answer with JSON, one request for each connection."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

DEADLINE = 5.0
"""Seconds for a request to arrive, and for its answer to leave."""
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


Answer = tuple[HTTPStatus, Any]
"""A status, and what is told as JSON; None for nothing."""
Route = Callable[[Request], Awaitable[Answer]]


class Server:
    """Answers by routes, which are named by method and path: `GET /hints`."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self._answering = 0

    async def serve(self, port: int) -> asyncio.Server:
        """Answer on all addresses. Raises OSError."""
        return await asyncio.start_server(self._connected, port=port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answering += 1
        try:
            async with asyncio.timeout(DEADLINE):
                request = await _read(reader)
            status, found = await self._answer(request)
            body = json.dumps(found).encode() if found is not None else b""
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            async with asyncio.timeout(DEADLINE):
                writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asks asks again
        finally:
            self._answering -= 1
            writer.close()

    async def _answer(self, request: Request) -> Answer:
        if self._answering > MOST:
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        route = self.routes.get(request.route)
        return await route(request) if route else (HTTPStatus.NOT_FOUND, None)


async def _read(reader: asyncio.StreamReader) -> Request:
    """Read a request. Raises ValueError for what is none."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    method, _, rest = first.partition(" ")
    path, _, query = rest.partition(" ")[0].partition("?")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= BODY:
        raise ValueError(f"a body of {length} bytes")
    return Request(f"{method} {path}", query, headers, await reader.readexactly(length))
