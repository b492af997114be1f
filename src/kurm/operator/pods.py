"""What becomes of a NodeSet's nodes and their pods: node by node, from how each stands now. Pure.

`plan(slots)` knows no history. It may be asked again at any moment and from any state; what is done is not asked for
again. The claim comes first and is given up last, a pod with an unknown number of jobs is never deleted, and a pod
whose node is to go is deleted only when Slurm has answered this very release.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

MAX_UNAVAILABLE = 1
"""How many nodes in service may be away at the same time for the sake of a new template."""
OUTDATED = "a new pod is to take its place"


@dataclass(frozen=True)
class Pod:
    """The slurmd pod on a node."""

    release: str = ""
    """Why it shall go and since when, as it was told; empty if it shall stay."""
    answered: bool = False
    """Slurm gives its node no jobs and has none there: said in answer to this release."""
    ready: bool = False
    """slurmd is registered and in service."""
    outdated: bool = False
    """It would be made otherwise now."""
    over: bool = False
    """Its containers have ended for good, or its node is gone: nothing runs in it."""
    going: bool = False
    """It was told to end, or is not ours to touch."""
    orphaned: bool = False
    """It was made for a SlurmCluster that is gone: no Slurm knows of it."""


@dataclass(frozen=True)
class Slot:
    """A node that the NodeSet has, wants or has a pod on."""

    node: str
    claimed: bool
    """The node bears our claim."""
    whole: bool = True
    """The claim is as it should be."""
    wanted: bool = True
    reason: str = ""
    """Why it is not wanted, in words."""
    pod: Pod | None = None


@dataclass(frozen=True)
class Claim:
    """Make or mend the claim on a node."""

    node: str


@dataclass(frozen=True)
class Create:
    """Make the pod on a claimed node."""

    node: str


@dataclass(frozen=True)
class Release:
    """Tell a pod that it shall go: the node is drained then."""

    node: str
    reason: str


@dataclass(frozen=True)
class Stay:
    """Tell a pod that was to go that it shall stay."""

    node: str


@dataclass(frozen=True)
class Delete:
    """Delete the pod."""

    node: str
    why: str


@dataclass(frozen=True)
class GiveUp:
    """Give up the claim on a node that has no pod."""

    node: str


Instruction: TypeAlias = Claim | Create | Release | Stay | Delete | GiveUp


def plan(slots: Iterable[Slot], *, can_make: bool, slurm_gone: bool) -> list[Instruction]:
    """Return what to do next, in the order of the nodes' names.

    `can_make`: it is known what a pod is to be. `slurm_gone`: the SlurmCluster is deleted, so there is nobody who could
    answer a release, and no queue whose jobs could be waited for.
    """
    ordered = sorted(slots, key=lambda slot: slot.node)
    renewed = _to_renew(ordered) if can_make else set()
    found: list[Instruction] = []
    for slot in ordered:
        if slot.wanted:
            found += _wanted(slot, can_make=can_make, renew=slot.node in renewed)
        else:
            found += _unwanted(slot, slurm_gone=slurm_gone)
    return found


def _wanted(slot: Slot, *, can_make: bool, renew: bool) -> Iterator[Instruction]:
    if (not slot.claimed and can_make) or (slot.claimed and not slot.whole):
        yield Claim(slot.node)
    pod = slot.pod
    if pod is None:
        if can_make:
            yield Create(slot.node)
    elif pod.going:
        return
    elif pod.over:
        yield Delete(slot.node, "it has ended")
    elif pod.orphaned:
        yield Delete(slot.node, "its SlurmCluster is gone")
    elif pod.release and pod.answered:
        # Also if it is wanted again by now: the answer says that it may go at this moment, and a release that was
        # taken back and told again could not tell whether its drain still holds.
        yield Delete(slot.node, pod.release)
    elif renew and not pod.release:
        yield Release(slot.node, OUTDATED)
    elif pod.release and not pod.outdated:
        yield Stay(slot.node)


def _unwanted(slot: Slot, *, slurm_gone: bool) -> Iterator[Instruction]:
    pod = slot.pod
    if pod is None:
        if slot.claimed:
            yield GiveUp(slot.node)
    elif pod.going:
        return
    elif pod.over or pod.orphaned or slurm_gone:
        yield Delete(slot.node, "it has ended" if pod.over else "its SlurmCluster is gone")
    elif not pod.release:
        yield Release(slot.node, slot.reason)
    elif pod.answered:
        yield Delete(slot.node, pod.release)


def _to_renew(slots: Iterable[Slot]) -> set[str]:
    """Return the nodes whose outdated pods may go now: those out of service, and few of the others at a time."""
    wanted = [slot for slot in slots if slot.wanted]
    outdated = [slot for slot in wanted if slot.pod is not None and slot.pod.outdated and not slot.pod.release]
    away = [slot for slot in wanted if slot.pod is None or not slot.pod.ready or slot.pod.release]
    out = [slot.node for slot in outdated if slot in away]
    others = [slot.node for slot in outdated if slot not in away]
    return {*out, *others[: max(MAX_UNAVAILABLE - len(away), 0)]}
