"""What slurmctld's init tells over HTTP stands in the SlurmCluster's status."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web

from integration.syncer.stage import Stage, until
from kurm.kube.resources import Key
from kurm.slurm.controller import SlurmctldInit, Status, Untold
from kurm.syncer import configuration
from kurm.syncer.objects import SLURM_CLUSTERS


@dataclass
class Init:
    """Serves what slurmctld's init would."""

    body: bytes = b""
    status: int = 200
    address: str = ""
    asked: int = field(default=0)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Init"]:
        """Serve on a free port of the loopback."""
        app = web.Application()
        app.add_routes([web.get("/", self._answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield self
        await runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(body=self.body, status=self.status)

    def tell(self, applied: Status) -> None:
        """Answer this from now on."""
        self.body = msgspec.json.encode(applied)


async def test_what_is_told() -> None:
    """An answer is read; any other is one sentence that names the address."""
    async with Init().serve() as init:
        asked = SlurmctldInit(init.address)
        init.tell(Status("h1", "h2", "words"))
        assert await asked.status() == Status("h1", "h2", "words")
        init.body = b"[]"
        with pytest.raises(Untold, match=init.address):
            await asked.status()
        init.status = 503
        with pytest.raises(Untold, match="503"):
            await asked.status()
    async with asked:
        with pytest.raises(Untold, match="does not answer"):
            await asked.status()


async def test_the_status_follows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applied, refused with Slurm's words, applied again; a repeated answer is no write."""
    monkeypatch.setattr(configuration, "EVERY", 0.1)

    async def status() -> tuple[str, str, str, str, str]:
        cluster = await stage.kube.get(SLURM_CLUSTERS, Key(stage.place, "demo"))
        found = cluster.status
        one = next((one for one in found.conditions if one.type == "Configured"), None)
        refused = found.config_refused.hash if found.config_refused else ""
        told = (one.status, one.reason, one.message) if one else ("", "", "")
        return found.config_hash, refused, *told

    async with Init().serve() as init, stage.syncer(controller=init.address):
        init.tell(Status())
        await until(status, ("", "", "Unknown", "Starting", "slurmctld is starting"))
        init.tell(Status("h1"))
        await until(status, ("h1", "", "True", "Applied", ""))
        init.tell(Status("h1", "h2", "Parsing error at unrecognized key: Nonsense"))
        await until(status, ("h1", "h2", "False", "Refused", "Parsing error at unrecognized key: Nonsense"))
        version = (await stage.kube.get(SLURM_CLUSTERS, Key(stage.place, "demo"))).metadata.resource_version
        asked = init.asked

        async def asked_again() -> bool:
            return init.asked > asked + 5

        await until(asked_again)
        now = (await stage.kube.get(SLURM_CLUSTERS, Key(stage.place, "demo"))).metadata.resource_version
        assert now == version
        init.tell(Status("h3"))
        await until(status, ("h3", "", "True", "Applied", ""))
