"""The world of the syncer's bench: a real API server and a real Slurm, and nodes that are no more than objects.

Kubernetes' nodes and slurmd's pods are written as the kubelet and the operator would have left them, without
heartbeats. Slurm's nodes are EXTERNAL: they take jobs and have no slurmd. One, `real`, is a CLOUD record with a slurmd,
which runs a stream of jobs. slurmctld runs under its image's init, which tells the syncer what the syncer asks of it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common import each
from pool import NAMESPACE, READY, define
from process import Daemon, daemon

from integration.apiserver import ApiServer, free_ports
from integration.images.machine import OURS, Machine
from integration.syncer.stage import LABELS
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET
from kurm.kube.config import Config
from kurm.kube.resources import NAMESPACES, NODES, PODS, Key, Object
from kurm.kube.session import Session
from kurm.slurm import nodes as slurm_nodes
from kurm.slurm.errors import NotFound
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens
from kurm.slurm.wire import Answer, number
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS

HERE = Path(__file__).parent
REAL = "real"
"""The node with a slurmd."""
NODE_SET_NAME = "workers"
CONFIGURATION = "h1"
"""The hash of the one configuration that slurmctld is given."""
CONF = OURS + "SlurmdParameters=config_overrides\n"
"""slurmd takes its record's 64 CPUs for granted, so that jobs never wait for one another."""
STATUS_PORT = 6819
SIZE = {"cpu": "64", "memory": "512Gi", "pods": "110"}
JOB: dict[str, object] = {
    "name": "stream",
    "tasks": 1,
    "memory_per_node": number(10),
    "required_nodes": [REAL],
    "current_working_directory": "/tmp",  # noqa: S108 - the lab's own
    "standard_output": "/dev/null",
    "environment": ["PATH=/usr/bin:/bin"],
}


