"""On which nodes jobs have started that Slurm has just given us: asked of slurmctld's init, for many at once.

Slurm's answer to an allocation has no node. Its own call for that costs a fifth of all that placing a pod does, as each
call keeps five threads of slurmctld's waking one another; the init has read the node in the log by then. What it cannot
say for certain is asked of Slurm.
"""

import asyncio

import structlog

from kurm.slurm.controller import JobNodes, SlurmctldInit, Untold

log = structlog.get_logger("kurm.scheduler")

AGAIN = 5.0
"""Seconds for which an init that did not answer is not asked."""
NONE = JobNodes("", {})


class Starts:
    """Who asks while a question is on its way waits for the next one, which is for all of them."""

    def __init__(self, init: SlurmctldInit) -> None:
        self._init = init
        self._wanted: dict[int, asyncio.Future[JobNodes]] = {}
        self._some = asyncio.Event()
        self._away_until = float("-inf")

    async def run(self) -> None:
        """Ask; never ends, cancel it."""
        while True:
            await self._some.wait()
            self._some.clear()
            wanted, self._wanted = self._wanted, {}
            told = await self._ask(wanted)
            for waiter in wanted.values():
                if not waiter.done():
                    waiter.set_result(told)

    async def _ask(self, jobs: dict[int, asyncio.Future[JobNodes]]) -> JobNodes:
        try:
            return await self._init.job_nodes(jobs)
        except Untold as error:
            log.debug("Slurm is asked where jobs have started", why=str(error))
            self._away_until = asyncio.get_running_loop().time() + AGAIN
            return NONE

    async def node(self, job: int, epoch: str) -> str:
        """Return the node of a job of this life of slurmctld; empty if Slurm has to be asked."""
        if asyncio.get_running_loop().time() < self._away_until:
            return ""
        waiter = self._wanted.setdefault(job, asyncio.get_running_loop().create_future())
        self._some.set()
        told = await waiter
        return told.nodes.get(job, "") if told.epoch == epoch else ""
