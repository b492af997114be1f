"""Sets of nodes as bits of a number: with 10,000 nodes a set is 1.25 KB, and two of them are joined in a microsecond.

Every node has a place; bit N of a mask is the node at place N. A question about all nodes ("which have room for this?")
is asked of all of them once; then, node by node as they change, its answer is kept true.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice
from typing import Generic, TypeVar

Q = TypeVar("Q")

_SPARSE = 64
"""Bits up to which they are looked for one by one."""


class Roster:
    """Who stands at which place. A place is given to another node once its own is gone."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._names: list[str] = []
        self._vacant: list[int] = []
        self.all = 0
        """The mask of all nodes."""
        self.epoch = 0
        """Rises when a place gets another node: masks of before mean other nodes."""

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def place(self, name: str) -> int | None:
        """Return the place of a node, None if it has none."""
        return self._places.get(name)

    def name(self, place: int) -> str:
        """Return who stands at a place."""
        return self._names[place]

    def add(self, name: str) -> int:
        """Return the place of a node; it gets one if it has none."""
        place = self._places.get(name)
        if place is not None:
            return place
        if self._vacant:
            place = self._vacant.pop()
            self._names[place] = name
            self.epoch += 1
        else:
            place = len(self._names)
            self._names.append(name)
        self._places[name] = place
        self.all |= 1 << place
        return place

    def drop(self, name: str) -> None:
        """Take a node's place from it, if it has one."""
        place = self._places.pop(name, None)
        if place is not None:
            self._vacant.append(place)
            self.all &= ~(1 << place)

    def mask(self, names: Iterable[str]) -> int:
        """Return the mask of these nodes; those that have no place are left out."""
        found = 0
        for name in names:
            place = self._places.get(name)
            if place is not None:
                found |= 1 << place
        return found

    def names(self, mask: int, most: int | None = None) -> tuple[str, ...]:
        """Return who stands at the places of a mask; `most`: no more of them than that."""
        if most is not None or mask.bit_count() <= _SPARSE:
            return tuple(self._names[place] for place in islice(places(mask), most))
        return tuple(compress(self._names, map(int, reversed(f"{mask:b}"))))

    def __iter__(self) -> Iterator[int]:
        return iter(self._places.values())


def places(mask: int) -> Iterator[int]:
    """Yield the places of a mask, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def of_places(found: Iterable[int], length: int) -> int:
    """Return the mask of many places, all below `length`."""
    chosen = list(found)
    if len(chosen) <= _SPARSE:
        return sum(1 << place for place in chosen)
    bits = bytearray(b"0") * length
    for place in chosen:
        bits[length - 1 - place] = ord("1")
    return int(bits, 2)


class Answers(Generic[Q]):
    """To each question the nodes of which it holds. Questions that nobody has asked for long are forgotten."""

    def __init__(self, roster: Roster, holds: Callable[[Q, int], bool], most: int = 512) -> None:
        """`holds(question, place)` says it of one node; `most`: how many questions are remembered."""
        self._roster, self._holds, self._most = roster, holds, most
        self._masks: dict[Q, int] = {}

    def of(self, question: Q) -> int:
        """Return the nodes of which it holds."""
        mask = self._masks.pop(question, None)
        if mask is None:
            holds = self._holds
            mask = of_places((place for place in self._roster if holds(question, place)), self._roster.all.bit_length())
            if len(self._masks) >= self._most:
                del self._masks[next(iter(self._masks))]
        self._masks[question] = mask
        return mask

    def deny(self, question: Q, nodes: int) -> None:
        """Let it not hold of these nodes, until one of them has risen."""
        self._masks[question] = self.of(question) & ~nodes

    def changed(self, place: int) -> None:
        """Ask anew of one node."""
        self.rose(place)
        self.fell(place)

    def rose(self, place: int) -> None:
        """Ask anew of one node what did not hold, because it has more now."""
        bit = 1 << place
        for question, mask in self._masks.items():
            if not mask & bit and self._holds(question, place):
                self._masks[question] = mask | bit

    def fell(self, place: int) -> None:
        """Ask anew of one node what did hold, because it has less now, or is gone."""
        bit = 1 << place
        for question, mask in self._masks.items():
            if mask & bit and not self._holds(question, place):
                self._masks[question] = mask ^ bit

    def forget(self, place: int) -> None:
        """Let nothing hold of one node any more: it is gone, or its place is another's now."""
        keep = ~(1 << place)
        for question in self._masks:
            self._masks[question] &= keep

    def clear(self) -> None:
        """Forget all answers."""
        self._masks.clear()
