"""What can be done for an allocation, as small values: `allocation.decide` says what, a scheduler does it."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Allocate:
    """Ask for a job that starts now."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask for a job that waits in the queue."""


@dataclass(frozen=True, slots=True)
class Amend:
    """Change a queued job to what would be asked now: which nodes it excludes, how much of their GRES it takes."""

    job: int


@dataclass(frozen=True, slots=True)
class Look:
    """Read how many slots of a running job are on which node."""

    job: int


@dataclass(frozen=True, slots=True)
class LookBack:
    """Read how a job has ended."""

    job: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have the volumes made for which a pod waits, where a job gives it a node."""

    pod: str
    job: int
    node: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a pod to a node, by a slot of a job."""

    pod: str
    job: int
    node: str
    slot: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Ask for so many slots on exactly this node, for pods that are bound there."""

    node: str
    slots: int
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job. `avoid`: the nodes on which it could not be used."""

    job: int
    why: str
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Doom:
    """Remember that a job is to end when its pods are gone, and not to be used any more."""

    job: int


@dataclass(frozen=True, slots=True)
class EndPod:
    """Tell a pod why it ends (DisruptionTarget), and delete it. `within`: seconds at most, None for its own grace."""

    pod: str
    reason: str
    message: str
    within: float | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the pods that wait why they do (PodScheduled=False)."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """Say of a pod what a person has to look at: an event's reason and message."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after so many seconds; nothing else will say that it is time."""

    seconds: float
    reason: str


Instruction: TypeAlias = (
    Allocate | Submit | Amend | Look | LookBack | Prepare | Bind | Pin | Cancel | Doom | EndPod | Tell | Report | Wait
)
