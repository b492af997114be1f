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
_QUESTIONS = 1024
"""That are remembered; each is a mask."""
_JOURNAL = 16384
"""Changes that are remembered for questions which are asked again later: with 10,000 nodes all of them are cheaper."""
_ONE = ord("1")


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
        """Return who stands at a place; empty if nobody does."""
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
            self._names[place] = ""
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


def places(mask: int) -> Iterator[int]:
    """Yield the places of a mask, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def of_places(found: Iterable[int]) -> int:
    """Return the mask of places."""
    chosen = list(found)
    if len(chosen) <= _SPARSE:
        return sum(1 << place for place in chosen)
    last = max(chosen)
    bits = bytearray(b"0") * (last + 1)
    for place in chosen:
        bits[last - place] = _ONE
    return int(bits, 2)


class Answers(Generic[Q]):
    """To each question the nodes of which it holds.

    What has changed is written down, and looked at by a question when it is asked again: so one that nobody asks any
    more costs nothing. Those that were not asked for longest are forgotten, if there are too many.
    """

    def __init__(
        self,
        holds: Callable[[Q, int], bool],
        all_of: Callable[[Q], Iterable[int]],
        *,
        most: int = _QUESTIONS,
        journal: int = _JOURNAL,
    ) -> None:
        """`holds(question, place)` says it of one node, `all_of(question)` names the places of which it holds.

        `most` questions are remembered, and at least the last `journal` changes.
        """
        self._holds, self._all_of, self._most, self._length = holds, all_of, most, journal
        self._known: dict[Q, tuple[int, int]] = {}  # the mask, and up to where the journal is in it
        self._journal: list[int] = []  # places; of a node that has less than before its complement
        self._start = 0

    def of(self, question: Q) -> int:
        """Return the nodes of which it holds."""
        end = self._start + len(self._journal)
        mask, upto = self._known.pop(question, (0, -1))
        if upto < self._start:
            mask = of_places(self._all_of(question))
            if len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
        elif upto < end:
            mask = self._follow(question, mask, upto)
        self._known[question] = mask, end
        return mask

    def deny(self, question: Q, nodes: int) -> None:
        """Let it not hold of these nodes, until one of them has risen."""
        self._known[question] = self.of(question) & ~nodes, self._start + len(self._journal)

    def rose(self, place: int) -> None:
        """Heed that a node has more than before."""
        self._write(place)

    def fell(self, place: int) -> None:
        """Heed that a node has less than before."""
        self._write(~place)

    def changed(self, place: int) -> None:
        """Heed that a place has another node or none, or that its node has more of one thing, less of another."""
        self._write(place)
        self._write(~place)

    def clear(self) -> None:
        """Forget all answers."""
        self._known.clear()

    def _write(self, entry: int) -> None:
        if self._known:
            self._journal.append(entry)
            if len(self._journal) > 2 * self._length:
                del self._journal[: self._length]
                self._start += self._length

    def _follow(self, question: Q, mask: int, upto: int) -> int:
        """Return the mask with what has changed; only how things are now counts, not in which order it came about."""
        for entry in dict.fromkeys(self._journal[upto - self._start :]):
            rose = entry >= 0
            place = entry if rose else ~entry
            bit = 1 << place
            if rose != bool(mask & bit) and self._holds(question, place) == rose:
                mask ^= bit
        return mask
