"""The life of a local cluster: up, down, and the power of its nodes."""

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kurm.local import addons, build, cgroups, checks, controlplane, network, node, registry
from kurm.local.cgroups import Cgroups
from kurm.local.command import run
from kurm.local.errors import LocalError
from kurm.local.layout import RUN_ROOT, Layout, Machine, check_name, check_workers, choose_slot
from kurm.local.machine import boot, install, is_on, power_off
from kurm.local.pki import Authority, kubeconfig, write_secret
from kurm.local.progress import Steps
from kurm.local.registry import Record

API_SERVER_DEADLINE = 60.0
NODES_DEADLINE = 120.0
DNS_DEADLINE = 90.0
CONTAINERD_DEADLINE = 30.0
REMOVE_DEADLINE = 300.0
LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Cluster:
    """A cluster that is up."""

    def __init__(self, record: Record, groups: Cgroups) -> None:
        self.record = record
        self.layout = record.layout
        self.cgroups = groups

    def kubectl(self, *argv: str, stdin: str | None = None, deadline: float = 60.0) -> str:
        """Run kubectl as the cluster's administrator; raise LocalError with its words if it fails."""
        program = Path(self.record.binaries) / "kubectl"
        return run(program, f"--kubeconfig={self.layout.kubeconfig}", *argv, stdin=stdin, deadline=deadline)

    def answers(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            return self.kubectl("get", "--raw=/readyz", "--request-timeout=2s") == "ok"
        except LocalError:
            return False

    def node_states(self, since: datetime = LONG_AGO) -> dict[str, str]:
        """Return what Kubernetes has said of each node after `since`: "Ready", or why it is not."""
        states = {machine.name: "not registered yet" for machine in self.layout.nodes}
        for item in json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]:
            states[item["metadata"]["name"]] = node_state(item, since)
        return states

    def wait_for_nodes(self, names: Sequence[str], since: datetime = LONG_AGO) -> None:
        """Wait until these nodes are Ready; raise LocalError with the reason of one that is not in time."""

        def missing() -> str:
            states = self.node_states(since)
            not_ready = {name: state for name, state in states.items() if name in names and state != "Ready"}
            return "; ".join(f"{name}: {state}" for name, state in not_ready.items())

        logs = f"logs: {self.layout.state}/machines/*/var/log"
        wait_until(missing, NODES_DEADLINE, f"nodes are not Ready after {NODES_DEADLINE:.0f} s, {{reason}} ({logs})")

    def load(self, archive: Path, nodes: Sequence[Machine] | None = None) -> None:
        """Import an image archive (OCI or docker) into the nodes, two at a time."""
        wanted = self.layout.nodes if nodes is None else nodes
        running = [machine for machine in wanted if is_on(machine, self.cgroups)]
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda machine: import_archive(machine, archive), running))

    def load_image(self, image: str) -> None:
        """Load an image archive, or an image of buildah's or docker's storage on this host, into every node."""
        if Path(image).is_file():
            self.load(Path(image))
            return
        with tempfile.TemporaryDirectory(dir=self.layout.state) as directory:
            archive = Path(directory) / "image.tar"
            export_image(image, archive)
            self.load(archive)

    def images(self, machine: Machine) -> set[str]:
        """Return the names of the images that a node has."""
        return set(run(*ctr(machine), "images", "list", "--quiet").split())

    def stop_node(self, name: str) -> None:
        """Cut a node off as a power failure does."""
        power_off(self.layout.node(name), self.cgroups)

    def start_node(self, name: str) -> None:
        """Switch a node on again and wait until it is Ready."""
        machine = self.layout.node(name)
        since = LONG_AGO
        if not is_on(machine, self.cgroups):
            # A node that was cut off still shows as Ready until its grace period ends: only its new kubelet counts.
            since = datetime.now(UTC).replace(microsecond=0)
            boot(self.layout, machine, node.services(machine), Path(self.record.binaries), self.cgroups)
        self.wait_for_nodes([name], since)


