"""Kurm's daemons, as their containers start them: structured logs on standard output, SIGTERM ends them."""

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
import typer
import uvloop

from kurm.domain.causes import CONDITION_TYPE
from kurm.domain.spec import DURATION, seconds
from kurm.kube.config import Config
from kurm.kube.errors import KubeError
from kurm.kube.lease import LeadershipLost
from kurm.kube.resources import Key
from kurm.kube.session import Session as KubeSession
from kurm.operator import operator as operators
from kurm.operator.render.pods import Images
from kurm.scheduler import scheduler as schedulers
from kurm.scheduler.objects import SLURM_CLUSTERS
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens
from kurm.slurm.transport import place
from kurm.syncer.syncer import Settings, Syncer
from kurm.web import health

app = typer.Typer(no_args_is_help=True)

log = structlog.get_logger("kurm")

SLURM_USER = "slurm"
"""The SlurmUser: who may change nodes, and whom slurmctld knows by name."""
M_MMAP_THRESHOLD = -3
"""malloc.h"""
MAPPED = 512 * 1024
"""Bytes from which on a block of memory is one of its own. Not the 256 KiB that uvloop takes for each read of TLS,
which the kernel would have to map and unmap each time."""
LOST = 3
"""Exit status when another one leads: to be restarted, and no mistake."""


@app.command()
def operator(
    *,
    images: Annotated[
        Path,
        typer.Option(
            help="YAML or JSON file with the default images: controller, slurmd, login, slurmrestd, dbd, mariadb, "
            "kurm, and pullPolicy.",
            envvar="KURM_IMAGES",
            exists=True,
            dir_okay=False,
        ),
    ],
    namespace: Annotated[
        str, typer.Option(help="Where its Lease is: its own namespace.", envvar="KURM_NAMESPACE")
    ] = "kurm-system",
    port: Annotated[int, typer.Option(help="Of /metrics, /healthz and /readyz.", min=0, max=65535)] = 8080,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: $KUBECONFIG, or the pod's service account.", dir_okay=False)
    ] = None,
    identity: Annotated[str, typer.Option(help="Name in the Lease. Default: the host's name.")] = "",
) -> None:
    """Make SlurmClusters and NodeSets what they ask for, in all namespaces."""
    settings = operators.Settings(read_images(images), namespace, identity or os.uname().nodename)

    async def work() -> None:
        async with KubeSession(Config.load(kubeconfig)) as kube:
            daemon = operators.Operator(kube, settings)
            async with health.serve(port, daemon):
                await daemon.run()

    run(work, component="operator")


def read_images(path: Path) -> Images:
    """Return the default images. typer.BadParameter for a file that does not name all of them, and nothing else."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=Images)
    except (msgspec.MsgspecError, OSError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--images") from error


@app.command()
def syncer(
    *,
    cluster: Annotated[str, typer.Option(help="Name of the SlurmCluster.")],
    namespace: Annotated[str, typer.Option(help="Its namespace.")],
    slurmrestd: Annotated[str, typer.Option(help="unix:/path/to/socket or http://host:port.")],
    jwt_key: Annotated[
        Path, typer.Option(help="File with the key that signs tokens for slurmctld.", exists=True, dir_okay=False)
    ],
    controller: Annotated[
        str, typer.Option(help="Where slurmctld's init answers: http://host:port. Default: the cluster's.")
    ] = "",
    port: Annotated[int, typer.Option(help="Of /metrics, /healthz and /readyz.", min=0, max=65535)] = 8080,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: $KUBECONFIG, or the pod's service account.", dir_okay=False)
    ] = None,
    identity: Annotated[str, typer.Option(help="Name in the Lease. Default: the host's name.")] = "",
    drain_condition: Annotated[
        list[str] | None,
        typer.Option(help="Type of a Kubernetes node's condition that drains it while it is True; may be repeated."),
    ] = None,
    dead_after: Annotated[
        str,
        typer.Option(help="How long a Kubernetes node is Ready=Unknown before its jobs are requeued, as 90s or 5m."),
    ] = "5m",
) -> None:
    """Keep a SlurmCluster's node records, slurmd pods and Kubernetes nodes in agreement."""
    name = identity or os.uname().nodename
    if not re.fullmatch(DURATION, dead_after):
        sentence = f"{dead_after!r} must be a duration above zero, as 90s, 10m, 1h30m or 7d"
        raise typer.BadParameter(sentence, param_hint="--dead-after")
    settings = Settings(
        cluster,
        namespace,
        name,
        controller=controller,
        drain_conditions=frozenset(drain_condition or ()),
        dead_after=seconds(dead_after) or 0,
    )
    tokens = Tokens(jwt_key.read_bytes, SLURM_USER)
    if wrong := [one for one in drain_condition or () if not re.fullmatch(CONDITION_TYPE, one)]:
        sentence = f"{wrong[0]!r} is no type of a node's condition: must be letters, digits, _, ., / and -"
        raise typer.BadParameter(sentence, param_hint="--drain-condition")

    check_address("--slurmrestd", slurmrestd)
    check_address("--controller", settings.controller_address)

    async def work() -> None:
        async with KubeSession(Config.load(kubeconfig)) as kube, SlurmSession(slurmrestd, tokens) as slurm:
            daemon = Syncer(kube, slurm, settings)
            async with health.serve(port, daemon):
                await daemon.run()

    run(work, component="syncer", cluster=cluster, namespace=namespace)


