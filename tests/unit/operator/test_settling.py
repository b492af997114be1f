"""A thousand changes become one configuration, and a node that never comes to rest holds up no other for long."""

import asyncio

import pytest

from kurm.kube.resources import Key
from kurm.operator.settling import MOST, QUIET, Settling

pytestmark = pytest.mark.looptime
DEMO, OTHER = Key("slurm", "demo"), Key("slurm", "other")


async def _until_settled(settling: Settling) -> float:
    """Wait as the controller does, with Again(left), and render."""
    began = asyncio.get_running_loop().time()
    while left := settling.left(DEMO):  # noqa: ASYNC110 - time passes, and nothing else happens
        await asyncio.sleep(left)
    settling.forget(DEMO)
    return asyncio.get_running_loop().time() - began


async def test_it_waits_until_it_is_quiet() -> None:
    """From the last change on; another cluster does not wait for it."""
    settling = Settling()
    assert (settling.left(DEMO), settling.noted(DEMO)) == (0, False)
    for _ in range(10):
        settling.changed(DEMO)
        await asyncio.sleep(0.1)
    assert (settling.left(OTHER), settling.noted(DEMO)) == (0, True)
    assert await _until_settled(settling) == pytest.approx(QUIET - 0.1)
    settling.changed(DEMO)
    assert await _until_settled(settling) == pytest.approx(QUIET)
    assert not settling.noted(DEMO)


async def test_it_does_not_wait_for_ever() -> None:
    """A label that changes every second."""
    settling, began = Settling(), asyncio.get_running_loop().time()
    settling.changed(DEMO)
    while settling.left(DEMO):
        await asyncio.sleep(1)
        settling.changed(DEMO)
    assert asyncio.get_running_loop().time() - began == pytest.approx(MOST)
    assert settling.noted(DEMO)  # it is still to be rendered
