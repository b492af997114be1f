"""A session with one slurmrestd: typed answers, deadlines, errors as types, and Slurm of the right release only."""

import asyncio
import contextlib
import urllib.parse
from collections.abc import Sequence
from functools import cache
from types import TracebackType
from typing import Protocol, Self, TypeVar

import msgspec
import structlog

import kurm
from kurm.slurm.errors import (
    ApiError,
    ControllerAway,
    DecodeError,
    NotFound,
    ReleaseError,
    Unauthorized,
    Unreachable,
    api_error,
)
from kurm.slurm.traffic import Traffic
from kurm.slurm.transport import Transport
from kurm.slurm.wire import Answer, Narrow, Problem

log = structlog.get_logger("kurm.slurm")

A = TypeVar("A", bound=Answer)

SERIES = "26.05"
"""The release of Slurm that Kurm is made for; a patch level more or less is no difference."""
PARSERS = ("v0.0.45",)
"""The data_parser plugins that may stand in a path, the preferred first. Slurm 26.05 has v0.0.42 to 45; those before
v0.0.45 lack `conf`, and those before v0.0.44 `new/node`."""
DEADLINE_SECONDS = 30.0
"""Of a request. slurmrestd itself waits 10 s for a slurmctld that is away, and 1.1 s for 5,000 nodes."""
CONNECTIONS = 8
"""Most requests at once: slurmrestd has two threads for each CPU, and a request holds one. Others wait their turn."""
_HEADERS = {"User-Agent": f"kurm/{kurm.__version__}", "Accept": "application/json"}
_JSON = {"Content-Type": "application/json"}
AWAY_SECONDS = 10.0
"""How long a slurmctld that did not answer is asked by ping first: any other call would hold a thread for 10 s."""


class TokenSource(Protocol):
    """Gives a valid token each time; `kurm.slurm.token.Tokens` is one."""

    def __call__(self) -> str:
        """Return a token."""

    def renew(self) -> None:
        """Be told that slurmctld has refused the token."""


class Ping(Narrow):
    """One slurmctld. `latency` is in microseconds, of slurmrestd's call; `status` are Slurm's words."""

    hostname: str = ""
    responding: bool = False
    latency: int = 0
    primary: bool = False
    status: str = ""


class PingAnswer(Answer):
    """The answer of `ping`."""

    pings: tuple[Ping, ...] | None = None


