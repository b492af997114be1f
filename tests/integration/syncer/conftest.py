"""A stage for each test: a namespace of the shared API server, and a Slurm of its own."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from integration.apiserver import ApiServer
from integration.slurm.lab import Lab
from integration.syncer.stage import Stage
from kurm.kube.errors import NotFound
from kurm.kube.resources import Object
from kurm.kube.session import Session
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run a Slurm without nodes."""
    with Lab(tmp_path_factory.mktemp("slurm")).run() as running:
        yield running


@pytest.fixture
async def stage(served: ApiServer, session: Session, place: str, lab: Lab) -> AsyncIterator[Stage]:
    """Set the stage; no syncer is on it yet."""
    assert served.port
    async with asyncio.timeout(30):
        for resource in (SLURM_CLUSTERS.of(Object), NODE_SETS.of(Object)):
            while True:
                with contextlib.suppress(NotFound):
                    await session.list(resource, namespace=place)
                    break
                await asyncio.sleep(0.1)
    made = await Stage(session, lab, place).build()
    yield made
    await made.clear()


@pytest.fixture
def prefix() -> str:
    """Begin names of nodes that no other test has: they are in no namespace."""
    return f"t{secrets.token_hex(3)}-"
