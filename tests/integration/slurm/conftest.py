"""A real slurmctld and slurmrestd for a whole session of tests, and a session with them for each test."""

from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from integration.slurm.lab import COMPLAINING, Lab
from kurm.slurm.session import Session
from kurm.slurm.token import Tokens


@pytest.fixture(scope="session")
def slurm_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One cluster for tests that leave it as it was; each makes nodes of names of its own."""
    with Lab(tmp_path_factory.mktemp("slurm"), rest_args=COMPLAINING).run() as lab:
        yield lab


@pytest.fixture
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a cluster for one test alone, which may break it."""
    with Lab(tmp_path_factory.mktemp("slurm"), rest_args=COMPLAINING).run() as lab:
        yield lab


@pytest.fixture(autouse=True)
def _fields_are_known() -> Iterator[None]:
    """Have nothing sent here that slurmrestd does not know."""
    with capture_logs() as logs:
        yield
    assert unknown_fields(logs) == []


def unknown_fields(logs: Iterable[MutableMapping[str, Any]]) -> list[str]:
    """Return what slurmrestd says of fields that it leaves out, or takes for something else."""
    said = [entry["warning"] for entry in logs if entry["event"] == "slurmrestd warns"]
    return [warning for warning in said if "field" in warning or "OpenAPI" in warning]


def opened(lab: Lab) -> Session:
    """Return a session as SlurmUser, whom slurmctld knows by name."""
    return Session(f"unix:{lab.socket}", Tokens(lambda: lab.key, "slurm"))


@pytest.fixture
async def slurm(slurm_lab: Lab) -> AsyncIterator[Session]:
    """Open a session with the shared cluster."""
    async with opened(slurm_lab) as session:
        yield session
