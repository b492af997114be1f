"""Carries out what is decided for each owner: its job in Slurm, its pods in Kubernetes. One worker at a time for each.

A look takes a snapshot of both sides, has `kurm.domain.allocation` decide, does it, and looks again until nothing is
left to do: a pod for which there is room is placed in one look of two calls of Slurm's and one write. What fails is
repeated by a later look, from what is there then.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from kurm.domain import allocation
from kurm.domain.allocation import (
    Allocate,
    Bind,
    Cancel,
    Doom,
    EndPod,
    Instruction,
    Job,
    Look,
    LookBack,
    Obstacle,
    Phase,
    Pin,
    Snapshot,
    Submit,
    Tell,
    Wait,
)
from kurm.domain.gangs import natural
from kurm.kube.backoff import Backoff
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.errors import KubeError
from kurm.kube.lease import LeadershipLost
from kurm.kube.queue import Queue
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.metrics import Metrics
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Members, Owners
from kurm.scheduler.pool import Pool
from kurm.scheduler.prospects import Prospects, Wish
from kurm.scheduler.telling import Telling
from kurm.slurm import allocations, jobs
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
REFUSED_FOR = 30.0
"""Seconds until what Slurm has refused is asked again: an administrator may have changed what it depends on."""
TAKEN_AFTER = 4.0
"""Seconds for which a pod that has lost its share of a node to others may try to have it back. P1 leaves it ten."""
HOPELESS = 3
"""Failures in a row after which a pod that cannot be pinned holds nobody up any more."""
NUDGE_EVERY = 0.1
"""Seconds, the least between two nudges: each has slurmctld look through its whole queue."""
PASSING = (ControllerAway, Unauthorized)
"""Errors of Slurm's that say nothing of the request."""


