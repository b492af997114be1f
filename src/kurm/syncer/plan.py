"""From what is to be done to each node to few calls of Slurm's API. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from kurm.domain.agreement import (
    Claim,
    Create,
    Delete,
    Describe,
    Drain,
    Instruction,
    Mark,
    Recall,
    Register,
    Remember,
    Undrain,
    mark,
)
from kurm.domain.noderecord import NodeRecord
from kurm.slurm.nodes import NewNode, Update


@dataclass(frozen=True)
class Creation:
    """Make records of one shape. The mark of each (its `extra`) can only be set after that."""

    shape: NodeRecord
    marks: Mapping[str, Update]
    """What each is to be told after that, by name."""
    state: str = "CLOUD"
    """FUTURE for those whose slurmd is to be asked to register."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.marks)

    def body(self) -> NewNode:
        """Return the records as Slurm is asked for them."""
        return NewNode(
            names=self.nodes,
            cpus=self.shape.cpus,
            real_memory=self.shape.real_memory,
            gres=",".join(map(str, self.shape.gres)),
            features=self.shape.features,
            weight=self.shape.weight,
            state=self.state,
        )

    def halves(self) -> tuple["Creation", ...]:
        """Return the same as two, to find out which of them Slurm will not have; none if it cannot be halved."""
        pairs = list(self.marks.items())
        middle = len(pairs) // 2
        return tuple(replace(self, marks=dict(part)) for part in (pairs[:middle], pairs[middle:])) if middle else ()


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
    creations: dict[tuple[NodeRecord, str], dict[str, Update]] = defaultdict(dict)
    changes: dict[Update, list[str]] = defaultdict(list)
    deletions: list[str] = []
    for instruction in instructions:
        node = instruction.node
        match instruction:
            case Create(slurmd=address):
                shape, state = _shape(claims[node]), "FUTURE" if address else "CLOUD"
                creations[shape, state][node] = marking(claims[node].uid, address=address or None)
            case Delete():
                deletions.append(node)
            case _:
                changes[_update(instruction, claims)].append(node)
    urgent_first = sorted(changes.items(), key=lambda item: item[0].state != "DRAIN")
    return [
        *(Change(tuple(nodes), update) for update, nodes in urgent_first),
        *(Creation(shape, marks, state) for (shape, state), marks in creations.items()),
        *([Deletion(tuple(deletions))] if deletions else []),
    ]


def _update(
    instruction: Drain | Undrain | Remember | Mark | Recall | Register | Describe, claims: Mapping[str, Claim]
) -> Update:
    match instruction:
        case Drain(reason=reason, comment=comment):
            update = Update(state="DRAIN", reason=reason, comment=comment)
        case Undrain(comment=comment):
            update = Update(state="UNDRAIN", comment=comment)
        case Remember(comment=comment):
            update = Update(comment=comment)
        case Mark(uid=uid, comment=comment, address=address):
            update = marking(uid, comment, address)
        case Recall(comment=comment):
            update = Update(state="FUTURE", comment=comment)
        case Register():
            update = Update(state="RESUME")
        case _:
            shape = _shape(claims[instruction.node])
            update = Update(features=shape.features, weight=shape.weight)
    return update


def marking(uid: str, comment: str | None = None, address: str | None = None) -> Update:
    """Return what marks the record of a Kubernetes node; a comment and its slurmd's address are set if given."""
    return Update(extra=mark(uid), comment=comment, address=address)


def _shape(claim: Claim) -> NodeRecord:
    if claim.record is None:
        raise KeyError(claim.uid)
    return claim.record
