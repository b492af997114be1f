"""The cluster's network: a bridge on the host, a network namespace and a veth pair for each machine, routes to pods.

Nothing else of the host is touched: no port, no nftables table, no forwarding. Service addresses are made by the
service proxies, each in its node's own namespace.
"""

import contextlib
import json
from ipaddress import IPv4Network
from pathlib import Path

from kurm.local.command import run
from kurm.local.errors import LocalError
from kurm.local.layout import Layout, Machine

NAMESPACES = Path("/run/netns")


def routes() -> list[IPv4Network]:
    """Every network that this machine has a route to, but the default route's."""
    listed = json.loads(run("ip", "-j", "-4", "route", "show", "table", "all"))
    return [IPv4Network(route["dst"], strict=False) for route in listed if route["dst"] != "default"]


def make_bridge(layout: Layout) -> None:
    """Make the bridge, and the host's own routes to the pods."""
    prefix = layout.network.prefixlen
    _batch(
        f"link add {layout.bridge} type bridge",
        f"addr add {layout.host}/{prefix} dev {layout.bridge}",
        f"link set {layout.bridge} up",
        *(f"route add {node.pods} via {node.address}" for node in layout.nodes),
    )


def attach(layout: Layout, machine: Machine) -> None:
    """Give a machine its network namespace, its link to the bridge and its routes."""
    run("ip", "netns", "add", machine.netns)
    _batch(
        f"link add {machine.veth} type veth peer name eth0 netns {machine.netns}",
        f"link set {machine.veth} master {layout.bridge} up",
    )
    _batch(
        "link set lo up",
        f"addr add {machine.address}/{layout.network.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {layout.host}",
        *(f"route add {node.pods} via {node.address}" for node in layout.nodes if node != machine),
        netns=machine.netns,
    )


def detach(machine: Machine) -> None:
    """Take a machine's network away, as a pulled plug does. Repeating it is harmless."""
    # The link first: deleting the namespace deletes it too, but later, and its name cannot be made again until then.
    with contextlib.suppress(LocalError):
        run("ip", "link", "del", machine.veth)
    if (NAMESPACES / machine.netns).exists():
        run("ip", "netns", "del", machine.netns)


def remove(layout: Layout) -> None:
    """Remove all that the functions above made, also what a killed `up` left half made."""
    for machine in layout.machines:
        detach(machine)
    if Path("/sys/class/net", layout.bridge).exists():
        run("ip", "link", "del", layout.bridge)


def _batch(*lines: str, netns: str | None = None) -> None:
    where = ("-n", netns) if netns else ()
    run("ip", *where, "-batch", "-", stdin="\n".join(lines))
