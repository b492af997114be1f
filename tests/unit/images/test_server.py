"""The server of slurmctld's init: how long a connection is kept, and for whom."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
from slurmctld_init.server import DEADLINE, IDLE, KEPT, MOST, Answer, Request, Server

pytestmark = pytest.mark.looptime(noop_cycles=8)

ASKED = b"GET /there HTTP/1.1\r\nHost: init\r\n"
Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def port(unused_tcp_port: int) -> AsyncIterator[int]:
    """Serve one route."""

    async def there(_: Request) -> Answer:
        return HTTPStatus.OK, "here"

    server = await Server({"GET /there": there}).serve(unused_tcp_port)
    yield unused_tcp_port
    server.close()


async def test_only_so_many_answers_are_on_their_way(unused_tcp_port: int) -> None:
    """Whoever asks then is told to come again, and one that has gone makes room."""
    asked, news = asyncio.Semaphore(0), asyncio.Event()

    async def waits(_: Request) -> Answer:
        asked.release()
        await news.wait()
        return HTTPStatus.OK, "here"

    server = await Server({"GET /there": waits}).serve(unused_tcp_port)
    ways = [await asyncio.open_connection("127.0.0.1", unused_tcp_port) for _ in range(MOST + 1)]
    for _, writer in ways[:-1]:
        writer.write(ASKED + b"\r\n")
        await asked.acquire()
    reader, writer = ways[-1]
    writer.write(ASKED + b"\r\n")
    async with asyncio.timeout(DEADLINE):
        assert b"503" in await reader.readuntil(b"\r\n\r\n")
    news.set()
    for reader, _ in ways[:-1]:
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
    again = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
    assert await ask(again) == b"close"
    for _, writer in (*ways, again):
        writer.close()
    server.close()


async def ask(way: Way, more: bytes = b"") -> bytes:
    """Ask once, and return whether the server says that it keeps the connection."""
    reader, writer = way
    writer.write(ASKED + more + b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(6) == b'"here"'
    return head.rpartition(b"Connection: ")[2].strip()


async def test_a_connection_serves_one_request_after_another(port: int) -> None:
    """Until nobody has asked on it for a while."""
    reader, writer = way = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        assert await ask(way) == b"keep-alive"
        await asyncio.sleep(IDLE / 2)
    await asyncio.sleep(IDLE)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("more", [b"Connection: close\r\n", b"connection: Close\r\n"])
async def test_who_asks_for_no_more_is_hung_up_on(port: int, more: bytes) -> None:
    """As is a client of HTTP/1.0, that would wait for the end of the answer."""
    reader, writer = way = await asyncio.open_connection("127.0.0.1", port)
    assert await ask(way, more) == b"close"
    assert await reader.read() == b""
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /there HTTP/1.0\r\n\r\n")
    assert (await reader.read()).endswith(b'"here"')
    writer.close()


async def test_only_so_many_connections_are_kept(port: int) -> None:
    """Whoever comes then is answered, and takes nobody's place."""
    ways = [await asyncio.open_connection("127.0.0.1", port) for _ in range(KEPT)]
    assert [await ask(way) for way in ways] == [b"keep-alive"] * KEPT
    late = await asyncio.open_connection("127.0.0.1", port)
    assert await ask(late) == b"close"
    assert await ask(ways[0]) == b"keep-alive"
    for _, writer in (*ways, late):
        writer.close()
