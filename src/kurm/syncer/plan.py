"""From what is to be done to each node to few calls of Slurm's API. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from kurm.domain.agreement import (
    Claim,
    Create,
    Delete,
    Describe,
    Drain,
    Instruction,
    Mark,
    Place,
    Remember,
    Undrain,
    mark,
)
from kurm.domain.noderecord import NodeRecord
from kurm.slurm.nodes import NewNode, Update

T = TypeVar("T")

PLACED = 64
"""Most nodes of one call that gives places in a topology. slurmctld works out its whole tree for each of them (measured
with 5,000 nodes: 4 ms for a new record, 19 ms for one that moves) and serves nobody meanwhile; it has 10 s."""


@dataclass(frozen=True)
class Creation:
    """Make records of one shape. The mark of each (its `extra`) can only be set after that."""

    shape: NodeRecord
    uids: Mapping[str, str]
    """Of the Kubernetes nodes, by name."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.uids)

    def body(self) -> NewNode:
        """Return the records as Slurm is asked for them."""
        return NewNode(
            names=self.nodes,
            cpus=self.shape.cpus,
            real_memory=self.shape.real_memory,
            gres=",".join(map(str, self.shape.gres)),
            features=self.shape.features,
            weight=self.shape.weight,
            topology=self.shape.topology,
        )

    def without_place(self) -> "Creation":
        """Return the same without a place in the topology."""
        return Creation(replace(self.shape, topology=""), self.uids)

    def halves(self) -> tuple["Creation", ...]:
        """Return the same as two, to find out which of them Slurm will not have; none if it cannot be halved."""
        pairs = list(self.uids.items())
        middle = len(pairs) // 2
        return tuple(Creation(self.shape, dict(part)) for part in (pairs[:middle], pairs[middle:])) if middle else ()


@dataclass(frozen=True)
class Change:
    """Change records in the same way."""

    nodes: tuple[str, ...]
    update: Update


@dataclass(frozen=True)
class Deletion:
    """Delete records."""

    nodes: tuple[str, ...]


Call: TypeAlias = Creation | Change | Deletion


def calls(instructions: Iterable[Instruction], claims: Mapping[str, Claim]) -> list[Call]:
    """Return the calls that carry out the instructions: drains first, since jobs start meanwhile, deletions last.

    Each node's own instructions come in no more than one call of a kind, so the order between calls is of no matter to
    what comes out in the end. Raises KeyError for a node that is to be made or described and is not claimed.
    """
    creations: dict[NodeRecord, dict[str, str]] = defaultdict(dict)
    changes: dict[Update, list[str]] = defaultdict(list)
    deletions: list[str] = []
    for instruction in instructions:
        node = instruction.node
        match instruction:
            case Create():
                creations[_shape(claims[node])][node] = claims[node].uid
            case Delete():
                deletions.append(node)
            case Drain(reason=reason, comment=comment):
                changes[Update(state="DRAIN", reason=reason, comment=comment)].append(node)
            case Undrain(comment=comment):
                changes[Update(state="UNDRAIN", comment=comment)].append(node)
            case Remember(comment=comment):
                changes[Update(comment=comment)].append(node)
            case Mark(uid=uid, comment=comment):
                changes[marking(uid, comment)].append(node)
            case Describe():
                shape = _shape(claims[node])
                changes[Update(features=shape.features, weight=shape.weight)].append(node)
            case Place(place=place):
                changes[Update(topology=place)].append(node)
    urgent_first = sorted(changes.items(), key=lambda item: item[0].state != "DRAIN")
    return [
        *(
            Change(tuple(part), update)
            for update, nodes in urgent_first
            for part in _parts(nodes, placed=update.topology is not None)
        ),
        *(
            Creation(shape, dict(part))
            for shape, uids in creations.items()
            for part in _parts(list(uids.items()), placed=bool(shape.topology))
        ),
        *([Deletion(tuple(deletions))] if deletions else []),
    ]


def marking(uid: str, comment: str | None = None) -> Update:
    """Return what marks the record of a Kubernetes node; a comment is set with it if one is given."""
    return Update(extra=mark(uid), comment=comment)


def _parts(nodes: Sequence[T], *, placed: bool) -> Iterator[Sequence[T]]:
    size = PLACED if placed else len(nodes)
    return (nodes[start : start + size] for start in range(0, len(nodes), size))


def _shape(claim: Claim) -> NodeRecord:
    if claim.record is None:
        raise KeyError(claim.uid)
    return claim.record
