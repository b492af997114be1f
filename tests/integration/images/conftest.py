"""A machine for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.images.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine with a configuration `h1` and nothing running."""
    with Machine(tmp_path / "machine").run() as machine:
        machine.project("h1", machine.extended())
        yield machine
