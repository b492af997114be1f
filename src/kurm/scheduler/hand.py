"""Does the steps that were decided for an owner: jobs in Slurm, binds and ends of pods in Kubernetes.

What Slurm or Kubernetes refuses is heeded in the ledger and in the sight; the next look decides from there.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

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
    Prepare,
    Submit,
)
from kurm.kube.errors import KubeError
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.metrics import Metrics
from kurm.scheduler.nudge import Nudge
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Owners
from kurm.scheduler.prospects import Prospects, Wish
from kurm.scheduler.sight import Case, Sight
from kurm.scheduler.starts import Starts
from kurm.scheduler.volumes import Volumes
from kurm.slurm import allocations, jobs, nodes
from kurm.slurm.errors import ApiError, Behind, ControllerAway, NoRoom, NotFound, SlurmError, StillHeld, Unauthorized
from kurm.slurm.session import Session as SlurmSession

log = structlog.get_logger("kurm.scheduler")

AT_ONCE = 16
"""Most writes of one gang at once."""
PASSING = (ControllerAway, Unauthorized)
"""Errors of Slurm's that say nothing of the request."""


class Hand:
    """Whoever calls it has made sure that we may write at this very moment."""

    def __init__(
        self,
        slurm: SlurmSession,
        *,
        owners: Owners,
        ledger: Ledger,
        prospects: Prospects,
        volumes: Volumes,
        binding: Binding,
        sight: Sight,
        nudge: Nudge,
        starts: Starts,
        metrics: Metrics,
    ) -> None:
        self.slurm, self.owners, self.ledger, self.prospects = slurm, owners, ledger, prospects
        self.starts = starts
        self.volumes, self.binding, self.sight, self.nudge, self.metrics = volumes, binding, sight, nudge, metrics

    async def carry_out(self, case: Case, acts: Sequence[Instruction]) -> bool:
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
            case Prepare():
                pod = case.pod(act.pod)
                return pod is None or await self.volumes.make(pod, act.job, act.node)
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
            self.sight.refused(case.owner, wish.request, str(error))
            return True
        if not self._made(case.owner, wish, job, Phase.RUNNING, epoch=epoch):
            return False
        node = await self.starts.node(job, epoch) if wish.request.slots == 1 else ""
        if node and self.ledger.epoch == epoch and self.ledger.jobs(case.owner):  # else it is looked up
            self._found_at(case.owner, wish, job, {node: 1})
        return True

    async def _submit(self, case: Case) -> bool:
        if case.wish is None:
            return False
        wish, epoch = case.wish, self.ledger.epoch
        try:
            job = await allocations.submit(self.slurm, wish.request, excluded=wish.excluded)
        except PASSING:
            raise
        except ApiError as error:
            self.sight.refused(case.owner, wish.request, str(error))
            return True
        self.sight.asked(case.owner, wish)
        return self._made(case.owner, wish, job, Phase.QUEUED, epoch=epoch)

    async def _amend(self, case: Case, job: int) -> bool:
        if case.wish is not None:
            resized = self.sight.resized(case.owner, case.wish)
            self.sight.asked(case.owner, case.wish)
            try:
                await allocations.amend(
                    self.slurm, job, case.wish.request, excluded=case.wish.excluded, resized=resized
                )
            except NotFound:  # it was cancelled
                return True
            except PASSING:
                raise
            except ApiError as error:  # it has started: what it was given is looked at then
                log.debug("a queued job is not amended", owner=case.owner, job=job, why=str(error))
                self.ledger.unsure(case.owner)
                return True
            if case.wish.request.gres:
                self.ledger.amended(job, case.wish.request.gres)
        return True

    def _made(self, owner: str, wish: Wish, job: int, phase: Phase, *, epoch: str, host: str = "") -> bool:
        if not job or self.ledger.epoch != epoch:  # whether it is of this life of slurmctld nobody knows
            self.ledger.unsure(owner)
            return False
        name = allocations.pin_name(wish.request, host) if host else wish.request.name
        self.ledger.made(owner, job, phase, name=name, gres=wish.request.gres, pinned=bool(host), host=host)
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
        self._found_at(case.owner, wish, job, {node: found[node] for node in sorted(found, key=natural)})
        return True

    def _found_at(self, owner: str, wish: Wish, job: int, slots: Mapping[str, int]) -> None:
        self.ledger.looked(job, slots)
        self.prospects.granted(owner, wish, self.ledger.jobs(owner) or ())

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
        if not self._reaches(case, pod, act.node):
            self.sight.avoid(case.owner, [act.node])
            return True  # the next round gives the node up
        self.prospects.count(pod, act.node)
        if not await self.binding.bind(pod, act, epoch=entry.epoch, owner=case.owner):
            return False
        way = "queue" if entry.waited else "now"
        self.metrics.to_bound.labels(way).observe(self.owners.seen_for(act.pod))
        return True

    def _reaches(self, case: Case, pod: Pod, node: str) -> bool:
        """Whether a pod can reach its volumes from a node.

        The node is a hint to a provisioner, and one whose volumes are of other nodes or of a zone may not heed it.
        """
        if not self.volumes.needs(pod).terms:
            return True
        wish = self.sight.wish_of(case)
        return wish is not None and not self.prospects.refusals(wish, [pod], {node: 1})

    async def _pin(self, case: Case, act: Pin) -> bool:
        epoch = self.ledger.epoch
        wishes = self.prospects.held(case.members, act.node) if case.members is not None else ()
        if case.members is not None and case.members.foreign and act.node not in case.seen.taken:
            wishes = wishes[:1]  # whose GRES it has may just be ending
        if not wishes:
            return False
        try:
            wish, job = await self._pinned(wishes, act)
        except StillHeld:
            self.ledger.unsure(case.owner)
            return False
        except (NoRoom, NotFound) as error:
            if why := await nodes.why_closed(self.slurm, act.node):
                self.sight.closed(case.owner, act.node, why)
                return True  # the next round waits
            if isinstance(error, NoRoom):  # and not a partition that is missing: no pod is to end for that
                self._found(case.owner, act.node, room=False)
            raise
        self._found(case.owner, act.node, room=True)
        if not self._made(case.owner, wish, job, Phase.RUNNING, epoch=epoch, host=act.node):
            return False
        self._found_at(case.owner, wish, job, {act.node: act.slots})
        for uid in act.pods:
            if (pod := case.pod(uid)) is not None:
                self.binding.moved(pod, act.node, job, epoch, owner=case.owner)
        return True

    async def _pinned(self, wishes: Sequence[Wish], act: Pin) -> tuple[Wish, int]:
        """Pin the first of these that Slurm does not refuse."""
        for wish in wishes[:-1]:
            try:
                return wish, await allocations.pin(self.slurm, wish.request, act.node, act.slots)
            except (StillHeld, *PASSING):
                raise
            except ApiError as error:
                name, asked = wish.request.name, wish.request.named
                log.warning("a pin is asked for with less", job=name, node=act.node, refused=asked, why=str(error))
        return wishes[-1], await allocations.pin(self.slurm, wishes[-1].request, act.node, act.slots)

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
        self.ledger.cancelled(act.job)
        self.nudge.freed(next(iter(entry.job.hosts), "") if entry is not None else "")
        return True
