"""What is in force and what was refused, over HTTP: the syncer asks, and writes it into the SlurmCluster's status."""

import asyncio
import json
from dataclasses import asdict, dataclass
from http import HTTPStatus

PORT = 6819
DEADLINE = 5.0
"""Seconds for a whole request."""


@dataclass
class Status:
    """Told as JSON."""

    hash: str = ""
    """Of the configuration in force; empty while slurmctld starts."""
    refused: str = ""
    """Of the newest one, if it was refused."""
    words: str = ""
    """Slurm's, about that."""

    async def serve(self, port: int) -> asyncio.Server:
        """Answer `GET /` on all addresses. Raises OSError."""
        return await asyncio.start_server(self._answer, port=port)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
                found = request.split(b" ")[:2] == [b"GET", b"/"]
                status = HTTPStatus.OK if found else HTTPStatus.NOT_FOUND
                body = json.dumps(asdict(self)).encode() if found else b""
                head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asks asks again
        finally:
            writer.close()
