"""A history told again: what there was at each of its moments, as far as it is certain.

A pod counts as bound from when a watch has seen it, which is late, and no longer than until somebody sent what ends it,
which is early. So what is found of it in between is true, however slow a watch or an answer was.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from chaos.history import Deed, Event, Fault, Job, Line, NodeSeen, PodSeen, Quiet, Request, SlurmSilent, SlurmTold

ENDING = frozenset({"delete", "force", "end", "gone"})
"""Deeds after which a pod need not stay bound."""
OVER = re.compile(r"job_signal: 9 of \w+ JobId=(\d+) successful|_job_complete: JobId=(\d+) done")
"""A line of slurmctld's log by which a job has ended."""
VANISHING = frozenset({"force", "end", "gone"})
"""Deeds after which it holds nothing any more: its containers have ended, or nobody can know of them."""


@dataclass
class Pod:
    """A pod, with the times that matter; `seen` is its last version."""

    seen: PodSeen
    created: float
    bound: float | None = None
    """When it was first seen bound."""
    leaving: float | None = None
    """When the first thing was sent or seen that ends it."""
    released: float | None = None
    """When the first thing was sent or seen after which it holds nothing."""
    deleted_by: str = ""
    """The kind of the first deed that ends it; empty if nobody of the load did."""

    @property
    def holds(self) -> bool:
        """Whether its containers are on its node."""
        return self.bound is not None and self.released is None

    @property
    def stays(self) -> bool:
        """Whether it is bound and meant to go on."""
        return self.holds and self.leaving is None

    @property
    def waits(self) -> bool:
        """Whether it is to be bound."""
        return self.bound is None and self.leaving is None and self.released is None


@dataclass
class Taken:
    """Somebody has ended the job of an owner in Slurm; until `done` it may be about to happen."""

    begun: float
    done: float | None = None
    names: set[str] = field(default_factory=set)
    """Of the jobs that were ended."""

    def given_back(self, held: set[str]) -> bool:
        """Whether the owner has an allocation again, by the names of its jobs that hold nodes.

        A gang that was pinned node by node has others all the time: `name@node` is given back by itself, or by a whole.
        """
        whole = not all("@" in name for name in self.names)
        return any(whole or name in self.names or "@" not in name for name in held)


