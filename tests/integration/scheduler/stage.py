"""A stage for the scheduler: a real API server on one side, slurmctld under its init and slurmrestd on the other.

Nodes are objects that nobody runs, and EXTERNAL records in Slurm, which take jobs without a slurmd. So the stage is the
kubelet, too: `end` says of a pod that its containers have ended.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from integration.images.machine import OURS, Machine
from kurm.domain.gres import GRES
from kurm.domain.partition import Partition
from kurm.domain.selection import claim
from kurm.kube.errors import ApiError, KubeError
from kurm.kube.lease import Terms
from kurm.kube.resources import NODES, PODS, Key, Object
from kurm.kube.session import Session as KubeSession
from kurm.operator.render.configuration import GATE
from kurm.operator.render.partitions import gate, lines
from kurm.scheduler.objects import NODE_SET, NODE_SETS, OWN_PODS, SLURM_CLUSTERS, Pod
from kurm.scheduler.scheduler import Scheduler, Settings
from kurm.slurm import nodes
from kurm.slurm.conf import Conf, render
from kurm.slurm.errors import SlurmError
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens

RELAY = Path(__file__).parents[3] / "bench/relay.py"
TERMS = Terms(duration=12.0, renew_within=10.0, retry=1.0)
"""Long enough for a machine on which everything else runs, too."""
CPUS, MEMORY = 4, 8000
"""Of each node; memory in MiB."""
SIZE = {"cpu": str(CPUS), "memory": "16Gi", "pods": "110"}
PARTITIONS = (
    Partition(name="batch", node_sets=("workers",), default=True),
    Partition(name="services", node_sets=("workers",), tier=100, max_time="UNLIMITED", default_time="UNLIMITED"),
)
GPU = "nvidia.com/gpu"
DEADLINE = 45.0
HOLDS: object = True


def conf() -> str:
    """Return slurm.conf: the lab's, with partitions as the operator renders them for a cluster with a scheduler."""
    kept = [line for line in OURS.splitlines() if not line.startswith("PartitionName")]
    settings = "GresTypes=gpu\nSchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1"
    return "\n".join([*kept, settings, render(Conf(tuple(lines(PARTITIONS, ["workers"], gated=True))))])


@contextmanager
def slurm(folder: Path) -> Iterator[tuple[Machine, int]]:
    """Run a Slurm without nodes; gives it, and the port at which its init answers."""
    with Machine(folder, conf=conf()).run() as machine:
        machine.project("h1", {"slurm.conf": machine.conf, GATE: gate(PARTITIONS, "60s")})
        machine.start_slurmctld()
        machine.until("h1", lambda: machine.told()["hash"])
        machine.start_rest()
        with relay(machine) as port:
            yield machine, port


@contextmanager
def relay(machine: Machine) -> Iterator[int]:
    """Have slurmctld's init answer on a port of the host."""
    (init,) = machine.pids("tini")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = ["nsenter", f"--net=/proc/{init}/ns/net", sys.executable, str(RELAY), str(listening.fileno()), "6819"]
        words = ["setpriv", "--pdeathsig", "KILL", *command]
        with subprocess.Popen(words, pass_fds=[listening.fileno()]) as process:
            try:
                yield listening.getsockname()[1]
            finally:
                process.terminate()


def record(*names: str) -> nodes.NewNode:
    """Return the record of nodes that take jobs without a slurmd."""
    return nodes.NewNode(
        names=names,
        cpus=CPUS,
        real_memory=MEMORY,
        state="EXTERNAL",
        address="127.0.0.1",
        features=("nodeset:workers",),
    )


