"""Where jobs have started: one question for many, and none that is waited for long."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from kurm.scheduler.starts import Starts
from kurm.slurm.controller import SlurmctldInit
from kurm.slurm.token import Tokens


@dataclass
class Init:
    """slurmctld's init, as far as it is asked; every job is on the node of its number."""

    address: str
    epoch: str = "life"
    status: int = 200
    asked: list[str] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer when we may."""
        self.asked.append(request.query["jobs"])
        self.heard.set()
        await self.answers.wait()
        nodes = {job: f"n{job}" for job in request.query["jobs"].split(",") if job != "404"}
        return web.json_response({"epoch": self.epoch, "nodes": nodes}, status=self.status)


@pytest.fixture
async def init(unused_tcp_port: int) -> AsyncIterator[Init]:
    """Serve one."""
    found = Init(f"http://127.0.0.1:{unused_tcp_port}/")
    app = web.Application()
    app.router.add_get("/nodes", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    yield found
    await runner.cleanup()


@pytest.fixture
async def starts(init: Init) -> AsyncIterator[Starts]:
    """Run one that asks it."""
    async with SlurmctldInit(init.address, Tokens(lambda: bytes(32), "slurm")) as asked:
        found = Starts(asked)
        task = asyncio.create_task(found.run())
        yield found
        task.cancel()


async def test_who_comes_while_a_question_is_on_its_way_is_in_the_next(init: Init, starts: Starts) -> None:
    """Two questions for sixteen jobs, and each has its own node."""
    first = asyncio.create_task(starts.node(1, "life"))
    async with asyncio.timeout(5):
        await init.heard.wait()
    others = [asyncio.create_task(starts.node(job, "life")) for job in range(2, 17)]
    await asyncio.sleep(0.01)
    init.answers.set()
    assert [f"n{job}" for job in range(1, 17)] == [await one for one in (first, *others)]
    assert ["1", ",".join(map(str, range(2, 17)))] == init.asked


async def test_of_what_is_not_certain_slurm_is_asked(init: Init, starts: Starts) -> None:
    """A job that the init does not know, and one of another life of slurmctld."""
    init.answers.set()
    assert await starts.node(404, "life") == ""
    assert await starts.node(5, "earlier") == ""
    assert await starts.node(5, "life") == "n5"


async def test_an_init_that_does_not_answer_holds_nobody_up(init: Init, starts: Starts) -> None:
    """Half a second once, and it is not asked again for a while."""
    assert await starts.node(1, "life") == ""
    init.answers.set()
    assert await starts.node(2, "life") == ""
    assert init.asked == ["1"]


async def test_who_gives_up_waiting_takes_nobody_along(init: Init, starts: Starts) -> None:
    """A look that is cut off."""
    first = asyncio.create_task(starts.node(1, "life"))
    other = asyncio.create_task(starts.node(2, "life"))
    await asyncio.sleep(0.01)
    first.cancel()
    init.answers.set()
    assert await other == "n2"
