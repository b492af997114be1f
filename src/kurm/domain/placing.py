"""Where pods can go: all that the scheduler knows of its nodes, and what follows for one that asks. Pure.

This is the front of the house; behind it are `asks` (what a pod asks), `feasibility` (what its nodes must be),
`occupancy` (what the kubelets have taken in) and `room` (what Slurm has left). A scheduler uses it so::

    rules = Rules(scheduler, partitions, node_sets)                 # anew when the SlurmCluster or a NodeSet changes
    placing = Placing(pool_taints)

    placing.put_node(Node(...)); placing.drop_node(name)            # from the watch of nodes
    placing.occupancy.put(uid, node, requests(spec), host_ports(spec))  # from the watch of pods, and when we bind one
    placing.occupancy.drop(uid)                                     # terminal phase, gone, or not bound after all
    mark = placing.room.mark(); placing.room.refresh({name: Free(...)}, since=mark)  # Slurm's list, every hour
    placing.room.hold(owner, {node: slots}, found.shape)            # a grant; placing.room.release(owner) at its end

    ask = rules.ask(pod)                                            # RefusedError: its words are for the pod
    found = placing.prospect(ask, slots=1, volumes=[terms], avoid=names)
    if not found.feasible: ...                                      # Infeasible: placing.sentence(found)
    excluded = known.get(found.version) or compress(placing.excluded(found))
    request = ask.request(name, signature, slots=1, gres=found.gres, per_node=found.per_node)
    if found.room: allocate(request, excluded=excluded)             # NoRoom: placing.no_room(found)
    else: submit(request, excluded=excluded)
    placing.refusal(ask, node, uids=[pod.metadata.uid])             # before the bind: why it must not be, or ""

What was submitted keeps its excluded nodes and its GRES. If the prospect of an owner that waits has another `version`
or `gres` later, its job is out of date.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from kurm.domain.asks import Ask
from kurm.domain.diagnosis import NAMED
from kurm.domain.feasibility import Node, Nodes, Verdict, Wish
from kurm.domain.nodemask import Roster
from kurm.domain.nodeset import Infeasible
from kurm.domain.occupancy import Occupancy
from kurm.domain.podresources import CPU, MEMORY, STORAGE
from kurm.domain.podspec import Term
from kurm.domain.room import Room, Shape

EXAMPLES = 5
"""Nodes that are named for each reason, as a NodeSet's status has them."""
_VERSIONS = 4096
"""Sets of excluded nodes whose versions are remembered."""
_NUMBERS = count(1)
"""Versions, of whichever Placing: a host list that somebody has kept must never be taken for another one's."""
Volumes = Sequence[Sequence[Term]]
"""Of each bound volume of a pod, the terms of its node affinity."""

_WORDS = {
    "NodeSet": "{are} in no NodeSet of the cluster",
    "Partition": "{are} in no NodeSet of the pod's partition",
    "NodeSelector": "{do} not match spec.nodeSelector",
    "Affinity": "{do} not match the required node affinity",
    "Unschedulable": "{are} cordoned",
    "NotReady": "{are} not ready",
    "Taint": "{have} the taint {of}, which the pod does not tolerate",
    "TooFew": "{are} too small in {of}",
    "Gres": "{have} not the GRES {of} that the pod asks for",
    "Share": "{have} another number of {of}, of which a pod takes all that its node has",
    "HostPort": "{have} another pod on host port {of}",
    "Volume": "cannot reach a volume of the pod",
    "Volumes": "cannot reach the volumes of all pods of the gang",
    "Avoided": "{have} just refused the pod",
    "Kubelet": "{have} no room left by Kubernetes' account",
}
"""Reasons, each with what it says of nodes."""
_FORMS = ({"are": "are", "do": "do", "have": "have"}, {"are": "is", "do": "does", "have": "has"})


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is to be asked of Slurm for a pod or a gang at this moment."""

    feasible: int
    """On how many nodes it could be, if they were free."""
    room: bool
    """Whether all slots fit now without anybody's preemption, as far as is known."""
    gres: tuple[str, ...]
    """What to ask for of each node, in Slurm's words."""
    per_node: int
    """Most pods of a gang on a node; 0 for as many as fit."""
    version: int
    """Of the excluded nodes: the same number is the same nodes, as long as the process lives."""
    shape: Shape
    slots: int
    allowed: int
    """The nodes that may be granted, as a mask."""
    ruled_out: int
    """The nodes to be excluded, as a mask."""
    reasons: tuple[tuple[str, int], ...]
    """Why others cannot be granted: a reason and its nodes, as a mask."""


