"""Where Slurm has room without preempting anybody, as far as is known: by that an immediate start is asked for or not.

An immediate request into a full cluster is refused, but not before Slurm has begun to preempt for it. So what is not
known counts as full. The view is refreshed by Slurm's list, and meanwhile follows our own allocations exactly and the
jobs of others by hints. Owners are those of allocations; of each only what was said last counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kurm.domain.nodemask import Answers, Roster, places


@dataclass(frozen=True, slots=True)
class Free:
    """What a node of Slurm's has, and what of it is not allocated."""

    cpus: int
    memory: int
    """MiB."""
    gres: tuple[tuple[str, int], ...] = ()
    """Free ones by name, all types together: `("gpu", 8)`."""
    all_cpus: int = 0
    all_memory: int = 0
    """MiB."""
    up: bool = True
    """Whether it takes jobs: neither drained nor down nor reserved."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one slot takes of a node. Hashable: it is what is asked of all nodes at once."""

    cpus: int
    memory: int
    """MiB."""
    gres: tuple[str, ...] = ()
    """Of the node, whatever number of slots it has: `gpu:8`, `gpu:h100:8`."""
    exclusive: bool = False
    per_node: int = 0
    """Most slots on a node; 0 for as many as fit."""


@dataclass(slots=True)
class _State:
    """A node's figures now."""

    cpus: int
    memory: int
    all_cpus: int
    all_memory: int
    up: bool
    gres: dict[str, int]
    own_cpus: int = 0
    own_memory: int = 0
    doubted: bool = False


@dataclass(slots=True)
class _Hold:
    """What an owner has, and since which moment."""

    since: int
    layout: Mapping[str, int]
    shape: Shape


class Room:
    """What is free on Slurm's nodes."""

    def __init__(self, roster: Roster | None = None) -> None:
        self._roster = Roster() if roster is None else roster
        self._states: dict[str, _State] = {}
        self._holds: dict[str, _Hold] = {}
        self._doubted: set[str] = set()
        self._moment = 0
        self.epoch = 0
        """Rises when it becomes known that Slurm has a node, or has it no longer."""
        self._fitting: Answers[tuple[Shape, int]] = Answers(self._fits, self._fitting_all)

    def __contains__(self, node: str) -> bool:
        """Return whether Slurm has a record of the node, as far as its list says."""
        return node in self._states

    def __len__(self) -> int:
        return len(self._states)

    def up(self, node: str) -> bool:
        """Return whether Slurm has a record of the node that takes jobs, as far as is known."""
        state = self._states.get(node)
        return state is not None and state.up

    @property
    def doubted(self) -> frozenset[str]:
        """The nodes of which the figures are to be asked for again."""
        return frozenset(self._doubted)

    def mark(self) -> int:
        """Return this moment, to be taken before Slurm is asked for its nodes."""
        return self._moment

    def refresh(self, found: Mapping[str, Free], *, since: int, whole: bool = True) -> None:
        """Heed what Slurm says of its nodes. `since`: the `mark` of when it was asked.

        What was granted after that is subtracted once more, because nobody knows whether the answer counts it: until
        the next time a node may seem to have less than it has, never more. `whole`: Slurm has no other nodes.
        """
        kept = self._states
        new = found.keys() - kept.keys()
        if new or (whole and len(found) < len(kept)):
            self.epoch += 1
        self._states = {} if whole else kept
        for name, free in found.items():
            state = _State(free.cpus, free.memory, free.all_cpus, free.all_memory, free.up, dict(free.gres))
            if (before := kept.get(name)) is not None:
                state.own_cpus, state.own_memory = before.own_cpus, before.own_memory
            self._states[name] = state
        self._doubted = {name for name in self._doubted if name in self._states and name not in found}
        self._own_new(new)
        for hold in reversed(self._holds.values()):
            if hold.since <= since:
                break
            for name, slots in hold.layout.items():
                if name in found:
                    _take(self._states[name], hold.shape, slots)
        if whole:
            self._fitting.clear()
            return
        for name in found:
            self.seen(name)

    def drop(self, nodes: Iterable[str]) -> None:
        """Heed that Slurm has no record of these nodes."""
        for name in nodes:
            if self._states.pop(name, None) is not None:
                self.epoch += 1
                self._doubted.discard(name)
                self._moved(name, self._fitting.fell)

    def hold(self, owner: str, layout: Mapping[str, int], shape: Shape) -> None:
        """Heed a grant: slots by node, in a table that nobody changes any more.

        Said again for the same owner it takes the place of what was said before.
        """
        before = self._holds.get(owner)
        if before is not None:
            if before.layout == layout and before.shape == shape:
                return
            self.release(owner)
        self._moment += 1
        self._holds[owner] = _Hold(self._moment, layout, shape)
        for name, slots in layout.items():
            if (state := self._states.get(name)) is not None:
                _own(state, shape, slots)
                _take(state, shape, slots)
                self._moved(name, self._fitting.fell)

    def release(self, owner: str) -> None:
        """Heed that Slurm has freed what an owner held. What nobody holds is nothing."""
        hold = self._holds.pop(owner, None)
        if hold is None:
            return
        for name, slots in hold.layout.items():
            if (state := self._states.get(name)) is not None:
                _own(state, hold.shape, -slots)
                _take(state, hold.shape, -slots)
                self._moved(name, self._fitting.rose)

    def doubt(self, nodes: Iterable[str]) -> None:
        """Heed that somebody else's job has started or ended there: they count as full until they are refreshed."""
        for name in nodes:
            if (state := self._states.get(name)) is not None and not state.doubted:
                state.doubted = True
                self._doubted.add(name)
                self._moved(name, self._fitting.fell)

    def has(self, shape: Shape, allowed: int, slots: int = 1) -> bool:
        """Return whether so many slots have room on the allowed nodes (a mask)."""
        fitting = self._fitting.of((shape, slots)) & allowed
        if slots == 1 or not fitting:
            return fitting != 0
        found = 0
        for place in places(fitting):
            found += _slots(self._states[self._roster.name(place)], shape)
            if found >= slots:
                return True
        return False

    def fitting(self, shape: Shape, slots: int = 1) -> int:
        """Return the nodes that have room for at least one of the slots, as a mask."""
        return self._fitting.of((shape, slots))

    def close(self, shape: Shape, allowed: int, slots: int = 1) -> None:
        """Heed that Slurm had no room there for so many slots.

        For such requests these nodes count again as soon as they have more free than now, or with the next whole list.
        """
        self._fitting.deny((shape, slots), allowed)

    def seen(self, name: str) -> None:
        """Heed that a node has got a place in the roster, which may have been another's before."""
        self._moved(name, self._fitting.changed)

    def _own_new(self, names: set[str]) -> None:
        """Sum up what we hold of nodes that Slurm has had no record of before."""
        for hold in self._holds.values() if names else ():
            for name in names & hold.layout.keys():
                _own(self._states[name], hold.shape, hold.layout[name])

    def _moved(self, name: str, tell: Callable[[int], None]) -> None:
        place = self._roster.place(name)
        if place is not None:
            tell(place)

    def _fits(self, question: tuple[Shape, int], place: int) -> bool:
        state = self._states.get(self._roster.name(place))
        return state is not None and _fits(state, question[0])

    def _fitting_all(self, question: tuple[Shape, int]) -> Iterator[int]:
        place, shape = self._roster.place, question[0]
        for name, state in self._states.items():
            if _fits(state, shape) and (found := place(name)) is not None:
                yield found


