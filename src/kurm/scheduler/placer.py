"""Brings each owner to where it ought to be: its job in Slurm, its pods in Kubernetes. One worker at a time for each.

A look takes a snapshot of both sides, has `kurm.domain.allocation` decide, does it by hand, and looks again until
nothing is left to do: a pod for which there is room is placed in one look of one call of Slurm's and one write. What
fails is repeated by a later look, from what is there then.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from kurm.domain import allocation
from kurm.domain.steps import Bind, EndPod, Instruction, Report, Tell, Wait
from kurm.kube.backoff import Backoff
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.lease import LeadershipLost
from kurm.kube.queue import Queue
from kurm.scheduler.binding import Binding
from kurm.scheduler.hand import Hand
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.metrics import Metrics
from kurm.scheduler.nudge import Nudge
from kurm.scheduler.owners import Owners
from kurm.scheduler.pool import Pool
from kurm.scheduler.prospects import Prospects
from kurm.scheduler.sight import Case, Sight
from kurm.scheduler.starts import Starts
from kurm.scheduler.telling import Telling
from kurm.scheduler.volumes import Volumes
from kurm.slurm.session import Session as SlurmSession

WORKERS = 32
"""Owners in work at once: some at slurmrestd, which has two threads for each CPU, others at slurmctld's init or at the
API server. 1,000 nodes on two cores take 298 pods a second with 16, 333 with 32, 345 with 64 (means of four runs)."""
STEPS = 12
"""Most rounds of one look; two or three place a pod, seven undo and redo what a restart has left."""
BACKOFF = Backoff(first=0.2, most=5.0, jitter=0.2)
"""At most 5 s: what fails while the API server is away has to be done within ten after its return (P1)."""
HOPELESS = 3
"""Failures in a row after which a pod that cannot be pinned holds nobody up any more."""


class Placer:
    """The loop. `leads` says whether we may write at this very moment."""

    def __init__(
        self,
        slurm: SlurmSession,
        *,
        pool: Pool,
        owners: Owners,
        ledger: Ledger,
        prospects: Prospects,
        volumes: Volumes,
        binding: Binding,
        telling: Telling,
        starts: Starts,
        metrics: Metrics,
        leads: Callable[[], bool],
    ) -> None:
        self.pool, self.owners, self.ledger = pool, owners, ledger
        self.binding, self.volumes, self.telling = binding, volumes, telling
        self.sight = Sight(pool, owners, ledger, binding, prospects)
        self.nudge, self.starts = Nudge(slurm, ledger), starts
        self.hand = Hand(
            slurm,
            owners=owners,
            ledger=ledger,
            prospects=prospects,
            volumes=volumes,
            binding=binding,
            sight=self.sight,
            nudge=self.nudge,
            starts=starts,
            metrics=metrics,
        )
        self._leads = leads
        queue: Queue[str] = Queue(backoff=BACKOFF)
        self.controller: Controller[str] = Controller("pods", self.look, workers=WORKERS, deadline=60.0, queue=queue)
        self.looked: Callable[[str], None] = lambda _: None
        """Told each owner for whom nothing is left to do now."""
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Work; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run(sync_within=float("inf")))
            tasks.create_task(self.nudge.run())
            tasks.create_task(self.starts.run())

    def look_at(self, owner: str) -> None:
        """Have an owner looked at."""
        self.controller.queue.add(owner)

    async def look(self, owner: str) -> Result:
        """Bring one owner to where it ought to be."""
        if self.pool.problem:
            return Again(1.0, self.pool.problem)
        wish, read = None, set[str]()
        for _ in range(STEPS):
            if await self._read(owner, read):
                wish = None  # it was made without them
            case = self.sight.case(owner, wish)
            steps = allocation.decide(case.seen)
            acts = [step for step in steps if not isinstance(step, Tell | Report | Wait)]
            self._say(case, steps)
            if not acts:
                return self._settled(case, steps)
            if not self._leads():
                raise LeadershipLost("the Lease ran out before a write")
            if not await self.hand.carry_out(case, acts):
                self._failures[owner] = self._failures.get(owner, 0) + 1
                left = self.sight.taken_in(owner)
                delay = BACKOFF.delay(self._failures[owner])
                return Again(min(delay, left) if left > 0 else delay, "it could not be done")
            if all(isinstance(act, Bind) for act in acts) and self._all_bound(owner):
                return self._settled(case, ())  # the watch brings them back
            if all(isinstance(act, EndPod) for act in acts):
                return Again(1.0, "its pods are told to end")  # until the watch shows that, they would be told again
            # With a job there is nothing more to ask; without one, what there is room for may be another thing now.
            wish = case.wish if self.ledger.jobs(owner) else None
        return Again(1.0, "it takes many steps")

    async def _read(self, owner: str, read: set[str]) -> bool:
        """Read what no watch tells of pods that are not yet `read`, until none is left: some may come meanwhile.

        Return whether there were any. Raises KubeError.
        """
        before = len(read)
        while (members := self.owners.get(owner)) and (
            pods := [members.pods[uid] for uid in members.pods.keys() - read]
        ):
            await self.binding.resolve(pods)
            await self.volumes.read(pods)
            read.update(pod.metadata.uid for pod in pods)
        return len(read) > before

    def _settled(self, case: Case, steps: Iterable[Instruction]) -> Result:
        self._failures.pop(case.owner, None)
        if case.seen.jobs is not None:  # or nothing was done for want of an answer, and the gate is not to open yet
            self.looked(case.owner)
        if case.members is None and not case.seen.jobs:
            self.sight.forget(case.owner)
        waits = [step.seconds for step in steps if isinstance(step, Wait)]
        return Again(min(waits)) if waits else DONE

    def gives_up(self, owner: str) -> bool:
        """Whether what an owner needs could not be done for a while: others need not wait for it."""
        return self._failures.get(owner, 0) >= HOPELESS and not self.ledger.problem

    def _all_bound(self, owner: str) -> bool:
        members = self.owners.get(owner)
        return members is not None and all(self.binding.where(pod).node for pod in members.pods.values())

    def _say(self, case: Case, steps: Iterable[Instruction]) -> None:
        if case.members is None:
            return
        for step in steps:
            if isinstance(step, Report) and (pod := case.pod(step.pod)) is not None:
                self.telling.report(pod, step.reason, step.message)
        told = next((step for step in steps if isinstance(step, Tell)), None)
        if told is not None and case.seen.jobs:
            entry = self.ledger.entry(case.seen.jobs[0].id)
            if entry is not None and entry.reason not in {"", "None"}:
                told = replace(told, message=f"{told.message}: {entry.reason}")
        waiting = [pod for pod in case.members.pods.values() if not (self.binding.where(pod).node or pod.over)]
        for pod in waiting:
            self.telling.say(pod, told)