@dataclass
class Stage:
    """One SlurmCluster `demo` with a NodeSet `workers` in a namespace of its own, and one Slurm."""

    kube: KubeSession
    machine: Machine
    port: int
    place: str
    prefix: str
    nodes: list[str] = field(default_factory=list)
    _configured: int = 1

    @property
    def scheduler_name(self) -> str:
        """What the pods of this test name: the API server is that of other tests, too."""
        return f"kurm-{self.place}"

    async def build(self, count: int) -> "Stage":
        """Make the resources and so many nodes."""
        metadata = {"name": "demo", "namespace": self.place}
        partitions = [
            {"name": "batch", "nodeSets": ["workers"], "default": True},
            {"name": "services", "nodeSets": ["workers"], "tier": 100},
        ]
        scheduler = {"name": self.scheduler_name, "partition": "services"}
        spec: dict[str, Any] = {"partitions": partitions, "scheduler": scheduler}
        await self.kube.create(SLURM_CLUSTERS.of(Object), {"metadata": metadata, "spec": spec})
        metadata = {"name": "workers", "namespace": self.place}
        await self.kube.create(NODE_SETS.of(Object), {"metadata": metadata, "spec": {"clusterRef": {"name": "demo"}}})
        self.nodes = [f"{self.prefix}{number}" for number in range(1, count + 1)]
        for name in self.nodes:
            labels = {NODE_SET: claim(self.place, "workers")}
            made = await self.kube.create(NODES.of(Object), {"metadata": {"name": name, "labels": labels}})
            status = {"allocatable": SIZE, "capacity": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
            await self.kube.patch(NODES.of(Object), made.key, {"status": status}, subresource="status")
            await self.kube.patch(NODES.of(Object), made.key, {"spec": {"taints": None}})
        async with self.session() as session:
            await nodes.create_nodes(session, record(*self.nodes))
        return self

    async def equip(self, gpus: Mapping[str, int]) -> None:
        """Give nodes GPUs before a scheduler knows them: by their device plugin, the NodeSet, gres.conf and records."""
        spec = {"spec": {"slurm": {"gres": {GPU: {"type": "h100"}}}}}
        await self.kube.patch(NODE_SETS.of(Object), Key(self.place, "workers"), spec)
        devices = [
            f"NodeName={name} Name=gpu Type=h100 File=/dev/nvidia[0-{count - 1}]\n" for name, count in gpus.items()
        ]
        await self.configure(self.machine.conf, {"gres.conf": "".join(devices)})
        for name, count in gpus.items():
            gres, sizes = f"gpu:h100:{count}", SIZE | {GPU: str(count)}
            settled = {"metadata": {"annotations": {GRES: json.dumps({GPU: gres})}}}
            await self.kube.patch(NODES.of(Object), Key("", name), settled)
            status = {"status": {"allocatable": sizes, "capacity": sizes}}
            await self.kube.patch(NODES.of(Object), Key("", name), status, subresource="status")
            async with self.session() as session:
                await nodes.delete_nodes(session, [name])
                await nodes.create_nodes(session, structs.replace(record(name), gres=gres))

    async def configure(self, conf: str, more: Mapping[str, str] | None = None) -> None:
        """Have slurmctld take another configuration."""
        self._configured += 1
        name = f"h{self._configured}"
        self.machine.project(name, {"slurm.conf": conf, GATE: gate(PARTITIONS, "60s")} | dict(more or {}))
        await asyncio.to_thread(self.machine.until, name, lambda: self.machine.told()["hash"])

    async def slurm(self, *words: str) -> str:
        """Run a command of Slurm's, as its administrator."""
        return await asyncio.to_thread(self.machine.slurm, *words)

    def session(self) -> SlurmSession:
        """Return a session with Slurm."""
        return SlurmSession(f"unix:{self.machine.socket}", self.tokens)

    @property
    def tokens(self) -> Tokens:
        """SlurmUser's."""
        return Tokens(lambda: self.machine.key, "slurm")

    @asynccontextmanager
    async def scheduler(self, name: str = "one") -> AsyncIterator[Scheduler]:
        """Run a scheduler within the block, and cut it off at its end."""
        settings = Settings("demo", self.place, name, controller=f"http://127.0.0.1:{self.port}/", terms=TERMS)
        found = await self.kube.get(SLURM_CLUSTERS, Key(self.place, "demo"))
        async with self.session() as session:
            made = Scheduler(self.kube, session, self.tokens, settings, found)
            task = asyncio.create_task(made.run())
            try:
                yield made
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        node: str = "",
        annotations: Mapping[str, str] | None = None,
        scheduler: str = "",
        gpus: int = 0,
        claim: str = "",
        job: Object | None = None,
        gates: Sequence[str] = (),
    ) -> None:
        """Make a pod; with a node one that somebody else has bound, with a Job one of that Job's."""
        container: dict[str, Any] = {"name": "main", "image": "none"}
        container["resources"] = {"requests": {"cpu": cpu, "memory": "100Mi"}}
        if gpus:
            container["resources"]["limits"] = {GPU: str(gpus)}
        spec: dict[str, Any] = {"containers": [container], "schedulerName": scheduler or self.scheduler_name}
        if claim:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        if gates:
            spec["schedulingGates"] = [{"name": name} for name in gates]
        spec |= {"terminationGracePeriodSeconds": 5} | ({"nodeName": node} if node else {})
        metadata: dict[str, Any] = {"name": name, "namespace": self.place, "annotations": dict(annotations or {})}
        if job is not None:
            owner = {"name": job.metadata.name, "uid": job.metadata.uid, "controller": True}
            metadata["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", **owner}]
        await self.kube.create(PODS, {"metadata": metadata, "spec": spec})

    async def gang(self, name: str, size: int, *, cpu: str = "1") -> None:
        """Make the pods of a gang."""
        words = {"slurm.kurm.dev/gang": name, "slurm.kurm.dev/gang-size": str(size)}
        for number in range(size):
            await self.pod(f"{name}-{number}", cpu=cpu, annotations=words)

    async def get(self, name: str) -> Pod:
        """Return a pod."""
        return await self.kube.get(OWN_PODS, Key(self.place, name))

    async def node_of(self, name: str) -> str:
        """Return where a pod is bound."""
        return (await self.get(name)).spec.node_name

    async def bound(self, *names: str) -> int:
        """Return how many of these pods are bound."""
        return sum([bool(await self.node_of(name)) for name in names])

    async def reason(self, name: str) -> str:
        """Return why a pod waits, as its condition says."""
        found = (await self.get(name)).condition("PodScheduled")
        return found.reason if found is not None else ""

    async def leaving(self, name: str) -> bool:
        """Whether a pod is being deleted."""
        return (await self.get(name)).leaving

    async def end(self, *names: str) -> None:
        """Say that a pod's containers have ended, and that it is gone, as its kubelet does."""
        for name in names:
            key = Key(self.place, name)
            await self.kube.patch(PODS, key, {"status": {"phase": "Succeeded"}}, subresource="status")
            await self.kube.delete(PODS, key, grace=0)

    async def jobs(self) -> dict[str, tuple[str, str, str]]:
        """Return Slurm's live jobs of this place: state, partition and nodes, by the pod's or the gang's name."""
        words = ("squeue", "-ah", "-t", "PD,R,CG", "-O", "Name:150,State:20,Partition:20,NodeList:60")
        text = await self.slurm(*words)
        found = {}
        for row in text.splitlines():
            name = row[:150].strip().rpartition("/")[2]
            name, _, node = name.partition("@")
            short = name.rpartition(".")[0] + (f"@{node}" if node else "")
            found[short] = (row[150:170].strip(), row[170:190].strip(), row[190:].strip())
        return found

    async def scancel(self, name: str) -> None:
        """Cancel a pod's job, as an administrator does."""
        job = (await self.get(name)).metadata.annotations["kurm.dev/job"]
        await self.slurm("scancel", job)

    async def hear(self, node: str, status: str = "True", *, for_seconds: float = 0.0) -> None:
        """Say of a node's kubelet for how long it is heard of ("True"), or is not any more ("Unknown")."""
        since = (datetime.now(UTC) - timedelta(seconds=for_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
        status_of = {"status": {"conditions": [ready]}}
        await self.kube.patch(NODES.of(Object), Key("", node), status_of, subresource="status")

    async def set_node(self, node: str, state: str) -> None:
        """Say of a node in Slurm that it is `down`, drained or to be used (`resume`), as an administrator does."""
        reason = [] if state == "resume" else ["reason=test"]
        await self.slurm("scontrol", "update", f"nodename={node}", f"state={state}", *reason)

    async def crash_slurmctld(self) -> None:
        """Kill slurmctld, and start its container anew, as the kubelet does."""
        await asyncio.to_thread(self.machine.kill_controller)
        await asyncio.to_thread(self.machine.start_slurmctld)

    async def forget(self) -> None:
        """Kill slurmctld, and start it anew without any of its jobs."""
        await asyncio.to_thread(self.machine.kill_controller)
        for saved in (self.machine.folder / "state/state").glob("job_state*"):
            saved.unlink()
        await asyncio.to_thread(self.machine.start_slurmctld)

    async def clear(self) -> None:
        """Delete the nodes: they are in no namespace."""
        for name in self.nodes:
            with contextlib.suppress(ApiError):
                await self.kube.delete(NODES.of(Object), Key("", name))


async def until(what: Callable[[], Awaitable[Any]], expected: object = HOLDS, *, within: float = DEADLINE) -> None:
    """Wait until `what()` (awaited) is as expected; AssertionError with what it is if not in time."""
    end, last = time.monotonic() + within, None
    while time.monotonic() < end:
        try:
            last = await what()
        except (SlurmError, KubeError, OSError, RuntimeError) as error:
            last = error
        if last == expected:
            return
        await asyncio.sleep(0.1)
    assert last == expected


def names(of: str, numbers: Iterable[int]) -> list[str]:
    """Return names with numbers."""
    return [f"{of}-{number}" for number in numbers]
