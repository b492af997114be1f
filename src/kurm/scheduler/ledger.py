"""What Slurm holds for pods, as far as we know: the truth of a whole list, and what we did and heard since.

A job is known by its owner (the signature that it bears). The list is read when we start, after each start of
slurmctld, after an answer was lost, and now and then as a net. Hints of slurmctld's log and our own calls keep it up to
date between. What is not known for certain is not told: `jobs` returns None then, and nothing is done for its owner.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from kurm.domain.owner import Job, Phase
from kurm.slurm.controller import Allocation, Allocations, JobEvent
from kurm.slurm.hostlist import expand

log = structlog.get_logger("kurm.scheduler")

ENDED = 4096
"""Owners of whom it is remembered which jobs have ended; they are asked about a moment later."""
MINE = 65536
"""Ids of jobs that are remembered as ours."""
_GRES = re.compile(r"gres/([^,]+)")
_PHASES = {"PENDING": Phase.QUEUED, "COMPLETING": Phase.ENDING}
"""By squeue's word for a job's state; any other (RUNNING, CONFIGURING, SUSPENDED, ...) holds nodes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A live job, and whose it is."""

    owner: str
    job: Job
    epoch: str
    name: str = ""
    """`namespace/name.uid8`."""
    reason: str = ""
    """Why it waits, in Slurm's word."""
    ours: bool = False
    """Whether this process has asked for it."""
    waited: bool = False
    """Whether it was queued."""
    gres: tuple[str, ...] | None = None
    """What it has asked of each of its nodes, `gpu:h100:4`; None if that is not known."""
    noted_at: float = 0.0
    """When we did or heard what this says: a list that was begun before does not know it."""


