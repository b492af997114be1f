"""Has Slurm look at its queue when something is free again, which it does not always do at once by itself."""

import asyncio
from collections.abc import Iterable

import structlog

from kurm.scheduler.ledger import Ledger
from kurm.slurm import allocations
from kurm.slurm.controller import JobEvent
from kurm.slurm.errors import SlurmError
from kurm.slurm.session import Session as SlurmSession

log = structlog.get_logger("kurm.scheduler")

EVERY = 0.1
"""Seconds, the least between two nudges: each has slurmctld look through its whole queue."""


class Nudge:
    """One nudge for all that is freed together."""

    def __init__(self, slurm: SlurmSession, ledger: Ledger) -> None:
        self._slurm, self._ledger = slurm, ledger
        self._due, self._node = asyncio.Event(), ""

    def freed(self, node: str) -> None:
        """Heed that we have ended a job, and on which node; empty if that is not known."""
        self._node = node or self._node
        self._due.set()

    def heard(self, events: Iterable[JobEvent]) -> None:
        """Heed that jobs have ended: of one that was preempted nobody else has Slurm look at its queue."""
        if self._ledger.queues and any(event.event == "ended" for event in events):
            self._due.set()

    async def run(self) -> None:
        """Nudge; never ends, cancel it."""
        while True:
            await self._due.wait()
            self._due.clear()
            if not self._ledger.problem:
                try:
                    await allocations.nudge(self._slurm, node=self._node)
                except SlurmError as error:
                    log.debug("slurm was not nudged", why=str(error))
            await asyncio.sleep(EVERY)
