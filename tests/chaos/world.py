"""The world of a run: a real API server and a real Slurm, nodes that are no more than objects, and one scheduler.

    scheduler ──> proxy ──> API server ──> etcd           (cuts connections; the API server writes an audit log)
              ──> relay ──> slurmrestd ──> slurmctld      (records, and fails at one exact step)
              ──> relay ──> slurmctld's init

Kubernetes' nodes are written as a kubelet and the operator would have left them, without heartbeats; Slurm's are
EXTERNAL: they take jobs and have no slurmd. slurmctld runs under its image's init, gated as the operator renders it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import convert

from chaos.history import Clock, Fault, History
from chaos.recorder import Questions, Watch
from chaos.relay import Relay, Streams
from integration.apiserver import ApiServer, binaries, free_ports
from integration.images.machine import OURS, Machine
from integration.proxy import Proxy
from integration.slurm.lab import LabError
from kurm.domain.partition import Partition
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET
from kurm.kube.errors import KubeError
from kurm.kube.resources import NAMESPACES, NODES, Key, Object
from kurm.kube.session import Session
from kurm.operator.render import partitions as rendering
from kurm.slurm import nodes as slurm_nodes
from kurm.slurm.conf import render
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS

REPOSITORY = Path(__file__).resolve().parents[2]
CRDS = REPOSITORY / "charts/kurm/files/crds"
PORT_RELAY = REPOSITORY / "bench/relay.py"
CLUSTER, NAMESPACE, WORKERS = "demo", "slurm", "workers"
PODS = "load"
"""Namespace of the load's pods."""
USER = "kurm-scheduler"
"""Whose requests the audit log is read for."""
POOL = "kurm.dev/pool"
NODES_, CPUS, MEMORY = 10, 8, 16_000
"""How many nodes, and the size of each; memory in MiB."""
INIT_PORT = 6819
SLURMCTLD, INIT = ("slurmctld", "slurmscriptd"), "slurmctld-init"
"""The programs, as the kernel names them, that a crash ends, and the one that ends with them."""
INIT_ENDS = 1.0
"""Seconds after which the init is ended, too: slurmctld may not have been there to be killed."""
API_SECONDS = 30.0
"""For which a change of a node is tried again while the API server is away."""
WAIT = 60
"""Seconds after which slurmctld's init opens the partitions without a scheduler."""
CONFIGURATION = "h1"
PARTITIONS: list[dict[str, Any]] = [
    {"name": "services", "tier": 100, "maxTime": "UNLIMITED", "defaultTime": "UNLIMITED"},
    {"name": "batch", "tier": 1, "default": True, "preemptMode": "CANCEL"},
]
"""As a SlurmCluster has them, but for their NodeSets; slurm.conf and the gate are rendered from them."""
CONF = """\
SchedulerParameters=bf_interval=1,sched_interval=1
# Ended jobs are soon forgotten: less to be told each time, and nobody may rely on them.
MinJobAge=15
"""
TRUE = "True"
ENTRY = ("-m", "kurm.cli")
"""How the scheduler is started; with a planted fault it is started by another program."""


