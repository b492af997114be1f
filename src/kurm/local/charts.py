"""Kurm on a local cluster by its two charts, with images and charts from this checkout, as `make demo` shows it."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kurm.local.cluster import Cluster, wait_until
from kurm.local.command import run
from kurm.local.errors import LocalError
from kurm.local.images import TARGETS
from kurm.local.login import Login
from kurm.local.pki import write_secret
from kurm.local.progress import Steps
from kurm.local.shipping import ship

SYSTEM = "kurm-system"
NAMESPACE = "slurm"
CLUSTER = "demo"
NODE_SET = "workers"
COMPUTE_IMAGES = ("slurmd",)
CONTROL_IMAGES = tuple(target for target in TARGETS if target not in COMPUTE_IMAGES)
VALUES = "examples/demo/values.yaml"
HELM_DEADLINE = 120.0
LOGIN_DEADLINE = 60.0
AVAILABLE_DEADLINE = 300.0
"""Seconds until slurmctld answers: the first time a database is made for it."""


@dataclass(frozen=True)
class Charts:
    """Kurm's operator and one Slurm cluster, made from a checkout of Kurm."""

    cluster: Cluster
    repository: Path

    @property
    def login(self) -> Login:
        """The way to its login node."""
        return Login(self.cluster.layout.state / "ssh")

    @property
    def _values(self) -> Path:
        return self.cluster.layout.state / "values"

    def deploy(self, steps: Steps) -> Mapping[str, str]:
        """Build and load the images, install or upgrade both charts, wait until the cluster takes jobs. Repeatable.

        Returns the images' references by target.
        """
        if not (self.repository / VALUES).is_file():
            raise LocalError(f"{self.repository} is no checkout of Kurm: it has no {VALUES}; run this from one")
        named = ship(self.cluster, self.repository, steps, control=CONTROL_IMAGES, compute=COMPUTE_IMAGES)
        with steps.step("Kurm's operator"):
            self.install_operator(named)
        with steps.step("A Slurm cluster"):
            self.install(CLUSTER, NAMESPACE, {"cluster": {"login": {"users": [self.user()]}}})
            self.wait(f"slurmcluster/{CLUSTER}", "Available")
            self.wait(f"nodeset/{NODE_SET}", "Ready")
            self.wait(f"slurmcluster/{CLUSTER}", "Ready")
            self.login_of(CLUSTER, NAMESPACE, self.login)
        return named

    def install_operator(self, images: Mapping[str, str]) -> None:
        """Install or upgrade the chart `kurm` with these images, by target, and wait for its operator."""
        values = {"images": dict(images), "operator": {"nodeSelector": {"kurm.dev/role": "control"}}}
        self.helm("upgrade", "--install", "kurm", "charts/kurm", "-n", SYSTEM, *self._given("kurm", values))
        rollout = ("rollout", "status", "deployment", "--timeout=110s", "-l", "app.kubernetes.io/component=operator")
        self.cluster.kubectl(f"--namespace={SYSTEM}", *rollout, deadline=HELM_DEADLINE)

    def install(self, name: str, namespace: str, values: dict[str, Any], *more: str) -> None:
        """Install or upgrade a cluster with the demo's values and these on top; `more` are options of helm's."""
        files = ("-f", str(self.repository / VALUES), *self._given(f"{namespace}.{name}", values))
        self.helm("upgrade", "--install", name, "charts/slurm-cluster", "-n", namespace, *files, *more)

    def helm(self, *argv: str) -> str:
        """Run helm in the checkout as the cluster's administrator; raise LocalError with its words if it fails."""
        program = Path(self.cluster.record.binaries) / "helm"
        words = [str(self.repository / word) if word.startswith("charts/") else word for word in argv]
        if words[0] == "upgrade":
            words.append("--create-namespace")
        return run(program, f"--kubeconfig={self.cluster.layout.kubeconfig}", *words, deadline=HELM_DEADLINE)

    def wait(self, what: str, condition: str, namespace: str = NAMESPACE, within: float = AVAILABLE_DEADLINE) -> None:
        """Wait for a condition of a resource; raise LocalError that quotes its conditions if it is not in time."""
        words = ("wait", what, f"--for=condition={condition}", f"--timeout={within:.0f}s")
        try:
            self.cluster.kubectl(f"--namespace={namespace}", *words, deadline=within + 10)
        except LocalError as error:
            found = self.get(what, namespace).get("status", {}).get("conditions", [])
            said = "; ".join(f"{one['type']}={one['status']}: {one.get('message', '')}" for one in found)
            raise LocalError(f"{what} is not {condition} after {within:.0f} s: {said or error}") from error

    def get(self, what: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Return an object, or the list of what `what` selects."""
        found: dict[str, Any] = json.loads(self.cluster.kubectl(f"--namespace={namespace}", "get", what, "-o", "json"))
        return found

    def user(self) -> dict[str, Any]:
        """Return the researcher, as `login.users` names them."""
        return {"name": "researcher", "uid": 10001, "sshKeys": [self.login.public_key()]}

    def login_of(self, name: str, namespace: str, login: Login) -> Login:
        """Write down where a cluster's login nodes are and the host key they are known by; wait until one lets us in.

        Raises LocalError when nobody can log in in time. A cluster takes jobs before its login pods are there, and
        those of another image may just be taking the place of the old ones.
        """
        service = self.get(f"service/{name}-login", namespace)
        keys = self.get(f"secret/{name}-ssh-host-keys", namespace)["data"]
        public = next(content for key, content in keys.items() if key.endswith(".pub"))
        port = service["spec"]["ports"][0]["nodePort"]
        login.write(str(self.cluster.layout.nodes[0].address), port, base64.b64decode(public).decode())

        def closed() -> str:
            try:
                self.cluster.kubectl(f"--namespace={namespace}", "rollout", "status", f"deployment/{name}-login")
                login.ssh("sinfo", deadline=15.0)
            except LocalError as error:
                return str(error)
            return ""

        wait_until(closed, LOGIN_DEADLINE, f"nobody can log in after {LOGIN_DEADLINE:.0f} s: {{reason}}")
        return login

    def _given(self, name: str, values: dict[str, Any]) -> tuple[str, str]:
        path = self._values / f"{name}.json"
        write_secret(path, json.dumps(values))
        return ("-f", str(path))
