"""What a person wants to know of a local cluster at a glance."""

from rich.console import Console
from rich.table import Table

from kurm.local.cluster import Cluster
from kurm.local.machine import is_on


def show(cluster: Cluster, console: Console) -> bool:
    """Print the cluster's machines and their states; return whether all of them are well."""
    layout = cluster.layout
    answers = cluster.answers()
    states = cluster.node_states() if answers else {}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("MACHINE", "POWER", "STATE", "ADDRESS", "PODS"):
        table.add_column(column)
    control = "API server answers" if answers else f"API server does not answer (logs: {layout.control.state}/var/log)"
    table.add_row("control", _power(cluster, "control"), control, str(layout.control.address), "")
    for node in layout.nodes:
        state = states.get(node.name, "unknown: the API server does not answer")
        table.add_row(node.name, _power(cluster, node.name), state, str(node.address), str(node.pods))
    console.print(table)
    console.print(
        f"\nkubeconfig {layout.kubeconfig}\nprograms   {cluster.record.binaries}", highlight=False, soft_wrap=True
    )
    return answers and all(state == "Ready" for state in states.values())


def _power(cluster: Cluster, name: str) -> str:
    machine = next(machine for machine in cluster.layout.machines if machine.name == name)
    return "on" if is_on(machine, cluster.cgroups) else "off"