@dataclass
class World:
    """All of it, with `names` of the simulated nodes that there are so far."""

    folder: Path
    server: ApiServer
    machine: Machine
    kube: Session
    slurm: SlurmSession
    relay_port: int
    names: list[str] = field(default_factory=list)

    @property
    def everybody(self) -> set[str]:
        """The names of all nodes."""
        return {*self.names, REAL}

    async def begin(self) -> None:
        """Make the resources and the node that has a slurmd; its record is the syncer's to make."""
        await self.kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        metadata = {"name": "demo", "namespace": NAMESPACE}
        await self.kube.create(SLURM_CLUSTERS.of(Object), {"metadata": metadata, "spec": {}})
        metadata = {"name": NODE_SET_NAME, "namespace": NAMESPACE}
        spec = {"clusterRef": {"name": "demo"}}
        await self.kube.create(NODE_SETS.of(Object), {"metadata": metadata, "spec": spec})
        await self._make_node(REAL)

    async def grow(self, count: int) -> None:
        """Have so many simulated nodes. No syncer may run: it would make the records of its own kind."""
        new = [f"node-{index:04d}" for index in range(len(self.names), count)]
        shape = slurm_nodes.NewNode(
            names=tuple(new),
            cpus=64,
            real_memory=500_000,
            state="EXTERNAL",
            address="127.0.0.1",
            features=(f"nodeset:{NODE_SET_NAME}",),
        )
        await slurm_nodes.create_nodes(self.slurm, shape)
        await each(range(len(new)), lambda index: self._make_node(new[index]))
        self.names += new

    async def _make_node(self, name: str) -> None:
        labels = {NODE_SET: claim(NAMESPACE, NODE_SET_NAME), "kubernetes.io/os": "linux"}
        status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [READY]}
        await self.kube.create(NODES.of(Object), {"metadata": {"name": name, "labels": labels}, "status": status})
        labels = LABELS | {"app.kubernetes.io/instance": "demo", NODE_SET: NODE_SET_NAME, "kurm.dev/protected": "true"}
        metadata = {"name": f"{NODE_SET_NAME}-{name}", "namespace": NAMESPACE, "labels": labels}
        tolerations = [{"operator": "Exists"}]
        spec = {"nodeName": name, "containers": [{"name": "slurmd", "image": "none"}], "tolerations": tolerations}
        pod = await self.kube.create(PODS, {"metadata": metadata, "spec": spec})
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
        await self.kube.patch(
            PODS, pod.key, {"status": {"phase": "Running", "conditions": conditions}}, subresource="status"
        )

    async def cordon(self, name: str, *, cordoned: bool = True) -> None:
        """Do what `kubectl cordon` (or `uncordon`) does."""
        await self.kube.patch(NODES.of(Object), Key("", name), {"spec": {"unschedulable": cordoned or None}})

    async def cordon_all(self, names: Iterable[str], *, cordoned: bool = True) -> None:
        """Do it to many, some at a time."""
        listed = list(names)
        await each(range(len(listed)), lambda index: self.cordon(listed[index], cordoned=cordoned))

    async def drain(self, names: Iterable[str], reason: str = "fan is loud") -> None:
        """Drain nodes in Slurm as an administrator does."""
        await slurm_nodes.update_nodes(self.slurm, names, slurm_nodes.Update(state="DRAIN", reason=reason))

    async def resume(self, names: Iterable[str]) -> None:
        """Lift an administrator's drains."""
        await slurm_nodes.update_nodes(self.slurm, names, slurm_nodes.Update(state="UNDRAIN"))

    async def start_slurmd(self) -> None:
        """Start the one slurmd, and wait until it has registered."""
        self.machine.start_slurmd(REAL)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(NotFound):
                    if (await slurm_nodes.get_node(self.slurm, REAL)).registered:
                        return
                await asyncio.sleep(0.2)

    async def hears_controller(self) -> None:
        """Wait until the syncer has written what slurmctld's init tells: else nothing measured is with its hints."""
        async with asyncio.timeout(60):
            while True:
                cluster = await self.kube.get(SLURM_CLUSTERS, Key(NAMESPACE, "demo"))
                if cluster.status.config_hash == CONFIGURATION:
                    return
                await asyncio.sleep(0.5)

    def stop_slurmd(self) -> None:
        """End it at once."""
        for pid in self.machine.pids("slurmd", "slurmd-start", "slurmstepd"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @asynccontextmanager
    async def jobs(self, rate: float) -> AsyncIterator[None]:
        """Submit jobs to the real node within the block, so many a second; they do nothing and end."""

        async def submit() -> None:
            begun, sent = time.monotonic(), 0
            while True:
                body = {"job": JOB, "script": "#!/bin/sh\ntrue\n"}
                await self.slurm.request(Answer, "POST", "job/submit", body=body)
                sent += 1
                await asyncio.sleep(max(0.0, begun + sent / rate - time.monotonic()))

        task = asyncio.create_task(submit())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def forget_all_records(self) -> None:
        """Delete every record, as if Slurm had lost its state; jobs must have ended."""
        self.stop_slurmd()
        async with asyncio.timeout(60):
            while self.machine.slurm("squeue", "-h").strip():  # noqa: ASYNC110 - it is asked of a program
                await asyncio.sleep(0.5)
        await slurm_nodes.delete_nodes(self.slurm, sorted(self.everybody))

    async def marked(self, names: Iterable[str]) -> bool:
        """Whether the records of these nodes are there, and bear a mark."""
        try:
            found = [await slurm_nodes.get_node(self.slurm, name) for name in names]
        except NotFound:
            return False
        return all(node.extra.startswith("kurm:") for node in found)

    async def records(self) -> dict[str, slurm_nodes.Node]:
        """Return all of Slurm's nodes by name."""
        answer = await slurm_nodes.list_nodes(self.slurm, deadline=60)
        return {node.name: node for node in (answer.nodes if answer else None) or ()}

    @contextmanager
    def syncer(self) -> Iterator[Daemon]:
        """Run a syncer within the block, under the same name each time."""
        (port,) = free_ports(1)
        options = {
            "cluster": "demo",
            "namespace": NAMESPACE,
            "slurmrestd": f"unix:{self.machine.socket}",
            "jwt-key": f"{self.machine.etc}/jwt_hs256.key",
            "controller": f"http://127.0.0.1:{self.relay_port}/",
            "kubeconfig": str(self.server.kubeconfig()),
            "identity": "demo-syncer-0",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with daemon("syncer", *words, log=self.folder / "syncer.log", port=port) as running:
            yield running


@contextmanager
def relay(machine: Machine) -> Iterator[int]:
    """Have slurmctld's init answer on a port of the host, and return that."""
    (init,) = machine.pids("tini")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = ["nsenter", f"--net=/proc/{init}/ns/net", sys.executable, str(HERE / "relay.py")]
        words = ["setpriv", "--pdeathsig", "KILL", *command, str(listening.fileno()), str(STATUS_PORT)]
        with subprocess.Popen(words, pass_fds=[listening.fileno()]) as process:
            try:
                yield listening.getsockname()[1]
            finally:
                process.terminate()


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Have an API server and a Slurm without nodes."""
    (folder / "api").mkdir()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(folder / "api").run())
        define(server.kubeconfig())
        machine = stack.enter_context(Machine(folder / "slurm", conf=CONF).run())
        machine.project(CONFIGURATION, {"slurm.conf": machine.conf})
        machine.start_slurmctld()
        machine.until(CONFIGURATION, lambda: machine.told()["hash"])
        machine.start_rest()
        port = stack.enter_context(relay(machine))
        async with (
            Session(Config.load(server.kubeconfig()), deadline=120) as kube,
            SlurmSession(f"unix:{machine.socket}", Tokens(lambda: machine.key, "slurm")) as slurm,
        ):
            yield World(folder, server, machine, kube, slurm, port)