@dataclass
class Replay:
    """The state of the world after the events so far."""

    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    told: SlurmTold | None = None
    """Slurm's last truth. What was asked before slurmctld's death and told after it is none: it is of either life."""
    taken: dict[str, Taken] = field(default_factory=dict)
    """By owner, until it has an allocation again."""
    causes: set[str] = field(default_factory=set)
    """Owners whose pods may end: their job was ended in Slurm at some time, or a pod of their gang by the load."""
    quiet_since: float | None = None
    returned: float | None = None
    """When slurmctld answered first after its last death; None before any, and while it is away."""
    revived: set[str] = field(default_factory=set)
    """SLUIDs of jobs that had ended, and which slurmctld took for running when it came back with an older state."""
    opened: bool = True
    """Whether the scheduler has opened the partitions since then."""
    expected: dict[str, str] = field(default_factory=dict)
    """What the load knows of a pod: fits, infeasible, refused."""
    ends: dict[str, str] = field(default_factory=dict)
    """The kind of the first deed that ends a pod, by UID; it may come before the watch has seen the pod."""
    down: set[str] = field(default_factory=set)
    """Nodes that Slurm has down, or is about to: their jobs end with them."""
    lost: set[tuple[str, str]] = field(default_factory=set)
    """Owners that have lost an allocation with a node, and each node on which they have none since."""
    _found: dict[str, float] = field(default_factory=dict)
    """When Slurm was surely told that a node is there again; never, while it is being lost."""
    _dead: bool = False
    _died: float = float("-inf")
    """When slurmctld was surely dead; before that it may have answered."""
    _over: dict[int, float] = field(default_factory=dict)
    """When jobs have ended by slurmctld's log: between the last truth and its death nobody else can tell."""

    def tell(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case PodSeen():
                self._see(event)
            case NodeSeen():
                self.nodes[event.name] = event
            case SlurmTold() if event.asked > self._died:
                self._hear(event)
            case Deed():
                self._do(event)
            case Fault(target="slurmctld", kind="kill"):
                self._dead, self.returned, self.opened = not event.over, None, False
                self._died = self._died if event.over else event.at
            case Fault(target="node", detail=node):
                self._found[node] = event.at if event.over else float("inf")
                self.down.add(node)
            case Request(to="init", method="POST") if event.status == 200:
                self.opened = True
            case Quiet():
                self.quiet_since = None if event.over else event.at
            case Line(who="slurmctld") if over := OVER.match(event.text):
                self._over[int(over[1] or over[2])] = event.at
            case SlurmSilent() | _:
                pass

    def _see(self, event: PodSeen) -> None:
        pod = self.pods.setdefault(event.uid, Pod(event, event.at))
        if event.gone and not event.node and pod.seen.node:
            event = pod.seen  # the last version that was seen says more
        pod.seen = event
        if event.node and pod.bound is None:
            pod.bound = event.at
        if (event.terminating or event.gone or event.ended) and pod.leaving is None:
            pod.leaving = event.at
        if (event.gone or event.ended) and pod.released is None:
            pod.released = event.at
        self._end(event.uid, event.at)

    def _end(self, uid: str, at: float, kind: str = "") -> None:
        if kind:
            self.ends.setdefault(uid, kind)
        pod, first = self.pods.get(uid), self.ends.get(uid, "")
        if pod is None or not first:
            return
        pod.deleted_by = first
        if pod.seen.members > 1:
            self.causes.add(pod.seen.owner)
        pod.leaving = pod.leaving if pod.leaving is not None else at
        if (kind or first) in VANISHING and pod.released is None:
            pod.released = at

    def _do(self, deed: Deed) -> None:
        if deed.kind == "create":
            self.expected[deed.subject] = deed.detail
        elif deed.kind in {"scancel", "preempt"}:
            taken = self.taken.setdefault(deed.subject, Taken(deed.at))
            taken.done = deed.at if deed.done else None
            taken.names.add(deed.detail)
            self.causes.add(deed.subject)
        elif deed.kind in ENDING and not deed.done:
            self._end(deed.subject, deed.at, deed.kind)

    def _follow_nodes(self, told: SlurmTold) -> None:
        """Note what is lost with nodes; whoever was bound to one a moment before may be seen only now."""
        self.down |= {name for name, node in told.nodes.items() if not node.taking}
        for node in self.down:
            owners = {pod.seen.owner for pod in self.pods.values() if pod.holds and pod.seen.node == node}
            owners |= {job.owner for job in told.jobs if node in job.holds and job.owner}
            # A gang's job ends on all of its nodes.
            pods = (pod.seen for pod in self.pods.values() if pod.holds and pod.seen.owner in owners)
            self.lost |= {(pod.owner, pod.node) for pod in pods}
        taking = {name for name, node in told.nodes.items() if node.taking}
        self.down -= {name for name in taking if self._found.get(name, 0.0) < told.asked}
        # From now on others may have its share, and then it is ended; not while the node is given to nobody.
        self.causes |= {owner for owner, node in self.lost if node not in self.down}
        if not self.down:
            held = {(job.owner, node) for job in told.jobs if not leaves(job) for node in job.holds}
            self.lost -= held

    def _hear(self, told: SlurmTold) -> None:
        if not self._dead and self.returned is None:
            self.returned = told.asked
            last = self.told.jobs if self.told else ()
            known = {job.sluid for job in last if job.holding and not job.started <= self._over.get(job.id, 0.0)}
            self.revived |= {job.sluid for job in told.jobs if job.started <= self._died} - known
        self.told = told
        self._follow_nodes(told)
        for owner, taken in list(self.taken.items()):
            held = {job.name for job in told.jobs if job.owner == owner and job.holding and not leaves(job)}
            # It has one again (or still: slurmctld has forgotten), so what holds for all holds for it.
            if taken.done and taken.done < told.asked and taken.given_back(held):
                del self.taken[owner]

    def bound_before(self, moment: float) -> Iterator[Pod]:
        """Return the pods that were surely bound at a moment of the past, and hold their nodes still."""
        return (pod for pod in self.pods.values() if pod.holds and pod.bound is not None and pod.bound <= moment)


def groups(pods: Iterable[Pod]) -> dict[tuple[str, str], list[Pod]]:
    """Return pods by owner and node, those that were bound first in front."""
    found: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: pod.bound or 0.0):
        found[pod.seen.owner, pod.seen.node].append(pod)
    return found


def without_allocation(told: SlurmTold, pods: Iterable[Pod], *, ending: bool) -> list[Pod]:
    """Return the pods for which there is no slot in a live job of their owner on their node.

    `ending`: jobs that are just leaving their nodes count too.
    """
    slots: dict[tuple[str, str], int] = defaultdict(int)
    for job in told.jobs:
        if job.owner and (ending or not leaves(job)):
            for node, share in job.holds.items():
                slots[job.owner, node] += share.cpus
    found: list[Pod] = []
    for place, group in groups(pods).items():
        found += group[slots[place] // max(group[0].seen.cpus, 1) :]
    return found


def leaves(job: Job) -> bool:
    """Whether it holds its nodes only because it has not left them yet."""
    return job.state == "COMPLETING"
