"""Scheduler: how a SlurmCluster places pods through its queue, as a part of the resource."""

from typing import Annotated, Literal

from msgspec import Meta

from kurm.domain.spec import Component, Duration, Name, SlurmName, Spec, keyed


class NamespaceRule(Spec):
    """What the pods of one namespace may ask of Slurm; a tenant's annotations cannot go beyond it."""

    name: Annotated[Name, Meta(description="Name of the namespace.")]
    account: Annotated[
        str, Meta(description="Slurm account of its pods; Slurm's default if absent.", max_length=64)
    ] = ""
    partitions: Annotated[
        tuple[SlurmName, ...], Meta(description="Partitions that its pods may use; all if absent.", max_length=64)
    ] = ()
    qos: Annotated[
        tuple[SlurmName, ...], Meta(description="QOS that its pods may use; all if absent.", max_length=64)
    ] = ()


class PriorityRule(Spec):
    """Where pods of a PriorityClass go in Slurm."""

    name: Annotated[Name, Meta(description="Name of the PriorityClass.")]
    partition: Annotated[str, Meta(description="Partition of its pods.", max_length=64)] = ""
    qos: Annotated[str, Meta(description="QOS of its pods.", max_length=64)] = ""


class Scheduler(Component):
    """The daemon that places pods through Slurm's queue."""

    name: Annotated[
        Name, Meta(description="schedulerName of the pods that it places; each cluster needs one of its own.")
    ] = "kurm"
    partition: Annotated[
        str, Meta(description="Partition of pods that name none; Slurm's default if absent.", max_length=64)
    ] = ""
    namespaces: Annotated[
        tuple[NamespaceRule, ...],
        Meta(
            description="What pods of each namespace may ask for; others are refused. Without any, all may come.",
            max_length=256,
        ),
        keyed("name"),
    ] = ()
    priority_classes: Annotated[
        tuple[PriorityRule, ...], Meta(description="Partition and QOS by PriorityClass.", max_length=64), keyed("name")
    ] = ()
    pin_within: Annotated[
        Duration,
        Meta(description="How long queued jobs wait after slurmctld's restart for a scheduler that is away."),
    ] = "60s"
    terminating_forever: Annotated[
        Literal["report", "delete"],
        Meta(description="What becomes of pods that stay Terminating on a dead node: told, or deleted by force."),
    ] = "report"
