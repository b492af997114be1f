"""topology.yaml and the setting that names its plugin, from the places of claimed nodes (kurm.domain.topology).

Nodes do not stand in it: their records say where they are. What is not named here can have no node in it, so the place
of nodes without labels is always there.
"""

import re
from collections.abc import Collection

import yaml

from kurm.domain.topology import NAME, ROOT, UNLABELLED, Path, Topology, labelled
from kurm.slurm.conf import Line, Setting

FILE = "topology.yaml"


def settings(topology: Topology | None, places: Collection[Path]) -> list[Line]:
    """Return the lines of slurm.conf: none without a topology.yaml, for which slurmctld would wait a minute."""
    return [Setting("TopologyPlugin", f"topology/{topology.type}")] if topology and wanted(places) else []


def files(topology: Topology | None, places: Collection[Path]) -> dict[str, str]:
    """Return topology.yaml for nodes in these places; nothing without a topology, or if no node has a label of it."""
    if topology is None or not wanted(places):
        return {}
    body = _tree({*places, (UNLABELLED,)}) if topology.type == "tree" else _blocks({*places, (UNLABELLED,)}, topology)
    return {FILE: yaml.safe_dump([{"topology": NAME, "cluster_default": True} | body], sort_keys=False, width=1 << 20)}


def wanted(places: Collection[Path]) -> bool:
    """Whether there is anything to say: a topology with one place for all would only cost time."""
    return any(map(labelled, places))


def note(topology: Topology | None, places: Collection[Path]) -> str:
    """Return why a topology that is asked for is not applied; empty if it is."""
    if topology is None or wanted(places):
        return ""
    return f"spec.topology: no claimed node has the label {topology.node_labels[0]}: Slurm runs without a topology"


def _tree(places: Collection[Path]) -> dict[str, object]:
    below: dict[str, set[str]] = {ROOT: set()}
    for place in places:
        for parent, switch in zip((ROOT, *place), place, strict=False):
            below.setdefault(parent, set()).add(switch)
            below.setdefault(switch, set())
    order = [ROOT, *sorted(below.keys() - {ROOT}, key=natural)]
    return {"tree": {"switches": [_switch(name, sorted(below[name], key=natural)) for name in order]}}


def _switch(name: str, children: list[str]) -> dict[str, str]:
    return {"switch": name, "children": ",".join(children)} if children else {"switch": name}


def _blocks(places: Collection[Path], topology: Topology) -> dict[str, object]:
    """Slurm makes larger blocks of neighbours in the list: so rack 10 comes after rack 9, and the unlabelled last."""
    order = sorted({place[-1] for place in places}, key=natural)
    return {"block": {"block_sizes": list(topology.block_sizes), "blocks": [{"block": name} for name in order]}}


def natural(name: str) -> tuple[bool, list[tuple[int, str]], str]:
    """Sort by numbers as people count them; the unlabelled come last."""
    parts = re.split(r"(\d+)", name, flags=re.ASCII)
    return name == UNLABELLED, [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)], name
