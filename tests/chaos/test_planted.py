"""A checker that finds nothing proves nothing: a fault of each kind, planted in the real scheduler, is found."""

from pathlib import Path

import pytest

from chaos.checker import check
from chaos.history import ordered
from chaos.report import report
from chaos.run import Plan, run

PLANTED = Path(__file__).parent / "planted.py"
KILLS = {"P1": 3, "P2": 0, "P3": 0, "P4": 0}
"""Faults beside the planted one: only after slurmctld has forgotten is anything to be pinned."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("promise", KILLS)
async def test_a_planted_fault_is_found(promise: str, tmp_path: Path) -> None:
    """The promise that it breaks is named, and the slice shows whom it concerns."""
    faults, scheduler = ("forgets",), (str(PLANTED), promise)
    # So much that the nodes are soon full: what is let go is taken by the next in the queue.
    plan = Plan(kills=KILLS[promise], seed=6, warm=15.0, mean=0.1, faults=faults, scheduler=scheduler)
    events = ordered((await run(tmp_path, plan)).events)
    breaches = [breach for breach in check(events) if breach.promise == promise]
    assert breaches
    assert len(report(breaches[0], events).splitlines()) > 3
