"""The life of an allocation: what a pod, or a gang of pods, holds in Slurm. Pure.

    pending ──ask──> requested ──start──> granted ──bind──> bound ──pods go──> releasing ──cancel──> gone
       └──────────────room──────────────────^  │
       ^──────────cannot be bound──────────────┘

An allocation belongs to an *owner*: a pod, or a gang. It is one Slurm job with a slot for each pod; what slurmctld has
forgotten is pinned again, by a job for each node. Nothing of it is written down anywhere: where an allocation is in its
life is read from both sides each time (`stage`), so whoever dies between two steps is healed by the next look.

`decide` looks at one owner and returns what is to be done, in this order:

1. What Slurm knows is unknown: nothing is done, and pods that wait are told.
2. Of several jobs those stay by which pods are bound, then the one that runs, then the oldest that waits. Others end.
3. A bound pod without a job: if the job has ended, the pod ends; if it was forgotten, or lost with its node, the pod is
   pinned where it is as soon as Slurm starts jobs there.
4. A job that Slurm takes back (preemption) ends its pods, and is ended at once when they are gone.
5. No pod is left: the job ends; not while a node of it is silent, where containers may run on unseen.
6. Pods wait: they take free slots, or a job is asked for: now if there is room, else in the queue.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import chain

from kurm.domain.making import ready
from kurm.domain.owner import Health, Job, Phase, Pod, Snapshot
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

BIND_WITHIN = 60.0
"""Seconds in which a granted job's first pod must be bound: nobody else can use what it holds meanwhile."""
REPLACE_WITHIN = 120.0
"""Seconds in which a gang of which some are bound must be whole: the others hold nodes, and wait for it."""
LOST_WITHIN = 5.0
"""Seconds in which a gang must be whole for which Slurm holds fewer slots than it has pods: slurmctld has forgotten
them, and pods that wait would wait for ever."""
NODE_FAIL = "NODE_FAIL"
SILENT_FOR = 10.0
"""Seconds until a silent node is looked at again: it becomes dead by time alone."""
CLOSED_FOR = 3.0
"""Seconds until Slurm is asked again for a pin on a node on which it starts nothing: P1 leaves ten from its return,
and what is found out then may take four."""
TAKEN = "Slurm has given its share of node {node} to others while it had no job"


class Stage(StrEnum):
    """Where in its life an allocation is."""

    PENDING = "pending"
    REQUESTED = "requested"
    GRANTED = "granted"
    BOUND = "bound"
    RELEASING = "releasing"
    GONE = "gone"


def stage(seen: Snapshot) -> Stage:
    """Return where in its life an allocation is, as far as it is known."""
    jobs, waiting = seen.jobs or (), _waiting(seen)
    if not seen.pods:
        return Stage.RELEASING if jobs else Stage.GONE
    if not waiting:
        return Stage.RELEASING if all(pod.leaving for pod in seen.pods) else Stage.BOUND
    if any(job.phase is Phase.RUNNING for job in jobs):
        return Stage.GRANTED
    return Stage.REQUESTED if jobs else Stage.PENDING


def decide(seen: Snapshot) -> list[Instruction]:
    """Return what is to be done for an owner now; nothing when all is as it should be."""
    if seen.jobs is None:
        return [Tell("SlurmAway", seen.problem)] if _waiting(seen) else []
    if _bound(seen) and (unseen := [job for job in seen.jobs if _unseen(seen, job)]):
        return [Look(job.id) for job in unseen]  # which of them pods are bound by is not known without it
    kept, done = _choose(seen)
    if kept != seen.jobs:
        seen = replace(seen, jobs=kept)
    steps = [*done, *_cover(seen), *_take_back(seen), *(_place(seen) if _living(seen) else _release(seen))]
    return list(dict.fromkeys(steps))


def _waiting(seen: Snapshot) -> list[Pod]:
    return [pod for pod in seen.pods if not pod.node and not pod.leaving]


def _bound(seen: Snapshot) -> list[Pod]:
    return [pod for pod in seen.pods if pod.node]


def _living(seen: Snapshot) -> bool:
    """Whether anybody needs the allocation: a pod that is deleted before it was bound does not."""
    return any(pod.node or not pod.leaving for pod in seen.pods)


def _unseen(seen: Snapshot, job: Job) -> bool:
    return job.phase is Phase.RUNNING and job.slots is None and not (seen.wanted == 1 and len(job.hosts) == 1)


