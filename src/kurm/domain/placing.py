"""Where pods can go: all that the scheduler knows of its nodes, and what follows for one that asks. Pure.

This is the front of the house; behind it are `asks` (what a pod asks), `feasibility` (what its nodes must be),
`occupancy` (what the kubelets have taken in) and `room` (what Slurm has left). A scheduler uses it so::

    rules = Rules(scheduler, partitions, node_sets, slurm_default)    # anew when the SlurmCluster or a NodeSet changes
    placing = Placing(pool_taints)

    placing.put_node(Node(...)); placing.drop_node(name)              # from the watch of nodes
    placing.occupancy.put(pod_uid, node, requests(spec), ports)       # from the watch of pods, and at once when we bind
    placing.occupancy.drop(pod_uid)                                   # terminal phase, or gone
    placing.room.refresh({name: Free(...)}, since=mark)               # Slurm's list, at the start and every 300 s
    placing.room.hold(owner, {node: slots}, shape)                    # a grant; placing.room.release(owner) at its end

    ask = rules.ask(pod)                                              # RefusedError: the sentence for the pod
    found = placing.prospect(ask, slots=1, volumes=terms, avoid=names)
    found.feasible == 0                                               # Infeasible: placing.sentence(found)
    excluded = cache.get(found.version) or compress(placing.excluded(found))
    request = ask.request(name, signature, gres=found.gres)
    if found.room: try allocate(request, excluded=excluded) except NoRoom: placing.no_room(ask, found); submit
    placing.refusal(ask, node)                                        # before the bind: "" or why the node cannot be
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kurm.domain.asks import Ask
from kurm.domain.feasibility import Node, Nodes, Verdict
from kurm.domain.nodeset import Infeasible
from kurm.domain.occupancy import Occupancy
from kurm.domain.podspec import Term
from kurm.domain.room import Room


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is to be asked of Slurm for a pod or a gang at this moment."""

    verdict: Verdict
    version: int
    """Of `Placing.excluded`: prospects with the same version exclude the same nodes, as long as the process lives."""
    ruled_out: int
    """The excluded nodes, as a mask."""
    room: bool
    """Whether all slots fit now without anybody's preemption, as far as is known."""

    @property
    def feasible(self) -> int:
        """On how many nodes it could be, if they were free."""
        return self.verdict.feasible

    @property
    def gres(self) -> tuple[str, ...]:
        """What to ask for of each node, in Slurm's words."""
        return self.verdict.gres


class Placing:
    """All that is known of the nodes."""

    def __init__(self, pool_taints: Collection[str] = ("kurm.dev/pool",)) -> None:
        self.nodes: Nodes
        self.occupancy: Occupancy
        self.room: Room

    def put_node(self, node: Node) -> None:
        """Take in a node that came or changed."""
        raise NotImplementedError

    def drop_node(self, name: str) -> None:
        """Take out a node that went from Kubernetes."""
        raise NotImplementedError

    def prospect(
        self, ask: Ask, *, slots: int = 1, volumes: Sequence[Sequence[Term]] = (), avoid: Collection[str] = ()
    ) -> Prospect:
        """Return what to ask of Slurm. `volumes`: of each bound volume, the terms of its node affinity.

        `avoid`: nodes that are out for a reason of the caller's, as one where a bind has just failed.
        """
        raise NotImplementedError

    def excluded(self, prospect: Prospect) -> tuple[str, ...]:
        """Return the names to be excluded: those that are ruled out and that Slurm knows (`Room.known`).

        Slurm refuses a request that excludes a node which it does not know.
        """
        raise NotImplementedError

    def no_room(self, ask: Ask, prospect: Prospect, slots: int = 1) -> None:
        """Heed that Slurm had no room after all: such requests have none until something is freed."""
        raise NotImplementedError

    def refusal(self, ask: Ask, node: str, *, volumes: Sequence[Sequence[Term]] = ()) -> str:
        """Return why a pod must not be bound to a node that Slurm has granted, empty if it may: one sentence.

        Both are checked: what the pod asks of nodes, and what its kubelet would refuse.
        """
        raise NotImplementedError

    def infeasible(self, prospect: Prospect) -> tuple[Infeasible, ...]:
        """Return the reasons with their numbers and examples."""
        raise NotImplementedError

    def sentence(self, prospect: Prospect) -> str:
        """Return the reasons in a sentence: `0 of 5 nodes can be used: 3 do not match spec.nodeSelector (n1, ...)`."""
        raise NotImplementedError