def up(name: str, workers: int, steps: Steps) -> Cluster:
    """Bring a cluster up; one that is up already is left as it is but for nodes that are off, which are started.

    What a crashed or killed `up`, or a machine that was switched off, has left behind is cleaned up first.
    """
    check_name(name)
    check_workers(workers)
    checks.root()
    with registry.only_one(name):
        groups = cgroups.of_this_machine()
        if (record := registry.read(name)) and (running := _running(record, groups)):
            _leave_as_it_is(running, workers, steps)
            return running
        checks.disk()
        checks.inotify()
        checks.packages(steps)
        if name in registry.names() or groups.pids(_layout(name).cgroup):
            with steps.step(f"Cleaning up what is left of cluster {name!r}"):
                _remove(_layout(name), groups)
        how = "from the cache" if build.is_built() else "to be built, once; about 7 minutes on two cores"
        with steps.step(f"Kubernetes {build.kubernetes_version()} and CoreDNS, {how}"):
            binaries = build.binaries()
        with build.locked(RUN_ROOT / "slots.lock"):
            slot = choose_slot(registry.taken_slots(), network.routes())
            record = Record(name, slot, workers, "starting", str(binaries))
            registry.write(record)
        _start(cluster := Cluster(record, groups), steps)
        registry.write(Record(name, slot, workers, "up", str(binaries)))
        return cluster


def down(name: str, steps: Steps) -> bool:
    """End a cluster and leave nothing of it; return False if there was nothing. Repeating it is harmless."""
    check_name(name)
    checks.root()
    with registry.only_one(name):
        groups = cgroups.of_this_machine()
        layout = _layout(name)
        existed = name in registry.names() or bool(groups.pids(layout.cgroup))
        with steps.step(f"Taking cluster {name!r} down"):
            _remove(layout, groups)
    (RUN_ROOT / f"{name}.lock").unlink(missing_ok=True)
    return existed


def find(name: str) -> Cluster:
    """Return the cluster of that name; raise LocalError, saying how to get one, if it is not up."""
    check_name(name)
    record = registry.read(name)
    if record is None:
        others = f" (there are: {', '.join(registry.names())})" if registry.names() else ""
        raise LocalError(
            f"there is no cluster {name!r} on this machine{others}: make it with `kurm local --name {name} up`"
        )
    cluster = Cluster(record, cgroups.of_this_machine())
    if record.phase != "up" or not is_on(cluster.layout.control, cluster.cgroups):
        raise LocalError(
            f"cluster {name!r} is not running, or not completely: `kurm local --name {name} up` puts that right"
        )
    return cluster


def node_state(item: dict[str, Any], since: datetime = LONG_AGO) -> str:
    """Return "Ready", or why the node (as the API server's JSON has it) is not. Pure."""
    for condition in item["status"].get("conditions", []):
        if condition["type"] == "Ready":
            if datetime.fromisoformat(condition["lastHeartbeatTime"]) < since:
                return "its kubelet has not reported yet"
            return "Ready" if condition["status"] == "True" else f"{condition['reason']}: {condition['message']}"
    return "its kubelet has not reported yet"


def wait_until(missing: Callable[[], str], deadline: float, failure: str, every: float = 0.25) -> None:
    """Call `missing` until it returns nothing.

    Raises LocalError after `deadline` seconds: `failure`, with what is still missing at its `{reason}`.
    """
    end = time.monotonic() + deadline
    while reason := missing():
        if time.monotonic() > end:
            raise LocalError(failure.format(reason=reason))
        time.sleep(every)


def import_archive(machine: Machine, archive: Path) -> None:
    """Import an image archive into one node's containerd."""
    run(*ctr(machine), "images", "import", archive, deadline=300.0)


def export_image(image: str, archive: Path) -> None:
    """Write an image of this host's buildah or docker to an archive; raise LocalError if neither has it."""
    stores = (
        ["buildah", "push", "--quiet", image, f"docker-archive:{archive}:{image}"],
        ["docker", "save", f"--output={archive}", image],
    )
    for argv in stores:
        with contextlib.suppress(LocalError):
            run(*argv, deadline=300.0)
            return
    raise LocalError(f"image {image!r}: no file has this name, and neither buildah nor docker has such an image")


def ctr(machine: Machine) -> tuple[str | Path, ...]:
    """Return the beginning of a command to a node's containerd, in the namespace of its kubelet."""
    return ("ctr", "--address", machine.containerd_socket, "--namespace", "k8s.io")


