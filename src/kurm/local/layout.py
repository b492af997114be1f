"""Where everything of one local cluster stands: names, addresses and paths. Pure.

A cluster's *slot* (0 to 15) keeps it apart from the others on the same machine: each slot has its own bridge and its
own address ranges. A *machine* is what the cluster sees as one computer: `control`, which runs etcd, the API server
and the controllers, and the nodes n0, n1, ... Nothing listens on the host: each machine has a network namespace of its
own, so no port of the host can be taken.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from kurm.local.errors import LocalError

SLOTS = 16
MAX_NODES = 32
CONTROL = "control"

STATE_ROOT = Path("/var/lib/kurm/local")
RUN_ROOT = Path("/run/kurm/local")
CGROUP_ROOT = "kurm"


@dataclass(frozen=True)
class Machine:
    """One computer of the cluster, as the others see it."""

    name: str
    cluster: str
    address: IPv4Address
    veth: str
    state: Path
    """On the host; the machine sees `state/var` as its own /var."""
    run: Path
    """On the host; the machine sees it as its own /run."""
    pods: IPv4Network | None

    @property
    def netns(self) -> str:
        """Name of its network namespace, as `ip netns` lists it."""
        return f"kurm-{self.cluster}-{self.name}"

    @property
    def cgroup(self) -> str:
        """Path of its cgroup below each hierarchy's root."""
        return f"{CGROUP_ROOT}/{self.cluster}/{self.name}"

    @property
    def containerd_socket(self) -> Path:
        """Where the host reaches the node's containerd."""
        return self.run / "containerd/containerd.sock"


@dataclass(frozen=True)
class Layout:
    """One cluster on this machine."""

    name: str
    slot: int
    workers: int

    @property
    def state(self) -> Path:
        """All that outlives a process: etcd's data, keys, images, volumes, logs. `down` removes it."""
        return STATE_ROOT / self.name

    @property
    def run(self) -> Path:
        """Sockets. `down` removes it."""
        return RUN_ROOT / self.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.state / "pki"

    @property
    def volumes(self) -> Path:
        """What the default StorageClass serves claims from."""
        return self.state / "volumes"

    @property
    def cgroup(self) -> str:
        """Path of the cluster's cgroup below each hierarchy's root."""
        return f"{CGROUP_ROOT}/{self.name}"

    @property
    def bridge(self) -> str:
        """The link that all machines of the cluster hang on."""
        return f"kurm{self.slot}"

    @property
    def network(self) -> IPv4Network:
        """The machines' own addresses."""
        return IPv4Network((int(IPv4Address("172.30.0.0")) + (self.slot << 8), 24))

    @property
    def pods(self) -> IPv4Network:
        """All pods; node number i has the i-th /24 of it."""
        return IPv4Network((int(IPv4Address("10.160.0.0")) + (self.slot << 16), 16))

    @property
    def services(self) -> IPv4Network:
        """Cluster addresses of Services."""
        return IPv4Network((int(IPv4Address("10.176.0.0")) + (self.slot << 16), 16))

    @property
    def host(self) -> IPv4Address:
        """The host's address on the bridge."""
        return self.network[1]

    @property
    def api_server(self) -> str:
        """The address that everyone, inside and outside, reaches the API server at."""
        return f"https://{self.control.address}:6443"

    @property
    def dns(self) -> IPv4Address:
        """CoreDNS' Service address."""
        return self.services[10]

    @cached_property
    def control(self) -> Machine:
        """The machine of the control plane."""
        return self._machine(CONTROL, self.network[2], None)

    @cached_property
    def nodes(self) -> tuple[Machine, ...]:
        """n0 for control pods, then the workers n1, n2, ..."""
        subnets = list(self.pods.subnets(new_prefix=24))
        return tuple(self._machine(f"n{i}", self.network[10 + i], subnets[i]) for i in range(self.workers + 1))

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Every machine of the cluster."""
        return (self.control, *self.nodes)

    def node(self, name: str) -> Machine:
        """Return the node of that name; raise LocalError naming those there are."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.nodes)
        raise LocalError(f"node {name!r}: cluster {self.name!r} has no such node; its nodes are {names}")

    def _machine(self, name: str, address: IPv4Address, pods: IPv4Network | None) -> Machine:
        veth = f"{self.bridge}-{'cp' if name == CONTROL else name}"
        state, run = self.state / "machines" / name, self.run / name
        return Machine(name, self.name, address, veth, state, run, pods)


def check_name(name: str) -> str:
    """Return the name; raise LocalError if it cannot stand in names of links, cgroups and certificates."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", name):
        raise LocalError(
            f"--name {name!r}: a cluster's name has 1 to 20 characters, lower-case letters, digits and '-', "
            "and begins with a letter"
        )
    return name


def check_workers(workers: int) -> int:
    """Return the number of worker nodes; raise LocalError if this room has not the addresses for it."""
    if not 1 <= workers <= MAX_NODES:
        raise LocalError(f"--nodes {workers}: 1 to {MAX_NODES} worker nodes are possible")
    return workers


def choose_slot(taken: set[int], routes: list[IPv4Network]) -> int:
    """Return the first slot that no other cluster has and whose addresses lead nowhere else from this machine.

    Raises LocalError when there is none.
    """
    for slot in range(SLOTS):
        layout = Layout("-", slot, 1)
        ours = (layout.network, layout.pods, layout.services)
        if slot not in taken and not any(mine.overlaps(route) for mine in ours for route in routes):
            return slot
    raise LocalError(
        f"all {SLOTS} address ranges for local clusters (172.30.0.0/24 and on, 10.160.0.0/16 and on) are taken, by "
        "other clusters or by routes of this machine: take a cluster down (kurm local --name NAME down), or "
        "look at `ip route`"
    )
