"""How long to wait after a failure: longer each time, never twice the same."""

import random
from dataclasses import dataclass

TICK = 0.001
"""Seconds, the least to sleep until a moment. asyncio wakes a sleeper up to its clock's resolution early: one who then
finds the moment not come and sleeps for the rest, which is no time at all, turns in circles until the clock has caught
up. That is nanoseconds as a rule, and for ever on the virtual time of the tests."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with jitter, in seconds.

    Jitter takes away up to half of a delay: after an outage of the API server a thousand clients must not come back in
    one instant, nor together again a doubling later.
    """

    first: float
    most: float
    jitter: float = 0.5

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row (1 is the first)."""
        exponent = min(failures - 1, 32)  # 2**32 seconds is past any `most`; an unbounded exponent overflows a float
        whole: float = min(self.first * 2**exponent, self.most)
        return whole * (1 - self.jitter * random.random())  # noqa: S311 - jitter is no secret
