"""What a slurmd pod is told of its Slurm node, from both sides as they are. Pure.

What is told is acted upon: the operator lets a pod go that is told to be drained. So it is never told of a node whose
drain is about to be lifted.
"""

from dataclasses import dataclass

from kurm.domain.agreement import lifts, overridden, standing
from kurm.domain.signals import PROTECTED
from kurm.domain.world import Claim, Pod, Record, mark

RESUMING = "Resuming"
"""The reason while a drain is about to be lifted: nobody may evict the pod any more before jobs come."""


@dataclass(frozen=True)
class Said:
    """What a pod's conditions are to say of its Slurm node."""

    ready: bool
    """Registered, in service, and this Kubernetes node's record."""
    drained: bool
    """It takes no jobs and has none: its pod may go. False as long as anything is unknown."""
    reason: str
    """One word."""
    message: str
    state: str = ""
    """`Record.state`; empty if there is no record of this node."""
    slurm_reason: str = ""
    """Slurm's reason for it."""
    allocated: bool | None = None
    """Whether a job holds a part of it; None if that is not known."""


def say(claim: Claim | None, record: Record | None, pod: Pod | None = None) -> Said:
    """Return what to say of the Slurm node behind a pod, from its claim and record (None if there is none)."""
    if record is None:
        why = claim.unfit if claim is not None else ""
        message = why or "Slurm has no record of this node yet"
        return Said(ready=False, drained=False, reason="NoRecord", message=message)
    if claim is None or record.extra != mark(claim.uid):
        return Said(
            ready=False, drained=False, reason="NotOurs", message="Slurm's record is of another node of that name"
        )
    drained = record.draining and not record.busy and not lifts(claim, pod, record)
    ready = record.registered and not record.draining and not record.down
    reason, message = _in_words(claim, record, pod)
    return Said(ready, drained, reason, message, record.state, record.reason, record.busy)


def _in_words(claim: Claim, record: Record, pod: Pod | None) -> tuple[str, str]:
    if lifts(claim, pod, record):
        awaited = pod is not None and not pod.protected
        return RESUMING, f"it takes jobs again when its pod bears the label {PROTECTED}" if awaited else ""
    if record.down:
        return "Down", record.reason or "Slurm holds it for down"
    if record.draining:
        return "Draining" if record.busy else "Drained", record.reason
    if not record.registered:
        return "NotRegistered", "slurmd has not registered"
    ignored = overridden(record)
    against = [cause.words for cause in standing(claim, pod, record) if cause.key in ignored]
    if against:
        return "Overridden", f"it was resumed in Slurm although: {'; '.join(against)}"
    return "InService", claim.outdated
