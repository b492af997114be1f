"""Why a pod is not ready, in Kubernetes' own words, and whether it is stuck. Pure."""

from collections.abc import Iterable

from kurm.operator.conditions import Trouble
from kurm.operator.objects import OVER, ContainerStatus, Pod, Workload

_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
_STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
    }
)
"""Reasons for which a container waits, and a person is needed (pkg/kubelet/images, pkg/kubelet/kuberuntime)."""
NO_POD = "NoPod"


def trouble(pods: Iterable[Pod], workload: Workload | None) -> Trouble:
    """Return why none of the pods of a component is ready, or not enough of them: the newest pod's own trouble."""
    found = [of_pod(pod) for pod in pods if not pod.ready]
    told = next((one for one in found if one.stuck), found[0] if found else None)
    if told is not None:
        return told
    for one in workload.status.conditions if workload else ():
        if one.type == "ReplicaFailure" and one.status == "True":
            return Trouble(one.reason or NO_POD, one.message)
    return Trouble(NO_POD, "there is no pod yet", stuck=False)


def of_pod(pod: Pod) -> Trouble:
    """Return why a pod is not ready."""
    name, status = pod.metadata.name, pod.status
    if pod.going:
        return Trouble("Ending", f"pod {name} is about to end", stuck=False)
    if status.phase in OVER:
        why = status.message or status.reason or "its containers have ended"
        return Trouble(status.reason or status.phase, f"pod {name}: {why}", stuck=False)
    for container in (*status.init_container_statuses, *status.container_statuses):
        if found := _of_container(name, container):
            return found
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Trouble(scheduled.reason or "Unschedulable", f"pod {name}: {scheduled.message}", stuck=False)
    return Trouble("Starting", f"pod {name} is not ready yet", stuck=False)


def _of_container(pod: str, container: ContainerStatus) -> Trouble | None:
    waiting, before = container.state.waiting, container.last_state.terminated
    ended = container.state.terminated
    where = f"pod {pod}, container {container.name}"
    if waiting is not None and waiting.reason not in _ON_ITS_WAY:
        last = f" (it ended with status {before.exit_code})" if before is not None else ""
        why = f"{where}: {waiting.reason}: {waiting.message}{last}" if waiting.message else f"{where}: {waiting.reason}"
        return Trouble(waiting.reason, why, stuck=waiting.reason in _STUCK)
    if ended is not None and ended.exit_code != 0:
        why = f"{where} ended with status {ended.exit_code}: {ended.message or ended.reason}"
        return Trouble(ended.reason or "Ended", why, stuck=False)
    return None
