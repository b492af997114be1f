"""Bare Slurm on a local cluster: plain manifests, images from this checkout, keys made here.

It is the yardstick that Kurm's own clusters are compared with, and what the first demo runs on.
"""

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from kurm.local import images
from kurm.local.cluster import Cluster, wait_until
from kurm.local.command import run
from kurm.local.errors import LocalError
from kurm.local.pki import write_secret
from kurm.local.progress import Steps

NAMESPACE = "bare"
USER = "researcher"
MANIFESTS = "tests/e2e/bare"
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
        targets = (*CONTROL_IMAGES, *COMPUTE_IMAGES)
        # Read once: a file that is edited meanwhile must not make the manifests name an image that was not built.
        named = {target: images.reference(target, images.tag(self.repository, target)) for target in targets}
        with steps.step("Slurm's images"):
            archives = images.build(self.repository, targets, steps.note)
        with steps.step("Images into the nodes"):
            control, *workers = self.cluster.layout.nodes
            for target in targets:
                nodes = [control] if target in CONTROL_IMAGES else workers
                lacking = [node for node in nodes if named[target] not in self.cluster.images(node)]
                self.cluster.load(archives[images.reference(target)], lacking)
        with steps.step("Bare Slurm"):
            self._apply(named)
            for workload in WORKLOADS:
                rollout = ("rollout", "status", workload, f"--timeout={ROLLOUT_DEADLINE:.0f}s")
                self.cluster.kubectl(f"--namespace={NAMESPACE}", *rollout, deadline=ROLLOUT_DEADLINE + 10)
            self._write_ssh_config()
            wait_until(
                partial(self._not_idle, COMPUTE_NODES),
                REGISTER_DEADLINE,
                f"Slurm's nodes do not take jobs after {REGISTER_DEADLINE:.0f} s: {{reason}}",
            )

    @property
    def ssh_config(self) -> Path:
        """What `ssh -F` needs to reach the login node."""
        return self.cluster.layout.state / "ssh/config"

    def ssh(self, command: str, *, stdin: str = "", deadline: float = 60.0) -> str:
        """Run a shell command on the login node as the researcher; raise LocalError with its words if it fails."""
        return run("ssh", "-F", self.ssh_config, "login", command, stdin=stdin, deadline=deadline)

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
        directory = self.ssh_config.parent
        kept = directory / "secret.json"
        if not kept.exists():
            host, user = _ssh_pair(), _ssh_pair()
            write_secret(directory / "id_ed25519", user[0])
            write_secret(directory / "known_hosts", b"login " + host[1] + b"\n")
            data = {
                "slurm.key": secrets.token_bytes(1024),
                "jwt_hs256.key": secrets.token_bytes(32),
                "ssh_host_ed25519_key": host[0],
                "authorized_keys": user[1] + b"\n",
            }
            metadata = {"name": "slurm-keys", "namespace": NAMESPACE}
            encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
            write_secret(kept, json.dumps(secret))
        found: dict[str, object] = json.loads(kept.read_text())
        return found

    def _write_ssh_config(self) -> None:
        service = ("get", "service", "login", "--output=jsonpath={.spec.ports[0].nodePort}")
        port = self.cluster.kubectl(f"--namespace={NAMESPACE}", *service)
        directory = self.ssh_config.parent
        self.ssh_config.write_text(
            f"Host login\n  HostName {self.cluster.layout.nodes[0].address}\n  Port {port}\n  User {USER}\n"
            f"  IdentityFile {directory}/id_ed25519\n  IdentitiesOnly yes\n"
            f"  HostKeyAlias login\n  UserKnownHostsFile {directory}/known_hosts\n  LogLevel ERROR\n"
        )

    def _not_idle(self, wanted: int) -> str:
        """Return which of Slurm's nodes do not take jobs, or that there are too few; empty if all is well."""
        try:
            lines = self.ssh("sinfo --noheader --Node --format '%N %T'", deadline=15.0).splitlines()
        except LocalError as error:
            return str(error)
        states = dict(line.split() for line in lines)
        wrong = [f"{node} is {state}" for node, state in states.items() if state not in {"idle", "mixed", "allocated"}]
        return "; ".join(wrong) if len(states) >= wanted else f"{len(states)} of {wanted} have registered"


def _ssh_pair() -> tuple[bytes, bytes]:
    """Make an SSH key pair: private and public, in OpenSSH's formats."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public
