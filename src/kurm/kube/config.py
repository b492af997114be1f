"""Which API server, and as whom: a kubeconfig file, or the service account of the pod we run in."""

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kurm.kube.credentials import Credentials, Exec, Fixed, TokenFile, read
from kurm.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Cluster(msgspec.Struct, rename="kebab"):
    """`clusters[].cluster`."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class ExecVariable(msgspec.Struct):
    """`users[].user.exec.env[]`."""

    name: str
    value: str


class ExecSpec(msgspec.Struct, rename="camel"):
    """`users[].user.exec`."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[ExecVariable] | None = None


class User(msgspec.Struct, rename="kebab"):
    """`users[].user`."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecSpec | None = None
    auth_provider: Any = None


class Context(msgspec.Struct):
    """`contexts[].context`."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Entry(msgspec.Struct):
    """One of `clusters[]`, `users[]`, `contexts[]`: a name and, under the word for its kind, its content."""

    name: str
    cluster: Cluster | None = None
    user: User | None = None
    context: Context | None = None


class Kubeconfig(msgspec.Struct, rename="kebab"):
    """A kubeconfig file (`clientcmd/api/v1`)."""

    current_context: str = ""
    clusters: list[Entry] = []
    users: list[Entry] = []
    contexts: list[Entry] = []


@dataclass(frozen=True)
class Config:
    """How to reach an API server. `namespace` is where work goes that names none."""

    server: str
    namespace: str = "default"
    credentials: Credentials = field(default_factory=Fixed)
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @classmethod
    def load(cls, path: Path | None = None, *, context: str = "") -> "Config":
        """Read the kubeconfig at `path`, else at $KUBECONFIG, else ~/.kube/config, else the pod's service account.

        Raises ConfigError with what is missing.
        """
        if path is not None:
            return cls.from_kubeconfig(path, context=context)
        if named := os.environ.get("KUBECONFIG"):
            return cls.from_kubeconfig(*(Path(part) for part in named.split(os.pathsep) if part), context=context)
        if (home := Path.home() / ".kube" / "config").exists():
            return cls.from_kubeconfig(home, context=context)
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return cls.in_cluster()
        raise ConfigError("no kubeconfig: name one, or set KUBECONFIG, or write ~/.kube/config, or run in a pod")

    @classmethod
    def in_cluster(cls, folder: Path = SERVICE_ACCOUNT) -> "Config":
        """Use the service account that the kubelet mounts into a pod. Raises ConfigError outside of one."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigError("not in a pod: KUBERNETES_SERVICE_HOST is not set")
        return cls(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            namespace=read(folder / "namespace", "service account's namespace").decode().strip(),
            credentials=TokenFile(folder / "token"),
            tls=_trust(read(folder / "ca.crt", "service account's CA"), folder / "ca.crt"),
        )

    @classmethod
    def from_kubeconfig(cls, *paths: Path, context: str = "") -> "Config":
        """Read one kubeconfig, or merge several as kubectl does: the first to name a thing wins."""
        files = [(path.parent, _parse(path)) for path in paths]
        name = context or next((file.current_context for _, file in files if file.current_context), "")
        if not name:
            raise ConfigError(f"kubeconfig {paths[0]}: current-context is empty; set it or choose a context")
        _, chosen = _find("context", name, [(at, entry) for at, file in files for entry in file.contexts])
        view: Context = chosen.context or Context()
        at, found = _find("cluster", view.cluster, [(at, entry) for at, file in files for entry in file.clusters])
        cluster: Cluster = found.cluster or Cluster()
        home, user = at, User()
        if view.user:
            home, found = _find("user", view.user, [(at, entry) for at, file in files for entry in file.users])
            user = found.user or user
        if not cluster.server.startswith(("https://", "http://")):
            raise ConfigError(
                f"kubeconfig: cluster {view.cluster!r}: server is {cluster.server!r}, must be http(s)://..."
            )
        if cluster.proxy_url:
            raise ConfigError(f"kubeconfig: cluster {view.cluster!r} sets proxy-url, which is not supported")
        return cls(
            server=cluster.server.rstrip("/"),
            namespace=view.namespace or "default",
            credentials=_credentials(user, home, view.user),
            tls=_tls(cluster, at, user, home) if cluster.server.startswith("https://") else None,
            server_name=cluster.tls_server_name or None,
        )


def _parse(path: Path) -> Kubeconfig:
    try:
        content = yaml.safe_load(read(path, "kubeconfig")) or {}
        return msgspec.convert({name: value for name, value in content.items() if value is not None}, Kubeconfig)
    except (yaml.YAMLError, msgspec.ValidationError, AttributeError) as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error


def _find(what: str, name: str, entries: list[tuple[Path, Entry]]) -> tuple[Path, Entry]:
    for at, entry in entries:
        if entry.name == name:
            return at, entry
    known = ", ".join(sorted({entry.name for _, entry in entries})) or "none"
    raise ConfigError(f"kubeconfig: {what} {name!r} is not there; it has: {known}")


def _credentials(user: User, home: Path, name: str) -> Credentials:
    if user.auth_provider is not None:
        raise ConfigError(f"kubeconfig: user {name!r} sets auth-provider, which Kubernetes removed; use exec instead")
    if user.exec is not None:
        command = user.exec.command
        if "/" in command:  # as kubectl: a path is relative to the kubeconfig, a bare word is looked up in PATH
            command = str(home / command)
        env = {variable.name: variable.value for variable in user.exec.env or ()}
        return Exec((command, *(user.exec.args or ())), env, user.exec.api_version)
    if user.token_file:
        return TokenFile(home / user.token_file)
    if user.token:
        return Fixed(f"Bearer {user.token}")
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return Fixed(f"Basic {pair}")
    return Fixed()


def _tls(cluster: Cluster, at: Path, user: User, home: Path) -> ssl.SSLContext:
    authority = _content(cluster.certificate_authority_data, cluster.certificate_authority, at, "certificate-authority")
    context = _trust(authority, "certificate-authority")
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _content(user.client_certificate_data, user.client_certificate, home, "client-certificate")
    key = _content(user.client_key_data, user.client_key, home, "client-key")
    if bool(certificate) != bool(key):
        raise ConfigError("kubeconfig: client-certificate and client-key must both be given, or neither")
    if certificate and key:
        _present(context, certificate, key)
    return context


def _trust(authority: bytes | None, source: object) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: not a PEM certificate: {error}") from error
    # Python's default since 3.13. Certificates of many clusters lack an Authority Key Identifier, which it wants and
    # kubectl does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module takes paths only. The folder is ours alone (0700) and gone before anyone is connected to.
    with tempfile.TemporaryDirectory(prefix="kurm-tls-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as error:
            raise ConfigError(f"kubeconfig: client-certificate and client-key do not fit: {error}") from error


def _content(data: str, file: str, folder: Path, what: str) -> bytes | None:
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ConfigError(f"kubeconfig: {what}-data is not base64: {error}") from error
    return read(folder / file, f"kubeconfig's {what}") if file else None