def _start(cluster: Cluster, steps: Steps) -> None:
    layout, groups, binaries = cluster.layout, cluster.cgroups, Path(cluster.record.binaries)
    with steps.step("Network, keys and images"):
        network.make_bridge(layout)
        layout.volumes.mkdir(parents=True)
        authority = Authority(f"kurm-local-{layout.name}")
        admin = authority.sign("kurm-local-admin", groups="system:masters")
        conf = kubeconfig(f"kurm-{layout.name}", layout.api_server, authority.pair.certificate, admin)
        write_secret(layout.kubeconfig, conf)
        install(layout.control, controlplane.files(layout, authority))
        memory = node.machine_memory()
        for machine in layout.nodes:
            install(machine, node.files(layout, machine, authority, memory))
        archives = addons.write_archives(binaries, layout.state / "images")
    with steps.step("Control plane"):
        boot(layout, layout.control, controlplane.services(layout), binaries, groups)
        # The nodes' containerds need no API server; their kubelets try again until there is one.
        for machine in layout.nodes:
            boot(layout, machine, node.services(machine), binaries, groups)
        logs = layout.control.state / "var/log"
        failure = f"the API server is not ready after {API_SERVER_DEADLINE:.0f} s (logs: {logs})"
        wait_until(lambda: "" if cluster.answers() else "not ready", API_SERVER_DEADLINE, failure)
        cluster.kubectl("apply", "--server-side", "--filename=-", stdin=addons.manifests(layout))
    with steps.step(f"{len(layout.nodes)} nodes"):
        for machine in layout.nodes:
            wait_until(
                partial(_no_containerd, machine),
                CONTAINERD_DEADLINE,
                f"{{reason}} after {CONTAINERD_DEADLINE:.0f} s (logs: {machine.state}/var/log)",
            )
        cluster.load(archives[node.PAUSE_IMAGE])
        cluster.load(archives[addons.COREDNS_IMAGE], layout.nodes[:1])
        cluster.wait_for_nodes([machine.name for machine in layout.nodes])
    with steps.step("DNS"):
        deadline = f"--timeout={DNS_DEADLINE:.0f}s"
        rollout = ("--namespace=kube-system", "rollout", "status", "deployment/coredns", deadline)
        cluster.kubectl(*rollout, deadline=DNS_DEADLINE + 10)


def _no_containerd(machine: Machine) -> str:
    return "" if machine.containerd_socket.exists() else f"containerd of {machine.name} is not up"


def _running(record: Record, groups: Cgroups) -> Cluster | None:
    """Return the recorded cluster if its control plane is at work."""
    cluster = Cluster(record, groups)
    on = record.phase == "up" and is_on(cluster.layout.control, groups)
    return cluster if on and cluster.answers() else None


def _leave_as_it_is(cluster: Cluster, workers: int, steps: Steps) -> None:
    if cluster.record.workers != workers:
        raise LocalError(
            f"--nodes {workers}: cluster {cluster.layout.name!r} is up with {cluster.record.workers} worker nodes; "
            f"take it down first (kurm local --name {cluster.layout.name} down)"
        )
    off = [machine.name for machine in cluster.layout.nodes if not is_on(machine, cluster.cgroups)]
    if off:
        with steps.step(f"Starting {', '.join(off)}"):
            for name in off:
                cluster.start_node(name)


def _layout(name: str) -> Layout:
    """Return the recorded layout, or, where nothing was recorded yet, one that names what could exist."""
    record = registry.read(name)
    return record.layout if record else Layout(name, 0, 0)


def _remove(layout: Layout, groups: Cgroups) -> None:
    groups.kill(layout.cgroup)
    if registry.read(layout.name):
        network.remove(layout)
    groups.remove(layout.cgroup)
    # Five nodes' images are 100,000 files, for which Python takes ten times as long; and no mount is ever entered.
    run("rm", "--recursive", "--force", "--one-file-system", layout.run, layout.state, deadline=REMOVE_DEADLINE)
    groups.remove_if_empty(Path(layout.cgroup).parent.name)
