"""Where Slurm has room without preempting anybody, as far as is known: by that an immediate start is asked for or not.

An immediate request into a full cluster is refused, but not before Slurm has begun to preempt for it. So what is not
known counts as full. The view is refreshed by Slurm's list, and meanwhile follows our own allocations exactly and all
others by hints.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.nodemask import Roster


@dataclass(frozen=True, slots=True)
class Free:
    """What a node of Slurm's has, and what of it is not allocated."""

    cpus: int
    memory: int
    """MiB."""
    gres: tuple[tuple[str, int], ...] = ()
    """Free ones by name, types together: `("gpu", 8)`."""
    all_cpus: int = 0
    all_memory: int = 0
    up: bool = True
    """Whether it takes jobs: neither drained, nor down, nor reserved."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one slot takes of a node. Hashable."""

    cpus: int
    memory: int
    """MiB."""
    gres: tuple[str, ...] = ()
    """Of the node: `gpu:8`, `gpu:h100:8`."""
    exclusive: bool = False


class Room:
    """What is free on Slurm's nodes."""

    def __init__(self, roster: Roster | None = None) -> None:
        raise NotImplementedError

    @property
    def known(self) -> int:
        """The nodes that Slurm has records of, as its last list says, as a mask."""
        raise NotImplementedError

    def mark(self) -> int:
        """Return this moment, to be taken before Slurm's list is asked for."""
        raise NotImplementedError

    def refresh(self, found: Mapping[str, Free], *, since: int, whole: bool = True) -> None:
        """Heed what Slurm says of its nodes. `since`: the `mark` of when it was asked.

        What was granted after that is subtracted once more, because nobody knows whether the answer counts it.
        `whole`: all others are gone.
        """
        raise NotImplementedError

    def hold(self, owner: str, layout: Mapping[str, int], shape: Shape) -> None:
        """Heed a grant: slots by node. Said again for the same owner it takes the place of what was said before."""
        raise NotImplementedError

    def release(self, owner: str) -> None:
        """Heed that Slurm has freed what an owner held."""
        raise NotImplementedError

    def doubt(self, nodes: Iterable[str]) -> None:
        """Heed that somebody else's job has started or ended there: they count as full until they are refreshed."""
        raise NotImplementedError

    @property
    def doubted(self) -> frozenset[str]:
        """The nodes of which the figures are to be asked for again."""
        raise NotImplementedError

    def has(self, shape: Shape, allowed: int, slots: int = 1) -> bool:
        """Return whether so many slots have room on the allowed nodes (a mask)."""
        raise NotImplementedError

    def close(self, shape: Shape, allowed: int, slots: int = 1) -> None:
        """Heed that Slurm had no room there: these nodes count again as they have more free than now, or are listed."""
        raise NotImplementedError
