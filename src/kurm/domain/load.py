"""What runs on a node, as the annotations of its slurmd pod have it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kurm.domain.signals import SLURM_ALLOCATED, SLURM_JOBS_END

NEVER = datetime.max.replace(tzinfo=UTC)
"""When a node is free whose jobs have no time limit."""


@dataclass(frozen=True)
class Load:
    """What is known of a node's jobs; nothing by default."""

    allocated: bool | None = None
    """Whether jobs or pods hold a part of it; None if nobody has said."""
    free_at: datetime | None = None
    """When its last job ends by its time limit; None if nobody has said, NEVER if one has no limit."""

    @property
    def idle(self) -> bool:
        """Whether it is known that nothing holds a part of it. What is not known is busy."""
        return self.allocated is False and self.free_at is None

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> "Load":
        """Read a slurmd pod's annotations. What cannot be read is not known."""
        allocated = {"true": True, "false": False}.get(annotations.get(SLURM_ALLOCATED, ""))
        return cls(allocated, _moment(annotations.get(SLURM_JOBS_END, "")))


def _moment(text: str) -> datetime | None:
    if text == "never":
        return NEVER
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
