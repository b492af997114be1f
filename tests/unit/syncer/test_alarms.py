"""What time alone changes is looked at when its time has come, on virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kurm.syncer.alarms import Alarms

pytestmark = pytest.mark.looptime
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clock:
    """Runs as the loop does, but for what it is put back."""

    def __init__(self) -> None:
        self.back = 0.0

    def __call__(self) -> datetime:
        """Return the time."""
        return NOON + timedelta(seconds=asyncio.get_running_loop().time() - self.back)


async def test_a_node_is_looked_at_when_its_time_has_come() -> None:
    """Once, at the moment that was set last; one that has passed is nobody's alarm."""
    clock, looked = Clock(), list[tuple[str, float]]()
    start = asyncio.get_running_loop().time()
    alarms = Alarms(lambda node: looked.append((node, round(asyncio.get_running_loop().time() - start))), clock)
    now = clock()
    alarms.set("n1", "dead", now + timedelta(seconds=60))
    alarms.set("n1", "dead", now + timedelta(seconds=90))
    alarms.set("n2", "dead", now + timedelta(seconds=30))
    alarms.set("n2", "requeue", now + timedelta(seconds=40))
    alarms.set("n2", "dead", None)
    alarms.set("n3", "dead", now - timedelta(seconds=1))
    await asyncio.sleep(200)
    assert looked == [("n2", 40), ("n1", 90)]


async def test_a_clock_that_is_put_back_is_waited_for() -> None:
    """The loop's clock says that it is time, and the wall's does not: nobody is dead before its time."""
    clock, looked = Clock(), list[str]()
    alarms = Alarms(looked.append, clock)
    alarms.set("n1", "dead", clock() + timedelta(seconds=60))
    clock.back = 10.0
    await asyncio.sleep(65)
    assert looked == []
    await asyncio.sleep(10)
    assert looked == ["n1"]
