"""What a NodeSet's status says, from its nodes and pods as they are. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kurm.domain.nodeset import Infeasible, NodeSetCondition, NodeSetStatus
from kurm.domain.selection import Selection
from kurm.operator import conditions
from kurm.operator.conditions import Trouble
from kurm.operator.pods import Slot

EXAMPLES, REASONS = 5, 64
"""Bounds of the schema."""
PATIENCE = 300.0
"""Seconds for which Slurm may be away while nodes wait to be given back. Then a person is called."""
FIGURES = (
    *("desired", "feasible", "current", "updated", "ready"),
    *("draining", "drained", "misscheduled", "unavailable"),
)
_AWAY = "SlurmAway"


@dataclass(frozen=True)
class Facts:
    """All that a status is made of."""

    generation: int
    held: NodeSetStatus
    replicas: int | None
    chosen: Selection
    slots: Sequence[Slot]
    draining: frozenset[str] = frozenset()
    """Nodes to which Slurm gives no jobs, and which still have some or may."""
    drained: frozenset[str] = frozenset()
    """Nodes to which Slurm gives no jobs, and which have none."""
    leaving: bool = False
    """All of it is to be given back."""
    selector: str = ""
    troubles: Sequence[Trouble] = ()
    pod_trouble: Trouble | None = None
    """Why a pod of it is not ready, if one is not."""
    silent: str = ""
    """Why Slurm cannot be asked, in words; empty while it can."""


def judge(facts: Facts, now: datetime) -> NodeSetStatus:
    """Return the status."""
    chosen, slots = facts.chosen, facts.slots
    kept = [slot for slot in slots if slot.wanted]
    ready = sum(slot.pod is not None and slot.pod.ready and not slot.pod.going for slot in slots)
    in_service = sum(slot.pod is not None and slot.pod.ready and not slot.pod.going for slot in kept)
    desired = len(kept) if facts.replicas is None else facts.replicas
    status = NodeSetStatus(
        observed_generation=facts.generation,
        desired=desired,
        feasible=chosen.feasible,
        current=sum(slot.claimed and slot.pod is not None for slot in slots),
        updated=sum(slot.pod is not None and not slot.pod.outdated and not slot.pod.going for slot in slots),
        ready=ready,
        draining=len(facts.draining),
        drained=len(facts.drained),
        misscheduled=sum(slot.pod is not None and slot.node in chosen.misfits for slot in slots),
        unavailable=max(desired - in_service, 0),
        infeasible=infeasible(chosen.infeasible),
        selector=facts.selector,
    )
    told = conditions.progress(
        facts.held.conditions, NodeSetCondition, _trouble(facts, status, now), generation=facts.generation, now=now
    )
    return msgspec.structs.replace(status, conditions=tuple(told))


def infeasible(reasons: Mapping[str, str]) -> tuple[Infeasible, ...]:
    """Return the reasons why nodes cannot be used, the most frequent first, with the first nodes by name of each."""
    nodes: dict[str, list[str]] = {}
    for node, reason in sorted(reasons.items()):
        nodes.setdefault(reason, []).append(node)
    ranked = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))[:REASONS]
    return tuple(Infeasible(reason, len(names), tuple(names[:EXAMPLES])) for reason, names in ranked)


def manifest(status: NodeSetStatus) -> dict[str, Any]:
    """Return a status as it is applied: figures also where they are zero."""
    return {
        "observedGeneration": status.observed_generation,
        "conditions": conditions.manifest(status.conditions),
        **{name: getattr(status, name) for name in FIGURES},
        "infeasible": [
            {"reason": one.reason, "nodes": one.nodes, "examples": list(one.examples)} for one in status.infeasible
        ],
        "selector": status.selector,
    }


def differs(held: NodeSetStatus, wanted: NodeSetStatus) -> bool:
    """Whether a status says something else; the order of what is known by a key is of no matter."""
    return _ordered(held) != _ordered(wanted)


def urgent(held: NodeSetStatus, wanted: NodeSetStatus) -> bool:
    """Whether more than figures and messages has changed."""
    return _words(held) != _words(wanted)


def _words(status: NodeSetStatus) -> set[tuple[str, str, str]]:
    return {(one.type, one.status, one.reason) for one in status.conditions}


def _ordered(status: NodeSetStatus) -> NodeSetStatus:
    return msgspec.structs.replace(
        status,
        conditions=tuple(sorted(status.conditions, key=lambda one: one.type)),
        infeasible=tuple(sorted(status.infeasible, key=lambda one: one.reason)),
    )


def _trouble(facts: Facts, status: NodeSetStatus, now: datetime) -> Trouble | None:
    """Return what keeps the NodeSet from being whole: what needs a person first, then what takes longest."""
    found = [*facts.troubles, *_leaving(facts, now)]
    found += [] if facts.leaving else [*_shortage(facts, status), *_coming(facts, status)]
    return next(iter(sorted(found, key=lambda one: not one.stuck)), None)


def _shortage(facts: Facts, status: NodeSetStatus) -> Iterable[Trouble]:
    missing = status.desired - sum(slot.wanted for slot in facts.slots)
    if missing > 0:
        why = ", ".join(f"{one.nodes} {one.reason}" for one in status.infeasible[:EXAMPLES]) or "there are no others"
        message = f"{status.desired} nodes are desired and {status.feasible} can be used; of the others: {why}"
        yield Trouble("TooFewNodes", message)
    elif not status.desired and facts.replicas is None and not status.feasible:
        why = ", ".join(f"{one.nodes} {one.reason}" for one in status.infeasible[:EXAMPLES]) or "there are none"
        yield Trouble("NoNodes", f"no node can be used: {why}")


def _leaving(facts: Facts, now: datetime) -> Iterable[Trouble]:
    leaving = [slot for slot in facts.slots if not slot.wanted]
    waiting = sorted(slot.node for slot in leaving if slot.pod is not None and not slot.pod.going)
    if not leaving:
        return
    if not waiting:
        yield Trouble("Leaving", f"{_nodes(slot.node for slot in leaving)}: the pod ends", stuck=False)
    elif facts.silent:
        # Without an answer nothing is deleted, however long it takes.
        yield Trouble(_AWAY, f"{_nodes(waiting)} cannot be given back: {facts.silent}", stuck=_too_long(facts, now))
    else:
        yield Trouble("Draining", f"{_nodes(waiting)} will be given back when no job is left there", stuck=False)


def _too_long(facts: Facts, now: datetime) -> bool:
    """Whether Slurm has been away for so long that a person is needed."""
    held = {one.type: one for one in facts.held.conditions if one.reason == _AWAY}
    waiting = held.get(NodeSetCondition.RECONCILING.value)
    since = (now - waiting.last_transition_time).total_seconds() if waiting else 0.0
    return NodeSetCondition.STALLED.value in held or since >= PATIENCE


def _coming(facts: Facts, status: NodeSetStatus) -> Iterable[Trouble]:
    if not status.unavailable:
        if status.updated < sum(slot.wanted for slot in facts.slots):
            yield Trouble("RollingOut", f"{status.updated} of {status.desired} pods are up to date", stuck=False)
        return
    away = [slot.node for slot in facts.slots if slot.wanted and not (slot.pod is not None and slot.pod.ready)]
    if facts.pod_trouble is not None and facts.pod_trouble.stuck:
        yield facts.pod_trouble
    else:
        why = f": {facts.pod_trouble.message}" if facts.pod_trouble else ""
        yield Trouble("Starting", f"{_nodes(away)} not in service yet{why}", stuck=False)


def _nodes(names: Iterable[str]) -> str:
    """Return some names, and how many more there are: `nodes n1, n2 and 7 more`."""
    found = sorted(names)
    some, more = ", ".join(found[:EXAMPLES]), len(found) - EXAMPLES
    return f"node{'s' if len(found) > 1 else ''} {some}" + (f" and {more} more" if more > 0 else "")
