"""Kubernetes objects as the API server would give them, in short."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kurm.cli.trouble import Pod
from kurm.cli.view import NodeSet, SlurmCluster, View
from kurm.domain.signals import NODE_SET, RELEASE, SLURM_DRAINED, SLURM_READY
from kurm.kube.resources import Node

Json = dict[str, Any]

SINCE = "2021-11-21T16:15:42Z"
WELL = {"Available": "True", "Configured": "True", "Ready": "True"}


def conditions(given: Mapping[str, str | Sequence[str]]) -> list[Json]:
    """Return conditions: each is its status, or its status, reason and message."""
    found = []
    for kind, told in given.items():
        status, reason, message = (told, "AsItShouldBe", "") if isinstance(told, str) else told
        one = {"type": kind, "status": status, "reason": reason, "message": message}
        found.append(one | {"lastTransitionTime": SINCE})
    return found


def cluster(
    given: Mapping[str, Any] = WELL, *, generation: int = 1, spec: Json | None = None, **status: Any
) -> SlurmCluster:
    """Return the SlurmCluster slurm/demo."""
    told = {"observedGeneration": 1, "conditions": conditions(given), **status}
    return msgspec.convert({"metadata": _meta("demo", generation), "spec": spec or {}, "status": told}, SlurmCluster)


def node_set(
    name: str = "workers", given: Mapping[str, Any] | None = None, *, spec: Json | None = None, **status: Any
) -> NodeSet:
    """Return a NodeSet of the cluster demo."""
    wanted = {"clusterRef": {"name": "demo"}} | (spec or {})
    found = conditions({"Ready": "True"} if given is None else given)
    told = {"observedGeneration": 1, "conditions": found, **status}
    return msgspec.convert({"metadata": _meta(name), "spec": wanted, "status": told}, NodeSet)


def node(name: str, claimed: str = "slurm.workers", *, ready: str = "True", words: str = "", **spec: Any) -> Node:
    """Return a Kubernetes node."""
    labels = {NODE_SET: claimed} if claimed else {}
    status = {
        "allocatable": {"cpu": "4", "memory": "4Gi"},
        "conditions": conditions({"Ready": (ready, "KubeletReady", words)}),
    }
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}, Node)


def pod(name: str, component: str, *, status: Json | None = None, on: str = "", **meta: Any) -> Pod:
    """Return a pod of a component, ready unless its status says other things."""
    labels = {f"app.kubernetes.io/{key}": value for key, value in (("instance", "demo"), ("component", component))}
    told = {"phase": "Running", "conditions": conditions({"Ready": "True"})} if status is None else status
    whole = _meta(name) | {"labels": labels} | meta
    return msgspec.convert({"metadata": whole, "spec": {"nodeName": on}, "status": told}, Pod)


def slurmd(on: str, said: str = "InService", message: str = "", *, drained: bool = False, release: str = "") -> Pod:
    """Return the slurmd pod on a node, with what the syncer says of it."""
    told = {
        "Ready": "True",
        SLURM_READY: (str(said == "InService"), said, message),
        SLURM_DRAINED: (str(drained), "Drained", release or message),
    }
    status = {"phase": "Running", "conditions": conditions(told)}
    annotations = {RELEASE: release} if release else {}
    return pod(f"workers-{on}", "slurmd", status=status, on=on, annotations=annotations)


def waiting(reason: str, message: str = "", **container: Any) -> Json:
    """Return the status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "sshd", "image": "login:1", "state": state, **container}],
    }


def view(*things: SlurmCluster | NodeSet | Node | Pod) -> View:
    """Return the view of all these."""
    return View(
        clusters=[one for one in things if isinstance(one, SlurmCluster)],
        node_sets=[one for one in things if isinstance(one, NodeSet)],
        pods=[one for one in things if isinstance(one, Pod)],
        nodes=[one for one in things if isinstance(one, Node)],
    )


def _meta(name: str, generation: int = 1) -> Json:
    return {"name": name, "namespace": "slurm", "uid": f"uid-{name}", "generation": generation}