class Ledger:
    """The jobs of one cluster's pods. `cluster` returns the UID that signatures bear; empty while it is not known."""

    def __init__(self, cluster: Callable[[], str]) -> None:
        self._cluster = cluster
        self.epoch = ""
        self.known = False
        """Whether a whole list of this life of slurmctld is held."""
        self.open = False
        """Whether slurmctld gives out nodes: what was bound before its start is pinned again."""
        self.problem = "not asked yet"
        """Why Slurm is not asked now, for people; empty while all is well."""
        self.listed_at = float("-inf")
        self._entries: dict[int, Entry] = {}
        self._owners: dict[str, tuple[int, ...]] = {}  # their jobs, in order; no sets: most have one job, and are many
        self._ended: dict[str, dict[int, str]] = {}
        self._over: dict[int, float] = {}  # when we heard that a job has ended: an older list has it still
        self._ending: set[int] = set()  # which we have told Slurm to end: that they end says nothing of a pod
        self._listed: dict[int, int] = {}  # hashes of what the list said: it is only compared
        self._unsure: dict[str, float] = {}
        self._look_at: Callable[[str], None] = lambda _: None
        self._look_at_all: Callable[[], None] = lambda: None
        self._withdrawn: dict[str, float] = {}
        self._queued = 0
        self._freed: Callable[[str, Job, tuple[Job, ...]], None] = lambda _owner, _job, _left: None
        self._started: Callable[[Job], None] = lambda _job: None
        self._wanted, self._moved = asyncio.Event(), asyncio.Event()
        self._mine: dict[int, None] = {}  # ids of jobs of this life that were ours, ended ones too

    def on_change(self, look_at: Callable[[str], None], look_at_all: Callable[[], None] = lambda: None) -> None:
        """Call `look_at` with each owner of which something has become known, `look_at_all` when all has.

        That is when Slurm answers again, however short it was away: who was looked at meanwhile was looked at in vain,
        and of one who has no job nothing here tells.
        """
        self._look_at, self._look_at_all = look_at, look_at_all

    def on_moved(self, freed: Callable[[str, Job, tuple[Job, ...]], None], started: Callable[[Job], None]) -> None:
        """Call `freed` when a job is no more, with its owner and the jobs that are left of that.

        Call `started` when a list shows one running that was queued: it may be looked at by nobody else.
        """
        self._freed, self._started = freed, started

    def signature(self, owner: str) -> str:
        """Return what a job of an owner bears."""
        return f"kurm:{self._cluster()}:{owner}"

    # Reads.

    def jobs(self, owner: str) -> tuple[Job, ...] | None:
        """Return the live jobs of an owner; None if it is not known which they are."""
        if self.problem or not self.known or owner in self._unsure:
            return None
        return tuple(self._entries[job].job for job in self._owners.get(owner, ()))

    def entry(self, job: int) -> Entry | None:
        """Return a live job."""
        return self._entries.get(job)

    def withdrawn(self, owner: str) -> float | None:
        """Return when a job of an owner was taken out of the queue by somebody else, None if none was."""
        return self._withdrawn.get(owner)

    def ended(self, owner: str) -> Mapping[int, str]:
        """Return which jobs of an owner have ended in this life of slurmctld, and how (empty: unknown)."""
        return self._ended.get(owner, {})

    @property
    def queues(self) -> bool:
        """Whether a job of ours may be queued."""
        return self._queued > 0

    def owners(self) -> tuple[str, ...]:
        """Return all for whom Slurm holds something."""
        return tuple(self._owners)

    def __len__(self) -> int:
        return len(self._entries)

    # What we did.

    def made(
        self,
        owner: str,
        job: int,
        phase: Phase,
        *,
        name: str,
        gres: tuple[str, ...] = (),
        pinned: bool = False,
        host: str = "",
    ) -> None:
        """Note a job that Slurm has just given us."""
        now = self._now()
        self._withdrawn.pop(owner, None)
        hosts = (host,) if host else ()
        made = Job(job, phase, hosts, pinned=pinned, granted_at=now)
        waited = phase is Phase.QUEUED
        self._put(Entry(owner, made, self.epoch, name, ours=True, waited=waited, gres=gres, noted_at=now))

    def amended(self, job: int, gres: tuple[str, ...]) -> None:
        """Note that a queued job asks for other GRES now; a list that was begun before does not know it."""
        entry = self._entries.get(job)
        if entry is not None:
            self._entries[job] = replace(entry, gres=gres, noted_at=self._now())

    def looked(self, job: int, slots: Mapping[str, int]) -> None:
        """Note where the slots of a job are."""
        self._change(job, slots=slots, hosts=tuple(slots))

    def doom(self, job: int) -> None:
        """Note that a job is to end when its pods are gone."""
        self._change(job, doomed=True)

    def cancelling(self, job: int) -> None:
        """Note that Slurm is about to be told to end a job. It may end before the answer is here, and is heard of then.

        For somebody else's doing it would end a pod that the job no longer stands for, or keep one from the queue.
        """
        self._ending.add(job)

    def cancelled(self, job: int) -> None:
        """Note that Slurm has heard that a job is to end."""
        self._over[job] = self._now()
        self._drop(job)

    def looked_back(self, owner: str, job: int, how: str) -> None:
        """Note how a job has ended."""
        self._remember(owner, job, how)

    def forget(self, owner: str) -> None:
        """Drop what is remembered of an owner that is gone."""
        self._withdrawn.pop(owner, None)
        self._ended.pop(owner, None)

    def unsure(self, owner: str) -> None:
        """Note that an answer was lost: what Slurm holds for an owner is unknown until a list is read."""
        self._unsure[owner] = self._now()
        self.want()

    def lose(self, why: str) -> None:
        """Note that Slurm does not answer."""
        if not self.problem:
            log.warning("slurm does not answer", why=why)
        self.problem = why
        self.want()

    # What we heard.

    def want(self) -> None:
        """Have the list read soon."""
        self._wanted.set()

    async def wanted(self, within: float) -> None:
        """Wait until somebody wants the list, at most so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._wanted.wait()
        except TimeoutError:
            return
        finally:
            self._wanted.clear()

    def mine(self, job: int) -> bool:
        """Whether a job of this life of slurmctld is or was one of ours."""
        return job in self._mine

    def heard(self, event: JobEvent) -> None:
        """Take in what the log says of a job. Of an immediate one it says nothing that its answer has not said."""
        entry = self._entries.get(event.id)
        if entry is None:
            return
        if event.event == "ended":
            if entry.job.phase is Phase.QUEUED and event.id not in self._ending:
                self._withdrawn[entry.owner] = self._now()
            self._over[event.id] = self._now()
            self._end(entry, told=True)
        elif entry.job.phase is Phase.QUEUED:
            now = self._now()
            # Where it runs is asked of Slurm: a user can write a line of the log.
            self._change(event.id, phase=Phase.RUNNING, granted_at=now)
            self._entries[event.id] = replace(self._entries[event.id], noted_at=now)
        else:
            return
        self._look_at(entry.owner)

    def renew(self, epoch: str) -> bool:
        """Note which life slurmctld is in; return whether it is another one: nothing is known of it then."""
        if epoch == self.epoch or not epoch:
            return False
        log.info("slurmctld was started", epoch=epoch, before=self.epoch)
        self.epoch, self.known, self.open = epoch, False, False
        self._ended.clear()
        self._mine.clear()
        self._over.clear()
        self._ending.clear()
        self.want()
        return True

    async def listed(self) -> None:
        """Wait until a whole list is known."""
        while not self.known:
            self._moved.clear()
            await self._moved.wait()

    async def closed(self) -> None:
        """Wait until all is known and nothing is given out: what is bound is to be looked at then."""
        while self.open or not self.known:
            self._moved.clear()
            await self._moved.wait()

    def replace(self, told: Allocations, begun: float) -> None:
        """Take in the whole list, asked for at `begun`; owners of whom it says something new are looked at."""
        self.renew(told.epoch)
        first, away = not self.known, bool(self.problem)
        self.known, self.problem, self.listed_at = True, "", begun
        self._moved.set()
        prefix = self.signature("")
        listed = {one.id: one for one in told.jobs if one.signature.startswith(prefix)}
        changed = {owner for owner, since in self._unsure.items() if since <= begun}
        self._unsure = {owner: since for owner, since in self._unsure.items() if since > begun}
        changed |= self._drop_all_but(listed, begun)
        older = set[int]()  # than what we did or heard of them since
        for job, one in listed.items():
            before = self._entries.get(job)
            if self._over.get(job, float("-inf")) >= begun or (before and before.noted_at >= begun):
                older.add(job)
                continue
            if before is not None and before.epoch == self.epoch and self._listed.get(job) == hash(one):
                continue
            entry = self._entry(one, one.signature.removeprefix(prefix), before)
            if before is None or before.job != entry.job or before.reason != entry.reason:
                changed.add(entry.owner)
            if before is not None and before.owner != entry.owner:
                changed.add(before.owner)
            self._put(entry)
            if before is not None and before.job.phase is Phase.QUEUED and entry.job.phase is Phase.RUNNING:
                self._started(entry.job)
        self._listed = {job: hash(one) for job, one in listed.items() if job not in older}
        self._over = {job: since for job, since in self._over.items() if since >= begun}
        # While Slurm was away its owners were looked at in vain, also those whose last job has ended meanwhile.
        for owner in {*changed, *self._owners, *self._ended} if first or away else changed:
            self._look_at(owner)
        if first or away:
            self._look_at_all()

    def _drop_all_but(self, listed: Collection[int], begun: float) -> set[str]:
        """Drop what a list does not have, and return the owners; what we did since it was asked for it cannot have."""
        changed = set()
        for entry in [entry for job, entry in self._entries.items() if job not in listed]:
            if entry.noted_at >= begun:
                if entry.epoch != self.epoch:  # given in a life that has ended, or in this one: the next list tells
                    self.unsure(entry.owner)
                continue
            self._end(entry, told=entry.epoch == self.epoch)  # or else it was forgotten
            changed.add(entry.owner)
        return changed

    def _entry(self, one: Allocation, owner: str, before: Entry | None) -> Entry:
        now = self._now()
        phase = _PHASES.get(one.state, Phase.RUNNING)
        hosts = _expanded(one.nodes) if phase is not Phase.QUEUED else ()
        # A job of an earlier life may have had this id: what we knew of it says nothing of this one.
        known = before.job if before and before.epoch == self.epoch and before.owner == owner else None
        same = known is not None and known.phase is phase and known.hosts == hosts
        job = Job(
            one.id,
            phase,
            hosts,
            slots=known.slots if known and same else None,
            pinned=one.partition == "pin",
            ends_at=now + max(one.ends - time.time(), 0.0) if one.preempt else None,
            doomed=known.doomed if known else False,
            granted_at=known.granted_at if known and same else now,
        )
        if known and known.ends_at is not None and job.ends_at is not None:
            job = replace(job, ends_at=known.ends_at)  # seconds between two clocks; the same moment stays the same
        waited = phase is Phase.QUEUED or (before is not None and before.waited)
        ours, gres = bool(before and before.ours), None if one.gres is None else tuple(_GRES.findall(one.gres))
        return Entry(owner, job, self.epoch, one.name, one.reason, ours=ours, waited=waited, gres=gres)

    def _put(self, entry: Entry) -> None:
        before = self._entries.get(entry.job.id)
        if before is not None and before.owner != entry.owner:
            self._drop(entry.job.id)  # slurmctld has forgotten that job, and has given its id to another's
            before = None
        self._count(before, entry)
        self._entries[entry.job.id] = entry
        self._mine[entry.job.id] = None
        while len(self._mine) > MINE:
            del self._mine[next(iter(self._mine))]
        self._owners[entry.owner] = tuple(sorted({*self._owners.get(entry.owner, ()), entry.job.id}))

    def _change(self, job: int, **what: object) -> None:
        entry = self._entries.get(job)
        if entry is not None:
            changed = replace(entry.job, **what)  # type: ignore[arg-type]  # each caller names fields of Job
            self._entries[job] = replace(entry, job=changed)
            self._count(entry, self._entries[job])

    def _count(self, before: Entry | None, now: Entry | None) -> None:
        self._queued += sum(one.job.phase is Phase.QUEUED for one in (now,) if one is not None)
        self._queued -= sum(one.job.phase is Phase.QUEUED for one in (before,) if one is not None)

    def _end(self, entry: Entry, *, told: bool) -> None:
        """Drop a job that is no more; remember it if it was `told` of in this life, and is not our own doing."""
        ours = entry.job.id in self._ending
        self._drop(entry.job.id)
        if told and not ours:
            self._remember(entry.owner, entry.job.id, "")

    def _drop(self, job: int) -> None:
        self._ending.discard(job)
        entry = self._entries.pop(job, None)
        if entry is not None:
            self._count(entry, None)
            others = tuple(one for one in self._owners.pop(entry.owner) if one != job)
            if others:
                self._owners[entry.owner] = others
            self._freed(entry.owner, entry.job, tuple(self._entries[one].job for one in others))

    def _remember(self, owner: str, job: int, how: str) -> None:
        self._ended[owner] = {**self._ended.pop(owner, {}), job: how}
        while len(self._ended) > ENDED:
            del self._ended[next(iter(self._ended))]

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _expanded(hosts: str) -> tuple[str, ...]:
    try:
        return tuple(expand(hosts))
    except ValueError:
        return ()  # as "(null)"
