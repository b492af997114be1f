"""A model of Kubernetes and of a scheduler that can be cut off between any two steps, on a model of Slurm.

It says what the real ones promise and no more: the API server does what it acknowledges, and perhaps what it does not.
The scheduler's only knowledge is what it has listed, done and heard in its present life.
"""

from collections.abc import Callable
from dataclasses import replace

from kurm.domain.allocation import CLOSED_FOR, decide
from kurm.domain.owner import Health, Job, Obstacle, Phase, Pod, Snapshot
from kurm.domain.steps import Allocate, Bind, Cancel, Doom, EndPod, Instruction, Look, LookBack, Pin, Submit
from unit.domain.allocation_memory import Bound, Memory
from unit.domain.allocation_promises import OWNERS, Promises
from unit.domain.forgetful_slurm import NODES, Held, Slurm

HOPELESS = 3
"""Pins in vain after which an owner holds the gate no longer, as in the daemon."""
Decide = Callable[[Snapshot], list[Instruction]]


class World(Promises):
    """All of it. `decide` is what is tested: the real one, or one with a mistake."""

    def __init__(self, decide: Decide = decide) -> None:
        self.decide = decide
        self.now = 0.0
        self.slurm, self.memory = Slurm(), Memory()
        self.pods: dict[str, Bound] = {}
        self.finished: dict[str, set[int]] = {owner: set() for owner in OWNERS}
        self.health = dict.fromkeys(NODES, Health.WELL)
        self.serial = 0

    # What users, kubelets and administrators do.

    def create(self, owner: str) -> None:
        """Have a controller make the next pod of an owner, if one is missing."""
        ranks = {pod.rank for pod in self.pods.values() if pod.owner == owner} | self.finished[owner]
        missing = [rank for rank in range(OWNERS[owner]) if rank not in ranks]
        if missing:
            self.serial += 1
            uid = f"{owner}-{self.serial}"
            self.pods[uid] = Bound(uid, owner, missing[0])

    def delete(self, number: int) -> None:
        """Delete a pod; one that is not bound is gone with that."""
        if pod := self._pick(number):
            pod.leaving = True
            if not pod.node:
                del self.pods[pod.uid]

    def finish(self, number: int) -> None:
        """Have a kubelet say that a bound pod has ended; or somebody delete it by force."""
        pod = self._pick(number)
        if pod is not None and pod.node and self.health[pod.node] is Health.WELL:
            del self.pods[pod.uid]

    def succeed(self, number: int) -> None:
        """Have a kubelet say that a bound pod has ended for good: no other comes in its place."""
        pod = self._pick(number)
        if pod is not None and pod.node and self.health[pod.node] is Health.WELL:
            del self.pods[pod.uid]
            done = self.finished[pod.owner]
            done.add(pod.rank)
            if len(done) == OWNERS[pod.owner]:
                done.clear()

    def scancel(self, number: int) -> None:
        """Cancel a job of ours, as an administrator may."""
        ours = sorted(job.id for job in self.slurm.jobs.values() if job.owner)
        if ours:
            self._rob(ours[number % len(ours)], "CANCELLED")

    def preempt(self, number: int) -> None:
        """Have Slurm take a job back, with grace."""
        ours = sorted(job.id for job in self.slurm.jobs.values() if job.owner and job.layout and not job.pinned)
        if ours:
            job = self.slurm.jobs[ours[number % len(ours)]]
            job.ends_at = self.now + 30 if job.ends_at is None else job.ends_at

    def lose_sight(self, number: int) -> None:
        """Have Slurm take a node for failed that is well."""
        self._fail(NODES[number % len(NODES)])

    def close(self, number: int) -> None:
        """Have Slurm take a node for failed that is well, and use it no more: its slurmd is away."""
        node = NODES[number % len(NODES)]
        self.slurm.down.add(node)
        self._fail(node)

    def silence(self, number: int) -> None:
        """Let a node be no longer heard of; once more, let it be dead."""
        node = NODES[number % len(NODES)]
        if self.health[node] is Health.WELL:
            self.health[node] = Health.SILENT
        elif self.health[node] is Health.SILENT:
            self.health[node] = Health.DEAD
            self.slurm.down.add(node)
            self._fail(node)

    def heal(self, number: int) -> None:
        """Let a node be well again; what ran there while it was dead is gone."""
        node = NODES[number % len(NODES)]
        if self.health[node] is Health.DEAD:
            for pod in [pod for pod in self.pods.values() if pod.node == node]:
                del self.pods[pod.uid]
        self.health[node] = Health.WELL
        self.slurm.down.discard(node)

    def batch(self, number: int) -> None:
        """Have somebody else's job start or end."""
        others = sorted(job.id for job in self.slurm.jobs.values() if not job.owner)
        if number % 2 and others:
            self.slurm.end(others[number % len(others)], "COMPLETED")
        elif self.slurm.open and (layout := self.slurm.room(1)) is not None:
            self.slurm.add(Held(0, "", f"batch-{self.slurm.next}-{self.slurm.epoch}", 1, layout))
            self.check_robbery(layout)

    def save(self) -> None:
        """Have slurmctld save its state."""
        self.slurm.save()

    def crash_slurm(self) -> None:
        """Kill slurmctld; its next life has what it had saved."""
        self.slurm.crash()

    def crash(self) -> None:
        """Kill the scheduler."""
        self.memory = Memory()

    def pass_time(self, seconds: float) -> None:
        """Let time pass: grace periods end, and queued jobs start."""
        self.now += seconds
        if seconds >= CLOSED_FOR:
            self.memory.closed.clear()
        for job in [job for job in self.slurm.jobs.values() if job.ends_at is not None and job.ends_at <= self.now]:
            self._rob(job.id, "PREEMPTED")
        if not self.slurm.open:
            return
        for job in sorted(self.slurm.jobs.values(), key=lambda job: job.id):
            others = [one for one in self.slurm.jobs.values() if one.name == job.name and one.id < job.id]
            if job.layout is None and not others and (layout := self.slurm.room(job.size)) is not None:
                job.layout = layout
                self.check_robbery(layout)

    # What the scheduler does.

    def read(self) -> None:
        """Read all that Slurm holds for pods."""
        memory, epoch = self.memory, str(self.slurm.epoch)
        if memory.epoch != epoch:
            memory.epoch, memory.open, memory.ended, memory.jobs = epoch, False, {}, None
        before = memory.jobs or {}
        found = {job.id: (job.owner, self._seen(job, before)) for job in self.slurm.jobs.values() if job.owner}
        for number, (owner, _) in before.items():
            if number not in found:
                memory.ended[number] = owner, ""
        memory.jobs, memory.full = found, set()
        memory.unsure.clear()

    def look(self, owner: str, outcomes: list[str]) -> None:
        """Look at an owner. `outcomes` are of the first steps: done, failed, lost (done, unanswered), or a crash."""
        for act in self.decide(self.snapshot(owner)):
            outcome = outcomes.pop(0) if outcomes else "done"
            if outcome == "crash":
                self.crash()
                return
            if outcome != "failed":
                self._do(owner, act, lost=outcome == "lost")
            elif isinstance(act, Allocate | Submit | Pin):
                self.memory.unsure.add(owner)

    def place(self, owner: str) -> None:
        """Make the pods of an owner, and look until they are placed, if they can be."""
        for _ in range(OWNERS[owner]):
            self.create(owner)
        for _ in range(4):
            self.look(owner, [])

    def relive(self, owner: str) -> None:
        """Have slurmctld come back with an allocation that has ended since it saved, and without the one after it."""
        self.place(owner)
        self.save()
        for pod in [pod for pod in self.pods.values() if pod.owner == owner and pod.node]:
            del self.pods[pod.uid]
        self.look(owner, [])
        self.batch(0)
        self.place(owner)
        self.crash_slurm()

    def open_gate(self) -> None:
        """Say that all that is bound is pinned, if it is."""
        if self.memory.epoch != str(self.slurm.epoch) or self.memory.jobs is None or self.slurm.open:
            self.memory.open = self.slurm.open and self.memory.epoch == str(self.slurm.epoch)
            return
        for owner in OWNERS:
            if self.memory.vain[owner] >= HOPELESS:
                continue
            if owner in self.memory.unsure:
                return
            if any(isinstance(act, Pin | Look | LookBack) for act in self.decide(self.snapshot(owner))):
                return
        self.slurm.open = self.memory.open = True

    def snapshot(self, owner: str) -> Snapshot:
        """Return what the scheduler sees of an owner."""
        memory = self.memory
        jobs = None
        if memory.jobs is not None and owner not in memory.unsure:
            jobs = tuple(job for whose, job in memory.jobs.values() if whose == owner)
        pods = tuple(
            Pod(pod.uid, pod.node, pod.job, pod.epoch, rank=pod.rank, leaving=pod.leaving)
            for pod in self.pods.values()
            if pod.owner == owner
        )
        size, finished = OWNERS[owner], len(self.finished[owner])
        bound = sum(1 for pod in pods if pod.node)
        if 0 < bound < size - finished:
            memory.partial.setdefault(owner, self.now)
        else:
            memory.partial.pop(owner, None)
        seen = Snapshot(
            pods,
            jobs,
            wanted=size,
            finished=finished,
            epoch=memory.epoch,
            ended={job: how for job, (whose, how) in memory.ended.items() if whose == owner},
            nodes=self.health,
            unfit={node: "it is gone" for node in NODES if self.health[node] is not Health.WELL},
            closed=dict.fromkeys(memory.closed, "it is down in Slurm"),
            taken=frozenset(memory.taken.get(owner, ())),
            open=memory.open,
            room=owner not in memory.full,
            partial_since=memory.partial.get(owner),
            now=self.now,
        )
        if len(pods) < size - finished and not any(pod.node for pod in pods):
            return replace(seen, obstacle=_INCOMPLETE)
        return seen

    def _do(self, owner: str, act: Instruction, *, lost: bool) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
        slurm, size = self.slurm, OWNERS[owner]
        made: tuple[int, Phase] | None = None
        match act:
            case Allocate():
                layout = slurm.room(size) if slurm.open else None
                if layout is None:
                    self.memory.full.add(owner)
                elif slurm.live(owner):
                    self.memory.unsure.add(owner)
                else:
                    made = slurm.add(Held(0, owner, owner, size, layout)), Phase.RUNNING
                    self.check_robbery(layout)
            case Submit():
                made = slurm.add(Held(0, owner, owner, size)), Phase.QUEUED
            case Pin(node=node, slots=slots):
                name = owner if size == 1 else f"{owner}@{node}"
                if node in slurm.down:
                    self.memory.closed.add(node)
                    self.memory.taken.get(owner, set()).discard(node)
                    return
                if slurm.free().get(node, 0) < slots or slurm.live(name):
                    self.memory.unsure.add(owner)
                    self.memory.vain[owner] += 1
                    if self.memory.open and not slurm.live(name):
                        self.memory.taken.setdefault(owner, set()).add(node)
                    return
                del self.memory.vain[owner]
                number = slurm.add(Held(0, owner, name, slots, {node: slots}, pinned=True))
                made = number, Phase.RUNNING
                for uid in act.pods:
                    if pod := self.pods.get(uid):
                        pod.robbed = False
                        if not lost:
                            pod.job, pod.epoch = number, self.memory.epoch
            case Look(job=number):
                self._look_up(owner, number)
            case LookBack(job=number):
                if number not in slurm.jobs:
                    self.memory.ended[number] = owner, slurm.ended.get(number, "unknown")
                else:
                    self.memory.unsure.add(owner)
            case Bind():
                pod = self.pods.get(act.pod)
                if pod is not None and not pod.node and not pod.leaving:
                    pod.node, pod.job, pod.epoch = act.node, act.job, self.memory.epoch
                    pod.robbed = act.job not in slurm.jobs and act.job in slurm.ended
            case Cancel(job=number):
                slurm.end(number, "CANCELLED by us")
                if not lost and self.memory.jobs is not None:
                    self.memory.jobs.pop(number, None)
            case Doom(job=number):
                if self.memory.jobs and number in self.memory.jobs:
                    self.memory.jobs[number] = owner, replace(self.memory.jobs[number][1], doomed=True)
            case EndPod():
                if pod := self.pods.get(act.pod):
                    pod.leaving = True
        if made is not None:
            self._note(owner, made, lost=lost)

    def _note(self, owner: str, made: tuple[int, Phase], *, lost: bool) -> None:
        number, phase = made
        if lost or self.memory.epoch != str(self.slurm.epoch):
            self.memory.unsure.add(owner)
        elif self.memory.jobs is not None:
            held = self.slurm.jobs[number]
            slots = held.layout if held.pinned else None
            job = Job(number, phase, tuple(slots or ()), slots, pinned=held.pinned, granted_at=self.now)
            self.memory.jobs[number] = owner, job

    def _look_up(self, owner: str, number: int) -> None:
        held, memory = self.slurm.jobs.get(number), self.memory
        if held is None or held.layout is None or held.owner != owner:
            memory.unsure.add(owner)
        elif memory.jobs and number in memory.jobs:
            found = replace(memory.jobs[number][1], slots=dict(held.layout), hosts=tuple(held.layout))
            memory.jobs[number] = owner, found

    def _seen(self, held: Held, before: dict[int, tuple[str, Job]]) -> Job:
        known = before.get(held.id, (held.owner, None))[1]
        phase = Phase.QUEUED if held.layout is None else Phase.RUNNING
        same = known is not None and known.phase is phase and set(known.slots or ()) == set(held.layout or ())
        return Job(
            held.id,
            phase,
            tuple(held.layout or ()),
            known.slots if known and same else None,
            pinned=held.pinned,
            ends_at=held.ends_at,
            doomed=bool(known and known.doomed),
            granted_at=known.granted_at if known and same else self.now,
        )

    def settle(self) -> None:
        """Let all be well and quiet, and have the scheduler look until nothing is left; then all must be right."""
        for number in range(len(NODES)):
            self.heal(number)
        for job in [job.id for job in self.slurm.jobs.values() if not job.owner and job.revived]:
            self.slurm.end(job, "COMPLETED")
        for _ in range(16):
            self.read()
            for owner in OWNERS:
                self.look(owner, [])
                self.look(owner, [])
            self.open_gate()
            self.pass_time(10.0)
            for pod in [pod for pod in self.pods.values() if pod.leaving]:
                del self.pods[pod.uid]
            self.check()
        self.check_quiet()

    def _rob(self, number: int, how: str) -> None:
        job = self.slurm.jobs.get(number)
        if job is not None:
            for pod in self.pods.values():
                if pod.owner == job.owner and pod.node in (job.layout or {}):
                    pod.robbed = True
            self.slurm.end(number, how)

    def _fail(self, node: str) -> None:
        for number in [job.id for job in self.slurm.jobs.values() if node in (job.layout or {})]:
            self._rob(number, "NODE_FAIL")

    def _pick(self, number: int) -> Bound | None:
        pods = list(self.pods.values())
        return pods[number % len(pods)] if pods else None


_INCOMPLETE = Obstacle("GangIncomplete", "some pods are missing")
