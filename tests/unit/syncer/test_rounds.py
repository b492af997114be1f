"""What a round writes when Slurm and Kubernetes change while it works, on virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from kurm.domain.causes import Cause
from kurm.domain.noderecord import NodeRecord
from kurm.domain.world import Claim, Pod, mark
from kurm.slurm.session import Session
from kurm.syncer.metrics import Metrics
from kurm.syncer.records import Pace, Records
from kurm.syncer.rounds import Rounds
from unit.slurm.fake_slurm import FakeSlurm, Token

if TYPE_CHECKING:
    from kurm.syncer.losses import Losses
    from kurm.syncer.pool import Pool

pytestmark = pytest.mark.looptime(noop_cycles=8)

CORDONED = Cause("cordoned", "cordoned")


class Kubernetes:
    """What the pool says: each node is claimed and has a slurmd pod, and some are not to take jobs."""

    problem = ""

    def __init__(self, *nodes: str) -> None:
        self.nodes, self.cordoned = nodes, set[str]()
        self.tell: Callable[[str], None] = lambda _: None

    def on_change(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with each node that changes."""
        self.tell = tell

    def cordon(self, node: str) -> None:
        """Say that a node shall take no jobs."""
        self.cordoned.add(node)
        self.tell(node)

    def claimed(self) -> tuple[str, ...]:
        """Return all nodes."""
        return self.nodes

    def known(self, _: str) -> bool:
        """Say that all is known of each."""
        return True

    ready = known

    def claim(self, node: str) -> Claim:
        """Return what is claimed."""
        record = NodeRecord(cpus=1, real_memory=1000, gres=(), features=(), weight=1)
        return Claim(uid(node), record, causes=(CORDONED,) if node in self.cordoned else ())

    def pod(self, node: str) -> Pod:
        """Return a pod that nobody can evict."""
        return Pod(f"pod-of-{node}", ready=True, address="10.0.0.1", told=True, protected=True)


class NoLosses:
    """Nobody wants to know what is lost."""

    def note(self, _: object) -> None:
        """Be told."""


def uid(node: str) -> str:
    """Return the UID of a Kubernetes node."""
    return f"uid-of-{node}"


def registered(node: str) -> dict[str, Any]:
    """Return what the record of a node in service says."""
    started = {"set": True, "infinite": False, "number": 1_700_000_000}
    return {"extra": mark(uid(node)), "slurmd_start_time": started, "weight": 1, "reason": ""}


@asynccontextmanager
async def rounds(fake: FakeSlurm, kubernetes: Kubernetes) -> AsyncIterator[None]:
    """Keep a fake slurmrestd in agreement with what Kubernetes is made to say."""
    async with fake.serve(), Session(f"http://127.0.0.1:{fake.port}", Token()) as session:
        records = Records(session, pace=Pace())
        work = Rounds(
            cast("Pool", kubernetes),
            records,
            leads=lambda: True,
            metrics=Metrics("demo", "slurm"),
            losses=cast("Losses", NoLosses()),
            looked=lambda _: None,
        )
        tasks = [asyncio.create_task(records.run()), asyncio.create_task(work.run())]
        await asyncio.sleep(2)
        yield
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_drain_that_somebody_makes_while_others_are_read_keeps_its_reason() -> None:
    """What Slurm said of a node before Kubernetes pointed at it is no ground to write by."""
    fake, kubernetes = FakeSlurm(), Kubernetes("n1", "n2")
    for node in kubernetes.nodes:
        fake.put(node, **registered(node))
    async with rounds(fake, kubernetes):
        fake.slow = 1.0
        kubernetes.tell("n1")
        kubernetes.cordon("n2")
        await asyncio.sleep(0.1)  # the round of both reads n2
        fake.put("n1", "IDLE", "CLOUD", "DRAIN", **registered("n1") | {"reason": "fan is loud"})
        kubernetes.cordon("n1")
        await asyncio.sleep(5)
        reasons = {node: record["reason"] for node, record in fake.nodes.items()}
        assert reasons == {"n1": "fan is loud", "n2": "kurm: cordoned"}
