"""The world of the scheduler's bench: a real API server and a real Slurm, and nodes that are no more than objects.

Kubernetes' nodes are written as a kubelet and the operator would have left them: claimed by a NodeSet, with its taint,
Ready, without heartbeats, each with the object of its slurmd pod. Slurm's nodes are EXTERNAL: they take jobs and have
no slurmd. slurmctld runs under its image's init, slurmrestd on a socket, both schedulers as processes of their own, but
only one of them at a time, so that neither pays for the other.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
from common import each
from pool import NAMESPACE, READY, define, writes
from process import Daemon, daemon
from world import relay

from integration.apiserver import ApiServer, binaries, free_ports
from integration.images.machine import OURS, Machine
from integration.syncer.stage import LABELS
from kurm.domain.partition import Partition
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET
from kurm.kube.config import Config
from kurm.kube.resources import NAMESPACES, NODES, PODS, Object
from kurm.kube.session import Session
from kurm.operator.render.configuration import GATE, table_size
from kurm.operator.render.partitions import gate, lines
from kurm.slurm import nodes as slurm_nodes
from kurm.slurm.conf import Conf, render
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS

NODE_SET_NAME = "workers"
POOL = "kurm.dev/pool"
"""Key of the taint that fences the pool."""
TOLERATION = {"key": POOL, "operator": "Exists"}
CPUS, MEMORY = 64, 500_000
"""Of each node's record; memory in MiB."""
SIZE = {"cpu": str(CPUS), "memory": "512Gi", "pods": "110"}
MARKED = 300
"""So many of the nodes bear the label and the feature MARK, for the scenario in which they are fought for."""
MARK = "contested"
CONFIGURATION = "h1"
PARTITIONS = (
    {"name": "batch", "nodeSets": [NODE_SET_NAME], "default": True},
    {"name": "services", "nodeSets": [NODE_SET_NAME], "tier": 100, "defaultTime": "UNLIMITED", "maxTime": "UNLIMITED"},
)
"""Pods that name no partition go to `services`; Slurm's own jobs, and pods that say so, to `batch`."""
JOBS = "MaxJobCount=100000"
"""A live job counts, and one that has ended for five minutes more: draining thousands of pods comes to many."""
SCHEDULING = "SchedulerParameters=bf_interval=1,sched_interval=1,bf_max_job_test=2000,default_queue_depth=2000"
WAIT = "60s"
"""How long slurmctld's init waits for the scheduler after a start."""
CLIENT = {"qps": 5000, "burst": 10000, "contentType": "application/vnd.kubernetes.protobuf"}
"""kube-scheduler's way to the API server, with limits that it never meets, and its own encoding."""
_PARTITIONS = msgspec.convert(PARTITIONS, tuple[Partition, ...])


class Contender(Protocol):
    """A scheduler that can be started."""

    title: str
    scheduler_name: str

    def run(self) -> contextlib.AbstractContextManager[Daemon]:
        """Run it within the block."""


@dataclass
class PodWorld:
    """All of it, with `names` of the nodes that there are so far."""

    folder: Path
    server: ApiServer
    machine: Machine
    kube: Session
    slurm: SlurmSession
    relay_port: int
    names: list[str] = field(default_factory=list)

    async def begin(self) -> None:
        """Make the namespace, the SlurmCluster and the NodeSet."""
        await self.kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        metadata = {"name": "demo", "namespace": NAMESPACE}
        spec: dict[str, Any] = {"partitions": PARTITIONS, "scheduler": {"name": "kurm", "partition": "services"}}
        await self.kube.create(SLURM_CLUSTERS.of(Object), {"metadata": metadata, "spec": spec})
        metadata = {"name": NODE_SET_NAME, "namespace": NAMESPACE}
        spec = {"clusterRef": {"name": "demo"}}
        await self.kube.create(NODE_SETS.of(Object), {"metadata": metadata, "spec": spec})

    async def grow(self, count: int) -> None:
        """Have so many nodes on both sides."""
        new = [f"node-{index:05d}" for index in range(len(self.names), count)]
        for marked in (True, False):
            names = tuple(name for name in new if self._marked(name) == marked)
            if names:
                features = (f"nodeset:{NODE_SET_NAME}", *([MARK] if marked else []))
                shape = slurm_nodes.NewNode(
                    names=names,
                    cpus=CPUS,
                    real_memory=MEMORY,
                    state="EXTERNAL",
                    address="127.0.0.1",
                    features=features,
                )
                await slurm_nodes.create_nodes(self.slurm, shape)
        await each(range(len(new)), lambda index: self._make_node(new[index]))
        self.names += new

    async def _make_node(self, name: str) -> None:
        labels = {
            NODE_SET: claim(NAMESPACE, NODE_SET_NAME),
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name,
        }
        labels |= {MARK: "true"} if self._marked(name) else {}
        status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [READY]}
        spec = {"taints": [{"key": POOL, "effect": "NoSchedule"}]}
        node = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
        await self.kube.create(NODES.of(Object), node)
        labels = LABELS | {"app.kubernetes.io/instance": "demo", NODE_SET: NODE_SET_NAME}
        metadata = {"name": f"{NODE_SET_NAME}-{name}", "namespace": NAMESPACE, "labels": labels}
        tolerations = [{"operator": "Exists"}]
        pod = {"nodeName": name, "containers": [{"name": "slurmd", "image": "none"}], "tolerations": tolerations}
        await self.kube.create(PODS, {"metadata": metadata, "spec": pod})

    @staticmethod
    def _marked(name: str) -> bool:
        return int(name.rpartition("-")[2]) < MARKED

    def writes(self) -> dict[str, int]:
        """Return how many writes the API server has answered so far, by resource."""
        return writes(self.server)

    def cpu(self, scheduler: Daemon) -> dict[str, float]:
        """Return the CPU seconds that each process has used so far."""
        slurm = {name: self.machine.cpu(name) for name in ("slurmctld", "slurmctld-init", "slurmrestd")}
        kubernetes = {name: self.server.cpu(name) for name in ("kube-apiserver", "etcd")}
        return {"scheduler": scheduler.cpu} | slurm | kubernetes | {"the bench": time.process_time()}

    def kill_controller(self) -> None:
        """End slurmctld as a crash does; its init, and with it the container, ends by itself."""
        self.machine.kill_controller()

    def kill(self, scheduler: Daemon) -> None:
        """End a scheduler at once."""
        os.kill(scheduler.process.pid, signal.SIGKILL)
        scheduler.process.wait(30)

    def queue(self) -> list[tuple[str, str, str, str]]:
        """Return Slurm's jobs as it lists them: name, partition, state and nodes."""
        text = self.machine.slurm(
            "squeue", "-ah", "-t", "PD,R,CG,S", "-O", "Name:150,Partition:20,State:20,NodeList:60"
        )
        return [
            (row[:150].strip(), row[150:170].strip(), row[170:190].strip(), row[190:].strip())
            for row in text.splitlines()
        ]


