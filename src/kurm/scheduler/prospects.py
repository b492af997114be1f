"""What is to be asked of Slurm for an owner now: the request, the nodes that are out, and why it must wait."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.asks import Ask, RefusedError
from kurm.domain.feasibility import Constraint
from kurm.domain.gangs import gather
from kurm.domain.jobrequest import JobRequest
from kurm.domain.owner import Job, Obstacle
from kurm.domain.placing import Prospect
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Members
from kurm.scheduler.room import SlurmRoom
from kurm.scheduler.terrain import Terrain, size_of
from kurm.scheduler.volumes import Volumes
from kurm.slurm.hostlist import compress

INFEASIBLE_FOR = 60.0
"""Seconds until a pod that no node can take is looked at again; a node that comes or changes has it looked at, too."""
CLAIMED_IN = 3.0
"""Seconds until the claims of a pod are read again that are not bound yet."""
REMEMBERED = 256
"""Sets of excluded nodes that are remembered as text: of 10,000 nodes each takes a millisecond."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What an owner is to ask for."""

    ask: Ask
    request: JobRequest
    excluded: str = ""
    """A host list."""
    prospect: Prospect | None = None
    """None for pods that are bound already: nothing is asked for them but what they have."""
    obstacle: Obstacle | None = None


class Prospects:
    """Says it, and keeps account of what Slurm gives."""

    def __init__(self, terrain: Terrain, ledger: Ledger, room: SlurmRoom, volumes: Volumes) -> None:
        self._terrain, self._ledger, self._room, self.volumes = terrain, ledger, room, volumes
        self._texts: dict[int, str] = {}
        self._held: set[str] = set()
        ledger.on_freed(self.released)

    def wish(self, members: Members, there: list[Pod], *, avoid: Collection[str]) -> Wish:
        """Return what to ask for the pods of an owner that have not ended, of which there is one at least."""
        owner, placing = members.owner, self._terrain.placing
        name, signature = owner.job_name, self._ledger.signature(owner.id)
        staying = [pod for pod in there if not pod.leaving] or there
        plain = _plain(staying[0])
        if members.foreign:
            return Wish(plain, plain.request(name, signature, slots=owner.size))
        if members.problem:
            refused = Obstacle("Refused", members.problem)
            return Wish(plain, plain.request(name, signature, slots=owner.size), obstacle=refused)
        try:
            asks = [(pod, self._terrain.rules.ask(pod)) for pod in staying]
            gathered = gather(owner, asks, members.finished)
        except RefusedError as error:
            refused = Obstacle("Refused", str(error))
            return Wish(plain, plain.request(name, signature, slots=owner.size), obstacle=refused)
        ask = gathered.ask
        needs = [self.volumes.needs(pod) for pod in staying]
        terms = tuple(term for one in needs for term in one.terms)
        found = placing.prospect(ask, slots=owner.size, volumes=terms, avoid=avoid)
        obstacle = None
        if gathered.waits_for:
            obstacle = Obstacle("GangIncomplete", gathered.waits_for)
        elif problem := next((one.problem for one in needs if one.problem), ""):
            obstacle = Obstacle("Infeasible", problem, CLAIMED_IN)
        elif not found.feasible:
            obstacle = Obstacle("Infeasible", placing.sentence(found), INFEASIBLE_FOR)
        request = ask.request(name, signature, slots=owner.size, gres=found.gres, per_node=found.per_node)
        return Wish(ask, request, self._excluded(found), found, obstacle)

    def _excluded(self, found: Prospect) -> str:
        text = self._texts.get(found.version)
        if text is None:
            if len(self._texts) >= REMEMBERED:
                self._texts.clear()
            text = self._texts[found.version] = ",".join(compress(self._terrain.placing.excluded(found)))
        return text

    def refusal(self, wish: Wish, pod: Pod, node: str, slots: int) -> str:
        """Return why so many such pods must not be bound to a node that Slurm has granted, empty if they may."""
        terms = self.volumes.needs(pod).terms
        return self._terrain.placing.refusal(wish.ask, node, uid=pod.metadata.uid, volumes=terms, slots=slots)

    def room(self, wish: Wish) -> bool | None:
        """Return whether what an owner asks may start now; None if that will be known in a moment."""
        if not self._room.known:
            return None
        return wish.prospect is not None and wish.prospect.room

    def no_room(self, wish: Wish) -> None:
        """Heed that Slurm had no room for it now."""
        if wish.prospect is not None:
            self._terrain.placing.no_room(wish.prospect)
            self._room.surprised()

    def granted(self, owner: str, wish: Wish, jobs: Iterable[Job]) -> None:
        """Heed what Slurm has given an owner, by all of its jobs."""
        found = [job.slots or {} for job in jobs]
        layout = found[0] if len(found) == 1 else _sum(found)
        slots, gres = wish.request.slots, wish.request.gres
        if layout:
            self._held.add(owner)
            self._terrain.placing.room.hold(owner, layout, wish.ask.shape(slots, gres, wish.request.slots_per_node))

    def released(self, owner: str, job: Job, left: Iterable[Job]) -> None:
        """Heed that a job has ended; `left` are those that the owner still has."""
        room = self._terrain.placing.room
        if not any(True for _ in left) and owner in self._held:
            self._held.discard(owner)
            room.release(owner)
        elif job.hosts:  # it is of before our time, or one of several
            room.doubt(job.hosts)
            self._room.want()

    def count(self, pod: Pod, node: str) -> None:
        """Count a pod that is being bound."""
        self._terrain.count(pod, node)


def _plain(pod: Pod) -> Ask:
    """Return what a pod takes, whatever else it asks: enough to pin it where it is."""
    size = size_of(pod)
    return Ask(Constraint(cpus=size.cpus, memory=size.mebibytes), size, cpus=size.cpus, memory=size.mebibytes)


def _sum(found: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    layout: dict[str, int] = {}
    for slots in found:
        for node, count in slots.items():
            layout[node] = layout.get(node, 0) + count
    return layout
