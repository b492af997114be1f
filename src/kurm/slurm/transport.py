"""HTTP/1.1 as slurmrestd and slurmctld's init speak it, on asyncio's streams.

No library serves here: slurmrestd answers an error with two complete responses, the first marked "Connection: Close",
and aiohttp's parser takes the bytes after it for a broken answer (BadStatusLine). All else is plain: slurmrestd always
sends a Content-Length, but with 304, and never chunks. So an answer is read to its length, and a connection that is to
be closed is dropped with whatever else is in it. slurmctld's init keeps to the same.
"""

import asyncio
import contextlib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

IDLE_SECONDS = 30.0
"""After which a connection is not used again. slurmrestd was seen to keep one for 40 s."""
BUFFER = 1 << 20
"""Bytes that a connection reads ahead; a list of 5,000 nodes is 12.5 MB."""
LONGEST_BODY = 1 << 30
"""Bytes. 10,000 jobs are 275 MB; a length beyond this is no answer but a fault."""


class BrokenAnswerError(OSError):
    """What came back is no such answer."""


@dataclass(frozen=True)
class Response:
    """An answer, whole."""

    status: int
    content: bytes


def place(address: str) -> str | tuple[str, int]:
    """Return the path of a UNIX socket, or a host and a port. Raises ValueError for what is neither."""
    parts = urllib.parse.urlsplit(address)
    with contextlib.suppress(ValueError):  # a port that is none
        if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
            return parts.path
        if parts.scheme == "http" and parts.hostname and parts.port and parts.path in {"", "/"}:
            return parts.hostname, parts.port
    raise ValueError(f"address: {address!r} is none of Slurm's: it must be unix:/path or http://host:port")


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.last_used = 0.0

    async def exchange(self, request: bytes) -> tuple[Response, bool]:
        """Send a request and return the answer, and whether the connection may be used again."""
        self.writer.write(request)
        await self.writer.drain()
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = head[0].partition(" ")
        status = rest[:3]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        length = headers.get("content-length", "0")
        good = version == "HTTP/1.1" and status.isdecimal() and length.isdecimal() and int(length) <= LONGEST_BODY
        if not good or "transfer-encoding" in headers:
            raise BrokenAnswerError(f"it answered {head[0]!r} and a body of {length!r} bytes")
        content = await self.reader.readexactly(int(length))
        return Response(int(status), content), headers.get("connection", "").lower() != "close"

    def usable(self, now: float) -> bool:
        return now - self.last_used < IDLE_SECONDS and not self.reader.at_eof() and not self.writer.is_closing()

    def drop(self) -> None:
        self.writer.transport.abort()


class Transport:
    """A pool of connections to an address: `unix:/path/to/socket` or `http://host:port`. Use it as an async context.

    Raises OSError and its kinds for whatever is wrong with the way or the answer; it sets no deadline.
    """

    def __init__(self, address: str, *, connections: int) -> None:
        self.place = place(address)
        self._turns = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in tuple(self._open):
            connection.drop()
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()
        self._open.clear()
        self._idle.clear()

    async def send(self, method: str, path: str, *, headers: Mapping[str, str], body: bytes = b"") -> Response:
        """Send a request and return its answer; a request waits its turn while all connections are in use."""
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: slurm",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        lines += [f"Content-Length: {len(body)}"] if body else []
        request = "\r\n".join([*lines, "", ""]).encode() + body
        async with self._turns:
            connection, used = await self._connection()
            try:
                return await self._exchange(connection, request)
            except (OSError, EOFError) as error:
                # It hung up on an idle connection as we took it. A read can be repeated; a write may have been done.
                if not used or method != "GET" or isinstance(error, BrokenAnswerError):
                    raise _as_os_error(error) from error
            try:
                return await self._exchange(await self._connect(), request)
            except EOFError as error:
                raise _as_os_error(error) from error

    async def _exchange(self, connection: _Connection, request: bytes) -> Response:
        reusable = False
        try:
            response, reusable = await connection.exchange(request)
        except asyncio.LimitOverrunError as error:
            raise BrokenAnswerError("its answer has no end of headers") from error
        finally:  # a cancellation too: its answer may still come, and must not be another request's
            if reusable:
                connection.last_used = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.drop()
                self._open.discard(connection)
        return response

    async def _connection(self) -> tuple[_Connection, bool]:
        """Return a connection, and whether it has been used before."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(now):
                return connection, True
            connection.drop()
            self._open.discard(connection)
        return await self._connect(), False

    async def _connect(self) -> _Connection:
        if isinstance(self.place, str):
            reader, writer = await asyncio.open_unix_connection(self.place, limit=BUFFER)
        else:
            reader, writer = await asyncio.open_connection(*self.place, limit=BUFFER)
        connection = _Connection(reader, writer)
        self._open.add(connection)
        return connection


def _as_os_error(error: OSError | EOFError) -> OSError:
    return error if isinstance(error, OSError) else ConnectionResetError("it hung up before the end of its answer")
