"""Why a compute node shall take no jobs as Kubernetes has it, and what is remembered about that in Slurm. Pure.

A cause stands in the reason of Slurm's drain. Of several the strongest does: a cause stands before what it brings
about. A person cordons a node and reboots it: it is not ready then, and its pod goes. What `sinfo -R` is to show of all
that is the person's words.

The memory tells "not drained yet" from "drained, and resumed by somebody else". It stands in the comment of Slurm's
node record, because it has to be made by the call that drains: whoever is killed between two calls would take its own
drain for one that an administrator has lifted. It goes where the drain goes: if Slurm loses one it loses the other.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.spec import GROUP

OURS = "kurm: "
"""How the reason of a drain of ours begins."""
REASON = f"{GROUP}/reason"
"""Annotation of a Node: why it is cordoned, in words."""

CONDITION_TYPE = r"^[A-Za-z0-9][A-Za-z0-9_./-]*$"
"""What a condition may be called: as Kubernetes has it, and without what would break the line of a `Memory`."""
CORDONED, RELEASED, CONDITION, DEAD = "cordoned", "released", "condition", "dead"
NOT_READY, POD = "not-ready", "pod"
_STRENGTH = (CORDONED, RELEASED, CONDITION, DEAD, NOT_READY, POD)
LONGEST = 200
"""Letters of a reason's words: the kubelet's messages can be pages, and `sinfo -R` shows one line."""


@dataclass(frozen=True)
class Cause:
    """Why a node shall take no jobs."""

    key: str
    """Which one: it stays the same one while its words change."""
    words: str
    head: str = ""
    """What its words begin with, if the rest is a machine's: that is not written again each time it changes."""

    @property
    def reason(self) -> str:
        """The reason of Slurm's drain."""
        return f"{OURS}{self.words}"

    def stands_in(self, reason: str) -> bool:
        """Whether a drain says it already."""
        begins = f"{OURS}{self.head}"
        return reason == self.reason or (self.head != "" and (reason == begins or reason.startswith(f"{begins}: ")))


def strongest_first(causes: Iterable[Cause]) -> list[Cause]:
    """Return them in the order of their strength."""
    return sorted(causes, key=lambda cause: (_STRENGTH.index(cause.key.partition("/")[0]), cause.key))


def released(words: str) -> Cause:
    """Return the cause that the slurmd pod shall go, in the operator's words."""
    return Cause(RELEASED, _line(words))


def of_pod(words: str) -> Cause:
    """Return the cause that slurmd's pod is not there, or not as it should be."""
    return Cause(POD, f"slurmd's pod {words}")


@dataclass(frozen=True)
class Told:
    """A condition of a Kubernetes node."""

    status: str
    message: str = ""


def of_node(
    *,
    cordoned: bool,
    annotations: Mapping[str, str],
    conditions: Mapping[str, Told],
    chosen: Iterable[str] = (),
    dead: str = "",
) -> tuple[Cause, ...]:
    """Return what a Kubernetes node gives as causes. `chosen`: types of conditions that are one while they are True.

    `dead`: why Kubernetes holds it for dead, in words. A node whose kubelet never said whether it is ready gives no
    cause for that.
    """
    found = []
    if cordoned:
        found.append(Cause(CORDONED, _with("cordoned", annotations.get(REASON, ""))))
    found += [
        Cause(f"{CONDITION}/{kind}", _with(kind, conditions[kind].message), head=kind)
        for kind in sorted({*chosen} - {"Ready"})
        if kind in conditions and conditions[kind].status == "True"
    ]
    if dead:
        found.append(Cause(DEAD, _with("node dead", dead), head="node dead"))
    ready = conditions.get("Ready")
    if ready is not None and ready.status != "True":
        found.append(Cause(NOT_READY, _with("node not ready", ready.message), head="node not ready"))
    return tuple(found)


def _with(head: str, words: str) -> str:
    words = _line(words)
    return f"{head}: {words}" if words else head


def _line(words: str) -> str:
    return " ".join(words.split())[:LONGEST].rstrip()


_MEMORY = re.compile(r"\s*\[kurm: (?P<words>[^\]]*)\]\s*$")


@dataclass(frozen=True)
class Memory:
    """What the comment of a record remembers, behind whatever an administrator has written there."""

    drained_for: str = ""
    """Key of the cause that stands in our drain, or stood in it when somebody else lifted it."""
    overridden: frozenset[str] = frozenset()
    """Keys of causes against which an administrator has resumed the node."""

    @staticmethod
    def of(comment: str) -> "Memory":
        """Return the memory in a comment; an empty one if there is none, or none that can be read."""
        found = _MEMORY.search(comment)
        pairs = dict(pair.split("=", 1) for pair in (found["words"] if found else "").split() if "=" in pair)
        return Memory(pairs.get("drained", ""), frozenset(filter(None, pairs.get("overridden", "").split(","))))

    def only(self, keys: Iterable[str]) -> "Memory":
        """Return what of it is about these causes: one that is gone is forgotten, so that it counts anew."""
        kept = {*keys}
        return Memory(self.drained_for if self.drained_for in kept else "", self.overridden & kept)

    def beside(self, comment: str) -> str:
        """Return a comment with this memory in place of the one that it has; an administrator's words stay."""
        pairs = {"drained": self.drained_for, "overridden": ",".join(sorted(self.overridden))}
        words = " ".join(f"{name}={value}" for name, value in pairs.items() if value)
        return " ".join(filter(None, (_MEMORY.sub("", comment), f"[kurm: {words}]" if words else "")))
