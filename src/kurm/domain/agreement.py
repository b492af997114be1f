"""What Kubernetes and Slurm each say of the compute nodes, and what is to be done until they agree. Pure.

`decide(world)` is told both sides as they are now and answers with what to do next. It may be asked again at any moment
and from any state: what is done already is not asked for again, and what was cut off in the middle is taken up where it
stands. It knows no events and no history, and each node is decided by itself: a world of one node is a world.

Kubernetes says which nodes belong to the cluster: a claim is made before a record exists and given up after it has gone
out of use. Slurm says what runs on them. We act on a record only if it is ours: it bears our mark with the UID of a
Kubernetes node, or it has no `extra` and the feature of a NodeSet, which it gets as it is made. A drain is lifted only
if its reason is ours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kurm.domain.noderecord import NodeRecord, feature
from kurm.domain.spec import GROUP

NODE_SET = f"{GROUP}/nodeset"
"""Label of a Node: which NodeSet has claimed it, as `kurm.domain.selection.claim` says it; of a pod: its NodeSet."""
RELEASE = f"{GROUP}/release"
"""Annotation of a slurmd pod: why it shall go, and since when, so that no two releases are the same."""
SLURM_READY = f"{GROUP}/SlurmReady"
"""Condition of a slurmd pod: its node is registered and in service."""
SLURM_DRAINED = f"{GROUP}/SlurmDrained"
"""Condition of a slurmd pod: its node takes no jobs and has none. Its message is the release that it answers."""

OURS = "kurm: "
"""How the reason of a drain of ours begins."""
MARK = "kurm:"
"""How the `extra` of a record of ours begins; the UID of the Kubernetes node follows."""

GONE_FROM_POOL = f"{OURS}no longer in a NodeSet"
ANOTHER_NODE = f"{OURS}another node has its name"


def mark(uid: str) -> str:
    """Return the `extra` of the record of the Kubernetes node with that UID."""
    return f"{MARK}{uid}"


@dataclass(frozen=True)
class Claim:
    """A Kubernetes node that a NodeSet of the cluster has claimed."""

    uid: str
    """Of the Kubernetes node."""
    record: NodeRecord | None
    """What its record is to say; None if none can be made of this node, for the reason `unfit`."""
    unfit: str = ""


@dataclass(frozen=True)
class Pod:
    """The slurmd pod on a node."""

    uid: str
    release: str = ""
    """Why it shall go, in words; empty if it shall stay."""


@dataclass(frozen=True)
class Record:
    """A node record of Slurm's."""

    extra: str = ""
    draining: bool = False
    """It takes no new jobs."""
    reason: str = ""
    busy: bool = False
    """A job holds a part of it, or is just leaving it; also when nobody can tell."""
    registered: bool = False
    """A slurmd is attached to it, and answers."""
    down: bool = False
    features: tuple[str, ...] = ()
    weight: int = 1

    @property
    def ours(self) -> bool:
        """Whether we made it. The mark comes a moment after the record: until then its NodeSet's feature tells."""
        made = any(one.startswith(feature("")) for one in self.features)
        return self.extra.startswith(MARK) or (not self.extra and made)

    @property
    def drained_by_us(self) -> bool:
        """Whether the drain is ours to lift."""
        return self.draining and self.reason.startswith(OURS)


@dataclass(frozen=True)
class World:
    """Both sides, each node by its name, which is the same on both.

    Each side is whole or None: of a side that cannot be read (or was read in part) nothing is known, and what would
    follow from an absence is not done.
    """

    claims: Mapping[str, Claim] | None
    pods: Mapping[str, Pod] | None
    records: Mapping[str, Record] | None


@dataclass(frozen=True, order=True)
class Create:
    """Make the record of a claimed node, marked with its UID."""

    node: str


@dataclass(frozen=True, order=True)
class Mark:
    """Put the mark on a record that has none: making a record and marking it are two calls."""

    node: str
    uid: str


