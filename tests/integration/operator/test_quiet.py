"""What an operator costs when nothing happens: watches, and its Lease."""

import asyncio

import pytest

from integration.operator.stage import OPERATOR, Stage, until

QUIET_SECONDS = 20.0


@pytest.mark.timeout(120)
async def test_in_quiet_it_asks_for_nothing(stage: Stage) -> None:
    """With a cluster in service the API server's own audit log has only renewals of the Lease."""
    await stage.add_nodes(2)
    await stage.cluster()
    await stage.node_set()
    async with stage.operator():
        await until(stage.node_set_conditions, {"Ready": ("True", "Ready")})
        await until(stage.conditions, {"Available": ("True", "Answers"), "Ready": ("True", "Ready")})
        await asyncio.sleep(5.0)  # events are written in their own time
        before = len(stage.server.requests(OPERATOR))
        await asyncio.sleep(QUIET_SECONDS)
        asked = [(one["verb"], one["objectRef"]["resource"]) for one in stage.server.requests(OPERATOR)[before:]]
    # A renewal that came too late for its answer is read once more.
    assert {("patch", "leases")} == set(asked) - {("get", "leases")}
    assert asked.count(("get", "leases")) < asked.count(("patch", "leases"))