class Session:
    """Speaks to one slurmrestd at `unix:/path/to/socket` or `http://host:port`, as whoever `tokens` says.

    The version of the API is settled by the first request, and again when slurmrestd was away. Every call answers or
    raises within `deadline` seconds (its own, else the session's). Raises, all of them SlurmError: ApiError and its
    kinds when Slurm refuses, Unreachable when slurmrestd does not answer, ReleaseError, DecodeError.
    """

    def __init__(
        self,
        address: str,
        tokens: TokenSource,
        *,
        deadline: float = DEADLINE_SECONDS,
        parsers: tuple[str, ...] = PARSERS,
        traffic: Traffic | None = None,
    ) -> None:
        self.address = address
        self.deadline = deadline
        self.traffic = traffic or Traffic()
        self.release = ""
        self._tokens, self._parsers = tokens, parsers
        self._transport = Transport(address, connections=CONNECTIONS)
        self._parser = ""
        self._settling = asyncio.Lock()
        self._away_since: float | None = None

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def ping(self, *, deadline: float | None = None) -> Ping:
        """Ask whether slurmctld answers; at once, also if it is away, or if it refuses our token."""
        answer = await self.request(PingAnswer, "GET", "ping/", deadline=deadline)
        return next((ping for ping in (answer.pings if answer else None) or () if ping.primary), Ping())

    async def request(
        self,
        into: type[A],
        method: str,
        route: str,
        name: str = "",
        *,
        query: Sequence[tuple[str, str]] = (),
        body: object = None,
        deadline: float | None = None,
    ) -> A | None:
        """Send a request and return its answer; None for "not modified" (an `update_time` was in the query).

        `route` is a path below the version, with `{}` for `name`: `node/{}`.
        """
        seconds = self.deadline if deadline is None else deadline
        start = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds):
                return await self._request(into, method, route, name, query=query, body=body)
        except TimeoutError as error:
            failure = Unreachable(self.address, f"{method} {route} took longer than {seconds:g} s", "slurmctld's load")
            self.traffic.failures[f"{method} {route}", "Unreachable"] += 1
            raise failure from error
        finally:
            self.traffic.seconds += asyncio.get_running_loop().time() - start

    async def _request(
        self, into: type[A], method: str, route: str, name: str, *, query: Sequence[tuple[str, str]], body: object
    ) -> A | None:
        await self._settle()
        if route != "ping/":
            await self._look_whether_away()
        try:
            return await self._send(into, method, self._parser, route, name, query=query, body=body)
        except Unauthorized:
            self._tokens.renew()  # the key may have been rotated; a second refusal is meant
            return await self._send(into, method, self._parser, route, name, query=query, body=body)

    async def _settle(self) -> None:
        """Find the newest data_parser that both sides have, and refuse another release of Slurm."""
        async with self._settling:
            if self._parser:
                return
            for parser in self._parsers:
                with contextlib.suppress(NotFound):
                    answer = await self._send(PingAnswer, "GET", parser, "ping/")
                    self.release = answer.meta.slurm.release if answer and answer.meta else ""
                    check_release(self.release, f"slurmrestd at {self.address}")
                    self._parser = parser
                    return
            wanted = ", ".join(self._parsers)
            raise ReleaseError(f"slurmrestd at {self.address} has none of the data parsers {wanted}")

    async def _look_whether_away(self) -> None:
        """Raise ControllerAway without waiting if slurmctld did not answer a moment ago and still does not."""
        if self._away_since is None or asyncio.get_running_loop().time() - self._away_since > AWAY_SECONDS:
            return
        answer = await self._send(PingAnswer, "GET", self._parser, "ping/")
        pings = (answer.pings if answer else None) or ()
        if not any(ping.responding for ping in pings):
            raise api_error(status=502, error=pings[0].status if pings else "", description="slurmctld does not answer")
        self._away_since = None

    async def _send(
        self,
        into: type[A],
        method: str,
        parser: str,
        route: str,
        name: str = "",
        *,
        query: Sequence[tuple[str, str]] = (),
        body: object = None,
    ) -> A | None:
        """Send one request, and count it."""
        call = f"{method} {route}"
        path = f"/slurm/{parser}/{route.format(urllib.parse.quote(name, safe=''))}"
        path += f"?{urllib.parse.urlencode(query)}" if query else ""
        data = b"" if body is None else msgspec.json.encode(body)
        headers = _HEADERS | {"X-SLURM-USER-TOKEN": self._tokens()} | (_JSON if data else {})
        self.traffic.calls[call] += 1
        self.traffic.sent += len(data)
        try:
            response = await self._transport.send(method, path, headers=headers, body=data)
            self.traffic.received += len(response.content)
            return _answered(into, call, response.status, response.content)
        except OSError as error:
            self._parser = ""  # it may come back as another
            self.traffic.failures[call, "Unreachable"] += 1
            raise Unreachable(self.address, str(error) or type(error).__name__, "that it runs") from error
        except (ApiError, DecodeError) as error:
            self.traffic.failures[call, type(error).__name__] += 1
            if isinstance(error, ControllerAway):
                self._away_since = asyncio.get_running_loop().time()
            raise


def check_release(release: str, who: str) -> None:
    """Raise ReleaseError unless this is Slurm of the release that Kurm is made for."""
    if not release.startswith(f"{SERIES}."):
        raise ReleaseError(f"{who} is Slurm {release or 'of an unknown release'}: Kurm works with Slurm {SERIES} only")


def _answered(into: type[A], call: str, status: int, content: bytes) -> A | None:
    """Return what an answer holds, or raise what it means."""
    if status == 304:  # noqa: PLR2004 - HTTP's "not modified", to an update_time
        return None
    if status >= 300:  # noqa: PLR2004 - HTTP: neither 2xx nor "not modified"
        raise _error(status, content)
    try:
        answer: A = _decoder(into).decode(content)
    except msgspec.DecodeError as error:
        raise DecodeError(f"{call}: {error}") from error
    for warning in answer.warnings or ():
        log.debug("slurmrestd warns", call=call, warning=warning.description, source=warning.source)
    if answer.errors:
        raise _told(status, answer.errors[0])
    return answer


def _error(status: int, content: bytes) -> ApiError:
    try:
        problems = _decoder(Answer).decode(content).errors
    except msgspec.DecodeError:  # plain text: slurmrestd's own errors have no JSON
        problems = None
    if problems:
        return _told(status, problems[0])
    return api_error(status=status, error=" ".join(content[:200].decode(errors="replace").split()))


def _told(status: int, problem: Problem) -> ApiError:
    return api_error(
        status=status,
        number=problem.error_number,
        error=problem.error,
        description=problem.description,
        source=problem.source,
    )


@cache
def _decoder(into: type[A]) -> msgspec.json.Decoder[A]:
    return msgspec.json.Decoder(into)
