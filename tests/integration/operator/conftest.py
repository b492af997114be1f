"""An API server of the operator's own, because it is at home in all namespaces, and a stage for each test."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from integration.apiserver import ApiServer, namespace
from integration.operator.stage import Crew, Stage, furnish
from kurm.kube.session import Session

GOODBYE = 0.3


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """kube-apiserver, etcd and Kubernetes' controllers; every request is written down."""
    server = ApiServer(tmp_path_factory.mktemp("operator"), audited=True)
    with server.run():
        furnish(server)
        try:
            yield server
        finally:
            server._end("kube-controller-manager")


@pytest.fixture
async def stage(ground: ApiServer) -> AsyncIterator[Stage]:
    """Set the stage; no operator is on it yet."""
    async with Session(ground.config()) as session:
        place = await namespace(session, f"t{secrets.token_hex(3)}")
        crew = Crew(session, place)
        made = Stage(ground, session, place, crew)
        playing = asyncio.create_task(crew.run())
        try:
            yield made
        finally:
            await made.clear()
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing
    # TLS takes leave in its own time, and a loop that is closed before that has unclosed sockets.
    await asyncio.sleep(GOODBYE)
