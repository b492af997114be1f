"""A NodeSet's nodes and pods at one moment, as the caches have them, and what was chosen of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kurm.domain import release
from kurm.domain.load import Load
from kurm.domain.selection import Candidate, Selection, claim, select
from kurm.domain.signals import PROTECTED, RELEASE, REQUEUE_AT, SLURM_DRAINED, SLURM_READY
from kurm.operator import claims, slurmdrain
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


@dataclass(frozen=True)
class Circumstances:
    """What decides about a fleet besides its nodes and pods."""

    leaving: str = ""
    """Why all of it is to be given back, in words; empty if it is not."""
    cluster_uid: str = ""
    """The SlurmCluster's; empty if it is not known."""
    template: str = ""
    """The hash of an up-to-date pod's; empty if it is not known."""
    silent: bool = False
    """Nobody can say what runs on the nodes."""
    patient: bool = False
    """There is time to learn when busy nodes are free, before some of them are chosen to go."""


def muster(
    caches: Caches, node_set: NodeSet, given: Circumstances, latest: Callable[[Node], Node] = lambda seen: seen
) -> Fleet:
    """Return a NodeSet's fleet; `latest` is a node as our own last write has left it."""
    mine = claim(node_set.metadata.namespace, node_set.metadata.name)
    nodes = {node.metadata.name: latest(node) for node in caches.nodes}
    pods = {pod.spec.node_name: pod for pod in caches.pods.by("node set", node_set.key)}
    held = {name: _held(pod, node_set, nodes.get(name), given) for name, pod in pods.items()}
    chosen, troubles = _choose(node_set, mine, nodes, pods, given)
    kept = {*chosen.keep, *chosen.claim}
    slots = []
    for name in sorted({*kept, *chosen.release, *pods}):
        node, pod = nodes.get(name), pods.get(name)
        slots.append(
            Slot(
                node=name,
                claimed=node is not None and claims.of(node) == mine,
                whole=node is not None and claims.whole(node, mine, node_set.spec),
                wanted=name in kept,
                reason=given.leaving or _reason(chosen, name),
                pod=held.get(name),
                cordoned=node is not None and node.spec.unschedulable,
                well=node is not None and node.ready,
                untold=slurmdrain.untold(node, pod) if node is not None else None,
            )
        )
    return Fleet(node_set, mine, nodes, pods, chosen, slots, bool(given.leaving), troubles)


def answered(pod: Pod) -> bool:
    """Whether Slurm gives a pod's node no jobs and has none there, said in answer to the release that it bears now.

    A condition that answers an earlier release may be older than jobs that came since.
    """
    drained, release = pod.condition(SLURM_DRAINED), pod.metadata.annotations.get(RELEASE, "")
    return drained is not None and drained.status == "True" and drained.message == release != ""


def _held(pod: Pod, node_set: NodeSet, node: Node | None, given: Circumstances) -> Held:
    annotations = pod.metadata.annotations
    told, made = annotations.get(RELEASE, ""), pod.metadata.creation_timestamp
    return Held(
        release=told,
        answered=answered(pod),
        ready=pod.holds(SLURM_READY),
        up=pod.holds("Ready"),
        made=made.timestamp() if made is not None else 0.0,
        outdated=bool(given.template) and annotations.get(names.TEMPLATE_HASH) != given.template,
        protected=pod.metadata.labels.get(PROTECTED) == "true",
        proven=pod.holds(SLURM_DRAINED) and not given.silent,
        requeue_at=annotations.get(REQUEUE_AT, ""),
        requeue_due=release.requeue_at(told, node_set.spec),
        over=pod.status.phase in OVER or node is None,
        going=pod.going or not owned_by(pod, node_set.metadata.uid),
        orphaned=bool(given.cluster_uid) and annotations.get(names.OWNER_UID) != given.cluster_uid,
    )


def _choose(
    node_set: NodeSet, mine: str, nodes: Mapping[str, Node], pods: Mapping[str, Pod], given: Circumstances
) -> tuple[Selection, list[Trouble]]:
    own = tuple(sorted(name for name, node in nodes.items() if claims.of(node) == mine))
    if given.leaving:
        return Selection(keep=(), claim=(), release=own, misfits=(), feasible=0, infeasible={}), []

    def candidate(name: str, node: Node) -> Candidate:
        pod = pods.get(name)
        if pod is None:
            return claims.candidate(node, releasing=False, serving=False, drained=False, load=Load())
        annotations = pod.metadata.annotations
        return claims.candidate(
            node,
            releasing=RELEASE in annotations,
            serving=pod.ready,
            drained=pod.holds(SLURM_DRAINED),
            load=Load.of(annotations),
        )

    try:
        candidates = [candidate(name, node) for name, node in nodes.items()]
        return select(node_set.metadata.name, node_set.spec, mine, candidates, patient=given.patient), []
    except ValueError as error:
        # What is there stays there: a spec that cannot be read says nothing about it.
        same = Selection(keep=own, claim=(), release=(), misfits=(), feasible=len(own), infeasible={})
        return same, [Trouble("InvalidSpec", str(error))]


def _reason(chosen: Selection, node: str) -> str:
    if node in chosen.misfits:
        return f"it is no longer for this NodeSet: {chosen.infeasible[node]}"
    return "scaling in"
