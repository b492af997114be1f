"""`kurm ssh`: the user's own ssh, through the API server to a login pod.

ssh is started with this command as its ProxyCommand, which forwards the pod's port 2222 to its standard input and
output. No port of the cluster need be open, and Kubernetes' own rights (`pods/portforward`) come before Slurm's door.
The host key is the cluster's: it is read from its Secret and is the only one that ssh takes. Nothing is ever trusted
unseen; whoever may not read the Secret is asked by ssh itself, as with any host that is new to them.
"""

import asyncio
import base64
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import field
from rich.console import Console
from typer.core import TyperCommand

from kurm.cli import access, channels
from kurm.cli.access import Context, Kubeconfig, Namespace, checked
from kurm.cli.errors import CommandError
from kurm.cli.text import plain
from kurm.cli.trouble import SLURM_PODS, trouble
from kurm.cli.view import SlurmCluster, choose, warnings
from kurm.kube.errors import Forbidden, KubeError, NotFound
from kurm.kube.resources import Key, Object, Resource
from kurm.kube.session import Session
from kurm.operator.render import names
from kurm.operator.render.login import PORT
from kurm.operator.render.names import Part
from kurm.operator.render.pods import selector

app = typer.Typer()

_COMMAND = "kurm.ssh.command"
FAILED = 255
"""Exit status when ssh was not reached; ssh has the same for its own failures, any other is the command's."""
ALIVE_SECONDS = 30
"""Between signs of life on a quiet connection: what stands between us and the API server drops silent ones."""
_DESTINATION = re.compile(r"(?:(?P<user>[a-z_][a-z0-9_-]{0,31})@)?(?P<cluster>[a-z0-9]([a-z0-9.-]*[a-z0-9])?)?")
_PUBLIC_KEY = re.compile(r"(ssh|ecdsa|sk)-[A-Za-z0-9@.-]+ [A-Za-z0-9+/]+=*")


class Secret(Object):
    """A Secret."""

    data: dict[str, str] = field(default_factory=dict)


SECRETS = Resource(Secret, version="v1", kind="Secret", plural="secrets")


class _WithCommand(TyperCommand):
    """Keeps what stands behind `--` apart: it is the command's, also where no destination is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, behind = args, []
        if "--" in args:
            own, behind = args[: args.index("--")], args[args.index("--") + 1 :]
        ctx.meta[_COMMAND] = behind
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def _checked(destination: str) -> str:
    if not _DESTINATION.fullmatch(destination):
        raise typer.BadParameter(
            f"{destination!r} is not [USER@][CLUSTER]: a user is a-z, 0-9, _ and -, a cluster a-z, 0-9 and -"
        )
    return destination


@app.command(cls=_WithCommand)
def ssh(
    arguments: typer.Context,
    destination: Annotated[
        str,
        typer.Argument(
            help="Who logs in (default: as ssh has it) and where (default: the only SlurmCluster there is).",
            metavar="[USER@][CLUSTER]",
            callback=_checked,
            show_default=False,
        ),
    ] = "",
    *,
    namespace: Namespace = "",
    identity: Annotated[
        Path | None, typer.Option("--identity", "-i", help="File with the private key, as of ssh.", dir_okay=False)
    ] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="A terminal for the command, too.")] = False,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Be the ProxyCommand of another ssh, scp or rsync: forward the port.")
    ] = False,
    pod: Annotated[str, typer.Option(hidden=True, callback=checked)] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Log in to a Slurm cluster through the Kubernetes API, or run a command there.

    What stands behind -- reaches the login node word by word; for a line of shell: -- sh -c 'squeue | head'.

    The exit status is the command's; 255 if it could not be reached.
    """
    parts = _DESTINATION.fullmatch(destination)
    user, cluster = (parts["user"], parts["cluster"] or "") if parts else (None, "")
    try:
        if proxy:
            access.run(lambda session, place: _forward(session, place, cluster, pod), kubeconfig, context, namespace)
            return
        found, key = access.run(
            lambda session, place: _find(session, place, cluster), kubeconfig, context, namespace, "Finding a login pod"
        )
    except (CommandError, KubeError) as error:
        say(f"error: {error}")
        raise typer.Exit(FAILED) from error
    via = [sys.executable, "-P", "-m", "kurm.cli", "ssh", "--proxy", "-n", found.namespace, "--pod", found.name]
    via += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    via += ["--context", context] if context else []
    wish = (["-l", user] if user else []) + (["-i", str(identity)] if identity else []) + (["-tt"] if tty else [])
    with tempfile.TemporaryDirectory(prefix="kurm-ssh-") as folder:
        command = arguments.meta[_COMMAND]
        words = ssh_command(found, key, via, Path(folder) / "known_hosts", wish=wish, command=command)
        status = _run(words)
    raise typer.Exit(status)


