"""A fake API server and a session with it, on virtual time where a test says `looptime`."""

from collections.abc import AsyncIterator

import pytest

from kurm.kube.session import Session
from unit.kube.fake_api import FakeApi


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Serve a fake API server."""
    async with FakeApi().serve() as server:
        yield server


@pytest.fixture
async def session(api: FakeApi) -> AsyncIterator[Session]:
    """Open a session with it."""
    async with Session(api.config) as opened:
        yield opened
