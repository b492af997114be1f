"""A stage for the operator: a real API server, Kubernetes' real StatefulSet, Deployment and garbage controllers.

Nodes are plain objects. What is played, by `Crew`, is what would run on them: kubelets that start and end containers,
and each cluster's syncer, which answers releases unless a node has a job.
"""

import asyncio
import contextlib
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from integration.apiserver import ApiServer, binaries, namespace
from kurm.domain.signals import (
    NODE_SET,
    RELEASE,
    SLURM_ALLOCATED,
    SLURM_DRAINED,
    SLURM_JOBS_END,
    SLURM_READY,
    SLURM_REASON,
)
from kurm.kube.apply import Applier
from kurm.kube.errors import ApiError, NotFound
from kurm.kube.lease import Terms
from kurm.kube.resources import NODES, Dynamic, Key, Object, Resource
from kurm.kube.session import Patch, Session
from kurm.operator.conditions import rfc3339
from kurm.operator.objects import (
    ALL_NODES,
    CLUSTER_PODS,
    COMPONENT,
    CONTENT_MAPS,
    KINDS,
    MANAGED,
    NODE_SETS,
    SLURM_CLUSTERS,
    NodeSet,
    Pod,
    SlurmCluster,
)
from kurm.operator.operator import Operator, Settings
from kurm.operator.render.pods import Images

CHART = Path(__file__).resolve().parents[3] / "charts/kurm"
MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
"""What helm, which asks no server here, has to be told is served."""
OPERATOR = "system:serviceaccount:kurm-system:kurm-operator"
TERMS = Terms(duration=12.0, renew_within=10.0, retry=1.0)
ALLOCATABLE = {"cpu": "4", "memory": "4Gi", "pods": "110"}
DEADLINE = 20.0
GOODBYE = 0.3
IMAGES = Images(*(f"registry.example/kurm/{name}:1" for name in Images.__struct_fields__[:-1]))
MISSING = "registry.example/kurm/missing:1"
CONTROLLERS = ",".join(
    f"{name}-controller"
    for name in (
        *("statefulset", "deployment", "replicaset", "garbage-collector", "disruption"),
        "persistentvolumeclaim-protection",
    )
)
DYNAMIC_PODS = CLUSTER_PODS.of(Dynamic)
DATA = Resource(Dynamic, version="v1", kind="ConfigMap", plural="configmaps")


def furnish(server: ApiServer, *, mutations: bool = True) -> None:
    """Give an API server our resources, the chart's own roles and policies, and start Kubernetes' controllers.

    `mutations`: whether it has MutatingAdmissionPolicy.
    """
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(server.kubeconfig())]
    crds = sorted(CHART.glob("**/crds/*.yaml"))
    for path in crds:
        subprocess.run([*kubectl, "apply", "--server-side", "-f", str(path)], check=True, timeout=60)
    chart = [str(binaries() / "helm"), "template", "kurm", str(CHART), "--namespace=kurm-system"]
    chart += [f"--show-only=templates/{name}.yaml" for name in ("rbac", "schedulerpolicies")]
    chart += [f"--api-versions={MUTATING}"] if mutations else []
    rendered = subprocess.run(chart, check=True, timeout=60, capture_output=True).stdout
    subprocess.run([*kubectl, "create", "namespace", "kurm-system"], check=True, timeout=60)
    subprocess.run([*kubectl, "apply", "-f", "-"], check=True, timeout=60, input=rendered)
    server._start(
        "kube-controller-manager",
        f"--kubeconfig={server.kubeconfig('controllers')}",
        f"--controllers={CONTROLLERS}",
        "--leader-elect=false",
        "--secure-port=0",
    )