def _slots(job: Job) -> Mapping[str, int]:
    return job.slots if job.slots is not None else dict.fromkeys(job.hosts, 1)


# Several jobs.


def _choose(seen: Snapshot) -> tuple[tuple[Job, ...], list[Instruction]]:
    """Return the jobs that stay, and the end of all others."""
    if len(seen.jobs or ()) <= 1 and not _bound(seen):
        return seen.jobs or (), []  # as for most pods, on their way to a node
    needed = Counter(pod.node for pod in _bound(seen))
    named = Counter(pod.job for pod in _bound(seen))

    def best_first(job: Job) -> tuple[int, int, bool, int]:
        return -named[job.id], -_covers(job, needed).total(), job.phase is not Phase.RUNNING, job.id

    kept = [job for job in seen.jobs or () if job.phase is Phase.ENDING]
    ended: list[Instruction] = []
    none_bound = not needed
    for job in sorted((job for job in seen.jobs or () if job.phase is not Phase.ENDING), key=best_first):
        covers = _covers(job, needed)
        if covers or none_bound or _stands_by(seen, job, kept):
            needed -= covers
            none_bound = False
            kept.append(job)
        else:
            ended.append(Cancel(job.id, "another job stands for the same pods"))
    # Of a gang's own job each slot is for a pod. One that has some too many, and others too few, slurmctld has revived.
    bound = Counter(pod.node for pod in _bound(seen))
    strays = [job for job in kept if needed and _stray(seen, job, bound, needed)]
    ended += [Cancel(job.id, "it is of an earlier life of its gang") for job in strays]
    return tuple(job for job in kept if job not in strays), ended


def _stands_by(seen: Snapshot, job: Job, kept: list[Job]) -> bool:
    """Whether a pin is for those who come in the place of a gang's pods: it has no more slots than all of them need."""
    held = sum(sum(_slots(one).values()) for one in (job, *kept))
    return job.pinned and job.phase is Phase.RUNNING and held <= seen.wanted - seen.finished


def _stray(seen: Snapshot, job: Job, bound: Counter[str], needed: Counter[str]) -> bool:
    """Whether a job has to end before the pods that it has no slots for can have some.

    A pin is one if it has too few for its node: its name is that of the pin that is needed. Whether it has too many
    matters only behind the gate: where Slurm gives out nodes, others might come before the pin that replaces it.
    """
    too_many = bool(Counter(_slots(job)) - bound)
    if job.phase is not Phase.RUNNING or not job.pinned:
        return job.phase is Phase.RUNNING and too_many
    return not needed.keys().isdisjoint(_slots(job)) or (too_many and not seen.open)


def _covers(job: Job, needed: Counter[str]) -> Counter[str]:
    return Counter(_slots(job)) & needed if job.phase is Phase.RUNNING else Counter()


# Bound pods.


def _cover(seen: Snapshot) -> Iterator[Instruction]:
    """See to it that each bound pod has a slot of a job: or pin it, or end it."""
    forgotten: dict[str, list[Pod]] = {}
    for pod, covered in _coverage(seen):
        health = seen.nodes.get(pod.node, Health.GONE)
        if health is Health.DEAD:
            yield from _on_dead_node(seen, pod)
        elif health is Health.SILENT and (pod.leaving or not covered):
            yield Wait(SILENT_FOR, _silent(pod.node))
        if covered or health in {Health.DEAD, Health.GONE}:
            continue
        if pod.job in seen.ended or (pod.job and pod.epoch == seen.epoch):
            yield from _after_end(seen, pod, forgotten)
        else:
            forgotten.setdefault(pod.node, []).append(pod)
    for node, pods in forgotten.items():
        yield from _pin(seen, node, pods)


def _coverage(seen: Snapshot) -> Iterator[tuple[Pod, bool]]:
    """Yield each bound pod, and whether it has a slot."""
    free = Counter[str]()
    for job in seen.jobs or ():
        if job.phase is Phase.RUNNING:
            free.update(_slots(job))
    for pod in _bound(seen):
        covered = free[pod.node] > 0
        free[pod.node] -= covered
        yield pod, covered


def _pin(seen: Snapshot, node: str, pods: list[Pod]) -> Iterator[Instruction]:
    """Have a job for pods on a node that have none, if their share is still to be had; else end them."""
    if node in seen.closed:
        yield Wait(CLOSED_FOR, seen.closed[node])
        return
    ending = [pod for pod in pods if node in seen.taken and not pod.foreign]
    yield from (EndPod(pod.uid, "SlotTaken", TAKEN.format(node=node)) for pod in ending if not pod.leaving)
    if len(ending) < len(pods):
        yield Pin(node, len(pods) - len(ending), tuple(pod.uid for pod in pods if pod not in ending))


