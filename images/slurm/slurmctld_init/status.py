"""What is in force, what was refused, and which nodes have changed, over HTTP: the syncer asks."""

import asyncio
import json
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from slurmctld_init.hints import Hints

PORT = 6819
DEADLINE = 5.0
"""Seconds for a request to arrive, and for its answer to leave."""
MOST = 32
"""Answers at the same time; one of them is a syncer's, which waits for hints."""


@dataclass
class Status:
    """Told as JSON."""

    hash: str = ""
    """Of the configuration in force; empty while slurmctld starts."""
    refused: str = ""
    """Of the newest one, if it was refused."""
    words: str = ""
    """Slurm's, about that."""


class Server:
    """Answers `GET /` with the status, and `GET /hints?after=NUMBER` with hints when there are any."""

    def __init__(self, status: Status, hints: Hints) -> None:
        self.status, self.hints = status, hints
        self._answering = 0

    async def serve(self, port: int) -> asyncio.Server:
        """Answer on all addresses. Raises OSError."""
        return await asyncio.start_server(self._connected, port=port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answering += 1
        try:
            async with asyncio.timeout(DEADLINE):
                request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].decode("latin-1")
            status, found = await self._answer(request)
            body = json.dumps(found).encode() if found is not None else b""
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            async with asyncio.timeout(DEADLINE):
                writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asks asks again
        finally:
            self._answering -= 1
            writer.close()

    async def _answer(self, request: str) -> tuple[HTTPStatus, dict[str, Any] | None]:
        method, _, rest = request.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        if self._answering > MOST:
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        if method == "GET" and path == "/":
            return HTTPStatus.OK, asdict(self.status)
        if method == "GET" and path == "/hints":
            name, _, number = query.partition("=")
            after = int(number) if name == "after" and number.isdecimal() and number.isascii() else 0
            return HTTPStatus.OK, await self.hints.after(after)
        return HTTPStatus.NOT_FOUND, None