@dataclass
class World:
    """All of it. What blocks runs in threads, so that relays and recorders go on."""

    folder: Path
    server: ApiServer
    machine: Machine
    kube: Session
    history: History
    watch: Watch
    questions: Questions
    proxy: Proxy
    slurmrestd: Relay
    init: Relay
    scheduler_words: Sequence[str] = ()
    names: list[str] = field(default_factory=list)
    crashes: list[int] = field(default_factory=list)
    """Exit statuses of schedulers that ended by themselves."""
    lost: set[str] = field(default_factory=set)
    """Nodes that are to be down in Slurm."""
    _scheduler: Process | None = None
    _keeper: "asyncio.Task[None] | None" = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))
    """Starts the API server each time: the kernel ends a program with the thread that started it."""

    async def begin(self) -> None:
        """Make the resources and the nodes on both sides."""
        for name in (NAMESPACE, PODS):
            await self.kube.create(NAMESPACES, {"metadata": {"name": name}})
        spec = {"scheduler": {"name": "kurm", "partition": "services"}, "partitions": partitions()}
        await self.kube.create(SLURM_CLUSTERS.of(Object), self._named(CLUSTER) | {"spec": spec})
        await self.kube.create(NODE_SETS.of(Object), self._named(WORKERS) | {"spec": {"clusterRef": {"name": CLUSTER}}})
        self.names = [f"n{number:02d}" for number in range(NODES_)]
        shape = slurm_nodes.NewNode(
            names=tuple(self.names),
            cpus=CPUS,
            real_memory=MEMORY,
            state="EXTERNAL",
            address="127.0.0.1",
            features=(f"nodeset:{WORKERS}",),
        )
        async with SlurmSession(f"unix:{self.machine.socket}", Tokens(lambda: self.machine.key, "slurm")) as slurm:
            await slurm_nodes.create_nodes(slurm, shape)
            for name in self.names:
                uid = await self._node(name)
                await slurm_nodes.update_nodes(slurm, [name], slurm_nodes.Update(extra=f"kurm:{uid}"))

    async def _node(self, name: str) -> str:
        labels = {NODE_SET: claim(NAMESPACE, WORKERS), "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
        made = await self.kube.create(NODES.of(Object), {"metadata": {"name": name, "labels": labels}})
        size = {"cpu": str(CPUS), "memory": f"{MEMORY}Mi", "pods": "110"}
        status = {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.kube.patch(NODES.of(Object), made.key, {"status": status}, subresource="status")
        # A node begins with the taint "not ready", and nobody else is there to take it away.
        fence = {"spec": {"taints": [{"key": POOL, "effect": "NoSchedule"}]}}
        await self.kube.patch(NODES.of(Object), made.key, fence)
        return made.metadata.uid

    @staticmethod
    def _named(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": NAMESPACE}}

    # slurmctld and slurmrestd.

    async def kill_slurmctld(self) -> None:
        """End it as a crash does, and with it its container, also one in which it has not been started yet."""
        begun = time.monotonic()
        while found := await asyncio.to_thread(self.machine.pids, *SLURMCTLD, INIT):
            late = time.monotonic() - begun > INIT_ENDS
            for pid in found if late else await asyncio.to_thread(self.machine.pids, *SLURMCTLD):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
        self.fault("kill", "slurmctld", done=True)

    async def start_slurmctld(self) -> None:
        """Start its container again; it need not answer yet."""
        await asyncio.to_thread(self.machine.start_slurmctld)

    async def kill_slurmrestd(self) -> None:
        """End it at once."""
        await asyncio.to_thread(self.machine.kill_rest)

    async def start_slurmrestd(self) -> None:
        """Start it again."""
        await asyncio.to_thread(self.machine.start_rest)

    # Nodes.

    async def lose_node(self, name: str, *, silent: bool) -> None:
        """Have Slurm take a node for down; `silent`: Kubernetes hears no more of it, either."""
        self.lost.add(name)
        if silent:
            await self._hear(name, "Unknown")
        with contextlib.suppress(LabError):
            await self._set_node(name, "down", "reason=chaos")

    async def find_node(self, name: str) -> None:
        """Have both sides use a node again."""
        self.lost.discard(name)
        await self._hear(name, TRUE)
        await self.resume(name)

    async def resume(self, name: str) -> None:
        """Have Slurm use a node again, if it does not."""
        with contextlib.suppress(LabError):  # it does, or slurmctld is away: then it is said again
            await self._set_node(name, "resume")

    async def _hear(self, name: str, status: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": status, "lastTransitionTime": now}
        body = {"status": {"conditions": [ready]}}
        end = time.monotonic() + API_SECONDS
        while True:
            try:
                await self.kube.patch(NODES.of(Object), Key("", name), body, subresource="status", deadline=3.0)
            except KubeError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.3)
            else:
                return

    async def _set_node(self, name: str, state: str, *more: str) -> None:
        words = ("timeout", "3", "scontrol", "update", f"nodename={name}", f"state={state}", *more)
        await asyncio.to_thread(self.machine.slurm, *words)

    # The API server.

    async def start_api_server(self) -> None:
        """Start it, and wait until it is ready."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.server.start)

    async def kill_api_server(self) -> None:
        """End it at once."""
        await asyncio.to_thread(self.server.stop)

    # The scheduler.

    async def start_scheduler(self) -> None:
        """Start it; if it ends by itself it is started again, as a kubelet does."""
        options = {
            "cluster": CLUSTER,
            "namespace": NAMESPACE,
            "slurmrestd": f"unix:{self.folder}/relay.sock",
            "jwt-key": f"{self.machine.etc}/jwt_hs256.key",
            "controller": f"http://127.0.0.1:{self._init_port}/",
            "kubeconfig": str(self.folder / "scheduler.kubeconfig"),
            "identity": "demo-scheduler-0",
            "port": str(self._health_port),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        command = [sys.executable, *(self.scheduler_words or ENTRY), "scheduler", *words]
        with (self.folder / "scheduler.log").open("ab") as log:
            self._scheduler = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL"), *command, stdin=DEVNULL, stdout=log, stderr=log
            )
        self._keeper = asyncio.create_task(self._keep(self._scheduler))

    async def _keep(self, process: Process) -> None:
        status = await process.wait()
        self.crashes.append(status)
        self.fault("exit", "scheduler", str(status))
        await asyncio.sleep(1.0)
        await self.start_scheduler()

    async def kill_scheduler(self) -> None:
        """End it at once; it stays away until it is started."""
        await self._let_go()
        if self._scheduler is not None and self._scheduler.returncode is None:
            self._scheduler.kill()
            await self._scheduler.wait()

    async def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    async def bring_scheduler(self, within: float = 60.0) -> None:
        """Start it, and wait until it is there: it answers, if only that it is not ready yet."""
        await self.start_scheduler()
        end = time.monotonic() + within
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._health_port)
                writer.close()
                return
            await asyncio.sleep(0.05)

    async def ready(self, within: float) -> bool:
        """Wait until the scheduler says that it places pods; return whether it did in time."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(2.0):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._health_port)
                    try:
                        writer.write(b"GET /readyz HTTP/1.1\r\nHost: scheduler\r\nConnection: close\r\n\r\n")
                        if b" 200 " in await reader.readline():
                            return True
                    finally:
                        writer.close()
            await asyncio.sleep(0.1)
        return False

    def pids(self, target: str) -> list[int]:
        """Return the processes of a program."""
        match target:
            case "scheduler":
                alive = self._scheduler is not None and self._scheduler.returncode is None
                return [self._scheduler.pid] if self._scheduler is not None and alive else []
            case "kube-apiserver":
                return [self.server.pid("kube-apiserver")]
            case name:
                return self.machine.pids(name)

    def send(self, target: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a program."""
        for pid in self.pids(target):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def fault(self, kind: str, target: str, detail: str = "", *, done: bool = False, over: bool = False) -> None:
        """Write down a fault, before it happens; or that it is done, or over."""
        at = self.history.clock.of(time.monotonic())
        self.history.add(Fault(at=at, kind=kind, target=target, detail=detail, done=done, over=over))

    _init_port: int = 0
    _health_port: int = field(default_factory=lambda: free_ports(1)[0])

    @asynccontextmanager
    async def connected(self) -> AsyncIterator["World"]:
        """Have the relays, the recorders and the scheduler within the block."""
        async with (
            self.slurmrestd.serve_unix(self.folder / "relay.sock"),
            self.init.serve() as self._init_port,
            self.proxy.serve(),
        ):
            path = self.server.kubeconfig(USER)
            text = path.read_text().replace(f":{self.server.port}", f":{self.proxy.port}")
            (self.folder / "scheduler.kubeconfig").write_text(text)
            tasks = [asyncio.create_task(self.watch.run()), asyncio.create_task(self.questions.run())]
            await self.watch.pods.wait_synced(60)
            await self.start_scheduler()
            try:
                yield self
            finally:
                await self.kill_scheduler()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def define(server: ApiServer) -> None:
    """Teach the API server our resources."""
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(server.kubeconfig())]
    for words in (("apply", "--server-side", "-f", str(CRDS)), ("wait", "--for=condition=Established", "crd", "--all")):
        subprocess.run([*kubectl, *words], check=True, timeout=60, stdout=subprocess.DEVNULL)


@contextmanager
def port_relay(machine: Machine) -> Iterator[int]:
    """Have slurmctld's init answer on a port of the host, and return that."""
    (tini,) = machine.pids("tini")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        inside = ["nsenter", f"--net=/proc/{tini}/ns/net", sys.executable, str(PORT_RELAY)]
        words = ["setpriv", "--pdeathsig", "KILL", *inside, str(listening.fileno()), str(INIT_PORT)]
        with subprocess.Popen(words, pass_fds=[listening.fileno()]) as process:
            try:
                yield listening.getsockname()[1]
            finally:
                process.terminate()


def conf() -> str:
    """Return slurm.conf: partitions are DOWN until the init, or the scheduler by it, opens them."""
    kept = [line for line in OURS.splitlines() if not line.startswith("PartitionName")]
    found = rendering.lines(convert(partitions(), tuple[Partition, ...]), [WORKERS], gated=True)
    return "\n".join([*kept, CONF + render(found)])


def partitions() -> list[dict[str, Any]]:
    """Return the partitions, over our only NodeSet."""
    return [one | {"nodeSets": [WORKERS]} for one in PARTITIONS]


@asynccontextmanager
async def world(folder: Path, *, scheduler: Sequence[str] = ()) -> AsyncIterator[World]:
    """Have all of it, with the nodes and without any pod. `scheduler`: words that start another program instead."""
    (folder / "api").mkdir()
    with contextlib.ExitStack() as stack:
        server = ApiServer(folder / "api", audited=True, audit_level="Request")
        stack.enter_context(server.run())
        define(server)
        machine = stack.enter_context(Machine(folder / "slurm", conf=conf()).run())
        gate = rendering.gate(convert(partitions(), tuple[Partition, ...]), f"{WAIT}s")
        machine.project(CONFIGURATION, {"slurm.conf": machine.conf, "kurm-gate": gate})
        machine.start_slurmctld()
        machine.until(CONFIGURATION, lambda: machine.told()["hash"])
        machine.start_rest()
        port = stack.enter_context(port_relay(machine))
        history = History(folder / "history.jsonl", Clock(time.monotonic(), time.time()))
        stack.callback(history.close)

        async def rest() -> Streams:
            return await asyncio.open_unix_connection(str(machine.socket), limit=1 << 24)

        async def init() -> Streams:
            return await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)

        async with Session(server.config(), deadline=10) as kube:
            made = World(
                folder,
                server,
                machine,
                kube,
                history,
                Watch(kube, history, PODS),
                Questions(machine, history, port),
                Proxy(server.port),
                Relay(history, "slurmrestd", rest),
                Relay(history, "init", init),
                scheduler,
            )
            await made.begin()
            async with made.connected():
                yield made
