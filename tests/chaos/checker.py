"""Proves the four promises on a history, or says where they were broken. Pure: events in, breaches out.

P1  No pod on a living node stays bound without a live allocation of it for longer than 10 s of time in which Slurm
    answered, and no fault kept the scheduler or the API server away. A Terminating pod does not stay. A node lives
    that both sides use: on one that Slurm has down nobody is given anything.
P2  Never two live allocations for one slot.
P3  What a bound pod holds is never given to anyone else: Slurm's jobs and the pods without one fit on each node. Left:
    pods whose job Slurm has ended with a node, until they have one again; and if their share was sold meanwhile,
    until all fits on the node: till then it is by chance which of its pods have jobs.
P4  No pod is lost or stuck: none is ended without a cause, and after each quiet phase all that fit are bound, all that
    wait say why, and no job is left of a pod that is gone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from chaos.history import Event, Fault, Job, Machine, PodSeen, Quiet, Share, SlurmSilent, SlurmTold
from chaos.replay import Pod, Replay, leaves, without_allocation

GIVEN_UP = ("Infeasible", "Refused")


class Terms(msgspec.Struct, frozen=True):
    """What is allowed, in seconds."""

    unallocated: float = 10.0
    """P1: time in which Slurm answered."""
    gap: float = 2.0
    """Between two answers of slurmctld's; in a longer one it did not answer."""
    wait: float = 60.0
    """P3: after which slurmctld's init opens the partitions by itself, and nothing is promised but the start gate."""
    settled: float = 5.0
    """P4: since a pod's end, before the end of a quiet phase; its job must be gone."""


class Breach(msgspec.Struct, frozen=True):
    """A promise that was broken, from when until when, and whom it concerns: UIDs, owners, nodes, names of jobs."""

    promise: str
    begun: float
    at: float
    sentence: str
    subjects: frozenset[str]

    def __str__(self) -> str:
        return f"{self.promise} at {self.at:.2f} s: {self.sentence}"