def _fits(state: _State, shape: Shape) -> bool:
    """Return whether one slot of a shape has room on a node.

    A list may be older than the end of a job of ours, and the end is told once: so there is never more free than all
    that is not ours.
    """
    if (
        not state.up
        or state.doubted
        or shape.cpus > state.cpus
        or shape.memory > state.memory
        or shape.cpus > state.all_cpus - state.own_cpus
        or shape.memory > state.all_memory - state.own_memory
    ):
        return False
    if shape.exclusive and (state.own_cpus or state.cpus < state.all_cpus or state.memory < state.all_memory):
        return False
    return not shape.gres or all(state.gres.get(name, 0) >= count for name, count in map(_counted, shape.gres))


def _slots(state: _State, shape: Shape) -> int:
    """Return how many slots of a shape have room on a node that has room for one."""
    cpus = min(state.cpus, state.all_cpus - state.own_cpus)
    memory = min(state.memory, state.all_memory - state.own_memory)
    slots = min(cpus // shape.cpus, memory // shape.memory)
    return min(slots, shape.per_node) if shape.per_node else slots


def _own(state: _State, shape: Shape, slots: int) -> None:
    state.own_cpus += slots * shape.cpus
    state.own_memory += slots * shape.memory


def _take(state: _State, shape: Shape, slots: int) -> None:
    """Take slots off what is free, or with a negative number give them back."""
    state.cpus -= slots * shape.cpus
    state.memory -= slots * shape.memory
    for name, count in map(_counted, shape.gres):  # the whole share: it is all there again, or nothing is
        left = state.gres.get(name, 0)
        state.gres[name] = max(left, count) if slots < 0 else max(left - count, 0)


def _counted(gres: str) -> tuple[str, int]:
    name, *_, count = gres.split(":")
    return name, int(count)
