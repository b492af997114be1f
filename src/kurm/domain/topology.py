"""Where nodes are in the network, from their labels: Slurm's tree or blocks. Pure.

topology.yaml names the switches or the blocks that the labels of claimed nodes give, and no nodes. Each node's record
holds its own place (`Topology=`), so a node that is relabelled moves by an update of its record, and a reconfigure is
needed only for a switch or a block that is new. Seen in Slurm 26.05.5, and kept in tests/integration/slurm:

- a place in a tree is the path from the root; slurmctld makes the switches on it that it does not know;
- a block must stand in topology.yaml;
- without a topology every place is taken, if its topology is called `default`;
- a configuration in which the place of any record is not there is fatal to slurmctld. It refuses it at a reconfigure.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from kurm.domain import names
from kurm.domain.spec import DISTINCT, Rule, Spec, plainly

NAME = "default"
"""Of the topology: what Slurm itself calls the one of a cluster that has no other."""
ROOT = "root"
"""The switch above all others of a tree."""
UNLABELLED = "unlabelled"
"""The switch or block of nodes without the label; below the last one whose label a node has."""
LENGTH = 64
"""Most letters of a switch's name: topology.conf(5), SwitchName."""

Path = tuple[str, ...]
"""Names of switches from below the root to the leaf; of a block the last one is its name."""

_SIZES = "self.blockSizes"
_POWERS = ", ".join(str(1 << power) for power in range(17))


class Topology(Spec):
    """How near nodes are to one another, so that the nodes of a job are near. It is made from labels of the nodes."""

    RULES: ClassVar = (
        Rule(
            f"has({_SIZES}) == (self.type == 'block')",
            "must be given for blocks, as [4, 16], and for nothing else",
            path=".blockSizes",
        ),
        Rule(
            f"!has({_SIZES}) || {_SIZES}.isSorted() && "
            f"{_SIZES}.all(s, s % {_SIZES}[0] == 0 && s / {_SIZES}[0] in [{_POWERS}])",
            "must rise, and each be the first one times 2, 4, 8 and so on: as [4, 8, 32]",
            path=".blockSizes",
        ),
    )
    type: Annotated[
        Literal["tree", "block"],
        Meta(description="tree: switches below switches. block: groups of nodes that a job takes whole."),
    ]
    node_labels: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=317)], ...],
        Meta(
            description="Labels of the nodes, the widest first, as [topology.kubernetes.io/zone, example.com/rack]. "
            "Nodes without them are in one place called unlabelled.",
            min_length=1,
            max_length=4,
        ),
        plainly("must name a label of the nodes"),
        DISTINCT,
    ]
    block_sizes: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=65536)], ...],
        Meta(description="Nodes of a block and of groups of blocks that jobs can ask for (--segment).", max_length=8),
        DISTINCT,
    ] = ()


def path(topology: Topology, labels: Mapping[str, str]) -> Path:
    """Return where a node with these labels is. Each name holds those above it: rack 1 of two zones is two switches."""
    found: list[str] = []
    for label in topology.node_labels:
        value = labels.get(label, "")
        found.append(names.name(value, reserved=(ROOT, UNLABELLED)) if value else UNLABELLED)
        if not value:
            break
    whole = ["/".join(found[: level + 1]) for level in range(len(found))]
    return tuple(one if len(one) <= LENGTH else names.hashed(one, LENGTH) for one in whole)


def labelled(place: Path) -> bool:
    """Whether a node has at least the first of the labels."""
    return place != (UNLABELLED,)


def place(topology: Topology | None, labels: Mapping[str, str]) -> str:
    """Return the place of a node's record, as Topology= has it; empty without a topology."""
    if topology is None:
        return ""
    found = path(topology, labels)
    return ":".join((NAME, ROOT, *found) if topology.type == "tree" else (NAME, found[-1]))
