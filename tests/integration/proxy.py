"""A TCP proxy on the loopback that fails on demand: what a network does to connections, without touching one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

PIECE = 65_536


@dataclass
class Proxy:
    """Forwards bytes to a port of the loopback."""

    target: int
    port: int = 0
    refuses: bool = False
    _frozen: set["asyncio.Task[None]"] = field(default_factory=set)
    _pipes: set["asyncio.Task[None]"] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Proxy"]:
        """Forward until the context ends."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for pipe in self._pipes:
                pipe.cancel()
            await asyncio.gather(*self._pipes, return_exceptions=True)

    def cut(self) -> None:
        """Cut all connections, in the middle of whatever they carry."""
        for writer in self._writers:
            if writer.transport is not None:
                writer.transport.abort()

    def freeze(self) -> None:
        """Carry nothing any more on the connections that are open now, and leave them open."""
        self._frozen |= self._pipes

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # nobody is there at the moment: whoever asks is told so
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(self._pipe(source, sink))
            self._pipes.add(pipe)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(PIECE):
                if me in self._frozen:
                    await asyncio.Event().wait()
                sink.write(piece)
                await sink.drain()
        sink.transport.abort()
