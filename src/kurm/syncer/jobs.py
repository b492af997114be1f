"""How many jobs are on the nodes that are to become free, and when the last of them ends.

Asked only while there is such a node: one that is draining, or one of a NodeSet that has more pods than it wants. Slurm
can list all jobs, or give one. A list is 27.5 KB for each job, and slurmrestd holds all of it at once. So the states of
all are asked for (79 bytes each), and each running job once: where a job runs does not change while it does.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from kurm.slurm.errors import ApiError, SlurmError
from kurm.slurm.hostlist import expand
from kurm.slurm.jobs import FINISHED, Job, get_job, job_states
from kurm.syncer.pool import Pool
from kurm.syncer.records import AT_ONCE, Records

log = structlog.get_logger("kurm.syncer")

TICK = 0.5
"""Seconds between looks whether there is such a node."""
EVERY = 5.0
"""Seconds between questions, at least."""
SHARE = 0.02
"""Of the time that questions may take."""
SOON = 4.0
"""For so many times as long as a question took no other is asked, not even for nodes of which nothing is known yet."""
KEPT = 60.0
"""Seconds after which a job on such a node is read again: its time limit may have been changed."""


@dataclass(frozen=True)
class Load:
    """The jobs on one node."""

    count: int
    end: int | None
    """When the last one ends by its time limit, in seconds since 1970; None for never."""


@dataclass(frozen=True)
class _Held:
    nodes: tuple[str, ...]
    end: int | None
    read_at: float


class Jobs:
    """The table of loads."""

    def __init__(self, pool: Pool, records: Records) -> None:
        self.pool, self.records = pool, records
        self._changed: Callable[[str], None] = lambda _: None
        self._loads: Mapping[str, Load] = {}
        self._told_of: set[str] = set()
        self._held: dict[str, _Held] = {}
        self._read_at, self._cost, self._problem = float("-inf"), 0.0, ""

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with each node whose load has changed."""
        self._changed = changed

    def load(self, node: str) -> Load | None:
        """Return the jobs on a node that is to become free; None for another one, or if none is known of."""
        return self._loads.get(node)

    async def run(self) -> None:
        """Follow them; never ends, cancel it."""
        while True:
            try:
                await self._once()
            except SlurmError as error:
                if str(error) != self._problem:
                    log.warning("jobs are not known", why=str(error))
                self._problem = str(error)
                self._forget()
            await asyncio.sleep(TICK)

    async def _once(self) -> None:
        wanted = self._wanted()
        if not wanted:
            self._forget()
            return
        pause = max(EVERY, self._cost / SHARE) if wanted <= self._told_of else max(TICK, SOON * self._cost)
        if self._now() < self._read_at + pause:
            return
        begun = self._now()
        await self._read(wanted)
        self._problem, self._told_of, self._read_at = "", wanted, self._now()
        self._cost = self._read_at - begun

    def _wanted(self) -> set[str]:
        """Return the nodes of which it is to be told: those with jobs that are draining, or may be chosen to go."""
        known = self.records.known or {}
        draining = {
            name for name in self.records.waiting if name in known and known[name].draining and known[name].busy
        }
        return draining | (self.pool.candidates() & known.keys())

    def _forget(self) -> None:
        # Slurm away, too: a slurmctld that has lost its state gives the ids of its jobs again.
        self._held.clear()
        self._told_of = set()
        self._publish({})

    async def _read(self, wanted: set[str]) -> None:
        session, deadline = self.records.session, self.records.pace.deadline
        running = [
            job.job_id
            for job in await job_states(session, deadline=deadline)
            if "PENDING" not in job.state and (FINISHED.isdisjoint(job.state) or "COMPLETING" in job.state)
        ]
        now, turns = self._now(), asyncio.Semaphore(AT_ONCE)
        held = {job: self._held[job] for job in running if job in self._held}
        old = {job for job, one in held.items() if one.read_at < now - KEPT and not wanted.isdisjoint(one.nodes)}

        async def read(job: str) -> None:
            async with turns:
                try:
                    found = await get_job(session, job, deadline=deadline)
                except ApiError:
                    held.pop(job, None)  # it has ended meanwhile
                else:
                    held[job] = _Held(expand(found.nodes), _end(found), now)

        await asyncio.gather(*(read(job) for job in running if job not in held or job in old))
        self._held = held
        on: dict[str, list[_Held]] = {}
        for one in held.values():
            for name in wanted.intersection(one.nodes):
                on.setdefault(name, []).append(one)
        # Of what is chosen by it the record is to say the same: it may be minutes old.
        known = self.records.known or {}
        self.records.hint(*(name for name in wanted & known.keys() if known[name].busy != (name in on)))
        self._publish({name: _load(jobs) for name, jobs in on.items()})

    def _publish(self, loads: Mapping[str, Load]) -> None:
        before, self._loads = self._loads, loads
        for name in before.keys() | loads.keys():
            if before.get(name) != loads.get(name):
                self._changed(name)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _load(jobs: list[_Held]) -> Load:
    ends = [one.end for one in jobs]
    known = [end for end in ends if end is not None]
    return Load(len(jobs), max(known) if known and len(known) == len(ends) else None)


def _end(job: Job) -> int | None:
    return None if job.time_limit.infinite else job.end_time.value
