"""One owner as it is looked at: both sides at one moment, and what was learnt of it by trying."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from kurm.domain import owner as owners
from kurm.domain.allocation import CLOSED_FOR
from kurm.domain.jobrequest import JobRequest
from kurm.domain.owner import Job, Obstacle, Phase, Snapshot
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Members, Owners
from kurm.scheduler.pool import Pool
from kurm.scheduler.prospects import Prospects, Wish

log = structlog.get_logger("kurm.scheduler")

REFUSED_FOR = 30.0
"""Seconds until what Slurm has refused is asked again: an administrator may have changed what it depends on."""
WITHDRAWN_FOR = 10.0
"""Seconds until a pod is queued again whose job somebody has taken out of the queue."""
AMENDED_FOR = 15.0
"""Seconds between two changes of the nodes that a queued job excludes."""
TAKEN_AFTER = 4.0
"""Seconds for which a pod that has lost its share of a node to others may try to have it back. P1 leaves it ten."""
HEEDED = 0.8 * CLOSED_FOR
"""Seconds for which others believe that a node is closed; whoever has found it so tries again after that."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is decided about. `members` is None for an owner without pods, `wish` where nothing is asked for."""

    owner: str
    members: Members | None
    seen: Snapshot
    wish: Wish | None = None

    def pod(self, uid: str) -> Pod | None:
        """Return a pod of the owner's."""
        return self.members.pods.get(uid) if self.members is not None else None


