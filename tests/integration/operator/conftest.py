"""An API server of the operator's own, because it is at home in all namespaces, and a stage for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from integration.apiserver import ApiServer
from integration.operator.stage import Stage, furnish, on_stage


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
    async with on_stage(ground) as made:
        yield made