@dataclass(frozen=True, order=True)
class Describe:
    """Give a record the features and the weight that its NodeSet wants now. Its size stays, as slurmd's does."""

    node: str


@dataclass(frozen=True, order=True)
class Drain:
    """Let it take no new jobs, for a reason that begins with ours."""

    node: str
    reason: str


@dataclass(frozen=True, order=True)
class Undrain:
    """Lift a drain of ours."""

    node: str


@dataclass(frozen=True, order=True)
class Delete:
    """Delete a record of ours on which nothing runs."""

    node: str


Instruction: TypeAlias = Create | Mark | Describe | Drain | Undrain | Delete


def decide(world: World) -> list[Instruction]:
    """Return what to do next, by node; nothing when both sides agree, or when one of them is not known."""
    if world.claims is None or world.pods is None or world.records is None:
        return []
    instructions: list[Instruction] = []
    for node in sorted({*world.claims, *world.records}):
        claim, pod, record = world.claims.get(node), world.pods.get(node), world.records.get(node)
        instructions += _of_node(node, claim, pod, record)
    return instructions


def _of_node(node: str, claim: Claim | None, pod: Pod | None, record: Record | None) -> Iterator[Instruction]:
    if record is None:
        if claim is not None and claim.record is not None:
            # Also for a pod that shall go: without a record nobody can say that nothing runs there.
            yield Create(node)
    elif not record.ours:
        return
    elif claim is None:
        yield from _unclaimed(node, pod, record)
    elif record.extra == "":
        yield Mark(node, claim.uid)
    elif record.extra != mark(claim.uid):
        yield from _of_another(node, claim, pod, record)
    else:
        yield from _of_its_own(node, claim, pod, record)


def _of_its_own(node: str, claim: Claim, pod: Pod | None, record: Record) -> Iterator[Instruction]:
    if not _described(claim, record):
        yield Describe(node)
    if pod is not None and pod.release:
        if not record.draining:
            yield Drain(node, f"{OURS}{pod.release}")
    elif record.drained_by_us:
        yield Undrain(node)


def _described(claim: Claim, record: Record) -> bool:
    wanted = claim.record
    return wanted is None or (set(wanted.features), wanted.weight) == (set(record.features), record.weight)


def _unclaimed(node: str, pod: Pod | None, record: Record) -> Iterator[Instruction]:
    """Delete the record of a node that is in no NodeSet any more, once nothing runs on it."""
    if not record.draining:
        yield Drain(node, GONE_FROM_POOL)
    elif not record.busy and pod is None:
        yield Delete(node)


def _of_another(node: str, claim: Claim, pod: Pod | None, record: Record) -> Iterator[Instruction]:
    """Let the jobs of the node that had the name end, then make the record anew.

    If there is a pod by then its slurmd has the record, and would not come back to another one by itself: so the record
    is marked for the new node instead. Slurm sets it aside if it has become smaller.
    """
    if not record.draining:
        yield Drain(node, ANOTHER_NODE)
    elif not record.busy:
        yield Delete(node) if pod is None else Mark(node, claim.uid)


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


def say(claim: Claim | None, record: Record | None) -> Said:
    """Return what to say of the Slurm node behind a pod, from its claim and record (None if there is none)."""
    if record is None:
        why = claim.unfit if claim is not None else ""
        message = why or "Slurm has no record of this node yet"
        return Said(ready=False, drained=False, reason="NoRecord", message=message)
    if claim is None or record.extra != mark(claim.uid):
        return Said(
            ready=False, drained=False, reason="NotOurs", message="Slurm's record is of another node of that name"
        )
    drained = record.draining and not record.busy
    if record.down:
        return Said(ready=False, drained=drained, reason="Down", message=record.reason or "Slurm holds it for down")
    if record.draining:
        word = "Drained" if drained else "Draining"
        return Said(ready=False, drained=drained, reason=word, message=record.reason)
    if not record.registered:
        return Said(ready=False, drained=False, reason="NotRegistered", message="slurmd has not registered")
    return Said(ready=True, drained=False, reason="InService", message="")
