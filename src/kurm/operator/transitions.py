"""Events of our resources: one when a condition changes, none while it stays."""

from collections.abc import Iterable
from typing import TypeVar

from kurm.domain.spec import Condition
from kurm.kube.events import Recorder, Severity
from kurm.kube.resources import Object, Resource

T = TypeVar("T", bound=Object)

_QUIET = "Reconciling"
"""It comes and goes with every change, and says what Ready says."""
_GOOD = {"Available": "True", "Ready": "True", "Stalled": "False"}


def record(
    recorder: Recorder, resource: Resource[T], of: T, held: Iterable[Condition], wanted: Iterable[Condition]
) -> None:
    """Record an event for each condition whose status is another now; one that begins as bad is no change."""
    before = {one.type: one.status for one in held}
    for one in wanted:
        good = _GOOD.get(one.type) == one.status
        first = one.type not in before
        if one.type == _QUIET or before.get(one.type) == one.status or (first and not good and one.type != "Stalled"):
            continue
        note = f"{one.type} is {one.status}: {one.message or one.reason}"
        severity = Severity.NORMAL if good else Severity.WARNING
        recorder.record(resource, of, one.reason, note, action="Reconcile", severity=severity)
