"""How often Slurm is asked for its nodes, and what is known of them when, on virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from kurm.domain.feasibility import Node
from kurm.domain.placing import Placing
from kurm.domain.room import Shape
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.room import PATIENCE, SURPRISED, SlurmRoom
from kurm.slurm.controller import Allocations, JobEvent
from kurm.slurm.session import Session
from unit.slurm.fake_slurm import FakeSlurm, Token

if TYPE_CHECKING:
    from kurm.scheduler.terrain import Terrain

pytestmark = pytest.mark.looptime(noop_cycles=8)

ONE = Shape(cpus=1, memory=100)


@dataclass
class Ground:
    """What stands for the terrain: nodes that Kubernetes has, and who is to be told when they change."""

    placing: Placing = field(default_factory=Placing)
    moved: Callable[[str], None] = lambda _: None

    def on_node(self, moved: Callable[[str], None], _: Callable[[], None]) -> None:
        """Call `moved` with each node that changes."""
        self.moved = moved

    def put(self, *names: str) -> None:
        """Have nodes that take pods."""
        for name in names:
            self.placing.put_node(Node(name, node_set="workers"))
            self.moved(name)

    def fitting(self) -> set[str]:
        """Return the nodes that have room for one small pod."""
        nodes = (node.name for node in self.placing.nodes)
        return {name for name in nodes if self.placing.room.has(ONE, 1 << (self._place(name)))}

    def _place(self, name: str) -> int:
        return [node.name for node in self.placing.nodes].index(name)


def put(fake: FakeSlurm, *names: str, state: str = "IDLE", used: int = 0) -> None:
    """Have nodes in Slurm."""
    for name in names:
        fake.put(name, state, cpus=8, real_memory=1000, alloc_cpus=used)


@asynccontextmanager
async def room(fake: FakeSlurm, ground: Ground) -> AsyncIterator[SlurmRoom]:
    """Keep the view of a fake slurmrestd's nodes true; the first list is read."""
    async with fake.serve(), Session(f"http://127.0.0.1:{fake.port}", Token()) as session:
        ledger = Ledger(lambda: "uid-1")
        kept = SlurmRoom(session, cast("Terrain", ground), ledger, lambda: None)
        task = asyncio.create_task(kept.run())
        await asyncio.sleep(1)
        assert fake.asked == []
        ledger.replace(Allocations(epoch="1"), asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        yield kept
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def lists(fake: FakeSlurm) -> int:
    """Return how many lists were asked for."""
    return fake.asked.count("nodes/")


async def test_pods_wait_for_the_first_list_but_not_for_ever() -> None:
    """A list that takes a while is waited for; without one all is queued, after half a minute."""
    fake, ground = FakeSlurm(slow=10.0), Ground()
    put(fake, "n1")
    ground.put("n1")
    async with room(fake, ground) as kept:
        assert not kept.known
        await asyncio.sleep(10)
        assert (kept.known, ground.fitting()) == (True, {"n1"})
    fake = FakeSlurm(slow=10.0, away=True)
    async with room(fake, Ground()) as kept:
        await asyncio.sleep(PATIENCE - 2)
        assert not kept.known
        await asyncio.sleep(2)
        assert kept.known


async def test_in_steady_state_there_is_no_list() -> None:
    """One at the start; then jobs of others come and go for ten minutes, and their nodes are read alone."""
    fake, ground = FakeSlurm(), Ground()
    names = [f"n{number}" for number in range(100)]
    put(fake, *names)
    ground.put(*names)
    async with room(fake, ground) as kept:
        for job in range(300):
            kept.heard([JobEvent(id=job, event="started", nodes=names[job % 100])])
            await asyncio.sleep(1)
            kept.heard([JobEvent(id=job, event="ended")])
            await asyncio.sleep(1)
        await asyncio.sleep(5)
        assert (lists(fake), ground.fitting()) == (1, set(names))


async def test_a_node_of_which_a_job_of_others_took_all_has_no_room() -> None:
    """Until that is known it counts as full, too."""
    fake, ground = FakeSlurm(), Ground()
    put(fake, "n1", "n2")
    ground.put("n1", "n2")
    async with room(fake, ground) as kept:
        put(fake, "n2", used=8)
        kept.heard([JobEvent(id=7, event="started", nodes="n2")])
        await asyncio.sleep(3)
        assert (ground.fitting(), fake.asked.count("node/n2"), lists(fake)) == ({"n1"}, 1, 1)


async def test_a_new_node_is_known_when_slurm_uses_it() -> None:
    """Its record comes later than the node, and its slurmd later than that: it is looked at, later each time."""
    fake, ground = FakeSlurm(), Ground()
    put(fake, "n1")
    ground.put("n1")
    async with room(fake, ground):
        ground.put("n2")
        await asyncio.sleep(3)
        put(fake, "n2", state="POWERING_UP")
        await asyncio.sleep(6)
        assert ground.fitting() == {"n1"}
        put(fake, "n2")
        await asyncio.sleep(15)
        assert (ground.fitting(), lists(fake)) == ({"n1", "n2"}, 1)
        asked = len(fake.asked)
        await asyncio.sleep(600)
        assert len(fake.asked) == asked


async def test_a_record_that_is_gone_is_no_room() -> None:
    """It must not be excluded either: Slurm refuses a request that names a node which it does not know."""
    fake, ground = FakeSlurm(), Ground()
    put(fake, "n1", "n2")
    ground.put("n1", "n2")
    async with room(fake, ground) as kept:
        del fake.nodes["n2"]
        kept.heard([JobEvent(id=7, event="started", nodes="n2")])
        await asyncio.sleep(3)
        assert (ground.fitting(), "n2" in ground.placing.room) == ({"n1"}, False)


async def test_what_nobody_told_is_seen_after_a_surprise() -> None:
    """Slurm had no room where some was believed to be: all nodes are listed, once in five minutes at most."""
    fake, ground = FakeSlurm(), Ground()
    put(fake, "n1", "n2")
    ground.put("n1", "n2")
    async with room(fake, ground) as kept:
        put(fake, "n1", used=8)
        for _ in range(int(1.5 * SURPRISED)):
            kept.surprised()
            kept.want()
            await asyncio.sleep(1)
        assert (ground.fitting(), lists(fake)) == ({"n2"}, 2)


async def test_missed_hints_are_one_list() -> None:
    """However often they are missed within the time that a list may be read again."""
    fake, ground = FakeSlurm(), Ground()
    put(fake, "n1")
    ground.put("n1")
    async with room(fake, ground) as kept:
        for _ in range(10):
            kept.missed()
            await asyncio.sleep(1)
        await asyncio.sleep(30)
        assert lists(fake) == 2
