"""What becomes of a NodeSet's nodes and their pods: node by node, from how each stands now. Pure.

`plan(slots)` knows no history. It may be asked again at any moment and from any state; what is done is not asked for
again. The claim comes first and is given up last, a pod with an unknown number of jobs is never deleted, and a pod
whose node is to go is deleted only when Slurm has answered this very release. A pod is given to the eviction API only
while its node is cordoned and Slurm says that nothing runs there; which outdated ones are replaced is
`kurm.domain.rollout`'s.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kurm.domain.nodeset import UpdateStrategy
from kurm.domain.rollout import Member, renew

ROLLING = UpdateStrategy()
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
    up: bool = True
    """slurmd in it answers, says the kubelet."""
    made: float = 0.0
    """When it was made, in seconds since the epoch."""
    outdated: bool = False
    """It would be made otherwise now."""
    protected: bool = True
    """The eviction API refuses it."""
    proven: bool = False
    """Slurm gives its node no jobs and has none there, for whatever reason, and can be asked."""
    requeue_at: str = ""
    """When jobs that still run are requeued, as it was told."""
    requeue_due: str = ""
    """The same, as the NodeSet wants it now."""
    over: bool = False
    """Its containers have ended for good, or its node is gone: nothing runs in it."""
    going: bool = False
    """It was told to end, or is not ours to touch."""
    orphaned: bool = False
    """It was made for a SlurmCluster that is gone: no Slurm knows of it."""

    @property
    def doomed(self) -> bool:
        """Whether it is deleted whatever Slurm says, or is already."""
        return self.over or self.going or self.orphaned


@dataclass(frozen=True)
class Told:
    """What the condition of a Kubernetes node says: whether Slurm gives it no jobs, and why."""

    status: bool
    reason: str
    message: str


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
    cordoned: bool = False
    """Its Kubernetes node takes no new pods."""
    well: bool = True
    """Its Kubernetes node is Ready."""
    untold: Told | None = None
    """What its condition is to say, if it says something else now."""


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
class Requeue:
    """Tell a pod that is to go when jobs that still run are requeued; empty for never."""

    node: str
    at: str


@dataclass(frozen=True)
class Protect:
    """Let the eviction API refuse the pod."""

    node: str


@dataclass(frozen=True)
class Expose:
    """Let the eviction API have the pod, if it is still what was looked at."""

    node: str


@dataclass(frozen=True)
class Tell:
    """Write the condition of the Kubernetes node."""

    node: str
    told: Told


@dataclass(frozen=True)
class Delete:
    """Delete the pod."""

    node: str
    why: str


@dataclass(frozen=True)
class GiveUp:
    """Give up the claim on a node that has no pod."""

    node: str


Instruction: TypeAlias = Claim | Create | Release | Stay | Requeue | Protect | Expose | Tell | Delete | GiveUp


def plan(
    slots: Iterable[Slot], *, can_make: bool, slurm_gone: bool, strategy: UpdateStrategy = ROLLING
) -> list[Instruction]:
    """Return what to do next, in the order of the nodes' names.

    `can_make`: it is known what a pod is to be. `slurm_gone`: the SlurmCluster is deleted, so there is nobody who could
    answer a release, and no queue whose jobs could be waited for.
    """
    ordered = sorted(slots, key=lambda slot: slot.node)
    renewed = renew(members(ordered), strategy) if can_make else frozenset()
    found: list[Instruction] = []
    for slot in ordered:
        if slot.wanted:
            steps = [*_wanted(slot, can_make=can_make, renewed=slot.node in renewed)]
        else:
            steps = [*_unwanted(slot, slurm_gone=slurm_gone)]
        if not any(isinstance(step, Delete) for step in steps):
            # First, because a pod is exposed only as it was looked at, and each write makes it another version.
            steps = [*_guarded(slot), *steps]
        found += steps
        if slot.untold is not None and slot.claimed and not any(isinstance(step, GiveUp) for step in steps):
            found.append(Tell(slot.node, slot.untold))
    return found


def members(slots: Iterable[Slot]) -> list[Member]:
    """Return the nodes that are wanted as a roll-out counts them."""
    return [_member(slot) for slot in slots if slot.wanted]


def _member(slot: Slot) -> Member:
    pod = slot.pod
    if pod is None or pod.doomed:
        return Member(slot.node, serving=False, absent=True)
    return Member(
        node=slot.node,
        outdated=pod.outdated,
        serving=pod.ready and not pod.release,
        told=bool(pod.release),
        broken=not pod.up and slot.well,
        absent=not pod.up and not pod.outdated,
        made=pod.made,
    )


def _guarded(slot: Slot) -> Iterator[Instruction]:
    pod = slot.pod
    if pod is None or pod.doomed:
        return
    exposed = slot.cordoned and pod.proven
    if exposed and pod.protected:
        yield Expose(slot.node)
    elif not exposed and not pod.protected:
        yield Protect(slot.node)


def _wanted(slot: Slot, *, can_make: bool, renewed: bool) -> Iterator[Instruction]:
    if (not slot.claimed and can_make) or (slot.claimed and not slot.whole):
        yield Claim(slot.node)
    pod = slot.pod
    if pod is None:
        if can_make and not slot.cordoned:
            yield Create(slot.node)
    elif pod.doomed:
        yield from _doomed(slot.node, pod)
    elif pod.release and pod.answered:
        # Also if it is wanted again by now: the answer says that it may go at this moment, and a release that was
        # taken back and told again could not tell whether its drain still holds.
        yield Delete(slot.node, pod.release)
    elif renewed and not pod.release:
        yield Release(slot.node, OUTDATED)
    elif pod.release and not renewed and can_make:
        yield Stay(slot.node)
    elif pod.release and pod.requeue_at != pod.requeue_due:
        yield Requeue(slot.node, pod.requeue_due)


def _doomed(node: str, pod: Pod) -> Iterator[Instruction]:
    if not pod.going:
        yield Delete(node, "it has ended" if pod.over else "its SlurmCluster is gone")


def _unwanted(slot: Slot, *, slurm_gone: bool) -> Iterator[Instruction]:
    pod = slot.pod
    if pod is None:
        if slot.claimed:
            yield GiveUp(slot.node)
    elif pod.doomed or slurm_gone:
        yield from _doomed(slot.node, pod)
    elif not pod.release:
        yield Release(slot.node, slot.reason)
    elif pod.answered:
        yield Delete(slot.node, pod.release)
    elif pod.requeue_at != pod.requeue_due:
        yield Requeue(slot.node, pod.requeue_due)
