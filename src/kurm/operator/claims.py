"""A NodeSet's claim on a node: a label that says whose it is, and a taint that keeps other pods off. Pure.

Both are written in one patch, for the version of the node that was looked at: two NodeSets cannot have the same node,
and taints that somebody else has put there meanwhile are not lost. A list of taints can only be written whole.
"""

from typing import Any

import msgspec

from kurm.domain.agreement import NODE_SET
from kurm.domain.load import Load
from kurm.domain.selection import Candidate
from kurm.domain.selection import Taint as CandidateTaint
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


def whole(node: Node, mine: str, key: str) -> bool:
    """Whether a node has our label and a taint of that key, and none that we put there under another key."""
    return of(node) == mine and list(node.spec.taints) == _taints(node, mine, key)


def taking(node: Node, mine: str, key: str) -> Patch:
    """Return the patch that claims a node. A taint of the same key that somebody else has put there does as well."""
    return _patch(node, mine, _taints(node, mine, key))


def giving_up(node: Node, mine: str) -> Patch:
    """Return the patch that takes our label and our taint from a node, and nothing else."""
    return _patch(node, None, [one for one in node.spec.taints if not _ours(one, mine)])


def _taints(node: Node, mine: str, key: str) -> list[Taint]:
    kept = [one for one in node.spec.taints if not (_ours(one, mine) and one.key != key)]
    fenced = any(one.key == key and one.effect == _EFFECT for one in kept)
    return kept if fenced else [*kept, Taint(key=key, value=mine, effect=_EFFECT)]


def _ours(taint: Taint, mine: str) -> bool:
    """Whether it was put there with that claim: its value says so."""
    return taint.effect == _EFFECT and taint.value == mine


def _patch(node: Node, label: str | None, taints: list[Taint]) -> Patch:
    version = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {
        "metadata": version | {"labels": {NODE_SET: label}},
        "spec": {"taints": [msgspec.to_builtins(one) for one in taints] or None},
    }