@dataclass(frozen=True)
class LoginPod:
    """A login pod, and the cluster it belongs to."""

    namespace: str
    cluster: str
    name: str

    @property
    def host(self) -> str:
        """The name under which ssh knows the cluster's login nodes; they all have one key."""
        return f"{self.cluster}.{self.namespace}.kurm"


def ssh_command(
    pod: LoginPod, key: str, via: Sequence[str], known_hosts: Path, *, wish: Sequence[str], command: Sequence[str]
) -> list[str]:
    """Return the words that start ssh. With a host key (`ssh-ed25519 AAAA...`) it is the only one that is taken."""
    options = {
        # ssh hands it to a shell, and has %-signs of its own in it.
        "ProxyCommand": shlex.join(via).replace("%", "%%"),
        "HostKeyAlias": pod.host,
        "ServerAliveInterval": str(ALIVE_SECONDS),
    }
    if key:
        known_hosts.write_text(f"{pod.host} {key}\n")
        options |= {
            "UserKnownHostsFile": f'"{str(known_hosts).replace("%", "%%")}"',
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
        }
    else:
        say(f"The host key of {pod.host} cannot be read from its Secret: ssh will ask you about it.")
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    # The login shell reads one line, so each word is quoted for it.
    return ["ssh", *flags, *wish, "--", pod.host, *([shlex.join(command)] if command else [])]


def _run(words: Sequence[str]) -> int:
    """Run ssh to its end and return its exit status. Ctrl-C is for it: we stay to clean up behind it."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        status = subprocess.run(words, check=False).returncode
    except FileNotFoundError:
        say("error: there is no program ssh on this machine: install OpenSSH's client")
        return FAILED
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else FAILED


async def _find(session: Session, namespace: str, cluster: str) -> tuple[LoginPod, str]:
    found = await choose(session, namespace, cluster)
    return await _login_pod(session, found), await _host_key(session, found)


async def _login_pod(session: Session, cluster: SlurmCluster) -> LoginPod:
    """Return a login pod that is ready; of several the same one each time for the same person."""
    place, name = cluster.metadata.namespace, cluster.metadata.name
    labels = ",".join(f"{label}={value}" for label, value in selector(name, Part.LOGIN).items())
    pods = await session.list(SLURM_PODS, namespace=place, labels=labels)
    ready = sorted(pod.metadata.name for pod in pods if trouble(pod) is None)
    if ready:
        return LoginPod(place, name, ready[zlib.crc32(os.environ.get("USER", "").encode()) % len(ready)])
    if not cluster.spec.login.replicas:
        raise CommandError(f"SlurmCluster {cluster.key} has no login pods: spec.login.replicas is 0")
    words = await warnings(session, pods)
    told = [f"{pod.metadata.name}: {found.why}" for pod in pods if (found := trouble(pod, words))]
    raise CommandError(f"no login pod of SlurmCluster {cluster.key} is ready: {told[0] if told else 'there is none'}")


async def _host_key(session: Session, cluster: SlurmCluster) -> str:
    """Return the public key of the cluster's login nodes; empty if it may not be read."""
    place, name = cluster.metadata.namespace, names.host_keys(cluster.metadata.name)
    try:
        secret = await session.get(SECRETS, Key(place, name))
    except Forbidden:
        return ""
    except NotFound as error:
        raise CommandError(f"Secret {place}/{name} with the host key is not there: the operator makes it") from error
    line = base64.b64decode(secret.data.get(f"{names.HOST_KEY}.pub", "")).decode(errors="replace")
    key = " ".join(line.split()[:2])
    if not _PUBLIC_KEY.fullmatch(key):
        raise CommandError(f"Secret {place}/{name} has no public key under {names.HOST_KEY}.pub")
    return key


async def _forward(session: Session, namespace: str, cluster: str, pod: str) -> None:
    """Connect standard input and output to sshd in the pod, or in a login pod of the cluster."""
    if not pod:
        found = await _login_pod(session, await choose(session, namespace, cluster))
        namespace, pod = found.namespace, found.name
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout.buffer
    )
    sink = asyncio.StreamWriter(transport, protocol, None, loop)
    await channels.forward(session, Key(namespace, pod), PORT, source, sink)


def say(words: str) -> None:
    """Print a sentence on standard error: standard output is the command's."""
    Console(stderr=True).print(plain(words), highlight=False, markup=False, soft_wrap=True)
