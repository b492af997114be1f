"""A checker that finds nothing proves nothing: a fault of each kind, planted in the real scheduler, is found."""

import dataclasses
from pathlib import Path

import pytest

from chaos.checker import check
from chaos.history import ordered
from chaos.report import report
from chaos.run import Plan, run

PLANTED = Path(__file__).parent / "planted.py"
SOON_FULL = Plan(kills=0, seed=6, warm=15.0, mean=0.1)
"""So much that the nodes are soon full: what is let go is taken by the next in the queue."""
ROOM = Plan(kills=3, seed=7, faults=("forgets",))
"""Only what slurmctld has forgotten is to be pinned, and it forgets what it has just granted: there must be room. With
this seed the scheduler hears of the first and of the last grant before slurmctld dies, and binds."""
NODES = Plan(kills=4, seed=1, faults=("lose_node",))
PLANS = {"P1": ROOM, "P1-node": NODES, "P2": SOON_FULL, "P3": SOON_FULL, "P4": SOON_FULL}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", PLANS)
async def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    """The promise that it breaks is named, and the slice shows whom it concerns."""
    plan = dataclasses.replace(PLANS[fault], scheduler=(str(PLANTED), fault))
    promise, _, _ = fault.partition("-")
    events = ordered((await run(tmp_path, plan)).events)
    breaches = [breach for breach in check(events) if breach.promise == promise]
    assert breaches
    assert len(report(breaches[0], events).splitlines()) > 3
