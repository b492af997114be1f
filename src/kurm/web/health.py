"""/healthz, /readyz and /metrics of a daemon over HTTP.

`/healthz` fails when the process does not come by its own loop any more: only a restart helps then. `/readyz` fails,
with the reasons in words, when it does not know what it would need to know: nothing is written then.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Protocol):
    """What a daemon measures of itself."""

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        ...


class Daemon(Protocol):
    """A daemon as it is seen from outside."""

    @property
    def metrics(self) -> Metrics:
        """What it measures of itself."""
        ...

    def stuck(self) -> Sequence[str]:
        """Return why only a restart helps, in words; nothing while all is well."""
        ...

    def unready(self) -> Sequence[str]:
        """Return why it does nothing now, in words; nothing while all is well."""
        ...


@asynccontextmanager
async def serve(
    port: int,
    daemon: Daemon,
    *,
    host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside
) -> AsyncIterator[int]:
    """Serve within the block; gives the port, a free one if `port` is 0. Raises OSError if it is taken."""

    async def told(problems: Callable[[], Sequence[str]]) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    async def healthz(_: web.Request) -> web.Response:
        return await told(daemon.stuck)

    async def readyz(_: web.Request) -> web.Response:
        return await told(daemon.unready)

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=daemon.metrics.text(), headers={"Content-Type": _PROMETHEUS})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)])
    # No log line for each look of the kubelet's, and no wait for idle connections at the end.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield next((int(address[1]) for address in runner.addresses), port)
    finally:
        await runner.cleanup()
