"""The hints of slurmctld's log: which nodes it has spoken of, followed over HTTP at slurmctld's init.

While they come, nobody has to ask slurmctld for all nodes in case something has changed. They are hints: one that does
not come costs time and nothing else. What may have been missed (the init was started again, the ring was too short, we
start ourselves) is one list on the condition that anything has changed.
"""

import asyncio

import structlog

from kurm.kube.backoff import Backoff
from kurm.slurm.controller import SlurmctldInit, Untold
from kurm.slurm.hostlist import expand
from kurm.syncer.records import Records

log = structlog.get_logger("kurm.syncer")

BACKOFF = Backoff(first=0.5, most=10.0)


class Hints:
    """Follows them."""

    def __init__(self, init: SlurmctldInit, records: Records, *, backoff: Backoff = BACKOFF) -> None:
        self._init, self.records = init, records
        self.answers = self.failures = self.hints = 0
        """Counted since the start."""
        self._backoff = backoff
        self._next = 0

    async def run(self) -> None:
        """Follow them; never ends, cancel it."""
        failures, problem = 0, ""
        while True:
            try:
                await self._once()
            except Untold as error:
                self.records.hears = False
                self.failures += 1
                failures += 1
                if str(error) != problem:
                    problem = str(error)
                    log.warning("no hints from slurmctld's log", why=problem)
                await asyncio.sleep(self._backoff.delay(failures))
            else:
                if failures:
                    log.info("hints from slurmctld's log again")
                failures, problem = 0, ""

    async def _once(self) -> None:
        answer = await self._init.hints(self._next)
        names = [name for hosts in answer.nodes for name in _expanded(hosts)]
        self.answers += 1
        self.hints += len(names)
        self._next = answer.next
        self.records.hears = True
        if answer.lost:
            self.records.recheck()
        else:
            self.records.heard(names)


def _expanded(hosts: str) -> tuple[str, ...]:
    try:
        return tuple(expand(hosts))
    except ValueError:
        return ()  # a line that only looked like one about a node
