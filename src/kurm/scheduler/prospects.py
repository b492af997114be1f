"""What is to be asked of Slurm for an owner now: the request, the nodes that are out, and why it must wait."""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from kurm.domain.asks import Ask, RefusedError, held
from kurm.domain.gangs import gather
from kurm.domain.jobrequest import JobRequest
from kurm.domain.owner import Job, Obstacle, Phase
from kurm.domain.placing import Prospect
from kurm.domain.podspec import Term
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Members
from kurm.scheduler.room import SlurmRoom
from kurm.scheduler.terrain import Terrain
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
        ledger.on_moved(self.released, self.started)

    def wish(self, members: Members, there: list[Pod], *, avoid: Collection[str]) -> Wish:
        """Return what to ask for the pods of an owner that have not ended, of which there is one at least."""
        owner, placing = members.owner, self._terrain.placing
        name, signature = owner.job_name, self._ledger.signature(owner.id)
        staying = [pod for pod in there if not pod.leaving] or there
        plain = held(staying[0])
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
        found = placing.prospect(ask, slots=owner.size, volumes=self._terms(staying), avoid=avoid)
        obstacle = None
        if gathered.waits_for:
            obstacle = Obstacle("GangIncomplete", gathered.waits_for)
        elif problem := next((one.problem for one in needs if one.problem), ""):
            obstacle = Obstacle("Infeasible", problem, CLAIMED_IN)
        elif not found.feasible and not self._runs(owner.id):  # what it has been given is looked at node by node
            obstacle = Obstacle("Infeasible", placing.sentence(found), INFEASIBLE_FOR)
        request = ask.request(name, signature, slots=owner.size, gres=found.gres, per_node=found.per_node)
        return Wish(ask, request, self._excluded(found), found, obstacle)

    def held(self, members: Members, node: str) -> tuple[Wish, ...]:
        """Return what the pods of an owner hold of a node that they are bound to, and what to make do with.

        It is what they and the node are, and not what would be asked for them now. Where they need no more to be chosen
        for, they are not to be refused for: a feature, an account or a QOS may be gone by now, and licences given away.
        Of a foreign pod that nobody has reserved anything for, its share of GRES may be another one's.
        """
        there, owner = members.there(), members.owner
        if not there:
            return ()
        pod = next((pod for pod in there if pod.spec.node_name), there[0])
        ask = held(pod)
        if members.foreign:  # what it says to Slurm was said to nobody
            ask = replace(ask, exclusive=False, constraint=structs.replace(ask.constraint, wishes=()))
        elif not members.problem:
            with contextlib.suppress(RefusedError):
                ask = self._terrain.rules.ask(pod)
        name, signature = owner.job_name, self._ledger.signature(owner.id)
        gres = self._terrain.placing.share(node, ask)
        whole = replace(ask.request(name, signature, slots=owner.size, gres=gres), constraint="")
        less = replace(whole, account="", qos="")
        least = replace(less, reservation="", licenses="")
        if members.foreign:
            least = replace(whole, gres=())
        return tuple(Wish(ask, request) for request in dict.fromkeys((whole, less, least)))

    def _runs(self, owner: str) -> bool:
        return any(job.phase is Phase.RUNNING for job in self._ledger.jobs(owner) or ())

    def _terms(self, pods: Iterable[Pod]) -> Sequence[Sequence[Sequence[Term]]]:
        """Return of each pod what its bound volumes ask of nodes; not of those that are made where its job runs."""
        found: list[Sequence[Sequence[Term]]] = []
        for pod in pods:
            terms, making = self.volumes.needs(pod).terms, self.volumes.making(pod)
            if terms and (making is None or self._ledger.entry(making.job) is None):
                found.append(terms)
        return found

    def beyond(self, pod: Pod, nodes: Iterable[str]) -> frozenset[str]:
        """Return which of these nodes cannot reach the volumes of a pod."""
        return self._terrain.placing.beyond(self.volumes.needs(pod).terms, nodes)

    def _excluded(self, found: Prospect) -> str:
        text = self._texts.get(found.version)
        if text is None:
            if len(self._texts) >= REMEMBERED:
                self._texts.clear()
            text = self._texts[found.version] = ",".join(compress(self._terrain.placing.excluded(found)))
        return text

    def refusals(
        self,
        wish: Wish,
        pods: Sequence[Pod],
        slots: Mapping[str, int],
        gres: Mapping[str, Collection[str] | None] | None = None,
    ) -> Mapping[str, str]:
        """Return the granted nodes to which so many of these pods must not be bound, and why.

        `gres`: what Slurm was asked for of each, None if that is not known. Where a pod's own volumes can be reached
        counts if it is one alone; of several `beyond` tells.
        """
        placing, terms = self._terrain.placing, self.volumes.needs(pods[0]).terms if len(pods) == 1 else ()
        counted = placing.occupancy.where(pod.metadata.uid for pod in pods)
        found = {}
        for node, number in slots.items():
            asked, uids = gres.get(node) if gres else None, counted.get(node, ())
            if why := placing.refusal(wish.ask, node, uids=uids, volumes=terms, slots=number, gres=asked):
                found[node] = why
        return found

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

    def started(self, job: Job) -> None:
        """Heed that a job of the queue runs, of which only a list has told: where it is, is not as free as it was."""
        self._terrain.placing.room.doubt(job.hosts)
        self._room.want()

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


def _sum(found: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    layout: dict[str, int] = {}
    for slots in found:
        for node, count in slots.items():
            layout[node] = layout.get(node, 0) + count
    return layout
