"""The pods that wait, as `kurm status` shows them."""

import io
from typing import Any

import msgspec

from kurm.cli.text import console
from kurm.cli.waiting import SHOWN, Waiting, show, waiting
from kurm.scheduler.objects import Pod


def pod(name: str, *, made: str = "2026-01-01T00:00:00Z", said: tuple[str, str] | None = None, **more: Any) -> Pod:
    """Return a pod of the namespace tenant that is not bound unless it is told otherwise."""
    condition = {"type": "PodScheduled", "status": "False"} | dict(zip(("reason", "message"), said or (), strict=False))
    meta = {"name": name, "namespace": "tenant", "creationTimestamp": made} | more.pop("meta", {})
    status = {"phase": more.pop("phase", "Pending"), "conditions": [condition] if said else []}
    return msgspec.convert({"metadata": meta, "spec": more, "status": status}, Pod)


def told(found: list[Waiting]) -> list[str]:
    """Return the lines that are printed into a pipe."""
    out = io.StringIO()
    show(console(out), found)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_those_that_wait_with_their_reasons_the_oldest_first() -> None:
    """One that is bound, has ended or is being deleted does not wait; of one nobody has said why."""
    pods = [
        pod("young", made="2026-01-02T00:00:00Z"),
        pod("old", said=("Infeasible", "0 of 4 nodes")),
        pod("bound", nodeName="n1"),
        pod("ended", phase="Failed"),
        pod("leaving", meta={"deletionTimestamp": "2026-01-02T00:00:00Z"}),
    ]
    found = waiting("slurm/demo", pods)
    assert [(one.name, one.reason, one.message) for one in found] == [
        ("old", "Infeasible", "0 of 4 nodes"),
        ("young", "", ""),
    ]
    _, head, first, second = told(found)
    assert head.split() == ["WAITING", "POD", "CLUSTER", "FOR", "REASON", "MESSAGE"]
    assert first.split()[:2] + first.split()[3:] == ["tenant/old", "slurm/demo", "Infeasible", "0", "of", "4", "nodes"]
    assert second.endswith("not yet told")


def test_of_many_the_oldest_are_shown() -> None:
    """The rest is counted."""
    found = waiting("slurm/demo", [pod(f"p{number:03d}") for number in range(SHOWN + 5)])
    lines = told(found)
    assert (len(lines), lines[-1]) == (SHOWN + 3, "and 5 more")


def test_nothing_is_printed_if_none_waits() -> None:
    """No table without rows."""
    assert told([]) == []
