"""What every command on a kubeconfig shares: its options, a session, checked names, and errors as one sentence."""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import structlog
import typer
from rich.console import Console

from kurm.kube.config import Config
from kurm.kube.session import Session

T = TypeVar("T")

DEADLINE = 15.0
"""Seconds for one answer of the API server: a person waits for it."""
# RFC 1123: what Kubernetes takes for a name. A name stands in URLs and in commands, so nothing else may come through.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def checked(name: str) -> str:
    """Return a name or a namespace that Kubernetes could have given; BadParameter for any other."""
    if name and not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is no name in Kubernetes: a-z, 0-9, - and . are, with a-z or 0-9 at its ends"
        )
    return name


Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Default: $KUBECONFIG, else ~/.kube/config, else the pod's service account.", dir_okay=False),
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig. Default: its current one.")]
Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", help="Default: the kubeconfig's own, else default.", callback=checked),
]


def run(
    work: Callable[[Session, str], Awaitable[T]], kubeconfig: Path | None, context: str, namespace: str, doing: str = ""
) -> T:
    """Do the work with an open session, and with the namespace that was given, else the kubeconfig's.

    While it lasts, a terminal shows what is being done. Raises KubeError and what the work raises.
    """
    # The session's log is for daemons: here its lines would stand in the middle of what a program may read.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    config = Config.load(kubeconfig, context=context)

    async def with_session() -> T:
        async with Session(config, deadline=DEADLINE) as session:
            return await work(session, namespace or config.namespace)

    if not doing:
        return asyncio.run(with_session())
    with Console(stderr=True).status(doing):
        return asyncio.run(with_session())
