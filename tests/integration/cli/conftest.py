"""A story for each test, on the shared API server with the committed custom resources."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

import pytest

from integration.apiserver import ApiServer
from integration.cli.story import Story
from kurm.kube.errors import NotFound
from kurm.kube.resources import Object
from kurm.kube.session import Session
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS


@pytest.fixture
async def story(served: ApiServer, session: Session, place: str) -> AsyncIterator[Story]:
    """Begin a story; nothing is in it yet."""
    assert served.port
    async with asyncio.timeout(30):
        for resource in (SLURM_CLUSTERS.of(Object), NODE_SETS.of(Object)):
            while True:
                with contextlib.suppress(NotFound):
                    await session.list(resource, namespace=place)
                    break
                await asyncio.sleep(0.1)
    made = Story(session, place, f"c{secrets.token_hex(3)}-")
    yield made
    await made.clear()
