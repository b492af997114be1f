"""What every answer of slurmrestd has in common. Structs are narrow: they name the fields that Kurm uses."""

from typing import dataclass_transform

import msgspec
from msgspec import Struct, StructMeta


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class NarrowMeta(StructMeta):
    """Tells type checkers that whatever derives from Narrow is frozen too, so that nobody has to say it again."""


class Narrow(Struct, metaclass=NarrowMeta, frozen=True, gc=False):
    """A part of an object of Slurm's; what it does not name is skipped while decoding."""


class Number(Narrow):
    """Slurm's numbers that may be absent or unlimited: `{"set": true, "infinite": false, "number": 7}`."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0

    @property
    def value(self) -> int | None:
        """The number; None if it is absent or unlimited, which `infinite` tells apart."""
        return int(self.number) if self.set and not self.infinite else None


ABSENT = Number()


def number(value: int) -> dict[str, object]:
    """Return what a request holds for a number: a bare one is taken too, with a warning."""
    return {"set": True, "infinite": False, "number": value}


class Problem(Narrow):
    """An error or a warning of an answer."""

    description: str = ""
    error_number: int = 0
    error: str = ""
    source: str = ""


class Release(Narrow):
    """Which slurmrestd has answered: `26.05.5`."""

    release: str = ""
    cluster: str = ""


class Meta(Narrow):
    """The part of an answer that tells about the answer."""

    slurm: Release = Release()


class Answer(Narrow):
    """What every answer holds; the calls' own answers add to it."""

    meta: Meta | None = None
    errors: tuple[Problem, ...] | None = None
    warnings: tuple[Problem, ...] | None = None