@dataclass(frozen=True, slots=True)
class Case:
    """One owner as it is looked at."""

    owner: str
    members: Members | None
    seen: Snapshot
    wish: Wish | None


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
        binding: Binding,
        telling: Telling,
        metrics: Metrics,
        leads: Callable[[], bool],
    ) -> None:
        self.slurm, self.pool, self.owners, self.ledger = slurm, pool, owners, ledger
        self.prospects, self.binding, self.telling, self.metrics = prospects, binding, telling, metrics
        self._leads = leads
        queue: Queue[str] = Queue(backoff=BACKOFF)
        self.controller: Controller[str] = Controller("pods", self.look, workers=WORKERS, deadline=60.0, queue=queue)
        self.looked: Callable[[str], None] = lambda _: None
        """Told each owner for whom nothing is left to do now."""
        self._refused: dict[str, tuple[float, Obstacle]] = {}
        self._avoid: dict[str, dict[str, float]] = {}
        self._failures: dict[str, int] = {}
        self._gangs: dict[str, float | None] = {}  # bound in part since; None: it was whole
        self._taken: dict[str, dict[str, float]] = {}  # by owner and node, since when a pin finds no room there
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
        members = self.owners.get(owner)
        if members is not None:
            await self.binding.resolve(members.pods.values())
        for _ in range(STEPS):
            case = self._see(owner)
            steps = allocation.decide(case.seen)
            acts = [step for step in steps if not isinstance(step, Tell | Wait)]
            self._say(case, steps)
            if not acts:
                return self._settled(case, steps)
            if not self._leads():
                raise LeadershipLost("the Lease ran out before a write")
            if not await self._carry_out(case, acts):
                self._failures[owner] = self._failures.get(owner, 0) + 1
                return Again(BACKOFF.delay(self._failures[owner]), "it could not be done")
        return Again(1.0, "it takes many steps")

    def _settled(self, case: Case, steps: Iterable[Instruction]) -> Result:
        self._failures.pop(case.owner, None)
        self.looked(case.owner)
        if case.members is None and not case.seen.jobs:
            for table in (self._refused, self._avoid, self._gangs, self._taken):
                table.pop(case.owner, None)
        waits = [step.seconds for step in steps if isinstance(step, Wait)]
        return Again(min(waits)) if waits else DONE

    def gives_up(self, owner: str) -> bool:
        """Whether what an owner needs could not be done for a while: others need not wait for it."""
        return self._failures.get(owner, 0) >= HOPELESS and not self.ledger.problem

    # What is seen.

    def _see(self, owner: str) -> Case:
        members, known = self.owners.get(owner), self.ledger.jobs(owner)
        now = asyncio.get_running_loop().time()
        there = members.there() if members else []
        pods = tuple(self._pod(pod, members) for pod in there) if members else ()
        wish = self.prospects.wish(members, there, avoid=self._avoided(owner)) if members and there else None
        seen = Snapshot(
            pods,
            known,
            wanted=members.owner.size if members else max((len(job.hosts) for job in known or ()), default=1),
            epoch=self.ledger.epoch,
            ended=self.ledger.ended(owner),
            taken=frozenset(self._taken_from(owner, now)),
            nodes={node: self.pool.health(node) for node in _nodes(pods, known or ())},
            open=self.ledger.open,
            problem=self.ledger.problem or "what Slurm holds is being read",
            force=self.pool.settings.terminating_forever == "delete",
            now=now,
        )
        if members and members.owner.size > 1:
            seen = replace(seen, partial_since=self._partial_since(owner, seen))
        if wish is not None and any(not pod.node for pod in pods):
            obstacle = self._obstacle(owner, now) or wish.obstacle
            unfit = {node: why for node in _slots(known or ()) if (why := self.prospects.refusal(wish, there[0], node))}
            seen = replace(seen, room=wish.room, obstacle=obstacle, unfit=unfit)
        return Case(owner, members, seen, wish)

    def _pod(self, pod: Pod, members: Members) -> allocation.Pod:
        where = self.binding.where(pod)
        return allocation.Pod(
            pod.metadata.uid,
            where.node,
            where.job,
            where.epoch,
            rank=where.slot if where.node else members.rank(pod),
            leaving=pod.leaving or pod.metadata.uid in members.ghosts,
            foreign=members.foreign,
        )

    def _partial_since(self, owner: str, seen: Snapshot) -> float | None:
        """Return since when a gang that we have bound a part of is not whole."""
        bound = sum(1 for pod in seen.pods if pod.node)
        if owner in self._gangs and bound >= seen.wanted:
            self._gangs[owner] = None
        return self._gangs.get(owner) if bound else None

    def _taken_from(self, owner: str, now: float) -> Iterable[str]:
        """Return the nodes where a pin has found no room for long enough to know that there is none."""
        since = self._taken.get(owner)
        return (node for node, at in since.items() if at + TAKEN_AFTER <= now) if since and self.ledger.open else ()

    def _obstacle(self, owner: str, now: float) -> Obstacle | None:
        until, obstacle = self._refused.get(owner, (0.0, None))
        return replace(obstacle, again=until - now) if obstacle is not None and until > now else None

    def _avoided(self, owner: str) -> Collection[str]:
        avoided, now = self._avoid.get(owner), asyncio.get_running_loop().time()
        if not avoided:
            return ()
        return [node for node, until in avoided.items() if until > now]

    def _say(self, case: Case, steps: Iterable[Instruction]) -> None:
        if case.members is None:
            return
        told = next((step for step in steps if isinstance(step, Tell)), None)
        waiting = [pod for pod in case.members.pods.values() if not (self.binding.where(pod).node or pod.over)]
        for pod in waiting:
            self.telling.say(pod, told)

    # What is done.

    async def _carry_out(self, case: Case, acts: Sequence[Instruction]) -> bool:
        """Do it; return whether all of it was done."""
        for act in acts:
            self.metrics.steps.labels(type(act).__name__).inc()
        turns = asyncio.Semaphore(AT_ONCE)
        binds = [act for act in acts if isinstance(act, Bind)]
        done = [await self._safely(case, act) for act in acts if not isinstance(act, Bind | Pin | EndPod)]

        async def one(act: Instruction) -> bool:
            async with turns:
                return await self._safely(case, act)

        together = [act for act in acts if isinstance(act, Bind | Pin | EndPod)]
        if len(binds) > 1:
            self._gangs.setdefault(case.owner, case.seen.now)
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

    async def _do(self, case: Case, act: Instruction) -> bool:  # noqa: PLR0911 - a table
        match act:
            case Allocate():
                return await self._allocate(case)
            case Submit():
                return await self._submit(case)
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
                pod = case.members.pods.get(act.pod) if case.members else None
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
            return self._refuse(case.owner, error)
        return self._made(case, job, Phase.RUNNING, epoch)

    async def _submit(self, case: Case) -> bool:
        if case.wish is None:
            return False
        wish, epoch = case.wish, self.ledger.epoch
        try:
            job = await allocations.submit(self.slurm, wish.request, excluded=wish.excluded)
        except PASSING:
            raise
        except ApiError as error:
            return self._refuse(case.owner, error)
        return self._made(case, job, Phase.QUEUED, epoch)

    def _made(self, case: Case, job: int, phase: Phase, epoch: str, host: str = "") -> bool:
        if not job or self.ledger.epoch != epoch:  # whether it is of this life of slurmctld nobody knows
            self.ledger.unsure(case.owner)
            return False
        name = case.wish.request.name if case.wish else ""
        self.ledger.made(case.owner, job, phase, name=name, pinned=bool(host), host=host)
        return True

    def _refuse(self, owner: str, error: ApiError) -> bool:
        until = asyncio.get_running_loop().time() + REFUSED_FOR
        self._refused[owner] = until, Obstacle("Refused", f"Slurm refuses it: {error}", REFUSED_FOR)
        return True

    async def _look_up(self, case: Case, job: int) -> bool:
        request = case.wish.request if case.wish else None
        if request is None:
            return False
        try:
            found = await allocations.layout(self.slurm, job, request)
        except NotFound:  # it has ended, or has just not begun
            self.ledger.unsure(case.owner)
            return False
        self.ledger.looked(job, {node: found[node] for node in sorted(found, key=natural)})
        self._granted(case)
        return True

    def _granted(self, case: Case) -> None:
        if case.wish is not None:
            self.prospects.granted(case.owner, case.wish, self.ledger.jobs(case.owner) or ())

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
        pod = case.members.pods.get(act.pod) if case.members else None
        entry = self.ledger.entry(act.job)
        if pod is None or entry is None or case.wish is None:
            return True
        self.prospects.count(pod, act.node)
        if await self.binding.bind(pod, act, epoch=entry.epoch, owner=case.owner):
            way = "queue" if entry.waited else "now"
            self.metrics.to_bound.labels(way).observe(self.owners.seen_for(act.pod))
        else:
            self.prospects.discount(pod)
        return True

    async def _pin(self, case: Case, act: Pin) -> bool:
        if case.wish is None:
            return False
        epoch = self.ledger.epoch
        try:
            job = await allocations.pin(self.slurm, case.wish.request, act.node, act.slots)
        except StillHeld:
            self.ledger.unsure(case.owner)
            return False
        except NoRoom:
            self._taken.setdefault(case.owner, {}).setdefault(act.node, case.seen.now)
            raise
        self._taken.get(case.owner, {}).pop(act.node, None)
        if not self._made(case, job, Phase.RUNNING, epoch, host=act.node):
            return False
        self.ledger.looked(job, {act.node: act.slots})
        self._granted(case)
        for uid in act.pods:
            pod = case.members.pods.get(uid) if case.members else None
            if pod is not None:
                self.binding.moved(pod, act.node, job, epoch, owner=case.owner)
        return True

    async def _cancel(self, case: Case, act: Cancel) -> bool:
        log.debug("cancels", owner=case.owner, job=act.job, why=act.why)
        now = asyncio.get_running_loop().time()
        for node in act.avoid:
            self._avoid.setdefault(case.owner, {})[node] = now + REFUSED_FOR
        if not await self.binding.certain(case.members, self.ledger.entry(act.job)):
            return False
        with contextlib.suppress(NotFound):
            await jobs.cancel_job(self.slurm, act.job)
        entry = self.ledger.entry(act.job)
        self._freed = next(iter(entry.job.hosts), self._freed) if entry is not None else self._freed
        self.ledger.cancelled(act.job)
        self._nudge.set()
        return True

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


def _nodes(pods: Iterable[allocation.Pod], known: Iterable[Job]) -> set[str]:
    return {pod.node for pod in pods if pod.node} | {node for job in known for node in job.hosts}


def _slots(known: Iterable[Job]) -> set[str]:
    return {node for job in known for node in job.slots or job.hosts}
