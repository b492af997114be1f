"""A service owner's namespace on the shared demo: pods that go through Slurm's queue, and what both sides say."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.demo import Demo, within

Json = dict[str, Any]

NAMESPACE = "tenant"
PARTITION = "slurm.kurm.dev/partition"
JOB = "kurm.dev/job"
SLOT = "kurm.dev/slot"
PAUSE = "trap 'echo told to end; sleep 2; echo has ended; exit 0' TERM; sleep 3600 & wait"
"""What a pod does unless it is told: it needs two seconds to end, and says so."""


@dataclass(frozen=True)
class Tenant:
    """The namespace, by kubectl, and Slurm as its administrator sees it."""

    demo: Demo

    def kubectl(self, *argv: str, stdin: str | None = None, deadline: float = 60) -> str:
        """Run kubectl in the namespace."""
        return self.demo.charts.cluster.kubectl(f"--namespace={NAMESPACE}", *argv, stdin=stdin, deadline=deadline)

    def apply(self, *objects: Json) -> None:
        """Apply objects."""
        self.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def pod(self, name: str) -> Json:
        """Return a pod, empty if it is gone."""
        return next((pod for pod in self.pods() if pod["metadata"]["name"] == name), {})

    def pods(self, labels: str = "") -> list[Json]:
        """Return pods by their labels, in the order of their names."""
        items: list[Json] = json.loads(self.kubectl("get", "pods", "-l", labels, "-o", "json"))["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def running(self, labels: str = "") -> int:
        """Return how many pods run."""
        return sum(pod["status"]["phase"] == "Running" for pod in self.pods(labels))

    def node(self, name: str) -> str:
        """Return where a pod is bound."""
        return str(self.pod(name).get("spec", {}).get("nodeName", ""))

    def condition(self, name: str, kind: str = "PodScheduled") -> Json:
        """Return one condition of a pod; empty if it has none such."""
        found = self.pod(name).get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == kind), {})

    def waits(self, name: str) -> str:
        """Return why a pod waits: the reason of its condition."""
        found = self.condition(name)
        return str(found.get("reason", "")) if found.get("status") == "False" else ""

    def delete(self, *names: str, force: bool = False) -> None:
        """Delete pods; without `force` it is waited for."""
        self.kubectl("delete", "pod", *names, *(("--grace-period=0", "--force", "--wait=false") if force else ()))

    def slurm(self, *argv: str) -> str:
        """Run a command as Slurm's administrator, in slurmctld's pod."""
        return self.demo.kubectl("exec", "demo-controller-0", "-c", "slurmctld", "--", *argv)

    def jobs(self) -> dict[str, tuple[str, str, str]]:
        """Return name, state and nodes of each job of pods in the namespace, by its number."""
        lines = self.slurm("squeue", "--noheader", "--format=%i|%j|%T|%N").splitlines()
        rows = [line.split("|") for line in lines]
        return {job: (name, state, nodes) for job, name, state, nodes in rows if name.startswith(f"{NAMESPACE}/")}

    def state(self, job: str) -> str:
        """Return the state of a job, empty if Slurm knows it no more."""
        return self.slurm("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T").strip()


@contextmanager
def tenant(demo: Demo) -> Iterator[Tenant]:
    """Make the namespace, and leave nothing in it nor in Slurm's queue."""
    made = Tenant(demo)
    names = json.loads(demo.kubectl("get", "namespaces", "-o", "json"))["items"]
    if NAMESPACE not in {one["metadata"]["name"] for one in names}:
        demo.kubectl("create", "namespace", NAMESPACE)
    yield made
    demo.kubectl("uncordon", "n0")
    made.kubectl("delete", "deployments,jobs,pods", "--all", "--grace-period=5")
    demo.end_jobs()
    within(30, made.jobs, {})


def pod(demo: Demo, name: str, command: str = PAUSE, **more: Any) -> Json:
    """Return a pod of one CPU for the services' partition; `annotations` and `labels` apart, `more` is of its spec."""
    annotations = {PARTITION: "services"} | more.pop("annotations", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": more.pop("labels", {}), "annotations": annotations},
        "spec": spec(demo, command, **more),
    }


def spec(demo: Demo, command: str = PAUSE, *, cpu: str = "900m", memory: str = "64Mi", **more: Any) -> Json:
    """Return the spec of a pod that the scheduler is to place; its image is one that the nodes have.

    For Slurm it is one CPU of the two that a node has. Kubernetes has to find room for slurmd's request as well.
    """
    image = demo.pods("slurmd")[0]["spec"]["containers"][0]["image"]
    container = {
        "name": "main",
        "image": image,
        "command": ["bash", "-c", command],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {"schedulerName": "kurm", "terminationGracePeriodSeconds": 10, "containers": [container], **more}


def on(nodes: list[str], operator: str = "In") -> Json:
    """Return a required node affinity for these nodes."""
    expression = {"key": "kubernetes.io/hostname", "operator": operator, "values": nodes}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def annotation(found: Json, key: str) -> str:
    """Return an annotation of an object, empty if it has none such."""
    given: Mapping[str, str] = found.get("metadata", {}).get("annotations", {})
    return given.get(key, "")


@contextmanager
def followed(owner: Tenant, name: str) -> Iterator[list[str]]:
    """Follow a pod's output, which is gone with the pod; when the block has ended the list has all of its lines."""
    program = Path(owner.demo.charts.cluster.record.binaries) / "kubectl"
    kubeconfig = f"--kubeconfig={owner.demo.charts.cluster.layout.kubeconfig}"
    words = (str(program), kubeconfig, f"--namespace={NAMESPACE}", "logs", "--follow", name)
    said: list[str] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as kubectl:
        time.sleep(1)  # until it follows: the pod must not end before
        yield said
        said += kubectl.communicate(timeout=30)[0].splitlines()
