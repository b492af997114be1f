"""/healthz, /readyz and /metrics over HTTP.

`/healthz` fails when the process does not come by its own loop any more: only a restart helps then. `/readyz` fails,
with the reasons in words, when it does not lead, or does not know one of the sides: nothing is written then.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from kurm.syncer.metrics import Metrics

Problems = Callable[[], Sequence[str]]
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def serve(
    port: int,
    *,
    stuck: Problems,
    unready: Problems,
    metrics: Metrics,
    host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside
) -> AsyncIterator[int]:
    """Serve within the block; gives the port, a free one if `port` is 0. Raises OSError if it is taken."""

    async def told(problems: Problems) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    async def healthz(_: web.Request) -> web.Response:
        return await told(stuck)

    async def readyz(_: web.Request) -> web.Response:
        return await told(unready)

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": _PROMETHEUS})

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
