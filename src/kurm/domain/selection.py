"""Which Kubernetes nodes a NodeSet may use, why it may not use the others, and which it claims or gives back. Pure.

A node is claimed only if it fits now; one that is claimed stays, as long as the NodeSet still asks for its kind. So a
cordon, a node that is away for a while, or a new taint against new pods takes no node away from Slurm: jobs run there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import msgspec

from kurm.domain.load import Load
from kurm.domain.noderecord import TooFewError, node_record
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.spec import Json, Spec

T = TypeVar("T")

UNKNOWN = Load()
LABEL_LENGTH = 63
"""Letters of a label's value: Kubernetes, "Labels and Selectors"."""

# What Kubernetes' own DaemonSet controller adds to its pods (pkg/controller/daemon/util): a node in trouble keeps its
# slurmd and its jobs. Without them the taint manager evicts the pod five minutes after its kubelet fell silent.
_DAEMON = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class Toleration(Spec):
    """A pod's toleration: what of core/v1's Toleration decides whether a taint is tolerated."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Spec):
    """core/v1 NodeSelectorRequirement."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(Spec):
    """core/v1 NodeSelectorTerm: all of it must hold; an empty one matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class Preference(Spec):
    """core/v1 PreferredSchedulingTerm."""

    weight: int
    preference: Term


class _Required(Spec):
    node_selector_terms: tuple[Term, ...] = ()


class _NodeAffinity(Spec):
    required_during_scheduling_ignored_during_execution: _Required | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[Preference, ...] = ()


class _Affinity(Spec):
    node_affinity: _NodeAffinity = _NodeAffinity()


@dataclass(frozen=True)
class Taint:
    """What keeps pods off a node."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True)
class Candidate:
    """A Kubernetes node, as far as it decides whether a NodeSet may use it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    unschedulable: bool = False
    claim: str = ""
    """Who has claimed it, as `claim` says it; empty for nobody."""
    releasing: bool = False
    """Its slurmd pod is told to go."""
    serving: bool = True
    """Its slurmd pod is there, and slurmd answers."""
    drained: bool = False
    """Slurm gives it no jobs, and it has none."""
    load: Load = UNKNOWN


@dataclass(frozen=True)
class Selection:
    """What is to become of the nodes. Each list is in the order of names."""

    keep: tuple[str, ...]
    """Claimed, and to stay. One that was told to go is to be told to stay."""
    claim: tuple[str, ...]
    """To be claimed now."""
    release: tuple[str, ...]
    """Claimed, and to go once no job is left."""
    misfits: tuple[str, ...]
    """Of `release`, those that the NodeSet no longer asks for."""
    feasible: int
    """How many it could use: they fit, and no other NodeSet has them."""
    infeasible: Mapping[str, str]
    """By node: the reason why it cannot be used, as NodeSet's status has it."""
    awaited: tuple[str, ...] = ()
    """Busy nodes of which nobody has said yet when they are free, while the choice among the busy ones is put off."""


def claim(namespace: str, name: str) -> str:
    """Return how a node says that a NodeSet has claimed it: the value of a label, `NAMESPACE.NAME`.

    Where that is too long for a label it is cut, and made unmistakable by a hash.
    """
    whole = f"{namespace}.{name}"
    if len(whole) <= LABEL_LENGTH:
        return whole
    digest = blake2b(whole.encode(), digest_size=5).hexdigest()
    return f"{whole[: LABEL_LENGTH - len(digest) - 1].rstrip('.-')}-{digest}"


def tolerations(spec: NodeSetSpec) -> list[Json]:
    """Return the tolerations of a NodeSet's pods: its own, the one for its taint, and a DaemonSet's."""
    pool: Json = {"key": spec.taint_key, "operator": "Exists"}
    daemon: list[Json] = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _DAEMON]
    return [pool, *daemon, *spec.tolerations]


def select(
    name: str, spec: NodeSetSpec, mine: str, candidates: Iterable[Candidate], *, patient: bool = False
) -> Selection:
    """Return what the NodeSet is to do with the nodes. `mine` is its own `claim`; candidates are all nodes there are.

    Never more than `replicas` are kept and claimed. Nodes that it has come before others, so the same world gives the
    same answer again, and a node that was to go is taken back before a new one. Of too many those go first that are
    going already, then those where no slurmd answers, drained ones, idle ones, and then the one whose jobs end soonest.

    `patient`: if busy ones have to go and of some it is not known yet when they are free, all busy ones are kept for
    now, and these are `awaited`. Raises ValueError, naming the field, for an affinity or a toleration that is none.
    """
    rule = _Rule(name, spec)
    nodes = sorted(candidates, key=lambda node: node.name)
    own = [node for node in nodes if node.claim == mine]
    misfits = {node.name: why for node in own if (why := rule.outgrown(node))}
    infeasible = {node.name: why for node in nodes if node.claim != mine and (why := rule.against(node))} | misfits
    staying = sorted((node for node in own if node.name not in misfits), key=_worth_keeping)
    fresh = [node for node in nodes if node.claim != mine and node.name not in infeasible]
    wanted = len(staying) + len(fresh) if spec.replicas is None else spec.replicas
    awaited = _awaited(staying, wanted) if patient else []
    keep = {node.name for place, node in enumerate(staying) if place < wanted or (awaited and _busy(node))}
    room = max(wanted - len(keep), 0)
    new = sorted(fresh, key=lambda node: (-rule.preference(node), node.name))[:room]
    return Selection(
        keep=tuple(sorted(keep)),
        claim=tuple(sorted(node.name for node in new)),
        release=tuple(node.name for node in own if node.name not in keep),
        misfits=tuple(sorted(misfits)),
        feasible=len(staying) + len(fresh),
        infeasible=infeasible,
        awaited=tuple(node.name for node in awaited),
    )


