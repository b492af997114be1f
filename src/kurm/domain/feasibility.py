"""Which nodes a pod can never be given, and why: its selector, affinity, tolerations, GRES and size. Pure.

`Nodes` is kept up to date node by node. It holds, by label and value, by taint and by what a node has, the nodes as
bits; so a constraint costs a few operations on numbers, however many nodes there are, and nothing has to be looked at
again when a node changes. Reasons are in the words of `kurm.domain.selection`, and further ones.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Generic, TypeVar

from msgspec import Struct

from kurm.domain.gres import Gres
from kurm.domain.nodemask import Answers, Roster, of_places
from kurm.domain.podresources import CPU, MEMORY, NOTHING, STORAGE, Resources
from kurm.domain.selection import Requirement, Taint, Term, Toleration, meets, tolerates

_FORBIDS = frozenset({"NoSchedule", "NoExecute"})
_REMEMBERED = 1024
"""Constraints whose verdicts are remembered; each is a few masks."""
V = TypeVar("V", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes node, as far as it decides which pods it can be given."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Resources = NOTHING
    node_set: str = ""
    """Name of the NodeSet of the cluster that has claimed it; empty for none: then it is no node of Slurm's."""
    cpus: int = 0
    """What its record in Slurm says (`kurm.domain.noderecord`)."""
    memory: int = 0
    """MiB, of its record."""
    gres: Mapping[str, Gres] = field(default_factory=dict)
    """By extended resource, as its annotation has it (`kurm.domain.gres.read`)."""


class Wish(Struct, frozen=True, gc=False):
    """A GRES that a pod asks for: a node has it whole or not at all."""

    resource: str
    """The extended resource; empty if only an annotation asks for it."""
    name: str
    type: str = ""
    """In lower case; empty for any."""
    count: int = 1


