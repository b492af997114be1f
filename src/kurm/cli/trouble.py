"""Why a pod is not ready, in one clause: from its status, and from the events where that does not tell. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from kurm.kube.resources import PODS, Condition, Narrow, Object, Resource

# Words of the kubelet's (pkg/kubelet/images, pkg/kubelet/kuberuntime) for what does not mend itself.
STUCK = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing", ""})


class Waiting(Narrow):
    """A container that does not run."""

    reason: str = ""
    message: str = ""


class Terminated(Narrow):
    """A container that has ended."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerState(Narrow):
    """One of both; neither while it runs."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class Container(Narrow):
    """How a container is."""

    name: str = ""
    image: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodSpec(Narrow):
    """Where a pod is."""

    node_name: str = ""


class PodStatus(Narrow):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[Container, ...] = ()
    container_statuses: tuple[Container, ...] = ()


class Pod(Object):
    """A pod, as a person who looks for trouble sees it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether the kubelet says so."""
        found = self.condition("Ready")
        return found is not None and found.status == "True"

    def condition(self, kind: str) -> Condition | None:
        """Return one of its conditions, None if it was never set."""
        return next((one for one in self.status.conditions if one.type == kind), None)


class Reference(Narrow):
    """Whom an event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Event(Object):
    """An event (core/v1), as far as it explains."""

    involved_object: Reference = Reference()
    type: str = ""
    reason: str = ""
    message: str | None = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def moment(self) -> str:
        """When it happened last, to be sorted by."""
        return str(self.last_timestamp or self.event_time or self.metadata.creation_timestamp or "")


SLURM_PODS = PODS.of(Pod)
EVENTS = Resource(Event, version="v1", kind="Event", plural="events")


class Trouble(NamedTuple):
    """Why a pod is not ready."""

    why: str
    stuck: bool = False
    """Whether it needs a person."""


def trouble(pod: Pod, warnings: Mapping[str, str] | None = None) -> Trouble | None:
    """Return why a pod is not ready; None if it is. `warnings`: the newest warning about each object, by its UID."""
    status, scheduled = pod.status, pod.condition("PodScheduled")
    if pod.metadata.deletion_timestamp:
        return Trouble("is ending")
    if pod.ready:
        return None
    if status.phase in {"Succeeded", "Failed"}:
        how = status.message or status.reason or "no reason is given"
        return Trouble(f"has ended ({status.phase}): {how}", stuck=True)
    if scheduled is not None and scheduled.status == "False":
        return Trouble(f"cannot be scheduled: {scheduled.message or scheduled.reason}", stuck=True)
    return _of_containers(pod, (warnings or {}).get(pod.metadata.uid, ""))


def _of_containers(pod: Pod, warning: str) -> Trouble:
    containers = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    found = [told for told in (_of_container(container) for container in containers) if told]
    if found:
        return next((one for one in found if one.stuck), found[0])
    if all(_runs(one) for one in pod.status.container_statuses) and containers:
        lacking = ", ".join(one.name for one in containers if not one.ready)
        return Trouble(f"runs and is not ready ({lacking})" + (f": {warning}" if warning else ""))
    return Trouble("is being started" + (f": {warning}" if warning else ""))


def newest(events: Iterable[Event]) -> dict[str, str]:
    """Return the words of the newest event about each object, by its UID."""
    ordered = sorted(events, key=lambda event: event.moment)
    return {event.involved_object.uid: f"{event.reason}: {event.message}" for event in ordered}


def _of_container(container: Container) -> Trouble | None:
    word, waiting, ended = _word(container), container.state.waiting, container.state.terminated
    if word in _PULL:
        why = (waiting.message if waiting else "") or word
        return Trouble(f"image {container.image} cannot be pulled: {why}", stuck=True)
    if word == "CrashLoopBackOff":
        last = container.last_state.terminated or Terminated()
        how = last.message or last.reason or "no reason is given"
        times = f"{container.restart_count} restarts"
        return Trouble(
            f"{container.name} ends again and again ({times}): exit status {last.exit_code}, {how}", stuck=True
        )
    if waiting is not None and word not in _ON_ITS_WAY:
        return Trouble(f"{container.name} waits: {word}: {waiting.message}".rstrip(": "), stuck=word in STUCK)
    if ended is not None and ended.exit_code:
        how = ended.message or ended.reason or "no reason is given"
        return Trouble(f"{container.name} has ended: exit status {ended.exit_code}, {how}")
    return None


def _word(container: Container) -> str:
    return container.state.waiting.reason if container.state.waiting else ""


def _runs(container: Container) -> bool:
    return container.state.waiting is None and container.state.terminated is None
