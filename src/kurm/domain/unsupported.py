"""What pods may ask of Kubernetes' own scheduler and not of ours, and what is told then. Pure.

docs/placing.md has the same table; a test keeps them equal.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kurm.domain.podspec import DO_NOT_SCHEDULE, PodAffinity, PodSpec


@dataclass(frozen=True)
class Unsupported:
    """One thing that cannot be had."""

    field: str
    """Where it stands in the pod."""
    says: str
    """What can be done instead, as the rest of a sentence."""
    found: Callable[[PodSpec], bool]


def _requires(affinity: PodAffinity | None) -> bool:
    return affinity is not None and bool(affinity.required_during_scheduling_ignored_during_execution)


TABLE: tuple[Unsupported, ...] = (
    Unsupported(
        "spec.resourceClaims",
        "ask for devices as an extended resource that a NodeSet names in spec.slurm.gres, as nvidia.com/gpu",
        lambda spec: bool(spec.resource_claims),
    ),
    Unsupported(
        "spec.schedulingGroup",
        "say which pods start together by the annotations slurm.kurm.dev/gang and slurm.kurm.dev/gang-size",
        lambda spec: spec.scheduling_group is not None,
    ),
    Unsupported(
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "prefer it (preferredDuringScheduling...), choose nodes by their labels, or make the pods a gang",
        lambda spec: spec.affinity is not None and _requires(spec.affinity.pod_affinity),
    ),
    Unsupported(
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "prefer it (preferredDuringScheduling...), or ask for whole nodes by slurm.kurm.dev/exclusive: true",
        lambda spec: spec.affinity is not None and _requires(spec.affinity.pod_anti_affinity),
    ),
    Unsupported(
        "spec.topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule",
        "say ScheduleAnyway, or choose nodes by their labels",
        lambda spec: any(one.when_unsatisfiable == DO_NOT_SCHEDULE for one in spec.topology_spread_constraints),
    ),
)
HUGEPAGES = "hugepages-"
"""What the names of such resources begin with; Slurm does not count them."""


def unsupported(spec: PodSpec) -> str:
    """Return a sentence about the first thing that cannot be had; empty if there is none."""
    found = next((one for one in TABLE if one.found(spec)), None)
    return f"{found.field} is not supported by Slurm's queue: {found.says}" if found else ""
