"""What slurmctld's log says costs one GET, and saves the net; on virtual time, against the init's own server."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import pytest
from slurmctld_init.hints import Hints
from slurmctld_init.server import Answer, Request, Server

from kurm.slurm.controller import SlurmctldInit
from kurm.slurm.session import Session
from kurm.syncer.hints import Hints as Follower
from kurm.syncer.records import Pace, Records
from unit.slurm.fake_slurm import FakeSlurm, Token

pytestmark = pytest.mark.looptime(noop_cycles=8)


@dataclass
class Init:
    """slurmctld's init, as far as it tells hints."""

    ring: Hints
    server: asyncio.Server
    port: int
    over: asyncio.Event

    @staticmethod
    async def start(port: int = 0) -> "Init":
        """Start one with a ring of its own."""
        if not port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        ring, over = Hints(), asyncio.Event()

        async def answer(request: Request) -> Answer:
            if over.is_set():
                raise ConnectionResetError  # a connection that was kept ends with its process
            return HTTPStatus.OK, await ring.after(int(request.query.removeprefix("after=")))

        server = await Server({"GET /hints": answer}).serve(port)
        return Init(ring, server, port, over)

    def stop(self) -> None:
        """Answer nobody any more."""
        self.over.set()
        self.server.close()


@asynccontextmanager
async def following(fake: FakeSlurm, port: int) -> AsyncIterator[Records]:
    """Follow a fake slurmrestd, and an init at a port, until both are known."""
    init = SlurmctldInit(f"http://127.0.0.1:{port}/")
    async with fake.serve(), init, Session(f"http://127.0.0.1:{fake.port}", Token()) as session:
        records = Records(session, pace=Pace())
        tasks = [asyncio.create_task(one.run()) for one in (records, Follower(init, records))]
        await asyncio.sleep(5)
        yield records
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_with_hints_nothing_is_asked_but_what_they_hint_at() -> None:
    """In 250 s on a Slurm where jobs start all the time: one GET for the node that was drained, and no list."""
    fake, init = FakeSlurm(), await Init.start()
    fake.put("n1")
    fake.put("n2")
    async with following(fake, init.port) as records:
        before = len(fake.asked)
        for _ in range(50):
            fake.put("n2", "MIXED")
            init.ring.hear("sched: Allocate JobId=2 NodeList=n2 #CPUs=1 Partition=main")
            await asyncio.sleep(5)
        assert fake.asked[before:] == []
        fake.put("n1", "IDLE", "DRAIN", reason="fan")
        init.ring.hear("update_node: node n1 reason set to: fan")
        init.ring.hear("update_node: node n1 state set to DRAINED")
        await asyncio.sleep(0.2)
        assert fake.asked[before:] == ["node/n1"]
        assert (records.known or {})["n1"].reason == "fan"
    init.stop()


async def test_the_echo_of_our_own_write_is_no_hint() -> None:
    """We look at what we have written anyway; what others do a moment later is seen."""
    fake, init = FakeSlurm(), await Init.start()
    fake.put("n1")
    async with following(fake, init.port) as records:
        before = len(fake.asked)
        records.writes(["n1"], done=False)
        init.ring.hear("update_node: node n1 state set to DRAINED")
        await asyncio.sleep(0.1)
        records.writes(["n1"], done=True)
        init.ring.hear("update_node: node n1 comment set to: ours")
        await asyncio.sleep(0.1)
        assert fake.asked[before:] == []
        init.ring.hear("update_node: node n1 state set to IDLE")
        await asyncio.sleep(0.1)
        assert fake.asked[before:] == ["node/n1"]
    init.stop()


async def test_an_init_that_was_started_again_is_one_conditional_list() -> None:
    """Nobody knows what its predecessor's log said last. While it is away the net is cast as without hints."""
    fake, init = FakeSlurm(), await Init.start()
    fake.put("n1")
    async with following(fake, init.port) as records:
        assert records.hears
        init.stop()
        before = len(fake.asked)
        await asyncio.sleep(60)
        assert not records.hears
        assert 5 <= len(fake.asked) - before <= 13
        again = await Init.start(init.port)
        await asyncio.sleep(15)
        assert records.hears
        before = len(fake.asked)
        fake.put("n1", "DOWN")
        await asyncio.sleep(60)
        assert fake.asked[before:] == []
        again.stop()
        third = await Init.start(init.port)
        await asyncio.sleep(60)
        assert [route.partition("=")[0] for route in fake.asked[before:]] == ["nodes/?update_time"]
        assert (records.known or {})["n1"].down
        third.stop()
