"""How each Kubernetes node stands with a NodeSet, in a word and in a sentence. Pure.

The word and the choice are `kurm.domain.selection`'s, asked again of the nodes as they are now: so what a person is
told is what the operator would decide, and never older than the nodes themselves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.noderecord import TooFewError, node_record
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.report import Said
from kurm.domain.selection import Candidate, Selection, select

IN_SERVICE = "InService"
ASIDE = frozenset({"Leaving", "Draining", "Drained", "Cordoned"})
"""States that somebody has asked for. Nothing is wrong with such a node, and it takes no jobs all the same."""
COMING = frozenset({"Starting", "NoRecord", "NotRegistered", "NoPod"})
"""States that every node passes through on its way into service."""


@dataclass(frozen=True)
class Slurmd:
    """The slurmd pod on a node, and what Slurm says of the node behind it."""

    name: str
    ready: bool = False
    """Whether the kubelet says that slurmd answers."""
    trouble: str = ""
    """Why it is not ready, in words."""
    stuck: bool = False
    """Whether that needs a person."""
    release: str = ""
    """Why it shall go, in words; empty if it shall stay."""
    said: Said | None = None
    """What the syncer has said of the Slurm node; None if it never said anything."""


@dataclass(frozen=True)
class Node:
    """A Kubernetes node, as far as it tells how it stands with NodeSets."""

    candidate: Candidate
    not_ready: str = ""
    """Why it is not Ready, in Kubernetes' words."""
    slurmd: Slurmd | None = None
    """The slurmd pod on it, whichever NodeSet's it is."""


@dataclass(frozen=True)
class Standing:
    """How a node stands with one NodeSet."""

    node: str
    state: str
    """One word: InService; what keeps a node of its own from it; Fits or Spare; or why it cannot be used, as
    NodeSet's status has it."""
    why: str
    """A clause that goes on from the node's name and a colon; empty if there is nothing to add."""
    own: bool
    """Whether the NodeSet has claimed it."""

    @property
    def wrong(self) -> bool:
        """Whether it ought to be in service and is not."""
        return self.own and self.state != IN_SERVICE and self.state not in ASIDE


def standings(name: str, spec: NodeSetSpec, mine: str, nodes: Iterable[Node]) -> list[Standing]:
    """Return how every node stands with the NodeSet of that name, whose claim is `mine`, in the order of names.

    Raises ValueError, naming the field, for an affinity or a toleration that is none.
    """
    known = {node.candidate.name: node for node in nodes}
    chosen = select(name, spec, mine, (node.candidate for node in known.values()))
    leaving, wanted = set(chosen.release), set(chosen.claim)
    return [
        _own(name, spec, node, chosen, leaving=node.candidate.name in leaving)
        if node.candidate.claim == mine
        else _other(name, spec, node, chosen.infeasible, wanted=node.candidate.name in wanted)
        for _, node in sorted(known.items())
    ]


def _own(name: str, spec: NodeSetSpec, node: Node, chosen: Selection, *, leaving: bool) -> Standing:
    """Return how a node stands that the NodeSet has: the cause comes before what follows from it."""
    if leaving or (node.slurmd is not None and node.slurmd.release):
        state, why = "Leaving", _leaving(name, spec, node, chosen)
    elif not node.candidate.ready:
        state, why = "NotReady", _not_ready(node)
    elif node.slurmd is None and node.candidate.unschedulable:
        state, why = "Cordoned", "cordoned in Kubernetes; its slurmd pod is made anew when it is uncordoned"
    elif node.slurmd is None:
        state, why = "NoPod", "it is claimed, and has no slurmd pod"
    else:
        state, why = _in_slurm(node.slurmd)
        if state == IN_SERVICE and node.candidate.unschedulable and not why:
            state, why = "Cordoned", "cordoned in Kubernetes"
    return Standing(node.candidate.name, state, why, own=True)


