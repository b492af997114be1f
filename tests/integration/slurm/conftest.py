"""A real slurmctld and slurmrestd for a whole session of tests, and a session with them for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from integration.slurm.lab import Lab
from kurm.slurm.session import Session
from kurm.slurm.token import Tokens


@pytest.fixture(scope="session")
def slurm_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One cluster for tests that leave it as it was; each makes nodes of names of its own."""
    with Lab(tmp_path_factory.mktemp("slurm")).run() as lab:
        yield lab


@pytest.fixture
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a cluster for one test alone, which may break it."""
    with Lab(tmp_path_factory.mktemp("slurm")).run() as lab:
        yield lab


def opened(lab: Lab) -> Session:
    """Return a session as SlurmUser, whom slurmctld knows by name."""
    return Session(f"unix:{lab.socket}", Tokens(lambda: lab.key, "slurm"))


@pytest.fixture
async def slurm(slurm_lab: Lab) -> AsyncIterator[Session]:
    """Open a session with the shared cluster."""
    async with opened(slurm_lab) as session:
        yield session