def _on_dead_node(seen: Snapshot, pod: Pod) -> Iterator[Instruction]:
    """Say what becomes of a bound pod whose node nobody hears of any more."""
    if pod.foreign or not pod.leaving:
        return
    if seen.force:
        yield EndPod(pod.uid, "NodeDead", f"node {pod.node} is dead, and the pod stays Terminating", within=0.0)
    else:
        yield Report(pod.uid, "TerminatingForever", f"node {pod.node} is dead, and nobody can say that the pod is gone")


def _after_end(seen: Snapshot, pod: Pod, forgotten: dict[str, list[Pod]]) -> Iterator[Instruction]:
    """Say what becomes of a bound pod whose job was made in this life of slurmctld, and is no more."""
    how = seen.ended.get(pod.job)
    if how == NODE_FAIL:  # Slurm has lost sight of a node; what Kubernetes says of it counts
        if seen.nodes.get(pod.node) is Health.WELL:
            forgotten.setdefault(pod.node, []).append(pod)
    elif pod.leaving:
        return
    elif not how:
        yield LookBack(pod.job)
    else:
        yield EndPod(pod.uid, "SlurmJobEnded", f"Slurm job {pod.job} has ended: {how}")


def _take_back(seen: Snapshot) -> Iterator[Instruction]:
    """End the pods of a job that Slurm takes back, or that we do; the job ends when they are gone."""
    for job in seen.jobs or ():
        if job.phase is not Phase.RUNNING or (job.ends_at is None and not job.doomed):
            continue
        bound = [pod for pod in _bound(seen) if pod.node in _slots(job)]
        if not bound:
            yield Cancel(job.id, "its pods are gone" if job.ends_at is None else "it makes room for another")
        left = None if job.ends_at is None else max(job.ends_at - seen.now, 1.0)  # 0 is Kubernetes' word for force
        reason = "PreemptedBySlurm" if job.ends_at is not None else "GangUndone"
        message = f"Slurm takes back job {job.id}" if job.ends_at is not None else "its gang could not be bound whole"
        ours = (pod for pod in bound if not (pod.leaving or pod.foreign))
        yield from (EndPod(pod.uid, reason, message, within=left) for pod in ours)


def _release(seen: Snapshot) -> Iterator[Instruction]:
    """End the jobs of an owner without pods."""
    for job in seen.jobs or ():
        silent = [node for node in job.hosts if seen.nodes.get(node) is Health.SILENT]
        if silent:
            yield Wait(SILENT_FOR, _silent(silent[0]))
        elif job.phase is not Phase.ENDING and job.ends_at is None and not job.doomed:  # else it was ended just now
            yield Cancel(job.id, "its pods are gone")


def _silent(node: str) -> str:
    return f"node {node} is silent: what ran there may run on"


# Pods that wait.


def _place(seen: Snapshot) -> Iterator[Instruction]:
    """See to it that pods that wait get their slots."""
    waiting, bound = _waiting(seen), _bound(seen)
    jobs = [job for job in seen.jobs or () if job.phase is not Phase.ENDING and job.ends_at is None and not job.doomed]
    if not waiting:
        yield from _whole(seen, jobs)
    elif bound:
        yield from _join(seen, jobs)
    elif seen.obstacle is not None:
        yield from (Cancel(job.id, seen.obstacle.message) for job in jobs)
        yield Tell(seen.obstacle.reason, seen.obstacle.message)
        if seen.obstacle.again is not None:
            yield Wait(seen.obstacle.again, seen.obstacle.message)
    elif not jobs:
        yield from _ask(seen)
    elif jobs[0].phase is Phase.QUEUED:
        if seen.outdated:
            yield Amend(jobs[0].id)
        yield Tell("SlurmQueue", f"waits in Slurm's queue as job {jobs[0].id}")
    else:
        yield from _bind(seen, jobs[0])


def _ask(seen: Snapshot) -> Iterator[Instruction]:
    if seen.jobs:
        yield Wait(1.0, "its earlier job is ending")
    elif not seen.open:
        yield Tell("SlurmAway", "slurmctld was started anew, and pods that run are pinned first")
    elif seen.room is None:
        # One that is queued now makes those behind it wait for Slurm's next look at its queue, however much is free.
        yield Tell("SlurmAway", "Slurm's nodes are being read")
    else:
        yield Allocate() if seen.room else Submit()