class Sight:
    """Looks. What it remembers of an owner is only what saves a vain try: a restart may forget it."""

    def __init__(self, pool: Pool, owners: Owners, ledger: Ledger, binding: Binding, prospects: Prospects) -> None:
        self._pool, self._owners, self._ledger = pool, owners, ledger
        self._binding, self._prospects = binding, prospects
        self._refused: dict[str, tuple[float, Obstacle]] = {}
        self._avoid: dict[str, dict[str, float]] = {}
        self._taken: dict[str, dict[str, float]] = {}  # by node, since when a pin finds no room there
        self._asked: dict[str, tuple[_Shape, float]] = {}  # of a queued job, and since when
        self._closed: dict[str, tuple[float, str]] = {}  # by node, until when no pin is to be had, and why
        self._gangs: dict[str, float | None] = {}  # bound in part since; None: it was whole

    # What was learnt.

    def refused(self, owner: str, request: JobRequest, why: str) -> None:
        """Heed that Slurm has refused what an owner asks."""
        words = f"Slurm refuses it: {why}; asked: {request.named or 'nothing by name'}"
        self._refused[owner] = _now() + REFUSED_FOR, Obstacle("Refused", words, REFUSED_FOR)

    def asked(self, owner: str, wish: Wish) -> None:
        """Heed what an owner's job in the queue asks."""
        self._asked[owner] = _shape(wish), _now()

    def resized(self, owner: str, wish: Wish) -> bool:
        """Whether an owner's job in the queue was asked for with other slots; not if nobody knows."""
        asked, _ = self._asked.get(owner, (None, 0.0))
        return asked is not None and asked[2:] != _shape(wish)[2:]

    def avoid(self, owner: str, nodes: Iterable[str]) -> None:
        """Heed that an owner could not use nodes that Slurm has given it."""
        until = _now() + REFUSED_FOR
        for node in nodes:
            self._avoid.setdefault(owner, {})[node] = until

    def pinned(self, owner: str, node: str, *, room: bool) -> bool:
        """Heed whether a node had room for what an owner's pods hold there; return whether it was closed until now."""
        was_closed = self._closed.pop(node, None) is not None
        if not room:
            self._taken.setdefault(owner, {}).setdefault(node, _now())
        elif owner in self._taken:
            self._taken[owner].pop(node, None)
        return was_closed

    def closed(self, owner: str, node: str, why: str) -> None:
        """Heed that Slurm starts nothing on a node: an owner's share there is given to nobody, and none can be had."""
        if self._closed.get(node, (0.0, ""))[1] != why:
            log.warning("a pod's node takes no jobs, and so no pin", node=node, owner=owner, why=why)
        self._closed[node] = _now() + HEEDED, why
        for taken in self._taken.values():  # nobody has it
            taken.pop(node, None)

    def taken_in(self, owner: str) -> float:
        """Return in how many seconds it is known that an owner's share is taken; infinity if none is in doubt."""
        return min((at + TAKEN_AFTER - _now() for at in self._taken.get(owner, {}).values()), default=float("inf"))

    def bound(self, owner: str) -> None:
        """Heed that some pods of a gang are being bound."""
        self._gangs.setdefault(owner, _now())

    def forget(self, owner: str) -> None:
        """Drop what was learnt of an owner that is gone."""
        for table in (self._refused, self._avoid, self._taken, self._asked, self._gangs):
            table.pop(owner, None)
        self._ledger.forget(owner)

    # What is seen.

    def case(self, owner: str, wish: Wish | None = None) -> Case:
        """Return an owner as it is now; `wish` is what a look a moment ago has found, if it still holds."""
        members, known, now = self._owners.get(owner), self._ledger.jobs(owner), _now()
        there = members.there() if members is not None else []
        hosts = {node for job in known or () for node in job.hosts}
        pods = tuple(self._pod(pod, members, hosts) for pod in there) if members is not None else ()
        waits = any(not pod.node and not pod.leaving for pod in pods)
        obstacle, room, unfit = None, None, {}
        if waits and members is not None:
            wish = wish or self.wish(owner, members, there)
            obstacle, room = self._obstacle(owner, now) or wish.obstacle, self._prospects.room(wish)
            unfit = dict.fromkeys(self._avoided(owner), "it could not be used a moment ago")
            waiting = [pod for pod, one in zip(there, pods, strict=True) if not one.node and not one.leaving]
            unfit |= self._unfit(wish, waiting, pods, known or ())  # says why, where that is known
        size, finished = (members.owner.size, len(members.finished)) if members is not None else (1, 0)
        around = _nodes(pods, known or ())
        seen = Snapshot(
            pods,
            known,
            wanted=size,
            finished=finished,
            epoch=self._ledger.epoch,
            ended=self._ledger.ended(owner),
            nodes={node: self._pool.health(node) for node in around},
            closed={node: why for node in around if (why := self._closed_for(node, now))},
            unfit=unfit,
            taken=self._taken_from(owner, now),
            obstacle=obstacle,
            outdated=wish is not None and self._outdated(owner, wish, known or (), now),
            open=self._ledger.open,
            room=room,
            problem=self._ledger.problem or "what Slurm holds is being read",
            partial_since=self._partial_since(owner, pods, known or (), size - finished) if size > 1 else None,
            force=self._pool.settings.terminating_forever == "delete",
            now=now,
        )
        return Case(owner, members, seen, wish)

    def wish(self, owner: str, members: Members, there: list[Pod]) -> Wish:
        """Return what to ask of Slurm for the pods of an owner that have not ended."""
        return self._prospects.wish(members, there, avoid=self._avoided(owner))

    def wish_of(self, case: Case) -> Wish | None:
        """Return what to ask for the pods of a case, or what they hold if all are bound; None if there are none."""
        if case.wish is not None or case.members is None:
            return case.wish
        node = next((pod.node for pod in case.seen.pods if pod.node), "")
        return next(iter(self._prospects.held(case.members, node)), None)

    def _avoided(self, owner: str) -> Collection[str]:
        avoided, now = self._avoid.get(owner), _now()
        return [node for node, until in avoided.items() if until > now] if avoided else ()

    def _unfit(
        self, wish: Wish, waiting: list[Pod], pods: Iterable[owners.Pod], known: Iterable[Job]
    ) -> Mapping[str, str]:
        """Return the nodes that cannot take in the pods for which they have slots, and why."""
        free, gres = Counter[str](), dict[str, tuple[str, ...] | None]()
        for job in known:
            slots, entry = job.slots or dict.fromkeys(job.hosts, 1), self._ledger.entry(job.id)
            free.update(slots)
            gres |= dict.fromkeys(slots, entry.gres if entry is not None else None)
        free.subtract(Counter(one.node for one in pods if one.node))
        return self._prospects.refusals(wish, waiting, +free, gres)

    def _pod(self, pod: Pod, members: Members, hosts: Collection[str]) -> owners.Pod:
        where, volumes = self._binding.where(pod), self._prospects.volumes
        return owners.Pod(
            pod.metadata.uid,
            where.node,
            where.job,
            where.epoch,
            rank=where.slot if where.node else members.rank(pod),
            leaving=pod.leaving or pod.metadata.uid in members.ghosts,
            foreign=members.foreign,
            claims=", ".join(volumes.needs(pod).waiting),
            making=volumes.making(pod),
            beyond=self._prospects.beyond(pod, hosts) if members.owner.size > 1 and not where.node else frozenset(),
        )

    def _partial_since(self, owner: str, pods: Collection[owners.Pod], known: Iterable[Job], size: int) -> float | None:
        """Return since when a gang of so many is not whole that we have bound in part, or that Slurm knows in part."""
        if not pods:
            self._gangs.pop(owner, None)  # who comes after them begins anew
        bound, waits = sum(1 for pod in pods if pod.node), any(not pod.node for pod in pods)
        held = sum(sum((job.slots or {}).values()) for job in known)
        if owner in self._gangs and bound >= size:
            self._gangs[owner] = None
        elif bound and waits and held < size and self._ledger.open and self._gangs.get(owner) is None:
            self._gangs[owner] = _now()
        return self._gangs.get(owner) if bound else None

    def _taken_from(self, owner: str, now: float) -> frozenset[str]:
        """Return the nodes where a pin has found no room for long enough to know that there is none."""
        since = self._taken.get(owner)
        if not since or not self._ledger.open:
            return frozenset()
        return frozenset(node for node, at in since.items() if at + TAKEN_AFTER <= now)

    def _closed_for(self, node: str, now: float) -> str:
        until, why = self._closed.get(node, (0.0, ""))
        return why if until > now else ""

    def _outdated(self, owner: str, wish: Wish, known: Iterable[Job], now: float) -> bool:
        """Whether a queued job asks another thing than it would now; not looked at too often: to amend costs a call."""
        if wish.prospect is None or not any(job.phase is Phase.QUEUED for job in known):
            return False
        asked, at = self._asked.get(owner, (None, -AMENDED_FOR))
        return asked != _shape(wish) and now >= at + AMENDED_FOR

    def _obstacle(self, owner: str, now: float) -> Obstacle | None:
        withdrawn = self._ledger.withdrawn(owner)
        if withdrawn is not None and now < withdrawn + WITHDRAWN_FOR:
            left = withdrawn + WITHDRAWN_FOR - now
            return Obstacle("SlurmQueue", "its job was cancelled in Slurm; it is queued anew in a moment", left)
        until, obstacle = self._refused.get(owner, (0.0, None))
        return replace(obstacle, again=until - now) if obstacle is not None and until > now else None


_Shape: TypeAlias = tuple[int, tuple[str, ...], int, int]


def _shape(wish: Wish) -> _Shape:
    """Return what of a queued job can be amended: the version of the nodes that it excludes, its GRES and its slots."""
    request = wish.request
    version = wish.prospect.version if wish.prospect is not None else -1
    return version, request.gres, request.slots, request.slots_per_node


def _nodes(pods: Iterable[owners.Pod], known: Iterable[Job]) -> set[str]:
    return {pod.node for pod in pods if pod.node} | {node for job in known for node in job.hosts}


def _now() -> float:
    return asyncio.get_running_loop().time()
