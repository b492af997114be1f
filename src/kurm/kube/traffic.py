"""What was asked of the API server, counted: for metrics, and for tests of how little is asked."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Counts from the start of a session on; bodies alone, in bytes."""

    calls: Counter[str] = field(default_factory=Counter)
    """Requests that were sent, by HTTP's method; a watch is one."""
    sent: int = 0
    received: int = 0
