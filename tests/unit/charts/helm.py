"""Both charts, as Helm renders them."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kurm.domain.slurmcluster import SlurmClusterSpec
from kurm.local import build
from kurm.operator.render.pods import Cluster
from unit.operator.render.demo import IMAGES

Json = dict[str, Any]

ROOT = Path(__file__).parents[3]
CHARTS = ROOT / "charts"
KURM, SLURM_CLUSTER = CHARTS / "kurm", CHARTS / "slurm-cluster"
BUILD_SECONDS = 1800
"""For the first test that wants Helm: it is built once, from nothing in some minutes."""


def helm(*arguments: str | Path, values: Json | None = None) -> "subprocess.CompletedProcess[str]":
    """Run Helm, with values as a file of its own; whether it failed is for the caller to see."""
    given = ["--values=-"] if values is not None else []
    program = build.made(build.HELM) / "helm"
    return subprocess.run(
        [program, *arguments, *given],
        input=yaml.safe_dump(values or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def rendered(chart: Path, values: Json | None = None, *, release: str = "demo", namespace: str = "slurm") -> list[Json]:
    """Return the objects of a chart."""
    said = helm("template", release, chart, f"--namespace={namespace}", values=values or {})
    assert said.returncode == 0, said.stderr
    return [found for found in yaml.safe_load_all(said.stdout) if found]


def refusal(chart: Path, values: Json, *, release: str = "demo") -> str:
    """Return what Helm says to values that are wrong, without what it says to all of them."""
    said = helm("template", release, chart, values=values)
    assert said.returncode != 0, said.stdout
    return said.stderr.partition(f"\n{chart.name}:\n")[2].strip() or said.stderr


def cluster(manifest: Json) -> Cluster:
    """Return the SlurmCluster of a chart as the operator would render it. Raises what msgspec says of a wrong spec."""
    metadata = manifest["metadata"]
    spec = msgspec.convert(manifest["spec"], SlurmClusterSpec)
    return Cluster(metadata["namespace"], metadata["name"], "11111111-2222-3333-4444-555555555555", spec, IMAGES)


def of_kind(manifests: list[Json], kind: str) -> dict[str, Json]:
    """Return those of a kind by their names."""
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


def one(manifests: list[Json], kind: str, name: str) -> Json:
    """Return the one object of that kind and name."""
    return of_kind(manifests, kind)[name]


def pods(manifests: list[Json]) -> list[Json]:
    """Return the pods and pod templates."""
    specs = [each if each["kind"] == "Pod" else each.get("spec", {}).get("template") for each in manifests]
    return [spec for spec in specs if isinstance(spec, dict) and "containers" in spec.get("spec", {})]


def unrestricted(pod: Json) -> dict[str, list[str]]:
    """Return, by container, what it may do beyond Kubernetes' restricted profile; nothing for one that may not."""
    whole = pod["spec"].get("securityContext", {})
    found = {}
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
        own = container.get("securityContext", {})
        may = whole | own
        powers = {
            "privileged": own.get("privileged", False),
            "root": not may.get("runAsNonRoot", False) or may.get("runAsUser", 0) == 0,
            "escalation": own.get("allowPrivilegeEscalation", True),
            "capabilities": own.get("capabilities", {}) != {"drop": ["ALL"]},
            "syscalls": may.get("seccompProfile") != {"type": "RuntimeDefault"},
            "host": any(pod["spec"].get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
            "files": any("hostPath" in volume for volume in pod["spec"].get("volumes", [])),
        }
        if has := [name for name, there in powers.items() if there]:
            found[container["name"]] = has
    return found