class Constraint(Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod asks of nodes, whoever else is on them. Equal for pods of one template."""

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[Term, ...] | None = None
    """One of them must hold; None if none is asked for."""
    tolerations: tuple[Toleration, ...] = ()
    wishes: tuple[Wish, ...] = ()
    node_sets: tuple[str, ...] | None = None
    """Those of the pod's partition; None for all."""
    cpus: int = 1
    memory: int = 1
    """MiB."""
    storage: int = 0
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a constraint comes to, on nodes that have the same share of its GRES."""

    gres: tuple[str, ...]
    """What is to be asked for of each node, in Slurm's words: `gpu:8`."""
    per_node: int
    """How many pods of this kind share what a node has of these GRES; 0 if there are none to share."""
    allowed: int
    """Nodes that can be given to it, as a mask."""
    excluded: int
    """Nodes of its partition that cannot, as a mask."""
    reasons: tuple[tuple[str, int], ...]
    """Why nodes cannot: a reason, and its nodes as a mask. Each node is in one of them at most."""


class Nodes:
    """All nodes of the Kubernetes cluster."""

    def __init__(self, roster: Roster | None = None, *, pool_taints: Collection[str] = ("kurm.dev/pool",)) -> None:
        """`pool_taints`: keys of the taints that fence the cluster's own NodeSets; all pods of ours tolerate them."""
        self._roster = Roster() if roster is None else roster
        self._pool = frozenset(pool_taints)
        self._nodes: dict[int, Node] = {}
        self._all = 0
        self._labels: dict[str, _Index[str]] = {}
        self._taints: _Index[Taint] = _Index()
        self._node_sets: _Index[str] = _Index()
        self._shares: _Index[_Share] = _Index()
        self._cordoned = self._unready = 0
        self._enough: Answers[tuple[str, int]] = Answers(self._has, self._having)
        self._version = 0
        self._verdicts: dict[Constraint, tuple[int, tuple[Verdict, ...]]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: str) -> Node | None:
        """Return a node, None if it is not there."""
        place = self._roster.place(name)
        return None if place is None else self._nodes.get(place)

    def put(self, node: Node) -> bool:
        """Take in a node that came or changed, and return whether it is other than it was."""
        place = self._roster.add(node.name)
        old = self._nodes.get(place)
        if old == node:
            return False
        self._nodes[place] = node
        self._file(1 << place, old, node)
        self._enough.changed(place)
        return True

    def drop(self, name: str) -> None:
        """Take out a node that went; its place in the roster is the caller's to give up."""
        place = self._roster.place(name)
        if place is not None and place in self._nodes:
            self._file(1 << place, self._nodes.pop(place), None)
            self._enough.changed(place)

    def fence(self, pool_taints: Collection[str]) -> None:
        """Heed that other taints are the pool's own now."""
        if self._pool != frozenset(pool_taints):
            self._pool = frozenset(pool_taints)
            for place, node in self._nodes.items():
                self._file(1 << place, node, None)
                self._file(1 << place, None, node)

    def verdicts(self, constraint: Constraint) -> tuple[Verdict, ...]:
        """Return a verdict for each share of its GRES that nodes have, the smallest share first.

        There is always one; if no node can be used it says why.
        """
        known = self._verdicts.get(constraint)
        if known is not None and known[0] == self._version:
            return known[1]
        found = tuple(self._judge(constraint))
        if known is None and len(self._verdicts) >= _REMEMBERED:
            self._verdicts.clear()
        self._verdicts[constraint] = self._version, found
        return found

    def share(self, name: str, wishes: Iterable[Wish]) -> tuple[str, ...]:
        """Return what a pod with such wishes holds of a node that it is bound to, in Slurm's words: the whole of each.

        However many it asks for, and without those that the node has not (any more).
        """
        node = self.get(name)
        if node is None:
            return ()
        least = [Wish(wish.resource, wish.name, wish.type) for wish in wishes]
        found = (_Share.of(node).words([wish]) for wish in least)
        return tuple(sorted({word for words in found if not isinstance(words, str) for word in words[0]}))

    def matching(self, terms: Sequence[Term]) -> int:
        """Return the nodes of which one of the terms holds, as a mask: for the node affinity of a volume."""
        found = 0
        for term in terms:
            wants = [self._meeting(want) for want in term.match_expressions]
            wants += [self._named(want) for want in term.match_fields]
            if wants:
                mask = self._all
                for want in wants:
                    mask &= want
                found |= mask
        return found

    def _judge(self, constraint: Constraint) -> Iterator[Verdict]:
        left = everyone = self._all
        reasons: list[tuple[str, int]] = []
        claimed = self._node_sets.where(lambda name: name != "")
        mine = claimed if constraint.node_sets is None else self._node_sets.any_of(constraint.node_sets)
        for reason, bad in chain(
            (("NodeSet", everyone & ~claimed), ("Partition", everyone & ~mine)), self._against(constraint)
        ):
            if found := left & bad:
                reasons.append((reason, found))
                left ^= found
        if not constraint.wishes:
            yield Verdict((), 0, left, mine & ~left, _merged(reasons))
            return
        shares: dict[tuple[tuple[str, ...], int], int] = {}
        for share, mask in self._shares.items():
            if found := left & mask:
                words = share.words(constraint.wishes)
                if isinstance(words, str):
                    reasons.append((words, found))
                else:
                    shares[words] = shares.get(words, 0) | found
        if not shares:
            yield Verdict((), 0, 0, mine, _merged(reasons))
        for (asked, per_node), mask in sorted(shares.items(), key=lambda one: (one[0][1], one[0][0])):
            others = [(f"Share/{constraint.wishes[0].name}", other) for other in shares.values() if other != mask]
            yield Verdict(asked, per_node, mask, mine & ~mask, _merged(reasons + others))

    def _against(self, constraint: Constraint) -> Iterator[tuple[str, int]]:
        """Yield reasons, each with all nodes that it holds of. What a person must change comes before what passes."""
        everyone = self._all
        for key, value in constraint.selector:
            yield "NodeSelector", everyone & ~self._label(key).get(value, 0)
        if constraint.required is not None:
            yield "Affinity", everyone & ~self.matching(constraint.required)
        yield "Unschedulable", self._cordoned
        yield "NotReady", self._unready
        for taint, mask in self._taints.items():
            if not any(tolerates(toleration, taint) for toleration in constraint.tolerations):
                yield f"Taint/{taint.key}", mask
        for resource, amount in ((CPU, constraint.cpus), (MEMORY, constraint.memory), (STORAGE, constraint.storage)):
            if amount > (resource != STORAGE):  # any node has one CPU and one MiB, or it were no node of Slurm's
                yield f"TooFew/{resource}", everyone & ~self._enough.of((resource, amount))

    def _has(self, question: tuple[str, int], place: int) -> bool:
        node = self._nodes.get(place)
        return node is not None and _SIZES[question[0]](node) >= question[1]

    def _having(self, question: tuple[str, int]) -> Iterator[int]:
        size, amount = _SIZES[question[0]], question[1]
        return (place for place, node in self._nodes.items() if size(node) >= amount)

    def _meeting(self, want: Requirement) -> int:
        index = self._label(want.key)
        if want.operator == "In":
            return index.any_of(want.values)
        found = index.where(lambda value: meets(value, want))
        return found | (self._all & ~index.where(lambda _: True)) if meets(None, want) else found

    def _named(self, want: Requirement) -> int:
        """Return the nodes that meet a requirement of a term's matchFields, which knows names only."""
        if want.key != "metadata.name" or want.operator not in {"In", "NotIn"}:
            return 0
        named = self._roster.mask(want.values) & self._all
        return named if want.operator == "In" else self._all & ~named

    def _label(self, key: str) -> "_Index[str]":
        """Return which nodes have which value of a label; it is made when the label is first asked for."""
        index = self._labels.get(key)
        if index is None:
            index = self._labels[key] = _Index()
            found: dict[str, list[int]] = {}
            for place, node in self._nodes.items():
                if (value := node.labels.get(key)) is not None:
                    found.setdefault(value, []).append(place)
            index.update((value, of_places(places)) for value, places in found.items())
        return index

    def _file(self, bit: int, old: Node | None, new: Node | None) -> None:
        self._version += 1
        self._all = self._all & ~bit | (bit if new else 0)
        for key, index in self._labels.items():
            index.move(bit, old.labels.get(key) if old else None, new.labels.get(key) if new else None)
        for taint in set(old.taints if old else ()):
            self._taints.move(bit, taint, None)
        for taint in set(new.taints if new else ()):
            if taint.effect in _FORBIDS and taint.key not in self._pool:
                self._taints.move(bit, None, taint)
        self._node_sets.move(bit, old.node_set if old else None, new.node_set if new else None)
        self._shares.move(bit, _Share.of(old) if old else None, _Share.of(new) if new else None)
        self._cordoned = self._cordoned & ~bit | (bit if new and new.unschedulable else 0)
        self._unready = self._unready & ~bit | (bit if new and not new.ready else 0)


_SIZES: Mapping[str, Callable[[Node], int]] = {
    CPU: attrgetter("cpus"),
    MEMORY: attrgetter("memory"),
    STORAGE: attrgetter("allocatable.storage"),
}
"""What a node has at all, in the units of a constraint."""


def _merged(reasons: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return each reason once, in the order in which they were first told."""
    found: dict[str, int] = {}
    for reason, mask in reasons:
        found[reason] = found.get(reason, 0) | mask
    return tuple(found.items())


class _Share(Struct, frozen=True, gc=False, cache_hash=True):
    """The GRES of a node, each with its extended resource."""

    gres: tuple[tuple[str, Gres], ...] = ()

    @classmethod
    def of(cls, node: Node) -> "_Share":
        return cls(tuple(sorted(node.gres.items()))) if node.gres else _NOTHING

    def words(self, wishes: Iterable[Wish]) -> tuple[tuple[str, ...], int] | str:
        """Return what to ask for to get the whole of what is wished for, and how many such pods share it.

        If it is not there, return the reason.
        """
        found: set[str] = set()
        sharing = []
        for wish in wishes:
            named = [(resource, one) for resource, one in self.gres if wish.resource in {"", resource}]
            fitting = [one for _, one in named if one.name == wish.name and wish.type in {"", one.type.lower()}]
            count = sum(one.count for one in fitting)
            if count < max(wish.count, 1):
                return f"Gres/{wish.name}"
            sharing.append(count // max(wish.count, 1))
            alone = sum(one.name == wish.name for _, one in self.gres) == len(fitting) and not wish.type
            found |= {f"{wish.name}:{count}"} if alone else {str(one) for one in fitting}
        return tuple(sorted(found)), min(sharing)


_NOTHING = _Share()


class _Index(dict[V, int], Generic[V]):
    """The nodes by a value that they have, as masks."""

    def any_of(self, values: Iterable[V]) -> int:
        found = 0
        for value in values:
            found |= self.get(value, 0)
        return found

    def where(self, holds: Callable[[V], bool]) -> int:
        return self.any_of(value for value in self if holds(value))

    def move(self, bit: int, old: V | None, new: V | None) -> None:
        if old == new:
            return
        if old is not None and old in self:
            left = self[old] & ~bit
            if left:
                self[old] = left
            else:
                del self[old]
        if new is not None:
            self[new] = self.get(new, 0) | bit
