"""Carries out what is decided for each owner: its job in Slurm, its pods in Kubernetes. One worker at a time for each.

A look takes a snapshot of both sides, has `kurm.domain.allocation` decide, does it, and looks again until nothing is
left to do: a pod for which there is room is placed in one look of two calls of Slurm's and one write. What fails is
repeated by a later look, from what is there then.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from kurm.domain import allocation
from kurm.domain.gangs import natural
from kurm.domain.owner import Phase
from kurm.domain.steps import (
    Allocate,
    Amend,
    Bind,
    Cancel,
    Doom,
    EndPod,
    Instruction,
    Look,
    LookBack,
    Pin,
    Report,
    Submit,
    Tell,
    Wait,
)
from kurm.kube.backoff import Backoff
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.errors import KubeError
from kurm.kube.lease import LeadershipLost
from kurm.kube.queue import Queue
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.metrics import Metrics
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Owners
from kurm.scheduler.pool import Pool
from kurm.scheduler.prospects import Prospects, Wish
from kurm.scheduler.sight import Case, Sight
from kurm.scheduler.telling import Telling
from kurm.scheduler.volumes import Volumes
from kurm.slurm import allocations, jobs, nodes
from kurm.slurm.controller import JobEvent
from kurm.slurm.errors import ApiError, Behind, ControllerAway, NoRoom, NotFound, SlurmError, StillHeld, Unauthorized
from kurm.slurm.session import Session as SlurmSession

log = structlog.get_logger("kurm.scheduler")

WORKERS = 16
"""Owners in work at once. slurmrestd has two threads for each CPU; the others wait for binds meanwhile."""
STEPS = 12
"""Most rounds of one look; three place a pod, seven undo and redo what a restart has left."""
AT_ONCE = 16
"""Most writes of one gang at once."""
BACKOFF = Backoff(first=0.2, most=30.0, jitter=0.2)
HOPELESS = 3
"""Failures in a row after which a pod that cannot be pinned holds nobody up any more."""
NUDGE_EVERY = 0.1
"""Seconds, the least between two nudges: each has slurmctld look through its whole queue."""
PASSING = (ControllerAway, Unauthorized)
"""Errors of Slurm's that say nothing of the request."""


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
        metrics: Metrics,
        leads: Callable[[], bool],
    ) -> None:
        self.slurm, self.pool, self.owners, self.ledger = slurm, pool, owners, ledger
        self.prospects, self.binding, self.telling, self.metrics = prospects, binding, telling, metrics
        self.volumes = volumes
        self.sight = Sight(pool, owners, ledger, binding, prospects)
        self._leads = leads
        queue: Queue[str] = Queue(backoff=BACKOFF)
        self.controller: Controller[str] = Controller("pods", self.look, workers=WORKERS, deadline=60.0, queue=queue)
        self.looked: Callable[[str], None] = lambda _: None
        """Told each owner for whom nothing is left to do now."""
        self._failures: dict[str, int] = {}
        self._nudge, self._freed = asyncio.Event(), ""

    async def run(self) -> None:
        """Work; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run(sync_within=float("inf")))
            tasks.create_task(self._nudge_slurm())

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
            if not await self._carry_out(case, acts):
                self._failures[owner] = self._failures.get(owner, 0) + 1
                left = self.sight.taken_in(owner)
                delay = BACKOFF.delay(self._failures[owner])
                return Again(min(delay, left) if left > 0 else delay, "it could not be done")
            if all(isinstance(act, Bind) for act in acts) and self._all_bound(owner):
                return self._settled(case, ())  # the watch brings them back
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
                self.telling.report(pod, step.message)
        told = next((step for step in steps if isinstance(step, Tell)), None)
        if told is not None and case.seen.jobs:
            entry = self.ledger.entry(case.seen.jobs[0].id)
            if entry is not None and entry.reason not in {"", "None"}:
                told = replace(told, message=f"{told.message}: {entry.reason}")
        waiting = [pod for pod in case.members.pods.values() if not (self.binding.where(pod).node or pod.over)]
        for pod in waiting:
            self.telling.say(pod, told)

    # What is done.

    async def _carry_out(self, case: Case, acts: Sequence[Instruction]) -> bool:
        """Do it; return whether all of it was done."""
        for act in acts:
            self.metrics.steps.labels(type(act).__name__).inc()
        turns = asyncio.Semaphore(AT_ONCE)
        done = [await self._safely(case, act) for act in acts if not isinstance(act, Bind | Pin | EndPod)]

        async def one(act: Instruction) -> bool:
            async with turns:
                return await self._safely(case, act)

        together = [act for act in acts if isinstance(act, Bind | Pin | EndPod)]
        if case.seen.wanted > 1 and any(isinstance(act, Bind) for act in acts):
            self.sight.bound(case.owner)
        if len(together) == 1:
            done.append(await self._safely(case, together[0]))
        elif together:
            done += await asyncio.gather(*map(one, together))
        return all(done)

    async def _safely(self, case: Case, act: Instruction) -> bool:
        try:
            return await self._do(case, act)
        except ApiError as error:
            self.metrics.failures.labels("slurm", type(error).__name__).inc()
            if isinstance(error, PASSING):
                self.ledger.unsure(case.owner)
                self.ledger.lose(str(error))
            else:
                log.warning("slurm refuses", owner=case.owner, step=type(act).__name__, why=str(error))
            return False
        except SlurmError as error:
            self.metrics.failures.labels("slurm", type(error).__name__).inc()
            self.ledger.unsure(case.owner)
            self.ledger.lose(str(error))
            return False
        except KubeError as error:
            self.metrics.failures.labels("kube", type(error).__name__).inc()
            log.warning("not written", owner=case.owner, step=type(act).__name__, why=str(error))
            return False

    async def _do(self, case: Case, act: Instruction) -> bool:  # noqa: C901, PLR0911 - a table
        match act:
            case Allocate():
                return await self._allocate(case)
            case Submit():
                return await self._submit(case)
            case Amend(job=job):
                return await self._amend(case, job)
            case Look(job=job):
                return await self._look_up(case, job)
            case LookBack(job=job):
                return await self._look_back(case.owner, job)
            case Bind():
                return await self._bind(case, act)
            case Pin():
                return await self._pin(case, act)
            case Cancel():
                return await self._cancel(case, act)
            case Doom(job=job):
                self.ledger.doom(job)
                return True
            case EndPod():
                pod = case.pod(act.pod)
                return pod is None or await self.binding.end(pod, act)
            case _:
                raise TypeError(f"nothing is done for {act}")

    async def _allocate(self, case: Case) -> bool:
        if case.wish is None:
            return False
        wish, epoch = case.wish, self.ledger.epoch
        try:
            job = await allocations.allocate(self.slurm, wish.request, excluded=wish.excluded)
        except (NoRoom, Behind):
            self.prospects.no_room(wish)
            return True  # the next round queues it
        except StillHeld:
            self.ledger.unsure(case.owner)
            return False
        except PASSING:
            raise
        except ApiError as error:
            self.sight.refused(case.owner, str(error))
            return True
        return self._made(case.owner, wish, job, Phase.RUNNING, epoch=epoch)

    async def _submit(self, case: Case) -> bool:
        if case.wish is None:
            return False
        wish, epoch = case.wish, self.ledger.epoch
        try:
            job = await allocations.submit(self.slurm, wish.request, excluded=wish.excluded)
        except PASSING:
            raise
        except ApiError as error:
            self.sight.refused(case.owner, str(error))
            return True
        self.sight.asked(case.owner, wish)
        return self._made(case.owner, wish, job, Phase.QUEUED, epoch=epoch)

    async def _amend(self, case: Case, job: int) -> bool:
        if case.wish is not None:
            self.sight.asked(case.owner, case.wish)
            with contextlib.suppress(NotFound):  # it has started, or was cancelled
                await allocations.exclude(self.slurm, job, case.wish.excluded)
        return True

    def _made(self, owner: str, wish: Wish, job: int, phase: Phase, *, epoch: str, host: str = "") -> bool:
        if not job or self.ledger.epoch != epoch:  # whether it is of this life of slurmctld nobody knows
            self.ledger.unsure(owner)
            return False
        name = allocations.pin_name(wish.request, host) if host else wish.request.name
        self.ledger.made(owner, job, phase, name=name, pinned=bool(host), host=host)
        return True

    async def _look_up(self, case: Case, job: int) -> bool:
        wish = self.sight.wish_of(case)
        if wish is None:
            return False
        try:
            found = await allocations.layout(self.slurm, job, wish.request)
        except NotFound:  # it has ended, or has just not begun
            self.ledger.unsure(case.owner)
            return False
        self.ledger.looked(job, {node: found[node] for node in sorted(found, key=natural)})
        self.prospects.granted(case.owner, wish, self.ledger.jobs(case.owner) or ())
        return True

    async def _look_back(self, owner: str, job: int) -> bool:
        found = await jobs.job_states(self.slurm, [job])
        states = [state for one in found for state in one.state]
        ended = next((state for state in states if state in jobs.FINISHED), "")
        if states and not ended:
            self.ledger.unsure(owner)  # it lives after all
            return False
        self.ledger.looked_back(owner, job, ended or "its record is gone")
        return True

    async def _bind(self, case: Case, act: Bind) -> bool:
        pod, entry = case.pod(act.pod), self.ledger.entry(act.job)
        if pod is None or entry is None:
            return True
        if self.volumes.needs(pod).waiting and not await self._reaches(case, pod, act.node):
            self.sight.avoid(case.owner, [act.node])
            return True  # the next round gives the node up
        self.prospects.count(pod, act.node)
        if await self.binding.bind(pod, act, epoch=entry.epoch, owner=case.owner):
            way = "queue" if entry.waited else "now"
            self.metrics.to_bound.labels(way).observe(self.owners.seen_for(act.pod))
        else:
            self.prospects.discount(pod)
        return True

    async def _reaches(self, case: Case, pod: Pod, node: str) -> bool:
        """Have the volumes made for which a pod waits; return whether they are there, and can be reached from the node.

        The node is a hint to a provisioner, and one whose volumes are of other nodes or of a zone may not heed it.
        """
        wish = self.sight.wish_of(case)
        made = await self.volumes.make(pod, node)
        return made and wish is not None and not self.prospects.refusal(wish, pod, node, 1)

    async def _pin(self, case: Case, act: Pin) -> bool:
        wish, epoch = self.sight.wish_of(case), self.ledger.epoch
        if wish is None:
            return False
        try:
            job = await allocations.pin(self.slurm, wish.request, act.node, act.slots)
        except StillHeld:
            self.ledger.unsure(case.owner)
            return False
        except (NoRoom, NotFound):
            if why := await nodes.why_closed(self.slurm, act.node):
                self.sight.closed(case.owner, act.node, why)
                return True  # the next round waits
            self._found(case.owner, act.node, room=False)
            raise
        self._found(case.owner, act.node, room=True)
        if not self._made(case.owner, wish, job, Phase.RUNNING, epoch=epoch, host=act.node):
            return False
        self.ledger.looked(job, {act.node: act.slots})
        self.prospects.granted(case.owner, wish, self.ledger.jobs(case.owner) or ())
        for uid in act.pods:
            if (pod := case.pod(uid)) is not None:
                self.binding.moved(pod, act.node, job, epoch, owner=case.owner)
        return True

    def _found(self, owner: str, node: str, *, room: bool) -> None:
        """Heed whether there was room for a pin; if a node was closed until now, others wait for it, too."""
        if self.sight.pinned(owner, node, room=room):
            self.owners.look_at(node)

    async def _cancel(self, case: Case, act: Cancel) -> bool:
        log.debug("cancels", owner=case.owner, job=act.job, why=act.why)
        self.sight.avoid(case.owner, act.avoid)
        if not await self.binding.certain(case.members, self.ledger.entry(act.job)):
            return False
        entry = self.ledger.entry(act.job)
        self.ledger.cancelling(act.job)
        refused = await jobs.cancel_jobs(self.slurm, [act.job], name=entry.name if entry is not None else "")
        if refused:
            raise refused[0]
        self._freed = next(iter(entry.job.hosts), self._freed) if entry is not None else self._freed
        self.ledger.cancelled(act.job)
        self._nudge.set()
        return True

    def heard(self, events: Iterable[JobEvent]) -> None:
        """Heed that jobs have ended: of one that was preempted nobody else has Slurm look at its queue."""
        if self.ledger.queues and any(event.event == "ended" for event in events):
            self._nudge.set()

    async def _nudge_slurm(self) -> None:
        """Have Slurm look at its queue after we have freed something, once for all that are freed together."""
        while True:
            await self._nudge.wait()
            self._nudge.clear()
            if not self.ledger.problem:
                try:
                    await allocations.nudge(self.slurm, node=self._freed)
                except SlurmError as error:
                    log.debug("slurm was not nudged", why=str(error))
            await asyncio.sleep(NUDGE_EVERY)
