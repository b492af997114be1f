"""Whose a scheduler's name is: two clusters with the same one would both place each pod. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from kurm.operator.conditions import Trouble
from kurm.operator.objects import SlurmCluster

_LATEST = datetime.max.replace(tzinfo=UTC)


def wanted(cluster: SlurmCluster) -> list[str]:
    """Return the scheduler's name that a cluster asks for; none without a scheduler."""
    return [] if cluster.spec.scheduler is None else [cluster.spec.scheduler.name]


def taken(cluster: SlurmCluster, rivals: Iterable[SlurmCluster]) -> Trouble | None:
    """Return what keeps a cluster from having its scheduler, if one of those with the same name comes before it.

    The oldest has the name. One that is being deleted has it until it is gone.
    """
    first = min((cluster, *rivals), key=_age)
    if first.metadata.uid == cluster.metadata.uid:
        return None
    name = "".join(wanted(cluster))
    return Trouble(
        "SchedulerNameTaken",
        f"spec.scheduler.name: {name!r} is the scheduler of SlurmCluster {first.key}, which is older: take another "
        "name. Until then this cluster has no scheduler",
    )


def _age(cluster: SlurmCluster) -> tuple[datetime, str, str]:
    metadata = cluster.metadata
    return metadata.creation_timestamp or _LATEST, metadata.namespace, metadata.name