class Placing:
    """All that is known of the nodes."""

    def __init__(self, pool_taints: Collection[str] = ("kurm.dev/pool",)) -> None:
        """`pool_taints`: keys of the taints that fence the cluster's own NodeSets."""
        self._roster = Roster()
        self.nodes = Nodes(self._roster, pool_taints=pool_taints)
        self.occupancy = Occupancy(self._roster)
        self.room = Room(self._roster)
        self._versions: dict[tuple[int, int, int], int] = {}

    def fence(self, pool_taints: Collection[str]) -> None:
        """Heed that the cluster's own NodeSets are fenced by other taints."""
        self.nodes.fence(pool_taints)

    def put_node(self, node: Node) -> bool:
        """Take in a node that came or changed; return whether it is other than it was, for what is decided here."""
        new = node.name not in self._roster
        changed = self.nodes.put(node)
        if changed:
            self.occupancy.node(node.name, node.allocatable)
        if new:
            self.room.seen(node.name)
        return changed

    def drop_node(self, name: str) -> None:
        """Take out a node that went from Kubernetes. Pods and grants on it stay counted, for when it comes back."""
        self.nodes.drop(name)
        self.occupancy.node(name, None)
        self._roster.drop(name)

    def prospect(
        self, ask: Ask, *, slots: int = 1, volumes: Sequence[Volumes] = (), avoid: Collection[str] = ()
    ) -> Prospect:
        """Return what to ask of Slurm.

        `volumes`: of each pod that has bound ones. `avoid`: nodes that are out for a reason of the caller's, as one
        where a bind has just failed. Of several shares of a GRES that nodes have, the smallest with room is taken, else
        the smallest that any node has.
        """
        reach, each = self._together(volumes, slots)
        moving = list(self._moving(ask, avoid))
        if volumes:
            moving.append(("Volumes" if len(volumes) > 1 else "Volume", self._roster.all & ~reach))
        verdicts = self.nodes.verdicts(ask.constraint)
        found = [self._prospect(ask, slots, verdict, moving, each) for verdict in verdicts]
        return next((one for one in found if one.room), next((one for one in found if one.feasible), found[0]))

    def excluded(self, prospect: Prospect) -> tuple[str, ...]:
        """Return the names to be excluded: Slurm refuses a request that excludes a node which it does not know."""
        return tuple(name for name in self._roster.names(prospect.ruled_out) if name in self.room)

    def no_room(self, prospect: Prospect) -> None:
        """Heed that Slurm had no room after all: such requests have none there until something is freed."""
        self.room.close(prospect.shape, prospect.allowed, prospect.slots)

    def refusal(
        self,
        ask: Ask,
        node: str,
        *,
        uids: Iterable[str] = (),
        volumes: Volumes = (),
        slots: int = 1,
        gres: Collection[str] | None = None,
    ) -> str:
        """Return why a pod, or `slots` of a gang, must not be bound to a node that Slurm has granted: a clause, or "".

        Both are checked: what the pod asks of nodes, and what its kubelet would refuse. `uids`: those of them that may
        be counted there already. `gres`: what Slurm was asked for of each node, None if that is not known.
        """
        place = self._roster.place(node)
        if place is None:
            return f"{node} is not known"
        bit = 1 << place
        verdicts = self.nodes.verdicts(ask.constraint)
        if not any(verdict.allowed & bit for verdict in verdicts):
            reasons = [reason for reason, mask in verdicts[0].reasons if mask & bit]
            if reasons != ["Partition"]:  # of which Slurm may be told a moment later than we are
                return f"{node} {_said(reasons[0] if reasons else 'NodeSet', 1)}"
        if gres is not None and set(gres) != set(self.share(node, ask)):
            return f"{node} has other GRES than Slurm was asked for"
        if node in self.beyond(volumes, [node]):
            return f"{node} {_said('Volume', 1)}"
        return self.occupancy.fits(node, ask.resources.times(slots), ask.ports, uids=uids)

    def beyond(self, volumes: Volumes, nodes: Iterable[str]) -> frozenset[str]:
        """Return which of these nodes cannot reach all volumes of a pod."""
        if not volumes:
            return frozenset()
        reach = self._reach(volumes)
        return frozenset(node for node in nodes if not reach & self._roster.mask([node]))

    def share(self, node: str, ask: Ask) -> tuple[str, ...]:
        """Return what a pod that is bound to a node holds of its GRES, in Slurm's words, by what it and the node are.

        Not by what it would be given now: of other nodes that may be another number.
        """
        known = self.nodes.get(node)
        has = known.gres if known is not None else {}
        asked = ask.constraint.wishes
        types = {wish.name: wish.type for wish in asked if wish.type}
        # Extended resources by what the node has: the rules may call them by other names by now, or know them no more.
        extended = {wish.resource for wish in asked} | {name for name, _ in ask.resources.extended}
        kinds = {name: has[name].name for name in extended & has.keys()}
        wishes = [Wish(name, kind, types.get(kind, "")) for name, kind in kinds.items()]
        wishes += [wish for wish in asked if not wish.resource and wish.name not in kinds.values()]
        return self.nodes.share(node, wishes)

    def infeasible(self, prospect: Prospect) -> tuple[Infeasible, ...]:
        """Return why other nodes cannot be used, as a NodeSet's status has it: numbers, and some of their names."""
        return tuple(
            Infeasible(reason, mask.bit_count(), self._roster.names(mask, EXAMPLES))
            for reason, mask in prospect.reasons
        )

    def sentence(self, prospect: Prospect) -> str:
        """Return it in a sentence: `0 of 5 nodes can be used: 3 do not match spec.nodeSelector (n1, n2, n3), ...`.

        Nodes that are in no NodeSet of the cluster are not counted.
        """
        found = [one for one in self.infeasible(prospect) if one.reason != "NodeSet"]
        total = prospect.feasible + sum(one.nodes for one in found)
        told = ", ".join(f"{one.nodes} {_said(one.reason, one.nodes)} ({_names(one)})" for one in found)
        return f"{prospect.feasible} of {total} nodes can be used{': ' if told else ''}{told}"

    def _prospect(
        self, ask: Ask, slots: int, verdict: Verdict, moving: Sequence[tuple[str, int]], each: int
    ) -> Prospect:
        allowed, reasons = verdict.allowed, list(verdict.reasons)
        for reason, mask in moving:
            if out := allowed & mask:
                reasons.append((reason, out))
                allowed ^= out
        bounds = (verdict.per_node, 1 if ask.ports else 0, each, self._taken_in(ask, slots, allowed))
        per_node = min(filter(None, bounds), default=0)
        shape = ask.shape(slots, verdict.gres, per_node)
        feasible = allowed.bit_count()
        # Of these Slurm believes that they have room, and their kubelets would refuse the pod.
        if refusing := allowed & self.room.fitting(shape, slots) & self.occupancy.unfit(ask.resources):
            reasons.append(("Kubelet", refusing))
            allowed ^= refusing
        ruled_out = (verdict.allowed | verdict.excluded) & ~allowed
        return Prospect(
            feasible=feasible,
            room=self.room.has(shape, allowed, slots),
            gres=verdict.gres,
            per_node=shape.per_node,
            version=self._version_of(ruled_out),
            shape=shape,
            slots=slots,
            allowed=allowed,
            ruled_out=ruled_out,
            reasons=tuple(reasons),
        )

    def _taken_in(self, ask: Ask, slots: int, allowed: int) -> int:
        """Return how many pods of a gang the roomiest kubelet takes in, 0 for all: Slurm counts slurmd's share, too."""
        most = self.occupancy.most(self._roster.names(allowed), ask.resources, slots) if slots > 1 else slots
        return max(1, most) if most < slots else 0

    def _moving(self, ask: Ask, avoid: Collection[str]) -> Iterator[tuple[str, int]]:
        """Yield what rules out nodes for this pod at this moment."""
        for port in ask.ports:
            yield f"HostPort/{port.host_port}", self.occupancy.taken(port)
        if avoid:
            yield "Avoided", self._roster.mask(avoid)

    def _reach(self, volumes: Volumes) -> int:
        """Return the nodes that can reach all volumes of a pod, as a mask."""
        reach = self._roster.all
        for terms in volumes:
            reach &= self.nodes.matching(terms)
        return reach

    def _together(self, volumes: Sequence[Volumes], slots: int) -> tuple[int, int]:
        """Return the nodes for pods with such volumes, as a mask, and how many pods to a node (0: as many as fit).

        Slurm is asked for slots, and not which of them is where. So it is nodes that can reach the volumes of all; or,
        where each pod has one node of its own (local volumes that were made for it), just these, with a slot each.
        """
        reaches = [self._reach(one) for one in volumes]
        every = self._roster.all
        for reach in reaches:
            every &= reach
        if every or len(reaches) != slots or any(reach.bit_count() != 1 for reach in reaches):
            return every, 0
        either = sum(set(reaches))  # of one node each
        return (either, 1) if either.bit_count() == slots else (0, 0)

    def _version_of(self, mask: int) -> int:
        """Return the number of a set of nodes; a node that Slurm comes to know makes it another one."""
        key = self._roster.epoch, self.room.epoch, mask
        version = self._versions.get(key)
        if version is None:
            if len(self._versions) >= _VERSIONS:
                self._versions.clear()
            version = self._versions[key] = next(_NUMBERS)
        return version


def _said(reason: str, number: int) -> str:
    kind, _, of = reason.partition("/")
    return _WORDS[kind].format(of=_NAMED.get(of, of), **_FORMS[number == 1])


_NAMED = {CPU: "CPUs", MEMORY: "memory", STORAGE: "ephemeral storage"}


def _names(one: Infeasible) -> str:
    named = one.examples[:NAMED]
    rest = one.nodes - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")
