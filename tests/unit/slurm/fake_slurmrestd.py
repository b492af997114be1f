"""A fake slurmrestd: answers by a script, byte by byte as the real one does, on a UNIX socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

META = {"slurm": {"release": "26.05.5", "cluster": "fake"}}
PONG = {"pings": [{"hostname": "fake", "responding": True, "primary": True}], "meta": META}


def answer(body: object, status: str = "200 OK") -> bytes:
    """Return one response."""
    content = msgspec.json.encode(body)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def refusal(number: int, status: str = "422 UNPROCESSABLE CONTENT") -> bytes:
    """Return an error as slurmrestd sends it: twice, and it would close."""
    body = {"errors": [{"error_number": number, "error": "words", "description": "tried"}], "meta": META}
    head = f"HTTP/1.1 {status}\r\nConnection: Close\r\nContent-Length: "
    contents = (msgspec.json.encode(body), b"words")
    return b"".join(f"{head}{len(content)}\r\n\r\n".encode() + content for content in contents)


@dataclass
class Slurmrestd:
    """`script(line)` gives the bytes for a request line, None to say nothing; `b""` hangs up."""

    socket: Path
    script: Callable[[str], bytes | None]
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    bodies: list[bytes] = field(default_factory=list)
    hang_up: bool = False
    """After each answer."""
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Slurmrestd"]:
        """Serve until the end of the block."""
        server = await asyncio.start_unix_server(self._serve, self.socket)
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line = head.partition(" HTTP/1.1")[0]
                length = head.lower().partition("content-length: ")[2].partition("\r")[0]
                self.bodies.append(await reader.readexactly(int(length or 0)))
                self.requests.append(line)
                said = self.script(line)
                if said == b"":
                    return
                if said is not None:
                    writer.write(said)
                    await writer.drain()
                if self.hang_up:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