_BUSY = 4
"""Ranks in `_cost` from which on a node has jobs."""


def _cost(node: Candidate) -> tuple[int, float]:
    """Return what it would cost to give a node up: a rank, and among busy ones when it is free."""
    if node.releasing:
        return 0, 0.0
    if not (node.ready and node.serving):
        return 1, 0.0
    if node.drained:
        return 2, 0.0
    if node.load.idle:
        return 3, 0.0
    if node.load.free_at is not None:
        return _BUSY, node.load.free_at.timestamp()
    return _BUSY + 1, 0.0


def _busy(node: Candidate) -> bool:
    return _cost(node)[0] >= _BUSY


def _worth_keeping(node: Candidate) -> tuple[int, float, bool, str]:
    """Sort by what it would cost to give it up: the dearest first."""
    rank, free_at = _cost(node)
    return -rank, -free_at, node.unschedulable, node.name


def _awaited(staying: Sequence[Candidate], wanted: int) -> list[Candidate]:
    """Return the busy nodes that do not say when they are free, if a busy one has to go."""
    if not any(_busy(node) for node in staying[wanted:]):
        return []
    return sorted((node for node in staying if _cost(node)[0] > _BUSY), key=lambda node: node.name)


class _Rule:
    """What a NodeSet asks of a node, read once."""

    def __init__(self, name: str, spec: NodeSetSpec) -> None:
        self.name, self.spec = name, spec
        affinity = _read("spec.affinity", spec.affinity, _Affinity).node_affinity
        self._required = affinity.required_during_scheduling_ignored_during_execution
        self._preferred = affinity.preferred_during_scheduling_ignored_during_execution
        self._tolerations = _read("spec.tolerations", tolerations(spec), tuple[Toleration, ...])

    def outgrown(self, node: Candidate) -> str | None:
        """Return why a node that it has is no longer for it: another kind, or a taint that empties it of pods."""
        return self._kind(node) or self._taint(node, {"NoExecute"})

    def against(self, node: Candidate) -> str | None:
        """Return why the node cannot be claimed, None if it can. What a person must change comes before what passes."""
        return (
            ("Claimed" if node.claim else None)
            or self._kind(node)
            or ("Unschedulable" if node.unschedulable else None)
            or (None if node.ready else "NotReady")
            or self._taint(node, {"NoSchedule", "NoExecute"})
            or self._too_few(node)
        )

    def preference(self, node: Candidate) -> int:
        """Return the sum of the weights of what the NodeSet prefers and the node has."""
        return sum(wish.weight for wish in self._preferred if _matches(wish.preference, node))

    def _kind(self, node: Candidate) -> str | None:
        if any(node.labels.get(key) != value for key, value in self.spec.node_selector.items()):
            return "NodeSelector"
        if self._required and not any(_matches(term, node) for term in self._required.node_selector_terms):
            return "Affinity"
        return None

    def _too_few(self, node: Candidate) -> str | None:
        try:
            node_record(self.name, self.spec, node.allocatable)
        except TooFewError as error:
            return f"TooFew/{error.resource}"
        return None

    def _taint(self, node: Candidate, effects: set[str]) -> str | None:
        for taint in node.taints:
            if taint.effect in effects and not any(tolerates(one, taint) for one in self._tolerations):
                return f"Taint/{taint.key}"
        return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a pod with that toleration may be on a node with that taint, as far as this taint goes."""
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.operator == "Equal" and (toleration.key, toleration.value) == (taint.key, taint.value)


def _matches(term: Term, node: Candidate) -> bool:
    wants = [*((node.labels, want) for want in term.match_expressions)]
    wants += [({"metadata.name": node.name}, want) for want in term.match_fields]
    return bool(wants) and all(meets(values.get(want.key), want) for values, want in wants)


def meets(value: str | None, want: Requirement) -> bool:
    """Return whether a label's value (None for a node without it) is what is wanted."""
    match want.operator:
        case "In" | "NotIn":
            return (value in want.values) == (want.operator == "In")
        case "Exists" | "DoesNotExist":
            return (value is not None) == (want.operator == "Exists")
        case "Gt" | "Lt" if value is not None and len(want.values) == 1:
            return _exceeds(value, want.values[0]) if want.operator == "Gt" else _exceeds(want.values[0], value)
        case _:
            return False


def _exceeds(one: str, other: str) -> bool:
    try:
        return int(one) > int(other)
    except ValueError:
        return False


def _read(path: str, value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{path}: {error}") from error
