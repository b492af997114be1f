"""A program in a pod, and a port of a pod, through the API server: WebSockets with channels in them.

Each message is one byte that names the channel, and what is said on it. A program answers with channel 1 (its output),
2 (its errors) and 3 (a Status, at its end): `v5.channel.k8s.io`, and `v4` of servers before Kubernetes 1.30. A port has
channel 0 (both ways) and 1 (the kubelet's words if it fails): `v4.channel.k8s.io`, which the API server hands on to the
kubelet as it is; the first two bytes on each are the port's number. Sources: k8s.io/streaming, wsstream and
k8s.io/cri-streaming, portforward/websocket.go.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp
import msgspec

from kurm.kube.errors import BadRequest, KubeError, Status
from kurm.kube.resources import PODS, Key
from kurm.kube.session import Session

EXEC = ("v5.channel.k8s.io", "v4.channel.k8s.io")
FORWARD = ("v4.channel.k8s.io",)
OPEN_SECONDS = 15.0
"""How long a WebSocket may take to be open."""
CHUNK = 32 * 1024
"""Bytes of one message of ours: the kubelet copies in pieces of this size."""
_PORT_BYTES = 2

_status = msgspec.json.Decoder(Status)


class ChannelError(KubeError):
    """No channel to the pod, or it broke; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """How a program in a pod ended."""

    code: int
    output: str
    errors: str


async def run(session: Session, pod: Key, container: str, command: Sequence[str], *, deadline: float) -> Outcome:
    """Run a program in a container, without a shell, and return what it wrote; within `deadline` seconds.

    Raises ChannelError, and what Session raises where the API server refuses.
    """
    said: dict[int, bytearray] = {1: bytearray(), 2: bytearray(), 3: bytearray()}
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    try:
        async with asyncio.timeout(deadline), _open(session, pod, "exec", query, EXEC) as socket:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] and message.data[0] in said:
                    said[message.data[0]] += message.data[1:]
    except TimeoutError as error:
        raise ChannelError(f"{command[0]} in pod {pod} did not end within {deadline:g} s") from error
    if not said[3]:
        raise ChannelError(f"{command[0]} in pod {pod} was cut off")
    code = _exit_code(_status.decode(bytes(said[3])))
    return Outcome(code, said[1].decode(errors="replace"), said[2].decode(errors="replace"))


def _exit_code(status: Status) -> int:
    """Return a program's exit status. Raises ChannelError if there was no program (no such file, no such container)."""
    if status.status == "Success":
        return 0
    for cause in status.details.causes if status.details else ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    raise ChannelError(status.message or status.reason or "the kubelet gave no reason")


async def forward(
    session: Session, pod: Key, port: int, source: asyncio.StreamReader, sink: asyncio.StreamWriter
) -> None:
    """Connect two streams to a port of a pod until one side has ended. Raises as `run` does."""
    async with _open(session, pod, "portforward", [("ports", str(port))], FORWARD) as socket:
        up = asyncio.create_task(_send(source, socket))
        try:
            await _receive(socket, sink, up)
        except (OSError, aiohttp.ClientError) as error:
            raise ChannelError(f"the way to port {port} of pod {pod} broke: {error}") from error
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)


async def _send(source: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while chunk := await source.read(CHUNK):
        await socket.send_bytes(b"\0" + chunk)
    await socket.close()


async def _receive(
    socket: aiohttp.ClientWebSocketResponse, sink: asyncio.StreamWriter, up: "asyncio.Task[None]"
) -> None:
    unread = {0: _PORT_BYTES, 1: _PORT_BYTES}
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        number = min(unread.get(channel, 0), len(data))
        unread[channel] = unread.get(channel, 0) - number
        data = data[number:]
        if data and channel == 0:
            sink.write(data)
            await sink.drain()
        elif data:
            raise ChannelError(data.decode(errors="replace").strip())
    if up.done() and (error := up.exception()):
        raise error


@asynccontextmanager
async def _open(
    session: Session, pod: Key, subresource: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
    path = f"{PODS.path(pod, subresource=subresource)}?{urlencode(query)}"
    config = session.config
    authorization = await config.credentials.header()
    async with aiohttp.ClientSession(
        headers={"Authorization": authorization} if authorization else {}, trust_env=False
    ) as http:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                socket = await http.ws_connect(
                    config.server + path,
                    protocols=protocols,
                    ssl=config.tls or False,
                    server_hostname=config.server_name,
                    max_msg_size=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise await _refusal(session, path, error) from error
        except TimeoutError as error:
            raise ChannelError(f"no {subresource} to pod {pod} within {OPEN_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ChannelError(f"no {subresource} to pod {pod}: {error}") from error
        try:
            yield socket
        finally:
            await socket.close()


async def _refusal(session: Session, path: str, error: aiohttp.WSServerHandshakeError) -> KubeError:
    """Return why the API server would not open it: a refused WebSocket loses its words, so they are asked for again."""
    try:
        await session.request("GET", path)
    except BadRequest as again:
        if "pgrade" not in again.message:  # "Upgrade request required": all else is well with it
            return again
    except KubeError as again:
        return again
    return ChannelError(f"the API server or the kubelet opened no WebSocket: {error.status} {error.message}")
