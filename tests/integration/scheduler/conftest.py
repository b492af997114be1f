"""A stage for each test: a namespace of the shared API server, and a Slurm of its own with three nodes."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from integration.apiserver import ApiServer
from integration.images.machine import Machine
from integration.scheduler.stage import Stage, slurm
from kurm.kube.errors import NotFound
from kurm.kube.resources import Object
from kurm.kube.session import Session
from kurm.scheduler.objects import NODE_SETS, SLURM_CLUSTERS


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, int]]:
    """Run a Slurm without nodes; gives it and the port of slurmctld's init."""
    with slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
async def stage(served: ApiServer, session: Session, place: str, machine: tuple[Machine, int]) -> AsyncIterator[Stage]:
    """Set the stage; no scheduler is on it yet."""
    assert served.port
    async with asyncio.timeout(30):
        for resource in (SLURM_CLUSTERS.of(Object), NODE_SETS.of(Object)):
            while True:
                with contextlib.suppress(NotFound):
                    await session.list(resource, namespace=place)
                    break
                await asyncio.sleep(0.1)
    made = await Stage(session, *machine, place=place, prefix=f"t{secrets.token_hex(3)}-").build(3)
    yield made
    await made.clear()
