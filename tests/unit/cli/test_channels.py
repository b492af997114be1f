"""WebSockets with channels, against a server that speaks as the API server and the kubelet do."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import WSMsgType, web

from kurm.cli import channels
from kurm.cli.channels import ChannelError, Outcome
from kurm.kube.config import Config
from kurm.kube.errors import Forbidden
from kurm.kube.resources import Key
from kurm.kube.session import Session

POD = Key("slurm", "demo-controller-0")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def speaking(handler: Handler) -> AsyncIterator[Session]:
    """Serve on the loopback, and open a session with it."""
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    try:
        async with Session(Config(server=f"http://127.0.0.1:{runner.addresses[0][1]}")) as session:
            yield session
    finally:
        await runner.cleanup()


def program(*messages: tuple[int, str], asked: list[str] | None = None) -> Handler:
    """Return a server on which a program writes these messages, by their channels."""

    async def handle(request: web.Request) -> web.StreamResponse:
        wire = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await wire.prepare(request)
        if asked is not None:
            asked.extend([request.path, *request.query.getall("command"), request.query["container"]])
        for channel, text in messages:
            await wire.send_bytes(bytes([channel]) + text.encode())
        await wire.close()
        return wire

    return handle


SUCCESS = json.dumps({"kind": "Status", "status": "Success"})
EXIT_3 = json.dumps(
    {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
)
NO_PROGRAM = json.dumps({"status": "Failure", "reason": "InternalError", "message": "squeue: no such file"})


async def test_a_program_answers() -> None:
    """Its words reach it one by one, and what it writes comes back whole, by where it was written."""
    asked: list[str] = []
    handler = program((1, ""), (1, "batch|"), (2, "a warning"), (1, "up\n"), (3, SUCCESS), asked=asked)
    async with speaking(handler) as session:
        found = await channels.run(session, POD, "slurmctld", ["sinfo", "--format=%P|%a"], deadline=10)
    assert found == Outcome(0, "batch|up\n", "a warning")
    assert asked == ["/api/v1/namespaces/slurm/pods/demo-controller-0/exec", "sinfo", "--format=%P|%a", "slurmctld"]


async def test_a_program_fails() -> None:
    """Its exit status is told; that it could not be started at all is an error of its own."""
    async with speaking(program((2, "no slurmctld"), (3, EXIT_3))) as session:
        assert await channels.run(session, POD, "slurmctld", ["sinfo"], deadline=10) == Outcome(3, "", "no slurmctld")
    async with speaking(program((3, NO_PROGRAM))) as session:
        with pytest.raises(ChannelError, match="squeue: no such file"):
            await channels.run(session, POD, "slurmctld", ["squeue"], deadline=10)


async def test_a_program_that_is_cut_off_has_not_answered() -> None:
    """Half an answer is none."""
    async with speaking(program((1, "batch|up"))) as session:
        with pytest.raises(ChannelError, match="sinfo in pod slurm/demo-controller-0 was cut off"):
            await channels.run(session, POD, "slurmctld", ["sinfo"], deadline=10)


async def test_a_program_that_never_ends_is_left() -> None:
    """The deadline holds for the whole of it."""

    async def silent(request: web.Request) -> web.StreamResponse:
        wire = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await wire.prepare(request)
        await wire.receive()
        return wire

    async with speaking(silent) as session:
        with pytest.raises(ChannelError, match=r"sinfo in pod slurm/demo-controller-0 did not end within 0\.2 s"):
            await channels.run(session, POD, "slurmctld", ["sinfo"], deadline=0.2)


async def test_a_refusal_keeps_the_servers_words() -> None:
    """A WebSocket that is refused loses them: they are asked for again."""

    async def refuse(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not create pods/exec"}
        return web.json_response(body, status=403)

    async with speaking(refuse) as session:
        with pytest.raises(Forbidden, match="you may not create pods/exec"):
            await channels.run(session, POD, "slurmctld", ["sinfo"], deadline=10)


@asynccontextmanager
async def streams() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamReader]]:
    """Give a source to be fed, and a sink with its other end."""
    ours, theirs = socket.socketpair()
    _, sink = await asyncio.open_connection(sock=ours)
    heard, other = await asyncio.open_connection(sock=theirs)
    try:
        yield asyncio.StreamReader(), sink, heard
    finally:
        for end in (sink, other):
            end.close()
            await end.wait_closed()


def port(answer: Callable[[web.WebSocketResponse], Awaitable[None]]) -> Handler:
    """Return a server that forwards port 2222 to `answer`."""

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.query["ports"] == "2222"
        wire = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await wire.prepare(request)
        for channel in (0, 1):
            await wire.send_bytes(bytes([channel]) + struct.pack("<H", 2222))
        await answer(wire)
        await wire.close()
        return wire

    return handle


async def test_a_port_is_forwarded_both_ways() -> None:
    """Bytes arrive as they were sent, whatever they are, without the port's number; the end of ours ends it."""
    sent = bytes(range(256)) * 1000

    async def echo(wire: web.WebSocketResponse) -> None:
        async for message in wire:
            assert message.type is WSMsgType.BINARY
            await wire.send_bytes(b"\0" + message.data[1:])

    async with speaking(port(echo)) as session, streams() as (source, sink, heard):
        source.feed_data(sent)
        forwarding = asyncio.create_task(channels.forward(session, POD, 2222, source, sink))
        assert await heard.readexactly(len(sent)) == sent
        source.feed_eof()
        await asyncio.wait_for(forwarding, 10)


async def test_a_port_where_nobody_listens() -> None:
    """The kubelet's words are the error's."""

    async def refuse(wire: web.WebSocketResponse) -> None:
        await wire.send_bytes(b"\1" + b"connection refused\n")

    async with speaking(port(refuse)) as session, streams() as (source, sink, _):
        with pytest.raises(ChannelError, match=r"^connection refused$"):
            await channels.forward(session, POD, 2222, source, sink)
