"""Bare Slurm on a local cluster: plain manifests, images from this checkout, keys made here.

It is the yardstick that Kurm's own clusters are compared with.
"""

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kurm.local import images
from kurm.local.cluster import Cluster, wait_until
from kurm.local.errors import LocalError
from kurm.local.login import Login, key_pair
from kurm.local.pki import write_secret
from kurm.local.progress import Steps
from kurm.local.shipping import ship

NAMESPACE = "bare"
MANIFESTS = "tests/e2e/bare"
SHARED = "/shared"
"""The folder that its nodes share."""
CONTROL_IMAGES = ("controller", "slurmrestd", "login")
COMPUTE_IMAGES = ("slurmd",)
COMPUTE_NODES = 3
WORKLOADS = ("statefulset/slurmctld", "deployment/slurmrestd", "deployment/login", "statefulset/slurmd")
ROLLOUT_DEADLINE = 120.0
REGISTER_DEADLINE = 60.0


@dataclass(frozen=True)
class BareSlurm:
    """A bare Slurm cluster, made from a checkout of Kurm."""

    cluster: Cluster
    repository: Path

    def deploy(self, steps: Steps) -> None:
        """Build and load the images, apply the manifests and wait until the nodes take jobs. Can be repeated."""
        if not (self.repository / MANIFESTS).is_dir():
            raise LocalError(f"{self.repository} is no checkout of Kurm: it has no {MANIFESTS}; run this from one")
        named = ship(self.cluster, self.repository, steps, control=CONTROL_IMAGES, compute=COMPUTE_IMAGES)
        with steps.step("Bare Slurm"):
            self._apply(named)
            for workload in WORKLOADS:
                rollout = ("rollout", "status", workload, f"--timeout={ROLLOUT_DEADLINE:.0f}s")
                self.cluster.kubectl(f"--namespace={NAMESPACE}", *rollout, deadline=ROLLOUT_DEADLINE + 10)
            self._find_login()
            wait_until(
                partial(self._not_idle, COMPUTE_NODES),
                REGISTER_DEADLINE,
                f"Slurm's nodes do not take jobs after {REGISTER_DEADLINE:.0f} s: {{reason}}",
            )

    @property
    def login(self) -> Login:
        """The way to its login node."""
        return Login(self.cluster.layout.state / "bare")

    def ssh(self, command: str, *, stdin: str = "", deadline: float = 60.0) -> str:
        """Run a shell command on the login node as the researcher; raise LocalError with its words if it fails."""
        return self.login.ssh(command, stdin=stdin, deadline=deadline)

    def _apply(self, named: Mapping[str, str]) -> None:
        """Apply the namespace, the keys and the manifests, with the images' content tags: a new image is a new pod."""
        text = "\n---\n".join(path.read_text() for path in sorted((self.repository / MANIFESTS).glob("*.yaml")))
        for target, reference in named.items():
            text = text.replace(images.reference(target), reference)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        for manifest in (json.dumps(namespace), json.dumps(self._keys()), text):
            self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=manifest)

    def _keys(self) -> dict[str, object]:
        """Return the Secret with Slurm's keys, the login node's and the researcher's; made once in a cluster's life."""
        kept = self.login.folder / "secret.json"
        if not kept.exists():
            host, public = key_pair()
            write_secret(self.login.folder / "host.pub", public)
            data = {
                "slurm.key": secrets.token_bytes(1024),
                "jwt_hs256.key": secrets.token_bytes(32),
                "ssh_host_ed25519_key": host,
                "authorized_keys": f"{self.login.public_key()}\n".encode(),
            }
            metadata = {"name": "slurm-keys", "namespace": NAMESPACE}
            encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
            write_secret(kept, json.dumps(secret))
        found: dict[str, object] = json.loads(kept.read_text())
        return found

    def _find_login(self) -> None:
        service = ("get", "service", "login", "--output=jsonpath={.spec.ports[0].nodePort}")
        port = self.cluster.kubectl(f"--namespace={NAMESPACE}", *service)
        host_key = (self.login.folder / "host.pub").read_text()
        self.login.write(str(self.cluster.layout.nodes[0].address), port, host_key)

    def _not_idle(self, wanted: int) -> str:
        """Return which of Slurm's nodes do not take jobs, or that there are too few; empty if all is well."""
        try:
            lines = self.ssh("sinfo --noheader --Node --format '%N %T'", deadline=15.0).splitlines()
        except LocalError as error:
            return str(error)
        states = dict(line.split() for line in lines)
        wrong = [f"{node} is {state}" for node, state in states.items() if state not in {"idle", "mixed", "allocated"}]
        return "; ".join(wrong) if len(states) >= wanted else f"{len(states)} of {wanted} have registered"
