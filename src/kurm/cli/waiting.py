"""The pods that wait for a SlurmCluster's scheduler, and why, as their conditions say it."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from rich.console import Console

from kurm.cli.podstory import waits
from kurm.cli.text import ago, line, table
from kurm.cli.view import SlurmCluster
from kurm.kube.errors import Forbidden
from kurm.kube.session import Session
from kurm.scheduler.objects import OWN_PODS, Pod

SHOWN = 20
"""How many pods people are shown; programs get all."""


class Waiting(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that is not bound yet."""

    namespace: str
    name: str
    cluster: str
    """The SlurmCluster that places it, `slurm/demo`."""
    since: datetime | None = None
    """Since when it is there."""
    reason: str = ""
    """In one word, as its condition PodScheduled has it; empty if nobody has said it yet."""
    message: str = ""


async def ask(session: Session, cluster: SlurmCluster) -> list[Waiting]:
    """Return the pods that wait for a cluster's scheduler, the oldest first.

    Of all namespaces where that is allowed, else of the cluster's own. Raises Forbidden if neither is.
    """
    scheduler = cluster.spec.scheduler
    if scheduler is None:
        return []
    fields = f"spec.schedulerName={scheduler.name},spec.nodeName="
    try:
        found = await session.list(OWN_PODS, fields=fields)
    except Forbidden:
        found = await session.list(OWN_PODS, namespace=cluster.metadata.namespace, fields=fields)
    return waiting(str(cluster.key), found)


def waiting(cluster: str, pods: Iterable[Pod]) -> list[Waiting]:
    """Return which of a scheduler's pods wait, the oldest first."""
    found = [_waiting(cluster, pod) for pod in pods if not pod.spec.node_name and not pod.over and not pod.leaving]
    return sorted(found, key=lambda one: (str(one.since or ""), one.namespace, one.name))


def _waiting(cluster: str, pod: Pod) -> Waiting:
    meta, said = pod.metadata, waits(pod)
    told = (said.reason, said.message) if said else ("", "")
    return Waiting(meta.namespace, meta.name, cluster, meta.creation_timestamp, *told)


def show(out: Console, found: Sequence[Waiting]) -> None:
    """Print them for people; nothing if none waits."""
    if not found:
        return
    rows = (
        (f"{one.namespace}/{one.name}", one.cluster, ago(one.since), one.reason or "not yet told", one.message)
        for one in found[:SHOWN]
    )
    out.print()
    out.print(table(("WAITING POD", "CLUSTER", "FOR", "REASON", "MESSAGE"), rows))
    if len(found) > SHOWN:
        line(out, f"and {len(found) - SHOWN} more")