@dataclass
class KubeScheduler:
    """The yardstick: kube-scheduler with its defaults, but for the limits of its client."""

    world: PodWorld
    title: str = "kube-scheduler"
    scheduler_name: str = "default-scheduler"

    @contextmanager
    def run(self) -> Iterator[Daemon]:
        """Run it within the block."""
        kubeconfig = self.world.server.kubeconfig()
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": CLIENT | {"kubeconfig": str(kubeconfig)},
            "leaderElection": {"leaderElect": False},
        }
        path = self.world.folder / "kube-scheduler.json"
        path.write_text(json.dumps(configuration))
        (port,) = free_ports(1)
        words = (f"--config={path}", f"--secure-port={port}", "--bind-address=127.0.0.1")
        log = self.world.folder / "kube-scheduler.log"
        command = ["setpriv", "--pdeathsig", "KILL", str(binaries() / "kube-scheduler"), *words]
        with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
            try:
                yield Daemon(process, log, port)
            finally:
                process.terminate()
                process.wait(30)


@dataclass
class Kurm:
    """`kurm scheduler`, under the same name each time."""

    world: PodWorld
    title: str = "kurm"
    scheduler_name: str = "kurm"

    @contextmanager
    def run(self) -> Iterator[Daemon]:
        """Run it within the block."""
        world, (port,) = self.world, free_ports(1)
        options = {
            "cluster": "demo",
            "namespace": NAMESPACE,
            "slurmrestd": f"unix:{world.machine.socket}",
            "jwt-key": f"{world.machine.etc}/jwt_hs256.key",
            "controller": f"http://127.0.0.1:{world.relay_port}/",
            "kubeconfig": str(world.server.kubeconfig()),
            "identity": "demo-scheduler-0",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with daemon("scheduler", *words, log=world.folder / "kurm.log", port=port) as running:
            yield running


@asynccontextmanager
async def pod_world(folder: Path, nodes: int) -> AsyncIterator[PodWorld]:
    """Have an API server and a Slurm that can hold so many nodes, and none yet."""
    (folder / "api").mkdir()
    with contextlib.ExitStack() as stack:
        # Nobody is there to take away the taint with which a node begins.
        server = ApiServer(folder / "api", admission_off=("TaintNodesByCondition",))
        stack.enter_context(server.run())
        define(server.kubeconfig())
        machine = stack.enter_context(Machine(folder / "slurm", conf=conf(nodes)).run())
        machine.project(CONFIGURATION, {"slurm.conf": machine.conf, GATE: gate(_PARTITIONS, WAIT)})
        machine.start_slurmctld()
        machine.until(CONFIGURATION, lambda: machine.told()["hash"])
        machine.start_rest()
        port = stack.enter_context(relay(machine))
        stack.enter_context(compiled(folder / "bytecode"))
        async with (
            Session(Config.load(server.kubeconfig()), deadline=120) as kube,
            SlurmSession(f"unix:{machine.socket}", Tokens(lambda: machine.key, "slurm")) as slurm,
        ):
            yield PodWorld(folder, server, machine, kube, slurm, port)


@contextmanager
def compiled(folder: Path) -> Iterator[None]:
    """Have Python keep what it compiles: in Kurm's image it is compiled, and a start is not to pay for that."""
    before = dict(os.environ)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    subprocess.run([sys.executable, "-m", "kurm.cli", "scheduler", "--help"], stdout=subprocess.DEVNULL, check=True)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def conf(nodes: int) -> str:
    """Return slurm.conf: the lab's, with partitions and the table of nodes as the operator renders them."""
    kept = [line for line in OURS.splitlines() if not line.startswith(("PartitionName", "MaxNodeCount"))]
    rendered = render(Conf(tuple(lines(_PARTITIONS, [NODE_SET_NAME], gated=True))))
    return "\n".join([*kept, f"MaxNodeCount={table_size(nodes)}", SCHEDULING, JOBS, rendered])


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """Return by how much numbers have grown, those that have."""
    return {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