@dataclass
class Crew:
    """Plays kubelets and syncers, by lists, several times a second."""

    kube: Session
    place: str
    busy: set[str] = field(default_factory=set)
    """Nodes that have a job."""
    ends: dict[str, str] = field(default_factory=dict)
    """When the last job on a node ends; what is not here is `never`."""
    tells_ends: bool = True
    """Whether syncers say so."""
    syncing: bool = True
    """Whether syncers work."""
    down: set[str] = field(default_factory=set)
    """Components whose containers do not answer."""

    async def run(self) -> None:
        """Play until cancelled."""
        while True:
            nodes = await self.kube.list(ALL_NODES)
            cordoned = {node.metadata.name for node in nodes if node.spec.unschedulable}
            for pod in await self.kube.list(DYNAMIC_PODS, namespace=self.place):
                with contextlib.suppress(ApiError):
                    await self._pod(pod, cordoned)
            if self.syncing:
                for cluster in await self.kube.list(SLURM_CLUSTERS, namespace=self.place):
                    with contextlib.suppress(ApiError):
                        await self._configure(cluster)
            await asyncio.sleep(0.05)

    async def _pod(self, pod: Dynamic, cordoned: set[str]) -> None:
        if pod.metadata.deletion_timestamp is not None:
            await self.kube.delete(CLUSTER_PODS, pod.key, uid=pod.metadata.uid, grace=0)
            return
        held = {one["type"]: one for one in (pod.status or {}).get("conditions", [])}
        component = pod.metadata.labels.get(COMPONENT, "")
        container = pod.spec["containers"][0]
        pulled, answers = container["image"] != MISSING, component not in self.down
        wanted = {"Ready": (pulled and answers, "", "")}
        if component == "slurmd" and self.syncing:
            drained = bool(pod.metadata.annotations.get(RELEASE)) or pod.spec["nodeName"] in cordoned
            wanted |= self._said(pod, attached=pulled, drained=drained)
            await self._annotate(pod, drained=drained)
        if all(_same(held.get(kind), *said) for kind, said in wanted.items()):
            return
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{MISSING}"'}
        state = {"running": {}} if pulled else {"waiting": waiting}
        status = {
            "phase": "Running" if pulled else "Pending",
            "hostIP": "192.0.2.7",
            "conditions": [_condition(kind, *said) for kind, said in wanted.items()],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": "",
                    "imageID": "",
                    "restartCount": 0,
                    "ready": pulled,
                    "state": state,
                    # By these the API server knows that a kubelet can change them while the container runs.
                    "resources": container.get("resources", {}),
                }
            ],
        }
        await self.kube.patch(CLUSTER_PODS, pod.key, {"status": status}, kind=Patch.STRATEGIC, subresource="status")

    def _said(self, pod: Dynamic, *, attached: bool, drained: bool) -> dict[str, tuple[bool, str, str]]:
        release, free = pod.metadata.annotations.get(RELEASE, ""), pod.spec["nodeName"] not in self.busy
        word = ("InService" if attached else "NotRegistered") if not drained else "Drained" if free else "Draining"
        return {
            SLURM_READY: (attached and not drained, word, ""),
            SLURM_DRAINED: (drained and free, word, release if drained and free else ""),
        }

    async def _annotate(self, pod: Dynamic, *, drained: bool) -> None:
        """Say whether a node has jobs; when they end of every busy one, because that takes no list here."""
        node, held = pod.spec["nodeName"], pod.metadata.annotations
        busy = node in self.busy
        wanted: dict[str, str | None] = {SLURM_ALLOCATED: "true" if busy else "false"}
        wanted[SLURM_JOBS_END] = self.ends.get(node, "never") if busy and self.tells_ends else None
        wanted[SLURM_REASON] = "kurm: because the stage has it so" if drained else None
        if any(held.get(name) != value for name, value in wanted.items()):
            await self.kube.patch(CLUSTER_PODS, pod.key, {"metadata": {"annotations": wanted}})

    async def _configure(self, cluster: SlurmCluster) -> None:
        key = Key(cluster.key.namespace, f"{cluster.key.name}-config")
        with contextlib.suppress(NotFound):
            found = (await self.kube.get(CONTENT_MAPS, key)).data["kurm-hash"]
            if cluster.status.config_hash != found:
                await Applier(self.kube, "kurm-syncer").apply_status(SLURM_CLUSTERS, cluster, {"configHash": found})


def _same(held: dict[str, Any] | None, holds: bool, reason: str, message: str) -> bool:  # noqa: FBT001 - a tuple's
    return held is not None and (held["status"], held.get("reason", ""), held.get("message", "")) == (
        str(holds),
        reason,
        message,
    )


def _condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, str]:  # noqa: FBT001 - a tuple's
    now = rfc3339(datetime.now(UTC))
    return {"type": kind, "status": str(holds), "reason": reason, "message": message, "lastTransitionTime": now}


