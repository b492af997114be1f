"""What all of these tests share."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _idle_loop() -> Iterator[None]:
    """Have an event loop to be found between tests: looptime's plugin asks for one, and leaks what it is given else."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
