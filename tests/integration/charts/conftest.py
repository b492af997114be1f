"""An API server of the charts' own: what Helm installs there is Helm's, and nobody else has put it there before."""

from collections.abc import Iterator

import pytest

from integration.apiserver import ApiServer


class Privileged(ApiServer):
    """One that takes privileged pods, as every real one does: slurmd is one."""

    def _start(self, name: str, *arguments: str) -> None:
        more = ("--allow-privileged=true",) if name == "kube-apiserver" else ()
        super()._start(name, *arguments, *more)


@pytest.fixture(scope="session")
def charts_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """kube-apiserver and etcd, RBAC on."""
    with Privileged(tmp_path_factory.mktemp("charts")).run() as server:
        yield server