def _bind(seen: Snapshot, job: Job) -> Iterator[Instruction]:
    """Bind all of them by a job that runs, none if one of them cannot be."""
    if _unseen(seen, job):
        yield Look(job.id)
        return
    slots, waiting = _slots(job), _waiting(seen)
    unfit = tuple(node for node in slots if node in seen.unfit)
    if unfit:
        yield Cancel(job.id, f"node {unfit[0]}: {seen.unfit[unfit[0]]}", avoid=unfit)
    elif len(waiting) < seen.wanted - seen.finished or sum(slots.values()) < seen.wanted:
        yield Cancel(job.id, "it does not fit its pods any more")
    elif seen.now - job.granted_at > BIND_WITHIN:
        yield Cancel(job.id, f"its pods could not be bound in {BIND_WITHIN:g} s")
    else:
        binds = list(_assign(seen, _free(seen, [job])))
        if len(binds) < seen.wanted - seen.finished:
            unused = tuple(node for node in slots if all(bind.node != node for bind in binds))
            yield Cancel(job.id, "from its nodes not all pods of the gang can reach their volumes", avoid=unused)
        else:
            yield from ready(seen, binds)


def _join(seen: Snapshot, jobs: list[Job]) -> Iterator[Instruction]:
    """Give the free slots of a gang of which some are bound to those that are not, or undo it all in time."""
    free = _free(seen, [job for job in jobs if job.phase is Phase.RUNNING])
    free = {slot: place for slot, place in free.items() if place[1] not in seen.unfit}
    yield from ready(seen, _assign(seen, free))
    yield from _whole(seen, jobs)
    if not free:
        yield Tell("GangIncomplete", "waits for a slot of its gang: the pods that have them are not gone")


def _whole(seen: Snapshot, jobs: list[Job]) -> Iterator[Instruction]:
    """Undo a gang that is not whole in time."""
    if seen.partial_since is None:
        return
    held = sum(sum(_slots(job).values()) for job in jobs if job.phase is Phase.RUNNING)
    left = seen.partial_since + (REPLACE_WITHIN if held >= seen.wanted - seen.finished else LOST_WITHIN) - seen.now
    if left > 0:
        yield Wait(left, "the gang is not whole yet")
    else:
        yield from (Doom(job.id) for job in jobs)


def _free(seen: Snapshot, jobs: list[Job]) -> dict[int, tuple[int, str]]:
    """Return the free slots by their numbers: which job's, and on which node."""
    places = [(job.id, node) for job in jobs for node, count in _slots(job).items() for _ in range(count)]
    free = dict(enumerate(places))
    for pod in _bound(seen):
        if (known := free.get(pod.rank)) is not None and known[1] == pod.node:
            del free[pod.rank]
        elif (slot := next((slot for slot, place in free.items() if place[1] == pod.node), None)) is not None:
            del free[slot]
    return free


def _slot_for(pod: Pod, left: Mapping[int, tuple[int, str]]) -> int | None:
    """Return which of the slots that are left a pod gets: its rank's, one where its volume is being made, or any."""
    making = (pod.making.job, pod.making.node) if pod.making is not None else None
    begun = (slot for slot, place in left.items() if place == making)
    own = (slot for slot in (pod.rank,) if slot in left)
    fitting = (slot for slot in chain(own, begun, left) if left[slot][1] not in pod.beyond)
    return next(fitting, None)


def _assign(seen: Snapshot, free: dict[int, tuple[int, str]]) -> Iterator[Bind]:
    """Give pods free slots: one with a rank its own, once nobody has that; others in their order what is left.

    The slots of a gang that was pinned again are of several jobs, in whatever order, and no rank's own: there a pod
    with a rank takes any, under its rank. Else it would wait for ever for a number that there is not. Pods with volumes
    choose first, those with the fewest nodes before others: each node has slots for them, as it was asked for.
    """
    left, held = dict(free), {pod.rank for pod in _bound(seen)}
    for pod in sorted(_waiting(seen), key=lambda pod: (pod.making is None, -len(pod.beyond), pod.rank not in left)):
        if (pod.rank < 0 or pod.rank not in held) and (slot := _slot_for(pod, left)) is not None:
            job, node = left.pop(slot)
            held.add(pod.rank)
            yield Bind(pod.uid, job, node, slot if pod.rank < 0 else pod.rank)
