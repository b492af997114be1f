"""Carry connections from a socket of the host to a port of the loopback of another network namespace.

    nsenter --net=/proc/PID/ns/net python bench/relay.py LISTENING_DESCRIPTOR PORT

A socket belongs to the network in which it was made: the inherited one to the host's, those made here to the other. So
a syncer on the host asks slurmctld's init, whose network is the lab's alone.
"""

import asyncio
import contextlib
import socket
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until it ends."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def main(descriptor: int, port: int) -> None:
    """Serve until somebody ends us."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer, request = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()  # who asks hears that nobody is there
            return
        await asyncio.gather(pump(reader, request), pump(answer, writer))

    server = await asyncio.start_server(carry, sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
