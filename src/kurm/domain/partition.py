"""Partition: a queue of a SlurmCluster, over the nodes of its NodeSets."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from kurm.domain.spec import DISTINCT, OurName, Rule, SlurmName, Spec, TimeLimit, Wait, plainly, rules

PARTITION_SETTINGS: Mapping[str, str] = {
    "PartitionName": "name",
    "Nodes": "nodeSets",
    "Default": "default",
    "PriorityTier": "tier",
    "GraceTime": "graceTime",
    "MaxTime": "maxTime",
    "DefaultTime": "defaultTime",
    "PreemptMode": "preemptMode",
    "MinNodes": "minNodes",
    "MaxNodes": "maxNodes",
    "AllowAccounts": "allowAccounts",
    "AllowGroups": "allowGroups",
    "AllowQos": "allowQos",
    "QOS": "qos",
    "State": "state",
}
"""The settings of a partition in slurm.conf that have a field of their own here, and its name."""

WITHOUT_ANY = "batch"
"""The partition over all nodes of a cluster that names none."""
HIGHEST_TIER = 65533
"""Of PriorityTier, Slurm's own (slurm.conf(5)). With a scheduler it is that of the partition for pods which are pinned
again after slurmctld's restart: nothing may come before them."""
PIN = "pin"
"""That partition's name."""

_OWN_FIELD = "'(?i)(^|[ \\t])(" + "|".join(PARTITION_SETTINGS) + ")[ \\t]*='"
_FIELDS = ", ".join(
    f"'{key.lower()}': '{key} has a field of its own: {name}'" for key, name in PARTITION_SETTINGS.items()
)
_PARTITION_EXTRA = (
    Rule(
        "self.matches('^[^#\\r\\n\\\\\\\\]*$')",
        "settings stand in one line, as MaxMemPerCPU=4000 LLN=YES, without a comment or a backslash",
    ),
    Rule(
        f"!self.matches({_OWN_FIELD})",
        "a setting that has a field of its own belongs there",
        says=f"{{{_FIELDS}}}[self.find({_OWN_FIELD}).find('[A-Za-z]+').lowerAscii()]",
    ),
)
_RESERVED = Rule(
    "!(self.lowerAscii() in ['default', 'pin'])",
    "must be another name: DEFAULT is Slurm's, for the settings of all partitions, and pin is Kurm's",
)
AllowedNames = Annotated[tuple[SlurmName, ...], Meta(max_length=64), DISTINCT]


class Partition(Spec):
    """A queue over the nodes of one or several NodeSets."""

    name: Annotated[SlurmName, Meta(description="Name of the partition."), rules(_RESERVED)]
    node_sets: Annotated[
        tuple[OurName, ...],
        Meta(description="NodeSets of this namespace, in this cluster.", min_length=1, max_length=64),
        DISTINCT,
        plainly("a partition needs at least one NodeSet"),
    ]
    default: Annotated[bool, Meta(description="Where jobs go that name no partition.")] = False
    tier: Annotated[
        int, Meta(description="PriorityTier: a higher one is served first, and may preempt.", ge=0, le=HIGHEST_TIER)
    ] = 1
    grace_time: Annotated[Wait, Meta(description="What a preempted job gets to end by itself; 0s for nothing.")] = "0s"
    max_time: Annotated[TimeLimit, Meta(description="The longest a job may run, as 12h or 7d, or UNLIMITED.")] = "7d"
    default_time: Annotated[
        TimeLimit, Meta(description="The limit of a job that names none; maxTime where that is shorter.")
    ] = "1h"
    preempt_mode: Annotated[
        Literal["OFF", "REQUEUE", "CANCEL"],
        Meta(description="What a higher tier may do to jobs here. A suspended job would keep what a pod is given."),
    ] = "OFF"
    min_nodes: Annotated[int, Meta(description="The least nodes of one job.", ge=0, le=100000)] = 0
    max_nodes: Annotated[
        Annotated[int, Meta(ge=1, le=100000)] | None, Meta(description="The most nodes of one job; no limit if absent.")
    ] = None
    allow_accounts: Annotated[AllowedNames, Meta(description="Accounts that may use it; all if absent.")] = ()
    allow_groups: Annotated[AllowedNames, Meta(description="Groups of users that may use it; all if absent.")] = ()
    allow_qos: Annotated[AllowedNames, Meta(description="QOS that may be used in it; all if absent.")] = ()
    qos: Annotated[str, Meta(description="The QOS whose limits hold for the partition as a whole.", max_length=60)] = ""
    state: Annotated[
        Literal["UP", "DOWN", "DRAIN", "INACTIVE"], Meta(description="Whether jobs may come and start.")
    ] = "UP"
    extra: Annotated[
        str,
        Meta(
            description="Further settings of the partition, as slurm.conf has them: LLN=YES ReqResv=YES.",
            max_length=1024,
        ),
        rules(*_PARTITION_EXTRA),
    ] = ""