@dataclass
class Stage:
    """A namespace, some nodes that only its NodeSets can use, and the crew."""

    server: ApiServer
    kube: Session
    place: str
    crew: Crew
    nodes: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def operator(self, name: str = "one", **settings: Any) -> AsyncIterator[Operator]:
        """Run an operator within the block, with the rights that the chart gives it; cut it off at the block's end."""
        given: dict[str, Any] = {"terms": TERMS} | settings
        async with Session(self.server.config(OPERATOR, None)) as session:
            made = Operator(session, Settings(IMAGES, "kurm-system", name, **given))
            task = asyncio.create_task(made.run())
            try:
                yield made
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def add_nodes(self, number: int, **labels: str) -> list[str]:
        """Make Kubernetes nodes that are Ready."""
        names = [f"{self.place}-n{len(self.nodes) + index}" for index in range(number)]
        for name in names:
            manifest = {"metadata": {"name": name, "labels": {"stage": self.place, **labels}}}
            node = await self.kube.create(ALL_NODES, manifest)
            status = {
                "allocatable": ALLOCATABLE,
                "capacity": ALLOCATABLE,
                "conditions": [_condition("Ready", holds=True, reason="Up", message="")],
            }
            await self.kube.patch(ALL_NODES, node.key, {"status": status}, kind=Patch.STRATEGIC, subresource="status")
            if node.spec.taints:  # the API server's admission gives a new node one
                await self.kube.patch(ALL_NODES, node.key, {"spec": {"taints": None}})
            self.nodes.append(name)
        return names

    async def cluster(self, name: str = "demo", **spec: Any) -> None:
        """Make a SlurmCluster without accounting, or change one: the spec is the whole of it."""
        manifest = {
            "metadata": {"name": name, "namespace": self.place},
            "spec": {"accounting": {"enabled": False}} | spec,
        }
        await Applier(self.kube, "test").apply(SLURM_CLUSTERS, manifest)

    async def node_set(self, name: str = "workers", cluster: str = "demo", **spec: Any) -> None:
        """Make a NodeSet over the stage's nodes, or change one: the spec is the whole of it."""
        whole = {"clusterRef": {"name": cluster}, "nodeSelector": {"stage": self.place}} | spec
        await Applier(self.kube, "test").apply(
            NODE_SETS, {"metadata": {"name": name, "namespace": self.place}, "spec": whole}
        )

    async def cordon(self, node: str, *, lift: bool = False) -> None:
        """Cordon a node, or uncordon it."""
        await self.kube.patch(ALL_NODES, Key("", node), {"spec": {"unschedulable": None if lift else True}})

    async def get_cluster(self, name: str = "demo") -> SlurmCluster:
        """Return a SlurmCluster."""
        return await self.kube.get(SLURM_CLUSTERS, Key(self.place, name))

    async def get_node_set(self, name: str = "workers") -> NodeSet:
        """Return a NodeSet."""
        return await self.kube.get(NODE_SETS, Key(self.place, name))

    async def pods(self, component: str = "slurmd") -> dict[str, Pod]:
        """Return the pods of a component by node (by name for those on none)."""
        found = await self.kube.list(CLUSTER_PODS, namespace=self.place, labels=f"{COMPONENT}={component}")
        return {pod.spec.node_name or pod.metadata.name: pod for pod in found}

    async def claimed(self) -> dict[str, str]:
        """Return the claims on the stage's nodes by their names, without our namespace."""
        found = await self.kube.list(ALL_NODES, labels=f"stage={self.place},{NODE_SET}")
        return {one.metadata.name: one.metadata.labels[NODE_SET].removeprefix(f"{self.place}.") for one in found}

    async def conditions(self, name: str = "demo") -> dict[str, tuple[str, str]]:
        """Return a SlurmCluster's conditions: status and reason by type."""
        return _told((await self.get_cluster(name)).status.conditions)

    async def node_set_conditions(self, name: str = "workers") -> dict[str, tuple[str, str]]:
        """Return a NodeSet's conditions: status and reason by type."""
        return _told((await self.get_node_set(name)).status.conditions)

    async def made(self) -> dict[str, str]:
        """Return all that was made in the namespace: its version by kind and name. Pods and Events are left out."""
        found = {}
        for kind, resource in KINDS.items():
            namespace = self.place if resource.namespaced else ""
            with contextlib.suppress(NotFound):  # some kinds are not served everywhere
                for obj in await self.kube.list(resource, namespace=namespace, labels=MANAGED):
                    if resource.namespaced or f".{self.place}." in obj.metadata.name:
                        found[f"{kind}/{obj.metadata.name}"] = obj.metadata.resource_version
        return found

    async def clear(self) -> None:
        """Delete everything, by force where no operator is there to do it."""
        for resource in (NODE_SETS.of(Object), SLURM_CLUSTERS.of(Object)):
            for obj in await self.kube.list(resource, namespace=self.place):
                with contextlib.suppress(NotFound):
                    await self.kube.patch(resource, obj.key, {"metadata": {"finalizers": None}})
                    await self.kube.delete(resource, obj.key)
        for pod in await self.kube.list(CLUSTER_PODS, namespace=self.place):
            with contextlib.suppress(NotFound):
                await self.kube.delete(CLUSTER_PODS, pod.key, grace=0)
        for name in self.nodes:
            with contextlib.suppress(NotFound):
                await self.kube.delete(NODES, Key("", name))


@asynccontextmanager
async def on_stage(server: ApiServer) -> AsyncIterator[Stage]:
    """Set a stage on a server that is furnished; no operator is on it yet."""
    async with Session(server.config()) as session:
        place = await namespace(session, f"t{secrets.token_hex(3)}")
        crew = Crew(session, place)
        made = Stage(server, session, place, crew)
        playing = asyncio.create_task(crew.run())
        try:
            yield made
        finally:
            await made.clear()
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing
    # TLS takes leave in its own time, and a loop that is closed before that has unclosed sockets.
    await asyncio.sleep(GOODBYE)


def _told(conditions: Iterable[Any]) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in conditions}


async def until(what: Callable[[], Awaitable[Any]], expected: object = True, *, within: float = DEADLINE) -> None:  # noqa: FBT002
    """Wait until `what()` is as expected; AssertionError with what it is if not in time."""
    end, last = time.monotonic() + within, None
    while time.monotonic() < end:
        try:
            last = await what()
        except NotFound as error:
            last = error
        if last == expected:
            return
        await asyncio.sleep(0.1)
    assert expected == last, f"expected {expected}, and it is {last}"
