"""A real API server for the whole session of tests, and a namespace for each test."""

import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"integration.{part}.stage" for part in ("operator", "scheduler", "syncer")))

from integration.apiserver import ApiServer, binaries, namespace  # noqa: E402 - after what the stages are read with
from kurm.kube.session import Session  # noqa: E402

CRDS = Path(__file__).resolve().parents[2] / "charts/kurm/files/crds"


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """kube-apiserver and etcd, RBAC on; ConfigMaps are watched in etcd itself."""
    with ApiServer(tmp_path_factory.mktemp("apiserver"), uncached=("configmaps",)).run() as server:
        yield server


@pytest.fixture(scope="session")
def served(api_server: ApiServer) -> ApiServer:
    """An API server that serves both resources, as the committed files have them."""
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(api_server.kubeconfig())]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", str(CRDS)], check=True, timeout=60)
    return api_server


@pytest.fixture
async def session(api_server: ApiServer) -> AsyncIterator[Session]:
    """Open a session as an administrator."""
    async with Session(api_server.config()) as opened:
        yield opened


@pytest.fixture
async def place(session: Session) -> str:
    """Make a namespace that nobody else uses."""
    return await namespace(session, f"test-{secrets.token_hex(4)}")
