"""The node record that Slurm gets of a Kubernetes node: its size, GRES, features, weight and place. Pure.

A record's size is constant for its life: of a slurmd that registers with more Slurm ignores the rest, and one with less
it sets aside. So it is made of what is constant too: the node's allocatable resources less the NodeSet's reserve. What
pods use at the moment is no part of it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from types import MappingProxyType

from kurm.domain import gres, names
from kurm.domain.gres import Gres
from kurm.domain.nodeset import NodeSetSpec

MEBIBYTE = 1 << 20
_MARK = "nodeset:"
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)", re.ASCII)
_SCALE = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_SCALE |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
_SCALE |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}


class TooFewError(ValueError):
    """A node has too little of a resource to be a node of Slurm's. `resource` is Kubernetes' name of it."""

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(f"{resource}: {why}")
        self.resource = resource


@dataclass(frozen=True)
class NodeRecord:
    """What a CLOUD record says; the node's name is not in it."""

    cpus: int
    real_memory: int
    """MiB."""
    gres: tuple[Gres, ...]
    features: tuple[str, ...]
    weight: int
    topology: str = ""
    """Its place in the topology, as Topology= has it (`kurm.domain.topology.place`); empty without one."""


def feature(node_set: str) -> str:
    """Return the feature that marks the nodes of a NodeSet: by it partitions take their nodes from the records."""
    return f"{_MARK}{node_set}"


def node_record(
    node_set: str,
    spec: NodeSetSpec,
    allocatable: Mapping[str, str],
    labels: Mapping[str, str] = MappingProxyType({}),
    *,
    settled: str = "",
) -> NodeRecord:
    """Return the record of a node with these allocatable resources (quantities), in the NodeSet of that name.

    `settled` is the annotation with the GRES that it was claimed with, if it is claimed: they stay. Raises TooFewError
    if less than one CPU or one MiB is left beyond the reserve, or if a resource that the NodeSet promises as GRES is
    not there (yet): a record made without it would stay without it. Raises ValueError for a feature of the user's that
    is another NodeSet's mark.
    """
    if taken := [own for own in spec.slurm.features if own.startswith(_MARK)]:
        raise ValueError(f"spec.slurm.features: {taken[0]!r} must not begin with {_MARK!r}, which marks NodeSets")
    cpus = _whole("cpu", quantity(allocatable.get("cpu", "0")) - spec.reserve.cpu)
    memory = _whole("memory", (quantity(allocatable.get("memory", "0")) - quantity(spec.reserve.memory)) / MEBIBYTE)
    kept = gres.read(settled) if settled else None
    found = gres_of(spec, allocatable, labels) if kept is None else kept
    features = (feature(node_set), *spec.slurm.features, *_told(spec, labels))
    own = tuple(one for _, one in sorted(found.items()))
    return NodeRecord(cpus, memory, own, tuple(dict.fromkeys(features)), spec.slurm.weight)


def gres_of(spec: NodeSetSpec, allocatable: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, Gres]:
    """Return the GRES that a node would be claimed with now, by extended resource. Raises TooFewError."""
    found = {}
    for resource, source in spec.slurm.gres.items():
        count = int(quantity(allocatable.get(resource, "0")))
        if count < 1:
            raise TooFewError(resource, f"the node has none, and {gres.name_of(resource, source)} is made of it")
        found[resource] = gres.gres(resource, source, count, labels)
    return found


def quantity(text: str) -> Decimal:
    """Return a Kubernetes quantity (`15890m`, `64Gi`, `1e3`) as a number. Raises ValueError for what is none."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no quantity, as 500m or 64Gi")
    number, exponent, suffix = found.groups()
    return Decimal(f"{number}{exponent or ''}") * _SCALE.get(suffix or "", Decimal(1))


def _whole(resource: str, left: Decimal) -> int:
    number = int(left.to_integral_value(ROUND_FLOOR))
    if number < 1:
        raise TooFewError(resource, "nothing is left of it beyond the reserve")
    return number


def _told(spec: NodeSetSpec, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the features that a node's labels give it: `zone-eu1`, the value alone, or for an empty one the word."""
    for label, word in sorted(spec.slurm.feature_labels.items()):
        if label in labels:
            value = labels[label] and names.name(labels[label])
            if told := "-".join(filter(None, (word, value))):
                yield told
