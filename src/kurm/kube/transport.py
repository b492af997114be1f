"""HTTP to one API server: who we are, deadlines, retries the server asks for, and errors as types."""

import asyncio
import io
import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

import aiohttp
import structlog

import kurm
from kurm.kube.config import Config
from kurm.kube.errors import (
    ApiError,
    ServiceUnavailable,
    Silent,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_response,
)
from kurm.kube.traffic import Traffic

log = structlog.get_logger("kurm.kube")

DEADLINE_SECONDS = 30.0
# A peer that died without a word (power, a cut cable) is found by the kernel in 15 + 3 * 5 s; an unanswered write too.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
# Most connections at once. Past it a request waits its turn, within its deadline.
CONNECTIONS = 200
LARGE_BODY = 2**19
# Shorter than the API server's own idle limit (90 s), or it hangs up on a connection as we take it from the pool.
IDLE_SECONDS = 60.0


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    for level, option, value in _KEEPALIVE:
        made.setsockopt(level, option, value)
    return made


class Transport:
    """A pool of connections to one API server. Use it as an async context."""

    def __init__(self, config: Config) -> None:
        self.config, self.traffic = config, Traffic()
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS, keepalive_timeout=IDLE_SECONDS, socket_factory=_socket, ssl=self.config.tls or False
            ),
            timeout=aiohttp.ClientTimeout(total=None),  # deadlines are set around the whole request, retries included
            # Within a data centre gzip costs both sides more CPU than the bytes are worth; watches never use it.
            headers={
                "User-Agent": f"kurm/{kurm.__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        media: str = "application/json",
        deadline: float = DEADLINE_SECONDS,
        patient: bool = True,
    ) -> bytes:
        """Send a request and return the body of its answer; within `deadline` seconds, whatever happens.

        A 429 or 503 that says when to come back is obeyed while the deadline allows (`patient`): the server has not
        carried the request out. A 401 is tried once more with fresh credentials. Raises ApiError or Unreachable.
        """
        end = asyncio.get_running_loop().time() + deadline
        fresh = False
        try:
            async with asyncio.timeout_at(end):
                while True:
                    try:
                        answer = await self._open(method, path, query, body, media, fresh=fresh)
                        return await self._read(answer)
                    except Unauthorized:
                        if fresh:
                            raise
                        fresh = True
                    except (TooManyRequests, ServiceUnavailable) as error:
                        await self._wait_for_turn(error, end, patient=patient)
        except TimeoutError as error:
            raise self._unreachable(error, f"{method} {path} took longer than {deadline:g} s") from error

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        deadline: float = DEADLINE_SECONDS,
        silence: float = 90.0,
        gulp: float = 0.0,
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """Open a GET whose answer is read as it comes, in chunks of any size.

        The answer must begin within `deadline` seconds, and never be silent for longer than `silence` seconds: a
        connection can die without either side being told. For `gulp` seconds after each chunk nothing is read, so that
        what follows closely comes together: a wake-up for each single event costs several times what the event does.
        """
        try:
            async with asyncio.timeout(deadline):
                answer = await self._open("GET", path, query, silence=silence)
        except TimeoutError as error:
            raise self._unreachable(error, f"GET {path} did not begin to answer in {deadline:g} s") from error
        try:
            async with aclosing(self._chunks(answer, gulp)) as chunks:
                yield chunks
        finally:
            _drop(answer)

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        try:
            with self._told_as_unreachable():
                content = await answer.read()
        except BaseException:
            _drop(answer)
            raise
        self.traffic.received += len(content)
        return content

    async def _chunks(self, answer: aiohttp.ClientResponse, gulp: float) -> AsyncGenerator[bytes, None]:
        # Not readline(): it fails on lines past a limit, and one object on one line may be 3 MB.
        with self._told_as_unreachable():
            try:
                while chunk := await answer.content.readany():
                    self.traffic.received += len(chunk)
                    yield chunk
                    if gulp:
                        await _leave_unread(answer, gulp)
            except aiohttp.SocketTimeoutError as error:
                check = "the network on the way, if it goes on"
                raise Silent(self.config.server, "an open stream has brought nothing for too long", check) from error

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None = None,
        media: str = "",
        *,
        fresh: bool = False,
        silence: float | None = None,
    ) -> aiohttp.ClientResponse:
        if self._http is None:
            raise RuntimeError("the session is not open: use it as `async with Session(config) as session`")
        headers = {"Content-Type": media} if body is not None else {}
        if authorization := await self.config.credentials.header(fresh=fresh):
            headers["Authorization"] = authorization
        self.traffic.calls[method] += 1
        self.traffic.sent += len(body or b"")
        with self._told_as_unreachable():
            answer = await self._http.request(
                method,
                self.config.server + path,
                params=query,
                # aiohttp warns of large bytes that are sent in one piece, and sends a file piece by piece.
                data=io.BytesIO(body) if body is not None and len(body) > LARGE_BODY else body,
                headers=headers,
                allow_redirects=False,
                server_hostname=self.config.server_name,
                timeout=aiohttp.ClientTimeout(total=None, sock_read=silence),
            )
            if answer.status < 300:  # noqa: PLR2004 - 2xx; a redirect is no answer to us
                return answer
            async with answer:
                raise from_response(answer.status, await answer.read(), answer.headers.get("Retry-After"))

    @contextmanager
    def _told_as_unreachable(self) -> Generator[None, None, None]:
        # asyncio.timeout() reaches in here as a cancellation, so a TimeoutError is the socket's own.
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def _wait_for_turn(self, error: ApiError, end: float, *, patient: bool) -> None:
        left = end - asyncio.get_running_loop().time()
        if not patient or error.retry_after is None or error.retry_after >= left:
            raise error
        log.debug("server asks to wait", server=self.config.server, seconds=error.retry_after, reason=error.reason)
        # Up to a quarter more, so that all who were turned away together do not come back together.
        await asyncio.sleep(error.retry_after * (1 + random.random() / 4) + 0.01)  # noqa: S311 - jitter is no secret

    def _unreachable(self, error: BaseException, what: str = "") -> Unreachable:
        said = what or str(error) or type(error).__name__
        match error:
            case aiohttp.ClientConnectorCertificateError():
                check = "that certificate-authority belongs to this server, and that its certificate names this address"
            case aiohttp.ClientConnectorDNSError():
                check = "that the name resolves from here"
            case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
                check = "that the server speaks TLS on this port and takes our client certificate"
            case aiohttp.ClientConnectorError():
                check = "that the API server runs, and that the address and the port are right"
            case TimeoutError():
                check = "the server's load, and the network on the way"
            case _:
                check = "the API server's log: it hung up"
        return Unreachable(self.config.server, said, check)


async def _leave_unread(answer: aiohttp.ClientResponse, seconds: float) -> None:
    """Let what comes pile up in the socket; without this the loop would still wake up for each piece of it."""
    transport = answer.connection.transport if answer.connection else None
    if transport is None:
        return  # all of it is here
    transport.pause_reading()
    try:
        await asyncio.sleep(seconds)
    finally:
        transport.resume_reading()


def _drop(answer: aiohttp.ClientResponse) -> None:
    """Give up an answer that is not whole, with its connection: a farewell in TLS would wait 30 s for a dead peer."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()
