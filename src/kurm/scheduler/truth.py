"""What Slurm says: the list of all allocations, the hints of slurmctld's log, and slurmctld's lives.

After each start of slurmctld nothing is given out until what is bound is pinned again; then it is told so.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from kurm.kube.backoff import Backoff
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.metrics import Metrics
from kurm.slurm.controller import JobEvent, OtherEpoch, SlurmctldInit, Untold
from kurm.slurm.errors import SlurmError
from kurm.slurm.session import Session

log = structlog.get_logger("kurm.scheduler")

EVERY = 10.0
"""Seconds between two lists while hints come: a net for what neither we nor the log have told."""
DEAF = 4.0
"""Seconds between two lists while no hints come: a pod whose job has ended is to be seen within ten."""
LEAST = 0.2
"""Seconds between two lists, whoever wants them."""
SOON, GATHER = 0.01, 0.25
"""Seconds for which hints gather: while a job of ours is queued, and while none is."""
RETRY = 1.0
"""Seconds until a Slurm that does not answer is asked again."""
BACKOFF = Backoff(first=0.2, most=5.0)


class Truth:
    """The loops. `bound` returns the owners whose pods or jobs are to be looked at after a start of slurmctld."""

    def __init__(
        self,
        slurm: Session,
        init: SlurmctldInit,
        *,
        ledger: Ledger,
        metrics: Metrics,
        heard: Callable[[Sequence[JobEvent]], None],
    ) -> None:
        self.slurm, self.ledger = slurm, ledger
        self._init, self._metrics, self._heard = init, metrics, heard
        self.hears = False
        self._next = 0
        self._recovering: set[str] | None = None
        self._since = 0.0
        self.bound: Callable[[], Iterable[str]] = tuple
        self.opened: Callable[[], None] = lambda: None
        self.missed: Callable[[], None] = lambda: None
        """Called when jobs may have started and ended of which no hint told."""
        self.given_up: Callable[[str], bool] = lambda _: False
        self._recovered = asyncio.Event()

    async def run(self) -> None:
        """Follow Slurm; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._list())
            tasks.create_task(self._listen())

    def looked(self, owner: str) -> None:
        """Heed that nothing is left to do for an owner."""
        if self._recovering is not None:
            self._recovering.discard(owner)
            if not self._recovering:
                self._recovered.set()

    def awaited(self) -> tuple[str, ...]:
        """Return the owners for whom the gate is not open yet; some have neither pods nor jobs any more."""
        return tuple(self._recovering or ())

    # The list.

    async def _list(self) -> None:
        while True:
            begun = self._now()
            try:
                if self.ledger.problem and not (await self.slurm.ping(deadline=5.0)).responding:
                    raise Untold("slurmctld does not answer")
                self.ledger.replace(await self._init.allocations(), begun)
            except SlurmError as error:
                self.ledger.lose(str(error))
                await asyncio.sleep(RETRY)
                continue
            await asyncio.sleep(LEAST)
            await self.ledger.wanted(EVERY if self.hears else DEAF)

    # Hints.

    async def _listen(self) -> None:
        failures, problem = 0, ""
        while True:
            try:
                told = await self._init.job_events(self._next)
            except Untold as error:
                self.hears = False
                failures += 1
                if str(error) != problem:
                    problem = str(error)
                    log.warning("no hints from slurmctld's log", why=problem)
                await asyncio.sleep(BACKOFF.delay(failures))
                continue
            missed = told.lost or (not self.hears and self._next > 0)
            failures, problem, self._next = 0, "", told.next
            renewed = self.ledger.renew(told.epoch)
            if told.lost or renewed or not self.hears:
                self.ledger.want()
            if missed:
                self.missed()
            self.hears = True
            for event in told.jobs:
                self.ledger.heard(event)
            self._heard(told.jobs)
            # Each start of ours is a hint, too. What is not waited for may gather, or a pod costs a request more.
            await asyncio.sleep(SOON if self.ledger.queues else GATHER)

    # A new life of slurmctld.

    async def recover(self, look_at: Callable[[str], None]) -> None:
        """After each start of slurmctld have all that is bound looked at, then open the gate; never ends.

        Only for whoever leads.
        """
        while True:
            await self.ledger.closed()
            epoch = self.ledger.epoch
            try:
                await self._recover(epoch, look_at)
            except Untold as error:
                log.warning("the gate is not open", why=str(error))
                await asyncio.sleep(RETRY)

    async def _recover(self, epoch: str, look_at: Callable[[str], None]) -> None:
        begun = self._now()
        owners = set(self.bound())
        self._recovering, self._recovered = set(owners), asyncio.Event()
        log.info("looks at what is bound", owners=len(owners), epoch=epoch)
        for owner in owners:
            look_at(owner)
        while self._recovering and self.ledger.epoch == epoch:
            try:
                async with asyncio.timeout(0.5):
                    await self._recovered.wait()
            except TimeoutError:
                self._recovering -= {owner for owner in self._recovering if self.given_up(owner)}
        self._recovering = None
        if self.ledger.epoch != epoch:
            return
        status = await self._init.status()
        if status.gate == "closed":
            try:
                await self._init.open_gate(epoch)
            except OtherEpoch:
                self.ledger.want()
                await asyncio.sleep(RETRY)
                return
        if self.ledger.epoch == epoch:
            self.ledger.open = True
            self._metrics.recovered.observe(self._now() - begun)
            log.info("gives out nodes", owners=len(owners), seconds=round(self._now() - begun, 3), gate=status.gate)
            self.opened()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
