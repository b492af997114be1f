"""Generic resources: GresTypes and gres.conf, from the records of the nodes.

slurmctld makes no record with a GPU that its own gres.conf does not know by device file, and reads that file anew for
each record it makes (_parse_gres_conf_locked in src/interfaces/gres.c). A line without nodes would do for it, but every
slurmd reads the same file, and one on a node without the device ends: so each line names its nodes.
"""

from collections.abc import Iterable, Mapping

from kurm.domain.gres import Gres, name_of
from kurm.domain.noderecord import NodeRecord
from kurm.domain.nodeset import NodeSetSpec
from kurm.slurm.conf import Conf, Line, Record, Setting
from kurm.slurm.hostlist import compress

LINE = 1000
"""Characters of one list of nodes; longer ones become several lines."""


def kinds(node_sets: Iterable[NodeSetSpec], records: Iterable[NodeRecord]) -> frozenset[str]:
    """Return the names of all GRES: of those that NodeSets ask for, and of those that nodes were claimed with."""
    asked = {name_of(*one) for spec in node_sets for one in spec.slurm.gres.items()}
    return frozenset(asked | {one.name for record in records for one in record.gres})


def types(kinds: frozenset[str]) -> list[Line]:
    """Return the lines of slurm.conf for the names of all GRES."""
    return [Setting("GresTypes", ",".join(sorted(kinds)))] if kinds else []


def conf(records: Mapping[str, NodeRecord]) -> Conf:
    """Return gres.conf for nodes by name: a line for each group of nodes that have the same of one kind."""
    holders: dict[Gres, list[str]] = {}
    for node, record in records.items():
        for gres in record.gres:
            holders.setdefault(gres, []).append(node)
    return Conf(
        tuple(_line(hosts, gres) for gres, nodes in sorted(holders.items()) for hosts in compress(nodes, limit=LINE))
    )


def _line(hosts: str, gres: Gres) -> Record:
    amount = ("File", gres.files) if gres.files else ("Count", str(gres.count))
    fields = (("NodeName", hosts), ("Name", gres.name), ("Type", gres.type), amount)
    return Record(tuple((key, value) for key, value in fields if value))
