"""A relay that hands on HTTP, writes down each request with its answer, and fails where it is told to.

It stands between the scheduler and slurmrestd, and between the scheduler and slurmctld's init: so a history holds what
was asked, and a fault can come at one exact step, as "after slurmctld has granted, before the scheduler hears of it".
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from chaos.history import History, Request

LONGEST = 4000
"""Characters of a body that are written down."""
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Trap:
    """Something that happens once, at the first request that matches; with `lost` its answer never arrives."""

    pattern: re.Pattern[str]
    """Of the method and the path: `POST .*job/allocate`."""
    action: Callable[[], Awaitable[None]]
    before: bool = False
    """Whether it happens before the request is handed on, or else when its answer is there."""
    lost: bool = True
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Message:
    """A request or an answer as it came, and its parts."""

    raw: bytes
    first: list[str]
    """The words of its first line."""
    body: bytes


class Relay:
    """`target` opens a connection to whom it is for."""

    def __init__(self, history: History, name: str, target: Callable[[], Awaitable[Streams]]) -> None:
        self.history, self.name, self.target = history, name, target
        self.trap: Trap | None = None
        # With the task of each: asyncio lets go of it when its asker hangs up, and it would end amid an answer.
        self._writers: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    @asynccontextmanager
    async def serve_unix(self, path: Path) -> AsyncIterator[None]:
        """Relay what comes to a UNIX socket."""
        async with await asyncio.start_unix_server(self._carry, path, limit=1 << 24):
            yield
            self.cut()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Relay what comes to a port of the loopback, which it returns."""
        async with await asyncio.start_server(self._carry, "127.0.0.1", 0, limit=1 << 24) as server:
            yield server.sockets[0].getsockname()[1]
            self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            if writer.transport is not None:
                writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = asyncio.current_task()
        back: asyncio.StreamWriter | None = None
        try:
            there, back = await self.target()
            while await self._exchange((reader, writer), (there, back)):
                pass
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass  # who asks sees the connection end
        finally:
            del self._writers[writer]
            for one in (writer, back):
                if one is not None and one.transport is not None:
                    one.transport.abort() if one is not writer else one.close()

    async def _exchange(self, asker: Streams, answerer: Streams) -> bool:
        """Carry one request and its answer; return whether another may follow."""
        request = await receive(asker[0])
        asked, status, answer = time.monotonic(), 0, b""
        call = " ".join(request.first[:2])
        trap = self.trap if self.trap is not None and self.trap.pattern.search(call) else None
        if trap is not None:
            self.trap = None
        try:
            if trap is not None and trap.before:
                await self._spring(trap)
            answerer[1].write(request.raw)
            await answerer[1].drain()
            got = await receive(answerer[0])
            status, answer = int(got.first[1]), got.body
            if trap is not None and not trap.before:
                await self._spring(trap)
            asker[1].write(got.raw)
            await asker[1].drain()
        finally:
            self._record(request, asked, status, answer)
        return b"connection: close" not in got.raw[: len(got.raw) - len(got.body)].lower()

    async def _spring(self, trap: Trap) -> None:
        with contextlib.suppress(OSError):
            await trap.action()
        trap.sprung.set()
        if trap.lost:
            raise ConnectionAbortedError("it was told to lose this one")

    def _record(self, request: Message, asked: float, status: int, answer: bytes) -> None:
        clock = self.history.clock
        self.history.add(
            Request(
                at=clock.of(time.monotonic()),
                asked=clock.of(asked),
                to=self.name,
                method=request.first[0],
                path=request.first[1],
                body=request.body[:LONGEST].decode(errors="replace"),
                status=status,
                answer=answer[:LONGEST].decode(errors="replace"),
            )
        )


async def receive(reader: asyncio.StreamReader) -> Message:
    """Return the next message of a connection. Raises EOFError at its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Message(head + body, lines[0].split(" "), body)
