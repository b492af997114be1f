"""Which nodes a pod can never be given, and why: its selector, affinity, tolerations, GRES and size. Pure.

`Nodes` is kept up to date node by node. It holds, by label and value, by taint and by what a node has, the nodes as
bits; so a constraint costs a few operations on numbers, however many nodes there are, and nothing has to be looked at
again when a node changes. Words for reasons are those of `kurm.domain.selection`, with

    Partition      in the cluster, but not in a NodeSet of the pod's partition
    Gres/NAME      without this GRES, or with another type or too little of it
    HostPort/PORT, Volume, Avoided    what `kurm.domain.placing` adds
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from kurm.domain.gres import Gres
from kurm.domain.nodemask import Answers, Roster
from kurm.domain.nodeset import Infeasible
from kurm.domain.podresources import Resources
from kurm.domain.selection import Requirement, Taint, Term, Toleration


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes node, as far as it decides which pods it can be given."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Resources = Resources()
    node_set: str = ""
    """Name of the NodeSet of the cluster that has claimed it; empty for none: then it is no node of Slurm's."""
    gres: Mapping[str, Gres] = field(default_factory=dict)
    """By extended resource, as its annotation has it (`kurm.domain.gres.read`)."""


class Wish(Struct, frozen=True, gc=False):
    """A GRES that a pod asks for."""

    resource: str
    """The extended resource; empty if an annotation asks for it."""
    name: str
    type: str = ""
    count: int = 1


class Constraint(Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod asks of nodes, whoever else is on them. Equal for pods of one template."""

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[Term, ...] | None = None
    """One of them must hold; None if none is asked for."""
    tolerations: tuple[Toleration, ...] = ()
    wishes: tuple[Wish, ...] = ()
    node_sets: tuple[str, ...] | None = None
    """Those of the pod's partition; None for all."""
    size: Resources = Resources()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a constraint comes to, for nodes that have the same share of its GRES."""

    gres: tuple[str, ...]
    """What is to be asked for of each node, in Slurm's words: `gpu:8`."""
    allowed: int
    """Nodes that can be given to it, as a mask."""
    reasons: tuple[tuple[str, int], ...]
    """Why others cannot: a reason, and its nodes as a mask. Each node is in one of them."""

    @property
    def feasible(self) -> int:
        """How many nodes can be given to it."""
        return self.allowed.bit_count()


class Nodes:
    """All nodes of the Kubernetes cluster."""

    def __init__(self, roster: Roster | None = None, *, pool_taints: Collection[str] = ("kurm.dev/pool",)) -> None:
        """`pool_taints`: keys of the taints that fence the cluster's own NodeSets; all pods of ours tolerate them."""
        raise NotImplementedError

    def put(self, node: Node) -> None:
        """Take in a node that came or changed; one that is equal costs nothing."""
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Take out a node that went."""
        raise NotImplementedError

    def verdicts(self, constraint: Constraint) -> Sequence[Verdict]:
        """Return a verdict for each class of nodes that the constraint's GRES can be had of, the smallest share first.

        There is always one; without a feasible node it says why.
        """
        raise NotImplementedError

    def matching(self, terms: Sequence[Term]) -> int:
        """Return the nodes of which one of the terms holds, as a mask: for the node affinity of a volume."""
        raise NotImplementedError

    def infeasible(self, verdict: Verdict) -> tuple[Infeasible, ...]:
        """Return the reasons with their numbers and examples, as a NodeSet's status has them."""
        raise NotImplementedError
