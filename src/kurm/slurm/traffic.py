"""How much is asked of Slurm: for metrics, for benches, and for the tests that hold calls down."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Counts since it was made. A route is a path without names: `GET node/{}`; so there are few.

    Bytes are those of bodies, without headers.
    """

    calls: Counter[str] = field(default_factory=Counter)
    """Requests that were sent, by route."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Those that raised, by route and the error's type."""
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    """Time that callers have waited, all together."""

    @property
    def total(self) -> int:
        """All requests."""
        return self.calls.total()
