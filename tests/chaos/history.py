"""What a run has recorded: events in the order of one clock, a JSON object on each line of a file.

All programs run on one machine, so `at` is that machine's monotonic clock for everything: seconds since the run began,
when it was seen. What was asked has a second time, `asked`: the truth that an answer holds is of a moment between both.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", omit_defaults=True):
    """Something seen at a time."""

    at: float


class PodSeen(Event, frozen=True, tag="pod"):
    """A version of a pod, as a watch of our own has seen it; the last one of a pod has `gone`."""

    uid: str
    namespace: str
    name: str
    version: str = ""
    gone: bool = False
    ours: bool = True
    """Whether it is the scheduler's to place."""
    owner: str = ""
    """Of its allocation (the pod's UID, its Indexed Job's, or `namespace/gang`)."""
    members: int = 1
    """Slots of that allocation."""
    cpus: int = 1
    memory: int = 0
    """MiB."""
    node: str = ""
    phase: str = ""
    terminating: bool = False
    job: str = ""
    """What the scheduler has written on it when it bound it."""
    slot: str = ""
    reason: str = ""
    """Of the condition PodScheduled while it is False."""
    message: str = ""

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in {"Succeeded", "Failed"}


class NodeSeen(Event, frozen=True, tag="node"):
    """A version of a Kubernetes node."""

    name: str
    ready: bool = True
    cordoned: bool = False
    gone: bool = False


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job holds of one node."""

    cpus: int = 0
    memory: int = 0
    """MiB."""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has not ended, as slurmctld tells it."""

    id: int
    sluid: str = ""
    """Slurm's own name for it, which no other job ever gets."""
    name: str = ""
    state: str = "RUNNING"
    reason: str = ""
    partition: str = ""
    priority: int = 0
    signature: str = ""
    cpus: int = 0
    """All that it asks for, or holds."""
    memory: int = 0
    slots: int = 1
    started: float = 0.0
    """By the same clock as all, in whole seconds of the wall clock; 0 while it waits."""
    excluded: tuple[str, ...] = ()
    """Nodes on which it must not start."""
    holds: dict[str, Share] = {}
    """By node; empty while it waits."""

    @property
    def owner(self) -> str:
        """Whose allocation it is; empty for any other job."""
        kind, _, rest = self.signature.partition(":")
        return rest.partition(":")[2] if kind == "kurm" else ""

    @property
    def holding(self) -> bool:
        """Whether it has its nodes."""
        return bool(self.holds)


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node as slurmctld tells it."""

    cpus: int
    memory: int
    taking: bool = True
    """Whether it takes jobs: it is neither drained nor down."""


class SlurmTold(Event, frozen=True, tag="slurm"):
    """All jobs and nodes at one moment between `asked` and `at`, from slurmctld itself."""

    asked: float
    jobs: tuple[Job, ...] = ()
    nodes: dict[str, Machine] = {}
    gate: str = ""
    """What slurmctld's init says of the partitions: closed, open or none."""


class SlurmSilent(Event, frozen=True, tag="silent"):
    """slurmctld was asked and did not answer."""

    asked: float
    why: str = ""


class Request(Event, frozen=True, tag="request"):
    """A request of the scheduler's and its answer; status 0: it has got none."""

    asked: float
    to: str
    """slurmrestd, init or kubernetes."""
    method: str
    path: str
    body: str = ""
    status: int = 0
    answer: str = ""


class Line(Event, frozen=True, tag="line"):
    """A line of a program's log that tells of jobs or of its own end."""

    who: str
    text: str


class Deed(Event, frozen=True, tag="deed"):
    """Somebody of the load does something; it is recorded before it is sent, and again when it is `done`.

    `kind`: create, delete, force (a deletion without grace), end (the containers end by themselves), gone (the kubelet
    confirms a deletion), scancel, batch, unbatch, cordon, uncordon, preempt.
    """

    kind: str
    subject: str
    """A pod's UID, or a node's or a job's name."""
    detail: str = ""
    done: bool = False


class Fault(Event, frozen=True, tag="fault"):
    """Something is being done to a program; it is `done`, where that takes a moment, and `over` when it is undone."""

    kind: str
    """kill, pause, cut, lose (the answer of one request), or down (a node, named by `detail`)."""
    target: str
    detail: str = ""
    done: bool = False
    """A program that is being killed may still answer."""
    over: bool = False


class Quiet(Event, frozen=True, tag="quiet"):
    """A quiet phase begins, or is `over`: no new deeds and no faults."""

    over: bool = False


AnyEvent: TypeAlias = PodSeen | NodeSeen | SlurmTold | SlurmSilent | Request | Line | Deed | Fault | Quiet
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(AnyEvent)


def read(path: Path) -> list[Event]:
    """Return a recorded history, in the order of its clock."""
    with path.open("rb") as lines:
        return ordered([_decoder.decode(line) for line in lines])


def ordered(events: Sequence[Event]) -> list[Event]:
    """Return events by their times; what was written in this order at one time stays so."""
    return sorted(events, key=lambda event: event.at)


class History:
    """Events as they are recorded, in memory and in a file."""

    def __init__(self, path: Path, clock: "Clock") -> None:
        self.path, self.clock = path, clock
        self.events: list[Event] = []
        self._file = path.open("ab", buffering=0)

    def add(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)
        self._file.write(_encoder.encode(event) + b"\n")

    def __iter__(self) -> Iterator[Event]:
        return iter(ordered(self.events))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Clock:
    """Seconds since the run began, by the monotonic clock, and the wall clock's times in them."""

    def __init__(self, monotonic: float, wall: float) -> None:
        self._monotonic, self._wall = monotonic, wall

    def of(self, monotonic: float) -> float:
        """Return a time of time.monotonic()."""
        return round(monotonic - self._monotonic, 4)

    def of_wall(self, wall: float) -> float:
        """Return a time of time.time(), as logs have it."""
        return round(wall - self._wall, 4)