def _in_slurm(slurmd: Slurmd) -> tuple[str, str]:
    """Return state and reason of a node by its slurmd pod and by what Slurm says."""
    said = slurmd.said
    if said is not None and said.reason == "Down":
        return "Down", f"Slurm holds it for down: {said.message}"
    if not slurmd.ready:
        return "Stuck" if slurmd.stuck else "Starting", f"pod {slurmd.name}: {slurmd.trouble or 'is not ready'}"
    if said is None:
        return "NotRegistered", "the syncer has not said yet that slurmd is registered"
    if said.reason in {"Draining", "Drained"}:
        left = "no job is left" if said.drained else "jobs are left"
        return said.reason, f"drained in Slurm, {left}: {said.message or 'no reason was given'}"
    return (IN_SERVICE if said.ready else said.reason), said.message


def _leaving(name: str, spec: NodeSetSpec, node: Node, chosen: Selection) -> str:
    slurmd = node.slurmd
    if node.candidate.name in chosen.misfits:
        cause = objection(chosen.infeasible[node.candidate.name], name, spec, node)
    else:
        cause = (slurmd.release if slurmd else "") or "more nodes are claimed than replicas asks for"
    if slurmd is None:
        return f"{cause}; its pod is gone"
    if slurmd.said is not None and slurmd.said.drained:
        return f"{cause}; no job is left on it"
    return f"{cause}; it is kept until its jobs have ended"


def _other(name: str, spec: NodeSetSpec, node: Node, infeasible: Mapping[str, str], *, wanted: bool) -> Standing:
    candidate = node.candidate
    if reason := infeasible.get(candidate.name):
        return Standing(candidate.name, reason, objection(reason, name, spec, node), own=False)
    if wanted:
        return Standing(candidate.name, "Fits", "it fits, and the operator is about to claim it", own=False)
    return Standing(candidate.name, "Spare", f"it fits, and is not needed: replicas is {spec.replicas}", own=False)


def objection(reason: str, name: str, spec: NodeSetSpec, node: Node) -> str:
    """Return the sentence behind a reason of `selection.select`: what of the node it is, and what it should be."""
    candidate = node.candidate
    word, _, detail = reason.partition("/")
    match word:
        case "Claimed":
            why = f"NodeSet {claimant(candidate.claim)} has it"
        case "NodeSelector":
            wrong = sorted(key for key, value in spec.node_selector.items() if candidate.labels.get(key) != value)
            why = "; ".join(_label(key, candidate.labels.get(key), spec.node_selector[key]) for key in wrong)
        case "Affinity":
            why = "its labels do not match spec.affinity"
        case "Unschedulable":
            why = "it is cordoned"
        case "NotReady":
            why = _not_ready(node)
        case "Taint":
            why = f"it has the taint {_taint(candidate, detail)}, which is not tolerated"
        case _:
            why = _too_few(reason, name, spec, candidate)
    return why


def _taint(candidate: Candidate, key: str) -> str:
    """Return the first taint of that key as kubectl has it: `gpu=no:NoSchedule`."""
    found = next(taint for taint in candidate.taints if taint.key == key)
    return f"{key}{f'={found.value}' if found.value else ''}:{found.effect}"


def claimant(claim: str) -> str:
    """Return the NodeSet that a claim names, as NAMESPACE/NAME: no namespace has a dot in its name."""
    return claim.replace(".", "/", 1)


def _label(key: str, value: str | None, wanted: str) -> str:
    found = "it has no label" if value is None else f"its label {key} is {value!r}, not"
    return f"{found} {key}={wanted}" if value is None else f"{found} {wanted!r}"


def _not_ready(node: Node) -> str:
    return f"Kubernetes holds it for not Ready: {node.not_ready or 'no reason is given'}"


def _too_few(reason: str, name: str, spec: NodeSetSpec, candidate: Candidate) -> str:
    try:
        node_record(name, spec, candidate.allocatable)
    except TooFewError as error:
        return f"it has too little of {error}"
    return reason
