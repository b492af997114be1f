"""A stage for the syncer: a real API server on one side, a real slurmctld and slurmrestd on the other.

Nodes and pods are plain objects, as the operator would have made them; nobody runs them. Records are CLOUD nodes to
which no slurmd comes, and they take external jobs all the same.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from integration.slurm.lab import Lab
from kurm.domain.causes import REASON
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET, PROTECTED, RELEASE, REQUEUE_AT, SLURM_DRAINED
from kurm.kube.apply import Applier
from kurm.kube.errors import ApiError
from kurm.kube.lease import Terms
from kurm.kube.resources import NODES, PODS, Condition, Key, Object
from kurm.kube.session import Patch
from kurm.kube.session import Session as KubeSession
from kurm.slurm import jobs, nodes
from kurm.slurm.errors import SlurmError
from kurm.slurm.jobs import JobsAnswer
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens
from kurm.slurm.wire import number
from kurm.syncer.conditions import rfc3339
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS, SLURMD_PODS
from kurm.syncer.syncer import Settings, Syncer

TERMS = Terms(duration=12.0, renew_within=10.0, retry=1.0)
"""With a margin for a host that is busy with others: it was seen to stop both cores for longer than a second."""
LABELS = {f"app.kubernetes.io/{name}": value for name, value in (("name", "slurm"), ("component", "slurmd"))}
ALLOCATABLE = {"cpu": "4", "memory": "4Gi", "pods": "110"}
DEADLINE = 20.0
HOLDS: object = True


class Allocated(JobsAnswer):
    """The answer of `job/allocate`."""

    job_id: int = 0


@dataclass
class Stage:
    """One SlurmCluster `demo` with a NodeSet `workers` in a namespace of its own, and one Slurm."""

    kube: KubeSession
    lab: Lab
    place: str
    uids: dict[str, str] = field(default_factory=dict)
    """Of the Kubernetes nodes, by name."""
    tasks: int = 0

    async def build(self) -> "Stage":
        """Make the resources."""
        metadata = {"name": "demo", "namespace": self.place}
        await self.kube.create(SLURM_CLUSTERS, {"metadata": metadata, "spec": {}})
        await self.node_set("workers")
        return self

    async def node_set(self, name: str, *, replicas: int | None = None, **slurm: Any) -> None:
        """Make a NodeSet, or change how many nodes it wants, and what it says of them in Slurm."""
        spec: dict[str, Any] = {"clusterRef": {"name": "demo"}, "slurm": slurm}
        spec |= {} if replicas is None else {"replicas": replicas}
        manifest = {"metadata": {"name": name, "namespace": self.place}, "spec": spec}
        await Applier(self.kube, "test").apply(NODE_SETS, manifest)

    def session(self) -> SlurmSession:
        """Return a session with Slurm."""
        return SlurmSession(f"unix:{self.lab.socket}", Tokens(lambda: self.lab.key, "slurm"))

    @asynccontextmanager
    async def syncer(self, name: str = "one", **settings: Any) -> AsyncIterator[Syncer]:
        """Run a syncer within the block, and cut it off at its end."""
        given: dict[str, Any] = {"terms": TERMS, "controller": "http://127.0.0.1:9/"} | settings
        async with self.session() as slurm:
            made = Syncer(self.kube, slurm, Settings("demo", self.place, name, **given))
            task = asyncio.create_task(made.run())
            try:
                yield made
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def claim(self, names: Iterable[str], *, node_set: str = "workers", pods: bool = True) -> None:
        """Make Kubernetes nodes that a NodeSet has claimed, each with its slurmd pod."""
        for name in names:
            labels = {NODE_SET: claim(self.place, node_set)}
            node = await self.kube.create(NODES.of(Object), {"metadata": {"name": name, "labels": labels}})
            self.uids[name] = node.metadata.uid
            status = {"status": {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE}}
            await self.kube.patch(NODES.of(Object), node.key, status, subresource="status")
            if pods:
                await self.pod(name, node_set)

    async def pod(self, node: str, node_set: str = "workers") -> None:
        """Make the slurmd pod of a node."""
        labels = LABELS | {"app.kubernetes.io/instance": "demo", NODE_SET: node_set, PROTECTED: "true"}
        metadata = {"name": f"{node_set}-{node}", "namespace": self.place, "labels": labels}
        spec = {"nodeName": node, "containers": [{"name": "slurmd", "image": "none"}]}
        await self.kube.create(PODS, {"metadata": metadata, "spec": spec})

    async def release(self, *names: str, reason: str | None = "scaling in", requeue_at: str | None = None) -> None:
        """Say that the pods of these nodes shall go; with None that they shall stay."""
        for name in names:
            patch = {"metadata": {"annotations": {RELEASE: reason, REQUEUE_AT: requeue_at}}}
            await self.kube.patch(PODS, self._pod(name), patch)

    async def protect(self, name: str, *, protected: bool = True) -> None:
        """Put the label on a node's pod that keeps it from being evicted, or take it off, as the operator does."""
        labels = {PROTECTED: "true" if protected else None}
        await self.kube.patch(PODS, self._pod(name), {"metadata": {"labels": labels}})

    async def delete_pod(self, name: str) -> None:
        """Make a pod gone, as the kubelet does."""
        await self.kube.delete(PODS, self._pod(name), grace=0)

    async def taking_jobs(self, *names: str) -> None:
        """Make records that take jobs without a slurmd, as the syncer would have marked them."""
        new = nodes.NewNode(
            names=names, cpus=4, real_memory=3584, state="EXTERNAL", address="127.0.0.1", features=("nodeset:workers",)
        )
        async with self.session() as slurm:
            await nodes.create_nodes(slurm, new)
            for name in names:
                await nodes.update_nodes(slurm, [name], nodes.Update(extra=f"kurm:{self.uids[name]}"))

    async def cordon(self, *names: str, words: str | None = None) -> None:
        """Do what `kubectl cordon` does, and say why if words are given."""
        metadata = {"annotations": {REASON: words}} if words is not None else {}
        for name in names:
            body = {"metadata": metadata, "spec": {"unschedulable": True}}
            await self.kube.patch(NODES.of(Object), Key("", name), body)

    async def uncordon(self, *names: str) -> None:
        """Do what `kubectl uncordon` does; the words stay, as they do there."""
        for name in names:
            await self.kube.patch(NODES.of(Object), Key("", name), {"spec": {"unschedulable": None}})

    async def condition(self, name: str, kind: str, status: str, message: str = "") -> None:
        """Set a condition of a Kubernetes node, as its kubelet or node-problem-detector does."""
        turned = {"type": kind, "status": status, "message": message, "lastTransitionTime": rfc3339(datetime.now(UTC))}
        body = {"status": {"conditions": [turned]}}
        await self.kube.patch(NODES.of(Object), Key("", name), body, kind=Patch.STRATEGIC, subresource="status")

    async def unclaim(self, *names: str) -> None:
        """Take the NodeSet's label from nodes."""
        for name in names:
            await self.kube.patch(NODES.of(Object), Key("", name), {"metadata": {"labels": {NODE_SET: None}}})

    async def records(self) -> dict[str, nodes.Node]:
        """Return Slurm's nodes by name."""
        async with self.session() as slurm:
            answer = await nodes.list_nodes(slurm)
        return {node.name: node for node in (answer.nodes if answer else None) or ()}

    async def conditions(self, name: str) -> dict[str, Condition]:
        """Return our conditions of a node's pod, by their types."""
        pod = await self.kube.get(SLURMD_PODS, self._pod(name))
        return {one.type: one for one in pod.status.conditions if one.type.startswith("kurm.dev/")}

    async def annotations(self, name: str) -> dict[str, str]:
        """Return what the pod's annotations say of its node."""
        pod = await self.kube.get(SLURMD_PODS, self._pod(name))
        return {key: value for key, value in pod.metadata.annotations.items() if key.startswith("kurm.dev/slurm-")}

    async def drained(self, name: str) -> bool:
        """Whether a node's pod is told that it may go."""
        condition = (await self.conditions(name)).get(SLURM_DRAINED)
        return condition is not None and condition.status == "True"

    async def start_job(self, node: str) -> int:
        """Start an external job on a node, and return its id."""
        job: Mapping[str, object] = {
            "name": "test",
            "partition": "main",
            "tasks": 1,
            "cpus_per_task": 1,
            "memory_per_node": number(10),
            "flags": ["EXTERNAL_JOB"],
            "immediate": True,
            "required_nodes": [node],
            "current_working_directory": "/",
            "environment": ["A=b"],
        }
        async with self.session() as slurm:
            answer = await slurm.request(Allocated, "POST", "job/allocate", body={"job": job})
        assert answer
        return answer.job_id

    async def end_job(self, job: int) -> None:
        """End a job."""
        async with self.session() as slurm:
            await jobs.cancel_job(slurm, job)

    async def update(self, *names: str, **what: Any) -> None:
        """Change nodes in Slurm, as an administrator does."""
        async with self.session() as slurm:
            await nodes.update_nodes(slurm, names, nodes.Update(**what))

    async def marked(self) -> set[str]:
        """Return the names of the records that bear the mark of their Kubernetes node."""
        found = await self.records()
        return {name for name, node in found.items() if node.extra == f"kurm:{self.uids.get(name)}"}

    async def clear(self) -> None:
        """Delete the nodes: they are in no namespace."""
        for name in self.uids:
            with contextlib.suppress(ApiError):
                await self.kube.delete(NODES.of(Object), Key("", name))

    def _pod(self, node: str) -> Key:
        return Key(self.place, f"workers-{node}")


async def until(what: Callable[[], Any], expected: object = HOLDS, *, within: float = DEADLINE) -> None:
    """Wait until `what()` (awaited) is as expected; AssertionError with what it is if not in time."""
    end, last = time.monotonic() + within, None
    while time.monotonic() < end:
        try:
            last = await what()
        except SlurmError as error:
            last = error
        if last == expected:
            return
        await asyncio.sleep(0.1)
    assert last == expected
