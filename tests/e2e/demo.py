"""The cluster that most end-to-end tests share: `make demo` under another name, as its users and operators meet it."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.command import Local
from kurm.local.charts import NAMESPACE, Charts
from kurm.local.errors import LocalError

REPOSITORY = Path(__file__).parents[2]
TEST = Local("test")
RENDERED = (
    "statefulsets,deployments,services,configmaps,secrets,persistentvolumeclaims,serviceaccounts,roles,rolebindings"
)


@dataclass(frozen=True)
class Demo:
    """The cluster `test` with Slurm on it by the charts, and what the demo printed when it made them."""

    charts: Charts
    printed: str

    def ssh(self, command: str, deadline: float = 120) -> str:
        """Run a command on the login node as the researcher."""
        return self.charts.login.ssh(command, deadline=deadline)

    def kubectl(self, *argv: str, stdin: str | None = None, deadline: float = 120) -> str:
        """Run kubectl in the cluster's namespace."""
        return self.charts.cluster.kubectl(f"--namespace={NAMESPACE}", *argv, stdin=stdin, deadline=deadline)

    def change(self, what: str, spec: dict[str, Any]) -> None:
        """Merge a change into a resource's spec."""
        self.kubectl("patch", what, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def condition(self, what: str, kind: str) -> dict[str, str]:
        """Return one condition of a resource; empty if it has none such."""
        found = self.charts.get(what)["status"].get("conditions", [])
        return next((one for one in found if one["type"] == kind), {})

    def nodes(self) -> set[str]:
        """Return the names of the nodes that Slurm knows."""
        return set(self.ssh("sinfo -h -N -o %N").split())

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Return the pods of a component."""
        found = self.kubectl("get", "pods", "-l", f"app.kubernetes.io/component={component}", "-o", "json")
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return items

    def restarts(self, component: str) -> int:
        """Return how often the containers of a component's pods have been started again."""
        return sum(one["restartCount"] for pod in self.pods(component) for one in pod["status"]["containerStatuses"])

    def kill(self, component: str, *argv: str) -> None:
        """Run what kills a component's container from within it; return when Kubernetes has started it again.

        How the command itself ends says nothing: the container's init takes it along if that is the faster of the two.
        Kubernetes waits longer each time before it starts a container again, 1, 10, 20, 40 s were seen.
        """
        pod = self.pods(component)[0]
        before = self.restarts(component)
        with contextlib.suppress(LocalError):
            self.kubectl("exec", pod["metadata"]["name"], "-c", pod["spec"]["containers"][0]["name"], "--", *argv)
        within(90, lambda: self.restarts(component) > before, expected=True)

    def end_jobs(self) -> None:
        """Cancel all jobs and wait until Slurm has forgotten none of them as running."""
        self.ssh("scancel --user=researcher")
        within(30, lambda: self.ssh("squeue -h --user=researcher"), "")

    def put_right(self) -> None:
        """Undo what a test that has failed may have left: it is no reason for the next to fail, too."""
        self.kubectl("uncordon", "-l", "kurm.dev/nodeset")
        self.change("nodeset/workers", {"replicas": 4, "image": None, "whenBusy": None, "busyDeadline": None})
        self.end_jobs()
        self.charts.wait("nodeset/workers", "Ready", within=120)

    def picture(self) -> dict[str, tuple[str, str]]:
        """Return UID and writes of everything that the operator and the charts make, by kind and name.

        Helm's own record of each release is left out: it grows by one at every upgrade.
        """
        kinds = f"{RENDERED},slurmclusters,nodesets,pods"
        items = json.loads(self.kubectl("get", kinds, "-o", "json", "--show-managed-fields"))["items"]
        return {
            f"{item['kind']}/{item['metadata']['name']}": (item["metadata"]["uid"], _writes(item))
            for item in items
            if not item["metadata"]["name"].startswith("sh.helm.")
        }


def _writes(item: dict[str, Any]) -> str:
    """Return who has written an object and when, its status apart; of a pod how often it was restarted, too.

    A status follows what happens: a probe that comes late, jobs that are counted anew. A slurmd pod is told of each pod
    that comes to its node (the start gate), so its generation stands for it.
    """
    meta = item["metadata"]
    containers = item["status"].get("containerStatuses", []) if item["kind"] == "Pod" else []
    restarts = [one["restartCount"] for one in containers]
    if meta.get("labels", {}).get("app.kubernetes.io/component") == "slurmd" and "generation" in meta:
        return f"generation {meta['generation']}, restarts {restarts}"
    written = (one for one in meta.get("managedFields", []) if one.get("subresource") != "status")
    return f"{sorted((one['manager'], one['operation'], one.get('time')) for one in written)}, restarts {restarts}"


def within(seconds: float, look: Callable[[], Any], expected: Any) -> float:
    """Look until it is as expected, and return the seconds that took; AssertionError with the last look if never."""
    begun = time.monotonic()
    last: Any = None
    while time.monotonic() < begun + seconds:
        try:
            last = look()
        except LocalError as error:
            last = error
        if last == expected:
            return time.monotonic() - begun
        time.sleep(0.2)
    assert last == expected, f"not within {seconds:g} s"
    return seconds


def told(demo: Demo) -> list[list[str]]:
    """Return what a failed test would need, line by line: resources, events, the daemons' last words, Slurm's view."""
    each = "{range .status.conditions[*]} {.type}={.status}:{.message}{end}"
    conditions = f"{{range .items[*]}}{{.metadata.name}}{each}{{'\\n'}}{{end}}"
    asked = (
        ("get", "slurmclusters,nodesets,nodes", "-o", "wide"),
        ("get", "pods", "-o", "wide"),
        ("get", "slurmclusters,nodesets", "-o", f"jsonpath={conditions}"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/component=controller", "--tail=30"),
        ("logs", "-l", "app.kubernetes.io/component=syncer", "-c", "syncer", "--tail=30"),
        ("logs", "-l", "app.kubernetes.io/component=scheduler", "-c", "scheduler", "--tail=30"),
        ("get", "pods", "--namespace=tenant", "-o", "wide"),
        ("get", "pods", "--namespace=tenant", "-o", f"jsonpath={conditions}"),
        ("get", "events", "--namespace=tenant", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/component=slurmd", "--prefix", "--tail=10"),
        ("logs", "--namespace=kurm-system", "-l", "app.kubernetes.io/component=operator", "--tail=30"),
    )
    found = []
    for argv in asked:
        with contextlib.suppress(LocalError):
            found.append([f"--- kubectl {' '.join(argv)}", *demo.kubectl(*argv).splitlines()])
    with contextlib.suppress(LocalError):
        found.append(["--- Slurm", *demo.ssh("sinfo -N -l; squeue -l; scontrol --oneliner show nodes").splitlines()])
    return found
