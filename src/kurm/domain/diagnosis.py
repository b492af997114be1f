"""What is wrong, the worst first: each in one sentence, with the next command to type. Pure.

The operator's and the syncer's own words are taken as they stand in the conditions. What they cannot say is added: that
nobody looks at a resource, what keeps a pod from running, how the nodes are at this moment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby

from kurm.domain.nodeset import NodeSetCondition, NodeSetSpec, NodeSetStatus
from kurm.domain.slurmcluster import SlurmClusterCondition, SlurmClusterStatus
from kurm.domain.spec import Condition
from kurm.domain.standing import ASIDE, COMING, Standing

OPERATOR = "kubectl -n kurm-system get pods"
"""Where to look when nobody acts on a resource."""
NAMED = 3
"""How many nodes a sentence names; of more it gives the number."""


class Weight(IntEnum):
    """How bad a problem is, the worst first."""

    OUTAGE = 1
    """A cluster takes no jobs."""
    STUCK = 2
    """Something will not come without a person."""
    DEGRADED = 3
    """Something is missing; jobs run."""
    COMING = 4
    """Something is on its way, and will come by itself."""
    ASIDE = 5
    """Somebody wanted it so. It is told, and nothing is wrong."""


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be."""

    weight: Weight
    subject: str
    """Which object: `SlurmCluster slurm/demo`."""
    says: str
    """What of it, as the rest of the sentence; it has no full stop at its end."""
    next: str
    """A command that tells more, or mends it."""
    nodes: tuple[str, ...] = ()
    """All nodes that it is about; the sentence names the first of them."""


@dataclass(frozen=True)
class PodTrouble:
    """Why a pod of a component is not ready."""

    pod: str
    why: str
    stuck: bool = False
    """Whether it needs a person: an image that cannot be pulled, a program that ends again and again."""


@dataclass(frozen=True)
class Cluster:
    """A SlurmCluster, and what can be seen of its pods."""

    namespace: str
    name: str
    generation: int
    status: SlurmClusterStatus
    troubles: Mapping[str, Sequence[PodTrouble]] = field(default_factory=dict)
    """By component."""
    deleting: bool = False


@dataclass(frozen=True)
class NodeSet:
    """A NodeSet, and how the nodes stand with it now."""

    namespace: str
    name: str
    generation: int
    spec: NodeSetSpec
    status: NodeSetStatus
    standings: Sequence[Standing] | None = None
    """None if the nodes cannot be read."""
    deleting: bool = False


def problems(clusters: Iterable[Cluster], node_sets: Iterable[NodeSet]) -> list[Problem]:
    """Return all that is not as it should be, the worst first."""
    known = list(clusters)
    found = [problem for cluster in known for problem in of_cluster(cluster)]
    names = {(cluster.namespace, cluster.name) for cluster in known}
    found += [problem for node_set in node_sets for problem in of_node_set(node_set, names)]
    return worst_first(found)


def worst_first(found: Iterable[Problem]) -> list[Problem]:
    """Return problems by their weight; those of the same weight stay in the order in which they were told."""
    return sorted(found, key=lambda problem: problem.weight)


def of_cluster(cluster: Cluster) -> list[Problem]:
    """Return what is wrong with a SlurmCluster. A cause that one condition has told is not told by the next one."""
    place = f"{cluster.namespace}/{cluster.name}"
    more = f"kurm explain slurmcluster {cluster.name} -n {cluster.namespace}"
    if cluster.deleting:
        return [Problem(Weight.ASIDE, f"SlurmCluster {place}", "is being deleted", more)]
    told = _Told(f"SlurmCluster {place}", more)
    conditions = by_type(cluster.status.conditions)
    if not conditions:
        told.tell(Weight.OUTAGE, "is not looked at by any operator: it has no conditions", OPERATOR)
    elif unmet := _unmet(conditions, SlurmClusterCondition.AVAILABLE):
        told.tell(Weight.OUTAGE, f"takes no jobs: {_words(unmet)}", cause=unmet.message)
    if stalled := _met(conditions, SlurmClusterCondition.STALLED):
        told.tell(Weight.STUCK, f"needs a person: {_words(stalled)}", cause=stalled.message)
    if refused := cluster.status.config_refused:
        what = f"runs on its last good configuration: Slurm refused {refused.hash}: {refused.message}"
        told.tell(Weight.STUCK, what, cause=refused.message)
    elif unmet := _unmet(conditions, SlurmClusterCondition.CONFIGURED):
        told.tell(Weight.DEGRADED, f"does not run with its newest configuration: {_words(unmet)}", cause=unmet.message)
    for weight, part, why, command in _lacking(cluster):
        told.tell(weight, f"lacks pods of {part}: {why}", command, cause=why)
    _on_its_way(told, conditions, cluster.generation, cluster.status.observed_generation)
    return worst_first(told.problems)


