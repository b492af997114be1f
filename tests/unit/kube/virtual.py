"""A story on virtual time, from a test that is not async itself: one event loop for each of Hypothesis' examples."""

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any

import looptime

# The loop looks so often for IO before it lets time pass. Loopback IO is there at once, so a few looks are enough, and
# the default of 42 makes most of a long story's real time.
LOOKS = 8


def run_virtually(story: Coroutine[Any, Any, None]) -> None:
    """Run it to its end; the time that it sleeps takes none."""
    with asyncio.Runner(loop_factory=functools.partial(looptime.new_event_loop, noop_cycles=LOOKS)) as runner:
        runner.run(story)
