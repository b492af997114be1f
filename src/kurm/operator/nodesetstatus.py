"""What a NodeSet's status says, from its nodes and pods as they are. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kurm.domain import release, rollout
from kurm.domain.nodeset import Infeasible, NodeSetCondition, NodeSetSpec, NodeSetStatus
from kurm.domain.selection import Selection
from kurm.operator import conditions
from kurm.operator.conditions import Trouble
from kurm.operator.pods import Slot, members

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
class PodTrouble:
    """Why the pod on a node is not ready."""

    node: str
    why: Trouble


@dataclass(frozen=True)
class Facts:
    """All that a status is made of."""

    generation: int
    held: NodeSetStatus
    spec: NodeSetSpec
    chosen: Selection
    slots: Sequence[Slot]
    draining: frozenset[str] = frozenset()
    """Nodes to which Slurm gives no jobs, and which still have some or may."""
    drained: frozenset[str] = frozenset()
    """Nodes to which Slurm gives no jobs, and which have none."""
    allocated: int | None = None
    """Nodes with jobs or pods; None while that is not known of all."""
    leaving: bool = False
    """All of it is to be given back."""
    selector: str = ""
    troubles: Sequence[Trouble] = ()
    pod_trouble: PodTrouble | None = None
    """Why a pod of it is not ready, if one is not."""
    silent: str = ""
    """Why Slurm cannot be asked, in words; empty while it can."""


def judge(facts: Facts, now: datetime) -> NodeSetStatus:
    """Return the status."""
    chosen, slots = facts.chosen, facts.slots
    kept = [slot for slot in slots if slot.wanted]
    ready = sum(slot.pod is not None and slot.pod.ready and not slot.pod.going for slot in slots)
    in_service = sum(slot.pod is not None and slot.pod.ready and not slot.pod.going for slot in kept)
    desired = len(kept) if facts.spec.replicas is None else facts.spec.replicas
    status = NodeSetStatus(
        observed_generation=facts.generation,
        desired=desired,
        feasible=chosen.feasible,
        current=sum(slot.claimed and slot.pod is not None for slot in slots),
        updated=sum(slot.pod is not None and not slot.pod.outdated and not slot.pod.going for slot in slots),
        ready=ready,
        allocated=facts.allocated,
        draining=len(facts.draining),
        drained=len(facts.drained),
        misscheduled=sum(slot.pod is not None and slot.node in chosen.misfits for slot in slots),
        unavailable=max(desired - in_service, 0),
        infeasible=infeasible(chosen.infeasible),
        selector=facts.selector,
    )
    told = conditions.progress(
        facts.held.conditions,
        NodeSetCondition,
        _trouble(facts, status, now),
        note=_note(facts),
        generation=facts.generation,
        now=now,
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
        **({} if status.allocated is None else {"allocated": status.allocated}),
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
    found += [] if facts.leaving else [*_shortage(facts, status), *_choosing(facts), *_coming(facts, status, now)]
    return next(iter(sorted(found, key=lambda one: not one.stuck)), None)


def _shortage(facts: Facts, status: NodeSetStatus) -> Iterable[Trouble]:
    missing = status.desired - sum(slot.wanted for slot in facts.slots)
    if missing > 0:
        why = ", ".join(f"{one.nodes} {one.reason}" for one in status.infeasible[:EXAMPLES]) or "there are no others"
        message = f"{status.desired} nodes are desired and {status.feasible} can be used; of the others: {why}"
        yield Trouble("TooFewNodes", message)
    elif not status.desired and facts.spec.replicas is None and not status.feasible:
        why = ", ".join(f"{one.nodes} {one.reason}" for one in status.infeasible[:EXAMPLES]) or "there are none"
        yield Trouble("NoNodes", f"no node can be used: {why}")


def _leaving(facts: Facts, now: datetime) -> Iterable[Trouble]:
    leaving = [slot for slot in facts.slots if not slot.wanted]
    waiting = sorted(slot.node for slot in leaving if slot.pod is not None and not slot.pod.going)
    late = _late(facts, leaving, now)
    if not leaving:
        return
    if not waiting:
        yield Trouble("Leaving", f"{_nodes(slot.node for slot in leaving)}: the pod ends", stuck=False)
    elif facts.silent:
        # Without an answer nothing is deleted, however long it takes.
        yield Trouble(_AWAY, f"{_nodes(waiting)} cannot be given back: {facts.silent}", stuck=_too_long(facts, now))
    elif late is not None:
        yield late
    else:
        what = f"{_nodes(waiting)} will be given back when no job is left there{_since(facts, leaving)}"
        yield Trouble("Draining", what, stuck=False)


def _too_long(facts: Facts, now: datetime) -> bool:
    """Whether Slurm has been away for so long that a person is needed."""
    held = {one.type: one for one in facts.held.conditions if one.reason == _AWAY}
    waiting = held.get(NodeSetCondition.RECONCILING.value)
    since = (now - waiting.last_transition_time).total_seconds() if waiting else 0.0
    return NodeSetCondition.STALLED.value in held or since >= PATIENCE


def _choosing(facts: Facts) -> Iterable[Trouble]:
    if facts.chosen.awaited:
        what = f"busy nodes have to go, and it is not known yet when {_nodes(facts.chosen.awaited)} will be free"
        yield Trouble("Choosing", what, stuck=False)


def _coming(facts: Facts, status: NodeSetStatus, now: datetime) -> Iterable[Trouble]:
    if facts.spec.update_strategy.type == "RollingUpdate" and _outdated(facts):
        yield _rolling(facts, status, now)
    elif status.unavailable:
        yield _starting(facts)


def _rolling(facts: Facts, status: NodeSetStatus, now: datetime) -> Trouble:
    """Return how far a roll-out is, and what it waits for, as `kubectl rollout status` would."""
    progress = f"{_updated(facts)} of {status.desired} nodes updated"
    trouble = facts.pod_trouble
    if trouble is not None and trouble.why.stuck:
        return Trouble(trouble.why.reason, f"{progress}; stopped at {trouble.node}: {trouble.why.message}")
    told = [slot for slot in facts.slots if slot.wanted and _waits(slot)]
    if told:
        names = ", ".join(slot.node for slot in told[:EXAMPLES])
        late = _late(facts, told, now)
        if late is not None:
            return Trouble(late.reason, f"{progress}; {late.message}")
        return Trouble("RollingOut", f"{progress}; waiting for jobs on {names}{_since(facts, told)}", stuck=False)
    away = [one.node for one in members(facts.slots) if not one.serving]
    if not away:
        return Trouble("RollingOut", progress, stuck=False)
    most = rollout.limit(facts.spec.update_strategy, sum(slot.wanted for slot in facts.slots))
    why = f"out of service: {_nodes(away)}; spec.updateStrategy.maxUnavailable allows {most}"
    return Trouble("RollingOut", f"{progress}; {why}", stuck=False)


def _starting(facts: Facts) -> Trouble:
    away = [slot for slot in facts.slots if slot.wanted and not (slot.pod is not None and slot.pod.ready)]
    trouble = facts.pod_trouble
    if trouble is not None and trouble.why.stuck:
        return trouble.why
    if away and all(slot.cordoned for slot in away):
        what = f"{_nodes(slot.node for slot in away)} cordoned: back in service after kubectl uncordon"
        return Trouble("Cordoned", what, stuck=False)
    why = f": {trouble.why.message}" if trouble else ""
    return Trouble("Starting", f"{_nodes(slot.node for slot in away)} not in service yet{why}", stuck=False)


def _note(facts: Facts) -> str:
    """Return what is said although all nodes are in service."""
    outdated = _outdated(facts)
    if not outdated:
        return ""
    wanted = sum(slot.wanted for slot in facts.slots)
    return f"{_updated(facts)} of {wanted} nodes updated; {_nodes(outdated)} will be when the pod is deleted (OnDelete)"


def _outdated(facts: Facts) -> list[str]:
    return [slot.node for slot in facts.slots if slot.wanted and slot.pod is not None and slot.pod.outdated]


def _updated(facts: Facts) -> int:
    held = [slot.pod for slot in facts.slots if slot.wanted and slot.pod is not None]
    return sum(not pod.outdated and not pod.going for pod in held)


def _waits(slot: Slot) -> bool:
    return slot.pod is not None and bool(slot.pod.release) and not slot.pod.answered and not slot.pod.going


def _late(facts: Facts, slots: Iterable[Slot], now: datetime) -> Trouble | None:
    """Return that nodes wait for longer than the NodeSet allows, if nothing is done about it."""
    if facts.spec.when_busy == "requeue":
        return None
    over = [slot for slot in slots if slot.pod is not None and _waits(slot) and _left(facts, slot, now) == 0.0]
    if not over:
        return None
    longest = f"longer than spec.busyDeadline ({facts.spec.busy_deadline})"
    what = f"waiting for jobs on {_nodes(slot.node for slot in over)}{_since(facts, over)}, {longest}"
    return Trouble("WaitsTooLong", what)


def _since(facts: Facts, slots: Iterable[Slot]) -> str:
    """Return since when the first of the nodes waits, and when its jobs are requeued if they are."""
    told = [(since, slot.pod.release) for slot in slots if slot.pod and (since := release.since(slot.pod.release))]
    if not told:
        return ""
    since, first = min(told)
    at = release.requeue_at(first, facts.spec)
    return f" since {conditions.rfc3339(since)}" + (f"; what still runs at {at} is requeued" if at else "")


def _left(facts: Facts, slot: Slot, now: datetime) -> float | None:
    until = release.deadline(slot.pod.release, facts.spec) if slot.pod else None
    return None if until is None else max((until - now).total_seconds(), 0.0)


def again(facts: Facts, now: datetime) -> float | None:
    """Return the seconds until the status may say something else by itself; None if it will not."""
    ahead = [_left(facts, slot, now) for slot in facts.slots if _waits(slot)]
    times = [seconds for seconds in ahead if seconds]
    if facts.silent and facts.chosen.release:
        times.append(PATIENCE)
    return min(times, default=None)


def _nodes(names: Iterable[str]) -> str:
    """Return some names, and how many more there are: `nodes n1, n2 and 7 more`."""
    found = sorted(names)
    some, more = ", ".join(found[:EXAMPLES]), len(found) - EXAMPLES
    return f"node{'s' if len(found) > 1 else ''} {some}" + (f" and {more} more" if more > 0 else "")
