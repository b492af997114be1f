"""What an operator, a syncer and kubelets would have written, written by hand: nobody runs any of it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from integration.apiserver import ApiServer
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET, SLURM_DRAINED, SLURM_READY
from kurm.kube.errors import ApiError
from kurm.kube.resources import NODES, PODS, Key, Object, Resource
from kurm.kube.session import Session
from kurm.scheduler.volumes import CLAIMS, VOLUMES
from kurm.syncer.objects import NODE_SETS, SLURM_CLUSTERS

Json = dict[str, Any]

ALLOCATABLE = {"cpu": "4", "memory": "4Gi", "pods": "110"}
WELL = {"Available": "True", "Configured": "True", "Ready": "True"}
EVENTS = Resource(Object, version="v1", kind="Event", plural="events")


class Said(NamedTuple):
    """What a command has written, and how it ended."""

    code: int
    out: str
    err: str


async def kurm(server: ApiServer, *words: str, user: str = "admin", groups: str | None = "system:masters") -> Said:
    """Run the command as a person does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kurm.cli", *words),
        env=os.environ | {"KUBECONFIG": str(server.kubeconfig(user, groups))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    out, err = await asyncio.wait_for(process.communicate(), 50)
    return Said(process.returncode or 0, out.decode(), err.decode())


@dataclass
class Story:
    """One SlurmCluster `demo` in a namespace of its own; names of its nodes begin with `prefix`."""

    kube: Session
    place: str
    prefix: str
    nodes: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)

    async def cluster(
        self,
        conditions: Mapping[str, str | tuple[str, str, str]] = WELL,
        *,
        spec: Json | None = None,
        **status: Any,
    ) -> None:
        """Make the SlurmCluster; a condition is its status, or status, reason and message."""
        await self.kube.create(SLURM_CLUSTERS.of(Object), {"metadata": self._named("demo"), "spec": spec or {}})
        await self._status(SLURM_CLUSTERS.of(Object), Key(self.place, "demo"), conditions, status)

    async def node_set(
        self,
        name: str = "workers",
        conditions: Mapping[str, Any] | None = None,
        *,
        spec: Json | None = None,
        **status: Any,
    ) -> None:
        """Make a NodeSet for the nodes of this story."""
        wanted = {"clusterRef": {"name": "demo"}, "nodeSelector": {"story": self.place}} | (spec or {})
        await self.kube.create(NODE_SETS.of(Object), {"metadata": self._named(name), "spec": wanted})
        await self._status(
            NODE_SETS.of(Object), Key(self.place, name), {"Ready": "True"} if conditions is None else conditions, status
        )

    async def node(
        self, name: str, claimed: str = "workers", *, ready: str = "True", spec: Json | None = None, **labels: str
    ) -> str:
        """Make a Kubernetes node, and return its name."""
        whole = f"{self.prefix}{name}"
        marks = {"story": self.place} | ({NODE_SET: claim(self.place, claimed)} if claimed else {}) | labels
        await self.kube.create(NODES.of(Object), {"metadata": {"name": whole, "labels": marks}, "spec": spec or {}})
        self.nodes.append(whole)
        conditions = _conditions({"Ready": (ready, "KubeletSays", "kubelet stopped posting node status")})
        status = {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE, "conditions": conditions}
        await self._patch(NODES.of(Object), Key("", whole), {"status": status})
        return whole

    async def pod(
        self, name: str, component: str, *, node: str = "", labels: Json | None = None, status: Json | None = None
    ) -> None:
        """Make a pod of a component; ready, unless its status says other things."""
        parts = {"name": "slurm", "instance": "demo", "component": component}
        marks = {f"app.kubernetes.io/{key}": value for key, value in parts.items()} | (labels or {})
        spec: Json = {"containers": [{"name": component, "image": "localhost/kurm/none:1"}]}
        spec |= {"nodeName": node} if node else {}
        await self.kube.create(PODS, {"metadata": self._named(name) | {"labels": marks}, "spec": spec})
        told = {"phase": "Running", "conditions": _conditions({"Ready": "True"})} if status is None else status
        await self._patch(PODS.of(Object), Key(self.place, name), {"status": told})

    async def service(self, name: str, *, said: tuple[str, str] | None = None, **more: Any) -> None:
        """Make a pod for the scheduler of the story's name; `said`: reason and message for which it waits."""
        annotations = {f"slurm.kurm.dev/{key}": value for key, value in more.pop("annotations", {}).items()}
        requests = {"cpu": "1", "memory": "64Mi"}
        container = {"name": "main", "image": "localhost/kurm/none:1", "resources": {"requests": requests}}
        spec = {"schedulerName": self.place, "containers": [container], **more}
        meta = self._named(name) | {"annotations": annotations}
        await self.kube.create(PODS.of(Object), {"metadata": meta, "spec": spec})
        if said:
            conditions = _conditions({"PodScheduled": ("False", *said)})
            await self._patch(PODS.of(Object), Key(self.place, name), {"status": {"conditions": conditions}})

    async def slurmd(self, node: str, said: str = "InService", message: str = "", *, drained: bool = False) -> None:
        """Make the slurmd pod of a node, with what the syncer says of it."""
        conditions = {
            "Ready": "True",
            SLURM_READY: (str(said == "InService"), said, message),
            SLURM_DRAINED: (str(drained), "Drained" if drained else "NotDrained", ""),
        }
        status = {"phase": "Running", "conditions": _conditions(conditions)}
        await self.pod(f"workers-{node}", "slurmd", node=node, labels={NODE_SET: "workers"}, status=status)

    async def warn(self, pod: str, reason: str, message: str) -> None:
        """Record a warning about a pod, as the kubelet does."""
        found = await self.kube.get(PODS.of(Object), Key(self.place, pod))
        about = {"kind": "Pod", "namespace": self.place, "name": pod, "uid": found.metadata.uid}
        event = {"involvedObject": about, "type": "Warning", "reason": reason, "message": message}
        await self.kube.create(EVENTS, {"metadata": self._named(f"{pod}.1"), "lastTimestamp": _now(), **event})

    async def claim(self, name: str, *, disk: str) -> None:
        """Make a claim that is bound to a volume which nodes with this label reach."""
        volume = f"{self.prefix}{name}"
        reach = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]}]
        size: Json = {"storage": "1Gi"}
        spec = {
            "capacity": size,
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/none"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": reach}},
        }
        await self.kube.create(VOLUMES.of(Object), {"metadata": {"name": volume}, "spec": spec})
        self.volumes.append(volume)
        asked = {"volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}}
        await self.kube.create(CLAIMS.of(Object), {"metadata": self._named(name), "spec": asked})
        await self._patch(CLAIMS.of(Object), Key(self.place, name), {"status": {"phase": "Bound"}})

    async def clear(self) -> None:
        """Delete the nodes and the volumes: they are in no namespace."""
        for resource, names in ((NODES.of(Object), self.nodes), (VOLUMES.of(Object), self.volumes)):
            for name in names:
                with contextlib.suppress(ApiError):
                    await self.kube.delete(resource, Key("", name))

    def _named(self, name: str) -> Json:
        return {"name": name, "namespace": self.place}

    async def _status(
        self, resource: Resource[Object], key: Key, conditions: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        told = {"observedGeneration": 1, "conditions": _conditions(conditions), **status}
        await self._patch(resource, key, {"status": told})

    async def _patch(self, resource: Resource[Object], key: Key, body: Json) -> None:
        await self.kube.patch(resource, key, body, subresource="status")


def _conditions(conditions: Mapping[str, str | Sequence[str]]) -> list[Json]:
    found = []
    for kind, given in conditions.items():
        status, reason, message = (given, "AsItShouldBe", "") if isinstance(given, str) else given
        one = {"type": kind, "status": status, "reason": reason, "message": message}
        found.append(one | {"lastTransitionTime": _now()})
    return found


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
