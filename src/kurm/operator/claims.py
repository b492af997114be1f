"""A NodeSet's claim on a node: a label that says whose it is, a taint that keeps other pods off, its GRES. Pure.

All are written in one patch, for the version of the node that was looked at: two NodeSets cannot have the same node,
and taints that somebody else has put there meanwhile are not lost. A list of taints can only be written whole.
"""

from typing import Any

import msgspec

from kurm.domain import gres
from kurm.domain.gres import GRES
from kurm.domain.load import Load
from kurm.domain.noderecord import gres_of
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.selection import Candidate
from kurm.domain.selection import Taint as CandidateTaint
from kurm.domain.signals import NODE_SET
from kurm.operator.objects import Node, Taint

_EFFECT = "NoSchedule"
Patch = dict[str, Any]


def of(node: Node) -> str:
    """Return who has claimed a node; empty for nobody."""
    return node.metadata.labels.get(NODE_SET, "")


def candidate(node: Node, *, releasing: bool, serving: bool, drained: bool, load: Load) -> Candidate:
    """Return a node as it is chosen from."""
    return Candidate(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=tuple(CandidateTaint(one.key, one.effect, one.value) for one in node.spec.taints),
        allocatable=node.status.allocatable,
        ready=node.ready,
        unschedulable=node.spec.unschedulable,
        claim=of(node),
        releasing=releasing,
        serving=serving,
        drained=drained,
        load=load,
    )


def whole(node: Node, mine: str, spec: NodeSetSpec) -> bool:
    """Whether a node has our label and its GRES, a taint of our key, and none that we put there under another key."""
    told = node.metadata.annotations.get(GRES) == _settled(node, mine, spec)
    return of(node) == mine and told and list(node.spec.taints) == _taints(node, mine, spec.taint_key)


def taking(node: Node, mine: str, spec: NodeSetSpec) -> Patch:
    """Return the patch that claims a node. A taint of the same key that somebody else has put there does as well."""
    return _patch(node, mine, _taints(node, mine, spec.taint_key), _settled(node, mine, spec))


def giving_up(node: Node, mine: str) -> Patch:
    """Return the patch that takes what the claim has put there from a node, and nothing else."""
    return _patch(node, None, [one for one in node.spec.taints if not _ours(one, mine)], None)


def _settled(node: Node, mine: str, spec: NodeSetSpec) -> str | None:
    """Return the GRES that a node is claimed with, as its annotation says them: the first that could be told stay."""
    held = node.metadata.annotations.get(GRES)
    if held and of(node) == mine and gres.read(held) is not None:
        return held
    try:
        return gres.written(gres_of(spec, node.status.allocatable, node.metadata.labels))
    except ValueError:  # a node that we had before has lost its devices: it stays, without a word
        return None


def _taints(node: Node, mine: str, key: str) -> list[Taint]:
    kept = [one for one in node.spec.taints if not (_ours(one, mine) and one.key != key)]
    fenced = any(one.key == key and one.effect == _EFFECT for one in kept)
    return kept if fenced else [*kept, Taint(key=key, value=mine, effect=_EFFECT)]


def _ours(taint: Taint, mine: str) -> bool:
    """Whether it was put there with that claim: its value says so."""
    return taint.effect == _EFFECT and taint.value == mine


def _patch(node: Node, label: str | None, taints: list[Taint], settled: str | None) -> Patch:
    version = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {
        "metadata": version | {"labels": {NODE_SET: label}, "annotations": {GRES: settled}},
        "spec": {"taints": [msgspec.to_builtins(one) for one in taints] or None},
    }