def _lacking(cluster: Cluster) -> Iterator[tuple[Weight, str, str, str]]:
    """Yield each component that has fewer pods than it should: how bad it is, its name, why, and what to type."""
    said = {part.name: part for part in cluster.status.components}
    for name in sorted({*said, *cluster.troubles}):
        part, troubles = said.get(name), cluster.troubles.get(name, ())
        if part is not None and part.ready >= part.desired:
            continue
        if troubles:
            first = max(troubles, key=lambda one: one.stuck)
            weight = Weight.DEGRADED if first.stuck else Weight.COMING
            yield weight, name, f"{first.pod}: {first.why}", f"kubectl -n {cluster.namespace} describe pod {first.pod}"
        elif part is not None:
            why = part.message or f"{part.ready} of {part.desired} are ready"
            yield Weight.DEGRADED, name, why, f"kurm explain slurmcluster {cluster.name} -n {cluster.namespace}"


def of_node_set(node_set: NodeSet, clusters: Iterable[tuple[str, str]] | None) -> list[Problem]:
    """Return what is wrong with a NodeSet. `clusters` are all SlurmClusters by namespace and name; None if unknown."""
    place = f"{node_set.namespace}/{node_set.name}"
    more = f"kurm explain nodeset {node_set.name} -n {node_set.namespace}"
    if node_set.deleting:
        return [Problem(Weight.ASIDE, f"NodeSet {place}", "is being deleted", more)]
    told = _Told(f"NodeSet {place}", more)
    conditions = by_type(node_set.status.conditions)
    wanted = node_set.spec.cluster_ref.name
    if clusters is not None and (node_set.namespace, wanted) not in set(clusters):
        words = f"belongs to SlurmCluster {wanted!r}, which is not in namespace {node_set.namespace}"
        told.tell(Weight.STUCK, words, f"kubectl -n {node_set.namespace} get slurmclusters")
    elif not conditions:
        told.tell(Weight.STUCK, "is not looked at by any operator: it has no conditions", OPERATOR)
    if stalled := _met(conditions, NodeSetCondition.STALLED):
        told.tell(Weight.STUCK, f"needs a person: {_words(stalled)}", cause=stalled.message)
    for standings in _alike(node_set.standings or ()):
        told.problems.append(_not_in_service(told.subject, standings, more))
    _on_its_way(told, conditions, node_set.generation, node_set.status.observed_generation)
    return worst_first(told.problems)


def _alike(standings: Iterable[Standing]) -> Iterator[list[Standing]]:
    """Yield the nodes that the NodeSet has and that are not in service, by state."""
    own = [one for one in standings if one.wrong or (one.own and one.state in ASIDE)]
    for _, group in groupby(sorted(own, key=lambda one: (one.state, one.node)), lambda one: one.state):
        yield list(group)


def _not_in_service(subject: str, standings: Sequence[Standing], more: str) -> Problem:
    """Return the problem of nodes in the same state; the first one's reason stands for all."""
    first, number = standings[0], len(standings)
    weight, how = Weight.DEGRADED, "out of service"
    if first.state in ASIDE:
        weight, how = Weight.ASIDE, "set aside"
    elif first.state in COMING:
        weight, how = Weight.COMING, "on its way into service" if number == 1 else "on their way into service"
    names = tuple(one.node for one in standings)
    if number == 1:
        says = f"has {first.node} {how}: {first.why}"
        return Problem(weight, subject, says, f"kurm explain node {first.node}", names)
    alike = all(one.why == first.why for one in standings)
    why = first.why if alike else f"{first.node}: {first.why}"
    return Problem(weight, subject, f"has {number} nodes {how} ({some(names)}): {why}", more, names)


def some(names: Sequence[str], most: int = NAMED) -> str:
    """Return the first few names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


class _Told:
    """The problems of one object; the same cause is told once, by the worst of them."""

    def __init__(self, subject: str, more: str) -> None:
        self.problems: list[Problem] = []
        self.subject, self._more = subject, more

    def tell(self, weight: Weight, says: str, command: str = "", *, cause: str = "") -> None:
        if not cause or not any(cause in problem.says for problem in self.problems):
            self.problems.append(Problem(weight, self.subject, says, command or self._more))


def _on_its_way(told: _Told, conditions: Mapping[str, Condition], generation: int, observed: int) -> None:
    """Tell of what the conditions say beyond the causes that are known: not Ready, and whether it will come."""
    if conditions and observed < generation:
        words = f"has changed, and no operator has acted on it yet (generation {generation}, status of {observed})"
        told.tell(Weight.COMING, words, OPERATOR)
    if any(problem.weight < Weight.ASIDE for problem in told.problems) or not conditions:
        return
    coming = _met(conditions, "Reconciling")
    if unmet := coming or _unmet(conditions, "Ready"):
        told.tell(Weight.COMING if coming else Weight.DEGRADED, f"is not ready: {_words(unmet)}")


def by_type(conditions: Iterable[Condition]) -> dict[str, Condition]:
    """Return conditions by their types."""
    return {condition.type: condition for condition in conditions}


def _met(conditions: Mapping[str, Condition], kind: str) -> Condition | None:
    found = conditions.get(kind)
    return found if found is not None and found.status == "True" else None


def _unmet(conditions: Mapping[str, Condition], kind: str) -> Condition | None:
    found = conditions.get(kind)
    return found if found is not None and found.status != "True" else None


def _words(condition: Condition) -> str:
    return condition.message or condition.reason
