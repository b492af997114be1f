"""The condition `kurm.dev/SlurmDrain` of a Kubernetes node: whether Slurm gives it no jobs, and why. Pure.

For whoever looks after nodes and knows nothing of Slurm: a GitOps or node-repair tool, an autoscaler, a person.
"""

from datetime import datetime
from typing import Any

from kurm.domain.signals import SLURM_DRAIN, SLURM_READY, SLURM_REASON
from kurm.operator.conditions import rfc3339
from kurm.operator.objects import Node, Pod
from kurm.operator.pods import Told

NO_POD = "NoPod"


def untold(node: Node, pod: Pod | None) -> Told | None:
    """Return what the condition is to say, None if it says so already, or if there is nothing new to say.

    A node that was never out of service has none: a claim of a thousand nodes would cost a thousand writes that tell
    nobody anything. While its pod is replaced it says what it said.
    """
    held = node.condition(SLURM_DRAIN)
    wanted = _said(pod)
    if held is None and wanted is not None and not wanted.status:
        return None
    if wanted is None:
        if pod is not None or held is None or held.status == "True":
            return None
        wanted = Told(status=True, reason=NO_POD, message="no slurmd runs there")
    known = Told(held.status == "True", held.reason, held.message) if held is not None else None
    return None if wanted == known else wanted


def _said(pod: Pod | None) -> Told | None:
    said = pod.condition(SLURM_READY) if pod is not None and not pod.going else None
    if pod is None or said is None:
        return None
    reason = pod.metadata.annotations.get(SLURM_REASON, "") or said.message
    return Told(said.status != "True", said.reason, reason)


def manifest(node: Node, told: Told | None, now: datetime) -> dict[str, Any]:
    """Return the status that is applied to a node; None takes the condition away."""
    if told is None:
        return {"conditions": []}
    held = node.condition(SLURM_DRAIN)
    status = str(told.status)
    since = held.last_transition_time if held is not None and held.status == status else None
    return {
        "conditions": [
            {
                "type": SLURM_DRAIN,
                "status": status,
                "reason": told.reason,
                "message": told.message,
                "lastHeartbeatTime": rfc3339(now),
                "lastTransitionTime": rfc3339(since or now),
            }
        ]
    }