@app.command()
def scheduler(
    *,
    cluster: Annotated[str, typer.Option(help="Name of the SlurmCluster.")],
    namespace: Annotated[str, typer.Option(help="Its namespace.")],
    slurmrestd: Annotated[str, typer.Option(help="unix:/path/to/socket or http://host:port.")],
    jwt_key: Annotated[
        Path, typer.Option(help="File with the key that signs tokens for slurmctld.", exists=True, dir_okay=False)
    ],
    controller: Annotated[
        str, typer.Option(help="Where slurmctld's init answers: http://host:port. Default: the cluster's.")
    ] = "",
    port: Annotated[int, typer.Option(help="Of /metrics, /healthz and /readyz.", min=0, max=65535)] = 8080,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: $KUBECONFIG, or the pod's service account.", dir_okay=False)
    ] = None,
    identity: Annotated[str, typer.Option(help="Name in the Lease. Default: the host's name.")] = "",
) -> None:
    """Place the pods that name a SlurmCluster's scheduler, through its queue."""
    settings = schedulers.Settings(cluster, namespace, identity or os.uname().nodename, controller=controller)
    tokens = Tokens(jwt_key.read_bytes, SLURM_USER)
    check_address("--slurmrestd", slurmrestd)
    check_address("--controller", settings.controller_address)

    async def work() -> None:
        async with KubeSession(Config.load(kubeconfig)) as kube, SlurmSession(slurmrestd, tokens) as slurm:
            found = await kube.get(SLURM_CLUSTERS, Key(namespace, cluster))
            daemon = schedulers.Scheduler(kube, slurm, tokens, settings, found)
            async with health.serve(port, daemon):
                await daemon.run()

    run(work, component="scheduler", cluster=cluster, namespace=namespace)


def check_address(option: str, address: str) -> None:
    """Raise typer.BadParameter unless Slurm can be spoken to at an address."""
    try:
        place(address)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def run(work: Callable[[], Awaitable[None]], **fields: str) -> None:
    """Do the work of a daemon until SIGTERM or SIGINT; `fields` stand on each line of its log.

    Ends the process: 0 after a signal, 3 when another one leads, 1 for anything else.
    """
    give_memory_back()
    log_as_json()
    structlog.contextvars.bind_contextvars(**fields)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(_until_signalled(work)))


def give_memory_back() -> None:
    """Have glibc (other libraries are left alone) return what a large answer took when it is freed.

    Having seen a block of 25 MB freed, as of a list of 10,000 nodes, it takes such blocks to be usual: from then on it
    keeps up to twice as much, and what small objects it puts behind them is never given back (mallopt(3),
    M_MMAP_THRESHOLD: setting it ends that adjustment).
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED)


def log_as_json() -> None:
    """Write every line of a log as one JSON object to standard output."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=True,
    )


async def _until_signalled(work: Callable[[], Awaitable[None]]) -> int:
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("ended")
        return 0
    except (BaseExceptionGroup, KubeError, LeadershipLost) as failure:
        error = _first(failure)
        if isinstance(error, LeadershipLost):
            log.error("does not lead any more", why=str(error))  # noqa: TRY400 - it is a fact, not a fault
            return LOST
        if isinstance(error, KubeError):
            log.error("cannot go on", why=str(error))  # noqa: TRY400 - the sentence tells all
            return 1
        raise
    return 0


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
