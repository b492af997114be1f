"""Scheduler: how a SlurmCluster places pods through its queue, as a part of the resource."""

from typing import Annotated, Literal

from msgspec import Meta

from kurm.domain.partition import HIGHEST_TIER, WITHOUT_ANY
from kurm.domain.spec import DISTINCT, Component, Duration, Name, Rule, SlurmName, Spec, keyed, plainly, rules

_DEFAULT_SCHEDULER = "default-scheduler"
"""What Kubernetes puts into a pod that names no scheduler."""

Allowed = Annotated[tuple[SlurmName, ...], Meta(max_length=16), DISTINCT]


class NamespaceRule(Spec):
    """What the pods of one namespace may ask of Slurm; a tenant's annotations cannot go beyond it."""

    name: Annotated[Name, Meta(description="Name of the namespace.")]
    account: Annotated[
        str, Meta(description="Slurm account of its pods; Slurm's default if absent.", max_length=64)
    ] = ""
    partitions: Annotated[Allowed, Meta(description="Partitions that its pods may use; all if absent.")] = ()
    qos: Annotated[Allowed, Meta(description="QOS that its pods may use; all if absent.")] = ()


class PriorityRule(Spec):
    """Where pods of a PriorityClass go in Slurm, unless their annotations say more."""

    name: Annotated[Name, Meta(description="Name of the PriorityClass.")]
    partition: Annotated[str, Meta(description="Partition of its pods.", max_length=60)] = ""
    qos: Annotated[str, Meta(description="QOS of its pods.", max_length=60)] = ""


class Scheduler(Component):
    """The daemon that places pods through Slurm's queue."""

    name: Annotated[
        str,
        Meta(description="schedulerName of the pods that it places. Each cluster needs one of its own."),
        # It is the value of a namespace's label, too.
        Meta(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63),
        plainly("must be a-z, 0-9, . and -, with a letter or digit first and last"),
        rules(
            Rule(
                f"self != '{_DEFAULT_SCHEDULER}'",
                "must be another name: every pod that names no scheduler bears it, and Kubernetes' own places those",
            )
        ),
    ] = "kurm"
    partition: Annotated[
        str, Meta(description="Partition of pods that name none; Slurm's default if absent.", max_length=60)
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


_NONE = "!has(self.scheduler)"
# In a list of one, because an expression has no variables and would make the list of names anew for each name.
_KNOWN = f"[has(self.partitions) && self.partitions.size() > 0 ? self.partitions.map(p, p.name) : ['{WITHOUT_ANY}']]"
_NAMESPACES = (
    f"{_KNOWN}.map(known, self.scheduler.namespaces.map(r, !has(r.partitions) || r.partitions.all(n, n in known)))[0]"
)
_CLASSES = (
    f"{_KNOWN}.map(known, self.scheduler.priorityClasses.map(r, "
    "!has(r.partition) || r.partition == '' || r.partition in known))[0]"
)
KNOWN_PARTITIONS = (
    Rule(
        f"{_NONE} || !has(self.scheduler.partition) || self.scheduler.partition == '' || "
        f"{_KNOWN}.all(known, self.scheduler.partition in known)",
        "must be one of the cluster's partitions",
        says="'there is no partition ' + self.scheduler.partition + ' in spec.partitions'",
        path=".scheduler.partition",
    ),
    Rule(
        f"{_NONE} || !has(self.scheduler.namespaces) || !(false in {_NAMESPACES})",
        "each namespace's partitions must be some of spec.partitions",
        says="'a partition of namespace ' + "
        f"self.scheduler.namespaces[{_NAMESPACES}.indexOf(false)].name + ' is none of spec.partitions'",
        path=".scheduler.namespaces",
    ),
    Rule(
        f"{_NONE} || !has(self.scheduler.priorityClasses) || !(false in {_CLASSES})",
        "each partition must be one of spec.partitions",
        says="'the partition of PriorityClass ' + "
        f"self.scheduler.priorityClasses[{_CLASSES}.indexOf(false)].name + ' is none of spec.partitions'",
        path=".scheduler.priorityClasses",
    ),
)
"""Rules of a SlurmCluster: the partitions that its scheduler names are there."""
PIN_TIER = Rule(
    f"{_NONE} || !has(self.partitions) || self.partitions.all(p, p.tier < {HIGHEST_TIER})",
    f"with a scheduler no partition can have tier {HIGHEST_TIER}: it is that of pods which are pinned again",
    path=".partitions",
)
