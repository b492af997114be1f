"""A real kube-apiserver and etcd on free ports of the loopback: no nodes, no controllers, and nothing left behind."""

import base64
import contextlib
import errno
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec

from kurm.kube.config import Config
from kurm.kube.resources import NAMESPACES
from kurm.kube.session import Session
from kurm.local import build
from kurm.local.pki import Authority, kubeconfig, signing_keys, write_secret

LOOPBACK = IPv4Address("127.0.0.1")
START_SECONDS = 60.0
PORTS = range(10_000, 32_768)
"""Below those that Linux gives out by itself: whoever tests beside us cannot be given one of ours, not even between an
API server's end and its next start."""


def binaries() -> Path:
    """Return the directory with etcd, kube-apiserver and kubectl: $KURM_BIN, else what `kurm local` builds."""
    return Path(os.environ["KURM_BIN"]) if "KURM_BIN" in os.environ else build.binaries()


def free_ports(number: int) -> list[int]:
    """Return ports of the loopback that nobody listens on now."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < number:
            port = secrets.choice(PORTS)
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
    return found


@dataclass
class ApiServer:
    """The two programs. `rbac` off means that whoever has a certificate of ours may do everything.

    `uncached` resources ("configmaps") are read and watched in etcd itself, where a compaction makes real 410s; the
    API server's own memory would hide them.
    """

    folder: Path
    rbac: bool = True
    uncached: tuple[str, ...] = ()
    admission_off: tuple[str, ...] = ()
    """Admission plugins that are left out. ServiceAccount always is."""
    audited: bool = False
    """Whether every request is written down: who, what, when; see `requests`."""
    audit_level: str = "Metadata"
    """`Request` has what was sent, too."""
    port: int = 0
    _etcd_port: int = 0
    _authority: Authority = field(default_factory=lambda: Authority("kurm-test"))
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @contextmanager
    def run(self) -> Iterator["ApiServer"]:
        """Start both, and end both."""
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self._write_keys()
        try:
            self._start_etcd()
            self.start()
            yield self
        finally:
            self.stop()
            self._end("etcd")

    def start(self) -> None:
        """Start the API server and wait until it is ready; RuntimeError with its log's end if it is not in time.

        Call it in the main thread: the kernel ends the program with the thread that started it.
        """
        keys = self.folder
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={keys}/server.crt",
            f"--tls-private-key-file={keys}/server.key",
            f"--client-ca-file={keys}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys}/accounts.pub",
            f"--service-account-signing-key-file={keys}/accounts.key",
            f"--authorization-mode={'RBAC' if self.rbac else 'AlwaysAllow'}",
            # Nobody runs the controllers that make service accounts, and pods need none here.
            f"--disable-admission-plugins={','.join(('ServiceAccount', *self.admission_off))}",
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
            *(f"--watch-cache-sizes={','.join(f'{name}#0' for name in self.uncached)}" for _ in self.uncached[:1]),
            *self._audit(),
        )
        self._wait("kube-apiserver", self._ready)

    def stop(self) -> None:
        """End the API server, at once."""
        self._end("kube-apiserver")

    def kubeconfig(self, user: str = "admin", groups: str | None = "system:masters") -> Path:
        """Write a kubeconfig for a user with a client certificate of ours."""
        path = self.folder / f"{user}.kubeconfig"
        pair = self._authority.sign(user, groups=groups)
        url = f"https://127.0.0.1:{self.port}"
        write_secret(path, kubeconfig("test", url, self._authority.pair.certificate, pair))
        return path

    def config(self, user: str = "admin", groups: str | None = "system:masters") -> Config:
        """Return the same, read."""
        return Config.from_kubeconfig(self.kubeconfig(user, groups))

    def compact(self) -> int:
        """Make etcd forget all history up to now, and return the revision."""
        answer = self._etcd("kv/range", {"key": base64.b64encode(b"\0").decode()})
        revision = int(answer["header"]["revision"])
        try:
            self._etcd("kv/compaction", {"revision": str(revision), "physical": True})
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.BAD_REQUEST:  # its answer when that revision was compacted before
                raise
        return revision

    def pid(self, name: str = "kube-apiserver") -> int:
        """Return the process id of a program that runs."""
        return self._running[name].pid

    def resident(self, name: str = "kube-apiserver") -> int:
        """Return the memory that a program holds, in bytes."""
        status = Path(f"/proc/{self._running[name].pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def cpu(self, name: str = "kube-apiserver") -> float:
        """Return the CPU seconds that a program has used."""
        fields = Path(f"/proc/{self._running[name].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def requests(self, user: str) -> list[dict[str, Any]]:
        """Return the requests of a user that were answered so far, as the audit log has them."""
        lines = (self.folder / "audit.log").read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
        return [one for one in found if one["user"].get("username") == user]

    def _audit(self) -> list[str]:
        if not self.audited:
            return []
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": self.audit_level}]}
        path = self.folder / "audit.json"
        path.write_bytes(msgspec.json.encode(policy | {"omitStages": ["RequestReceived", "ResponseStarted"]}))
        return [f"--audit-policy-file={path}", f"--audit-log-path={self.folder}/audit.log"]

    def _write_keys(self) -> None:
        (self.folder / "ca.crt").write_bytes(self._authority.pair.certificate)
        self._authority.sign("kube-apiserver", addresses=("localhost", LOOPBACK)).write(self.folder, "server")
        private, public = signing_keys()
        write_secret(self.folder / "accounts.key", private)
        (self.folder / "accounts.pub").write_bytes(public)

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._start(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._wait("etcd", lambda: bool(self._etcd("maintenance/status", {})))

    def _etcd(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{path}"
        request = urllib.request.Request(url, data=msgspec.json.encode(body), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - ours
            return msgspec.json.decode(answer.read(), type=dict[str, Any])

    def _ready(self) -> bool:
        context = self.config().tls
        url = f"https://127.0.0.1:{self.port}/readyz"
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            # The kernel ends it with us, even if we are killed. The name of the link chooses the program.
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", binaries() / name, *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _wait(self, name: str, ready: Any) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._running[name].poll() is None:
            with contextlib.suppress(OSError, urllib.error.URLError):
                if ready():
                    return
            time.sleep(0.1)
        tail = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{name} is not ready after {START_SECONDS:.0f} s; its log ends:\n{tail}")

    def _end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)


async def namespace(session: Session, name: str) -> str:
    """Make a namespace of the test's own, and return its name."""
    await session.create(NAMESPACES, {"metadata": {"name": name}})
    return name