class Checker:
    """Checks events as they come; `breaches` holds each breach once."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self.breaches: list[Breach] = []
        self.replay = Replay()
        self._known: set[tuple[str, frozenset[str]]] = set()
        self._sold: set[tuple[str, str]] = set()
        """P3: owners that have lost an allocation with a node, on which there was no room for them any more."""
        self._bare: dict[str, tuple[float, float]] = {}
        """P1, by UID: since when a pod has no allocation, and how much of that time Slurm answered."""
        self._head: tuple[str, float] | None = None
        """P4: the first waiting job while it would fit (its SLUID), and since when."""
        self._answered: float | None = None
        """When slurmctld answered last; None if it did not since."""
        self._away: set[str] = set()
        """Programs that a fault keeps away, without which nothing can be put right."""
        self._disturbed = False
        """Whether one was away at any time since slurmctld's last answer."""

    def tell(self, event: Event) -> None:
        """Take in the next event."""
        before = self.replay.quiet_since
        self.replay.tell(event)
        match event:
            case SlurmTold() if self.replay.told is event:
                for found in (*self._stay(event), *doubles(event), *self._given_away(event)):
                    self._report(found)
                self._answered, self._disturbed = event.at, bool(self._away)
                head = head_that_fits(event)
                if head is None or self._head is None or self._head[0] != head.sluid:
                    self._head = (head.sluid, event.asked) if head else None
            case SlurmTold() | SlurmSilent():
                self._answered = None
            case Fault(target="scheduler" | "kube-apiserver", kind="kill" | "pause"):
                self._disturbed = True
                (self._away.discard if event.over else self._away.add)(event.target)
            case PodSeen():
                self._report(self._without_cause(event))
            case Quiet(over=True) if before is not None:
                for found in self._after_quiet(before, event.at):
                    self._report(found)
            case _:
                pass

    def _report(self, breach: Breach | None) -> None:
        if breach and (breach.promise, breach.subjects) not in self._known:
            self._known.add((breach.promise, breach.subjects))
            self.breaches.append(breach)

    def _stay(self, told: SlurmTold) -> Iterator[Breach]:
        """P1."""
        replay = self.replay
        step = told.at - self._answered if self._answered is not None else 0.0
        step = step if step <= self.terms.gap and not self._disturbed else 0.0
        bound = list(replay.bound_before(told.asked))
        bare = {pod.seen.uid: pod for pod in without_allocation(told, bound, ending=False) if pod.stays}
        self._bare = {
            uid: (self._bare[uid][0], self._bare[uid][1] + step) if uid in self._bare else (told.at, 0.0)
            for uid, pod in bare.items()
            if self._living(pod.seen.node)
        }
        for uid, (since, lasted) in self._bare.items():
            if lasted > self.terms.unallocated:
                pod = bare[uid].seen
                sentence = f"pod {pod.title} stays bound to {pod.node} without an allocation since {since:.2f} s"
                yield Breach("P1", since, told.at, sentence, frozenset({uid, pod.owner}))

    def _living(self, node: str) -> bool:
        seen, told = self.replay.nodes.get(node), self.replay.told
        taking = told is not None and node in told.nodes and told.nodes[node].taking
        return taking and seen is not None and seen.ready and not seen.gone

    def _given_away(self, told: SlurmTold) -> Iterator[Breach]:
        """P3."""
        replay = self.replay
        if not replay.opened and replay.returned is not None and told.at - replay.returned > self.terms.wait:
            return  # the scheduler was away for longer than the bounded wait
        bound = [pod for pod in replay.bound_before(told.asked) if pod.seen.owner not in replay.taken]
        bare = by_node(without_allocation(told, bound, ending=True))
        self._sold = {(owner, node) for owner, node in self._sold if node in bare}
        for node, pods in bare.items():
            size = told.nodes.get(node)
            jobs = [job for job in told.jobs if node in job.holds and job.sluid not in replay.revived]
            held = [pod for pod in pods if (pod.seen.owner, node) not in replay.lost]
            if size is None or fits(size, needed(node, jobs, pods)):
                self._sold = {(owner, other) for owner, other in self._sold if other != node}
                continue
            self._sold |= {(pod.seen.owner, node) for pod in pods if pod not in held}
            jobs = [job for job in jobs if (job.owner, node) not in self._sold]
            if held and not fits(size, needed(node, jobs, held)):
                cpus, memory = needed(node, jobs, held)
                names = ", ".join(pod.seen.title for pod in held)
                yield Breach(
                    "P3",
                    min(pod.bound or told.at for pod in held),
                    told.at,
                    f"node {node} has {size.cpus} CPUs and {size.memory} MiB; jobs and the bound pods without one "
                    f"({names}) hold {cpus} and {memory}",
                    frozenset({node, *(pod.seen.uid for pod in held), *(pod.seen.owner for pod in held)}),
                )

    def _without_cause(self, seen: PodSeen) -> Breach | None:
        """P4: a pod is ended, and nobody has asked for it."""
        pod = self.replay.pods[seen.uid]
        ends = seen.ours and (seen.terminating or seen.gone)
        if not ends or pod.deleted_by or seen.ended or seen.owner in self.replay.causes or self._revived_on(seen.node):
            return None
        sentence = f"pod {seen.title} was ended, and neither the load nor Slurm has asked for it"
        return Breach("P4", pod.created, seen.at, sentence, frozenset({seen.uid, seen.owner}))

    def _revived_on(self, node: str) -> bool:
        """Whether Slurm has given a part of a node to a job that had ended, so that a pod may have lost its share."""
        told = self.replay.told
        return told is not None and any(node in job.holds and job.sluid in self.replay.revived for job in told.jobs)

    def _after_quiet(self, begun: float, at: float) -> Iterator[Breach]:
        """P4, at the end of a quiet phase."""
        told = self.replay.told
        if told is None or self._answered is None or told.asked < begun:
            yield Breach("P4", begun, at, "slurmctld has not answered since the quiet began", frozenset({"slurmctld"}))
            return
        if told.gate == "closed":
            yield Breach("P4", begun, at, "the partitions are still closed after the quiet", frozenset({"gate"}))
        pods = [pod for pod in self.replay.pods.values() if pod.seen.ours]
        jobs: dict[str, list[Job]] = defaultdict(list)
        for job in told.jobs:
            jobs[job.owner].append(job)
        del_slack = at - self.terms.settled
        for pod in pods:
            why = self._stuck(pod, jobs[pod.seen.owner], del_slack)
            if why:
                subjects = frozenset({pod.seen.uid, pod.seen.owner})
                yield Breach("P4", pod.created, at, f"pod {pod.seen.title} {why}", subjects)
        yield from (Breach("P4", begun, at, *what) for what in orphans(told, pods, before=del_slack))
        yield from (Breach("P4", begun, at, *what) for what in halves(pods))
        fits = head_that_fits(told)
        if fits is not None and self._head is not None and at - self._head[1] > self.terms.settled:
            sentence = f"job {fits.id} ({fits.name}) is the first of its queue and fits, and still waits"
            yield Breach("P4", begun, at, sentence, frozenset({fits.owner, fits.name}))

    def _stuck(self, pod: Pod, jobs: list[Job], before: float) -> str:
        """Return what is wrong with a pod that should have come to rest; empty if nothing is."""
        if pod.leaving is not None:
            return "is still Terminating" if pod.released is None and pod.leaving < before else ""
        return self._wrong_reason(pod.seen, jobs) if pod.waits else ""

    def _wrong_reason(self, seen: PodSeen, jobs: list[Job]) -> str:
        """Return why what a pod is told of its waiting cannot be; empty if it can."""
        expected = self.replay.expected.get(seen.uid, "fits")
        members = [one for one in self.replay.pods.values() if one.seen.owner == seen.owner and one.leaving is None]
        wrong = {
            "": "waits without a condition that says why",
            "SlurmAway": f"is told that Slurm is away, and it is not: {seen.message}",
        }
        if len(members) >= seen.members:
            wrong["GangIncomplete"] = "waits for members of its gang, and all are there"
        if expected == "fits":
            wrong |= {reason: f"is said to be {reason}, and is not: {seen.message}" for reason in GIVEN_UP}
        if not jobs:
            wrong["SlurmQueue"] = f"waits in the queue without a job in it: {seen.message}"
        return wrong.get(seen.reason if seen.message else "", "")


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return pods by node."""
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        found[pod.seen.node].append(pod)
    return found


def needed(node: str, jobs: Iterable[Job], pods: Iterable[Pod]) -> tuple[int, int]:
    """Return the CPUs and MiB that jobs and pods without one hold of a node together."""
    shares = [*(job.holds[node] for job in jobs), *(Share(cpus=one.seen.cpus, memory=one.seen.memory) for one in pods)]
    return sum(share.cpus for share in shares), sum(share.memory for share in shares)


def fits(size: Machine, held: tuple[int, int]) -> bool:
    """Whether a node has so many CPUs and MiB."""
    return held[0] <= size.cpus and held[1] <= size.memory


def doubles(told: SlurmTold) -> Iterator[Breach]:
    """P2. An allocation is one job, or after slurmctld has forgotten it one for each node (`name@node`)."""
    owners: dict[str, list[Job]] = defaultdict(list)
    for job in told.jobs:
        if job.owner and job.holding and not leaves(job):
            owners[job.owner].append(job)
    for owner, jobs in owners.items():
        for one, other in combinations(jobs, 2):
            places = {job.name.partition("@")[2] for job in (one, other)}
            if len(places) == 1 or "" in places:
                sentence = f"jobs {one.id} and {other.id} both hold the slots of {one.name} ({owner})"
                yield Breach("P2", told.asked, told.at, sentence, frozenset({owner, one.name, other.name}))


def orphans(told: SlurmTold, pods: Iterable[Pod], *, before: float) -> Iterator[tuple[str, frozenset[str]]]:
    """P4: jobs of owners whose last pod ended before a moment."""
    last: dict[str, float] = {}
    for pod in pods:
        ended = pod.released if pod.released is not None else float("inf")
        last[pod.seen.owner] = max(last.get(pod.seen.owner, 0.0), ended)
    for job in told.jobs:
        if job.owner and not leaves(job) and last.get(job.owner, 0.0) < before:
            words = f"job {job.id} ({job.name}, {job.state}) lives, and no pod of {job.owner} does"
            yield words, frozenset({job.owner, job.name})


def halves(pods: Iterable[Pod]) -> Iterator[tuple[str, frozenset[str]]]:
    """P4: gangs of which some are bound and some are not."""
    gangs: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.seen.members > 1 and pod.leaving is None:
            gangs[pod.seen.owner].append(pod)
    for owner, members in gangs.items():
        bound = [pod for pod in members if pod.bound is not None]
        if bound and len(bound) < len(members):
            yield f"of gang {owner} {len(bound)} of {len(members)} pods are bound", frozenset({owner})


def head_that_fits(told: SlurmTold) -> Job | None:
    """P4: the first waiting job of an owner, if Slurm has room for it: jobs of nobody's owner make room.

    Of a gang it is not asked: how its slots would lie is Slurm's to know.
    """
    waiting = [job for job in told.jobs if job.owner and not job.holding and job.state == "PENDING"]
    head = min(waiting, key=lambda job: (-job.priority, job.id), default=None)
    if head is None or head.slots > 1:
        return None
    for name, node in told.nodes.items():
        held = [job.holds[name] for job in told.jobs if name in job.holds and job.owner]
        cpus, memory = node.cpus - sum(one.cpus for one in held), node.memory - sum(one.memory for one in held)
        if node.taking and name not in head.excluded and cpus >= head.cpus and memory >= head.memory:
            return head
    return None


def check(events: Iterable[Event], terms: Terms | None = None) -> list[Breach]:
    """Return the breaches of a history whose events are in the order of their times."""
    checker = Checker(terms)
    for event in events:
        checker.tell(event)
    return checker.breaches
