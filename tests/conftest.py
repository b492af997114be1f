"""What all tests share."""

import asyncio
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from integration import ram

settings.register_profile("kurm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kurm")
"""Nothing is timed by a test: a host that is busy with others has taken 97 % of both cores for seconds."""
tempfile.tempdir = ram.folder()


@pytest.fixture(scope="session", autouse=True)
def _idle_loop() -> Iterator[None]:
    """Have an event loop to be found between tests: looptime's plugin asks for one, and leaks what it is given else."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
