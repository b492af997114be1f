"""From what is to be done to each node to few calls of Slurm's API. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from kurm.domain.agreement import (
    Create,
    Delete,
    Describe,
    Down,
    Drain,
    Instruction,
    Mark,
    Place,
    Recall,
    Register,
    Remember,
    Undrain,
)
from kurm.domain.noderecord import NodeRecord
from kurm.domain.world import Claim, mark
from kurm.slurm.nodes import NewNode, Update

UNDRAIN, RESUME = "UNDRAIN", "RESUME"
T = TypeVar("T")

PLACED = 64
"""Most nodes of one call that gives places in a topology. slurmctld works out its whole tree for each of them (measured
with 5,000 nodes: 4 ms for a new record, 19 ms for one that moves) and serves nobody meanwhile; it has 10 s."""


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
            topology=self.shape.topology,
            state=self.state,
        )

    def without_place(self) -> "Creation":
        """Return the same without a place in the topology."""
        return replace(self, shape=replace(self.shape, topology=""))

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
        if isinstance(instruction, Create):
            shape, state = _shape(claims[node]), "FUTURE" if instruction.slurmd else "CLOUD"
            creations[shape, state][node] = marking(claims[node].uid, address=instruction.slurmd or None)
        elif isinstance(instruction, Delete):
            deletions.append(node)
        elif (update := _update(instruction, claims)) is not None:
            changes[update].append(node)
    urgent_first = sorted(changes.items(), key=lambda item: item[0].state != "DRAIN")
    return [
        *(
            Change(tuple(part), update)
            for update, nodes in urgent_first
            for part in _parts(nodes, placed=update.topology is not None)
        ),
        *(
            Creation(shape, dict(part), state)
            for (shape, state), marks in creations.items()
            for part in _parts(list(marks.items()), placed=bool(shape.topology))
        ),
        *([Deletion(tuple(deletions))] if deletions else []),
    ]


def _update(instruction: Instruction, claims: Mapping[str, Claim]) -> Update | None:  # noqa: PLR0911 - a table
    """Return what is to be changed of a record; None for what is no call of Slurm's."""
    match instruction:
        case Drain(reason=reason, comment=comment):
            return Update(state="DRAIN", reason=reason, comment=comment)
        case Undrain(comment=comment, down=down):
            # UNDRAIN leaves a DOWN as it is, and RESUME is refused where there is nothing to resume.
            return Update(state=RESUME if down else UNDRAIN, comment=comment)
        case Down():
            return Update(state="DOWN")  # without a reason: Slurm keeps the one that it has
        case Remember(comment=comment):
            return Update(comment=comment)
        case Mark(uid=uid, comment=comment, address=address):
            return marking(uid, comment, address)
        case Recall(comment=comment):
            return Update(state="FUTURE", comment=comment)
        case Register():
            return Update(state="RESUME")
        case Describe(node=node):
            shape = _shape(claims[node])
            return Update(features=shape.features, weight=shape.weight)
        case Place(place=place):
            return Update(topology=place)
        case _:
            return None


def marking(uid: str, comment: str | None = None, address: str | None = None) -> Update:
    """Return what marks the record of a Kubernetes node; a comment and its slurmd's address are set if given."""
    return Update(extra=mark(uid), comment=comment, address=address)


def _parts(nodes: Sequence[T], *, placed: bool) -> Iterator[Sequence[T]]:
    size = PLACED if placed else len(nodes)
    return (nodes[start : start + size] for start in range(0, len(nodes), size))


def _shape(claim: Claim) -> NodeRecord:
    if claim.record is None:
        raise KeyError(claim.uid)
    return claim.record
