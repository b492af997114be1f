"""A NodeSet's nodes and pods at one moment, as the caches have them, and what was chosen of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kurm.domain.agreement import RELEASE, SLURM_DRAINED, SLURM_READY
from kurm.domain.selection import Candidate, Selection, claim, select
from kurm.operator import claims
from kurm.operator.caches import Caches
from kurm.operator.conditions import Trouble
from kurm.operator.objects import OVER, Node, NodeSet, Pod, owned_by
from kurm.operator.pods import Pod as Held
from kurm.operator.pods import Slot
from kurm.operator.render import names


@dataclass(frozen=True)
class Fleet:
    """One moment."""

    node_set: NodeSet
    mine: str
    """Our claim, as nodes bear it."""
    nodes: Mapping[str, Node]
    """All nodes of Kubernetes."""
    pods: Mapping[str, Pod]
    """Our pods, by node."""
    chosen: Selection
    slots: Sequence[Slot]
    leaving: bool = False
    """All of it is to be given back."""
    troubles: Sequence[Trouble] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing of it is left, as far as the caches know."""
        return not any(slot.claimed or slot.pod is not None for slot in self.slots)


def muster(caches: Caches, node_set: NodeSet, *, leaving: str, cluster_uid: str, template: str) -> Fleet:
    """Return a NodeSet's fleet.

    `leaving`: why all of it is to be given back, in words; empty if it is not. `cluster_uid`: the SlurmCluster's, and
    `template`: the hash of an up-to-date pod's; each empty if it is not known.
    """
    mine = claim(node_set.metadata.namespace, node_set.metadata.name)
    nodes = {node.metadata.name: node for node in caches.nodes}
    pods = {pod.spec.node_name: pod for pod in caches.pods.by("node set", node_set.key)}
    held = {name: _held(pod, node_set, nodes, cluster_uid, template) for name, pod in pods.items()}
    chosen, troubles = _choose(node_set, mine, nodes, held, leaving)
    kept = {*chosen.keep, *chosen.claim}
    slots = []
    for name in sorted({*kept, *chosen.release, *pods}):
        node = nodes.get(name)
        reason = leaving or _reason(chosen, name)
        slots.append(
            Slot(
                node=name,
                claimed=node is not None and claims.of(node) == mine,
                whole=node is not None and claims.whole(node, mine, node_set.spec),
                wanted=name in kept,
                reason=reason,
                pod=held.get(name),
            )
        )
    return Fleet(node_set, mine, nodes, pods, chosen, slots, bool(leaving), troubles)


def answered(pod: Pod) -> bool:
    """Whether Slurm gives a pod's node no jobs and has none there, said in answer to the release that it bears now.

    A condition that answers an earlier release may be older than jobs that came since.
    """
    drained, release = pod.condition(SLURM_DRAINED), pod.metadata.annotations.get(RELEASE, "")
    return drained is not None and drained.status == "True" and drained.message == release != ""


def _held(pod: Pod, node_set: NodeSet, nodes: Mapping[str, Node], cluster_uid: str, template: str) -> Held:
    annotations = pod.metadata.annotations
    return Held(
        release=annotations.get(RELEASE, ""),
        answered=answered(pod),
        ready=pod.holds(SLURM_READY),
        outdated=bool(template) and annotations.get(names.TEMPLATE_HASH) != template,
        over=pod.status.phase in OVER or pod.spec.node_name not in nodes,
        going=pod.going or not owned_by(pod, node_set.metadata.uid),
        orphaned=bool(cluster_uid) and annotations.get(names.OWNER_UID) != cluster_uid,
    )


def _choose(
    node_set: NodeSet, mine: str, nodes: Mapping[str, Node], held: Mapping[str, Held], leaving: str
) -> tuple[Selection, list[Trouble]]:
    own = tuple(sorted(name for name, node in nodes.items() if claims.of(node) == mine))
    if leaving:
        return Selection(keep=(), claim=(), release=own, misfits=(), feasible=0, infeasible={}), []

    def candidate(name: str, node: Node) -> Candidate:
        pod = held.get(name)
        # That nothing runs there is known only of a node that Slurm gives no jobs.
        return claims.candidate(node, releasing=bool(pod and pod.release), busy=not (pod and pod.answered))

    try:
        candidates = [candidate(name, node) for name, node in nodes.items()]
        return select(node_set.metadata.name, node_set.spec, mine, candidates), []
    except ValueError as error:
        # What is there stays there: a spec that cannot be read says nothing about it.
        same = Selection(keep=own, claim=(), release=(), misfits=(), feasible=len(own), infeasible={})
        return same, [Trouble("InvalidSpec", str(error))]


def _reason(chosen: Selection, node: str) -> str:
    if node in chosen.misfits:
        return f"it is no longer for this NodeSet: {chosen.infeasible[node]}"
    return "scaling in"
