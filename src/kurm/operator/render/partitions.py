"""Partitions and the sets of nodes they are over, as lines of slurm.conf."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kurm.domain.noderecord import feature
from kurm.domain.partition import HIGHEST_TIER, PIN, WITHOUT_ANY, Partition
from kurm.domain.spec import seconds
from kurm.operator.render.errors import SpecError
from kurm.slurm.conf import ConfError, Line, Record, Setting, parse

_PINNED = {
    "PartitionName": PIN,
    "Nodes": "ALL",
    "PriorityTier": str(HIGHEST_TIER),
    "Hidden": "YES",
    "RootOnly": "YES",
    "MaxTime": "UNLIMITED",
    "DefaultTime": "UNLIMITED",
    "PreemptMode": "OFF",
    "State": "UP",
}
"""What bound pods are pinned in again after slurmctld's restart. No user can use it or sees it, and it is always UP."""


def lines(partitions: Sequence[Partition], node_sets: Iterable[str], *, gated: bool = False) -> list[Line]:
    """Return the NodeSet and PartitionName lines, and what preemption needs.

    `gated`: all are DOWN until somebody gives them their `states`, so that a restart of slurmctld starts nothing, and a
    reconfigure leaves them as they are.

    Every NodeSet is named by its feature, also one that only a partition names: its nodes may come later, and a
    partition without nodes is no error to Slurm. Raises SpecError, naming the field.
    """
    _check_default(partitions)
    named = sorted({*node_sets, *(name for partition in partitions for name in partition.node_sets)})
    sets = [Record((("NodeSet", name), ("Feature", feature(name)))) for name in named]
    gate = [Setting("ReconfigFlags", "KeepPartState")] if gated else []
    pinned = [Record(tuple(_PINNED.items()))] if gated else []
    if not partitions:
        limits = (("MaxTime", clock("7d")), ("DefaultTime", clock("1h")), ("State", "DOWN" if gated else "UP"))
        batch = Record((("PartitionName", WITHOUT_ANY), ("Nodes", "ALL"), ("Default", "YES"), *limits))
        return [*gate, *sets, *pinned, batch]
    records = [_record(number, partition, gated=gated) for number, partition in enumerate(partitions)]
    return [*preemption(partitions), *gate, *sets, *pinned, *records]


def states(partitions: Iterable[Partition]) -> Mapping[str, str]:
    """Return the state that each partition is to have, as the resource asks for it."""
    return {one.name: one.state for one in partitions} or {WITHOUT_ANY: "UP"}


def gate(partitions: Iterable[Partition], within: str) -> str:
    """Return the file by which slurmctld's init opens the partitions: their states, and the seconds that it waits.

    It waits, after slurmctld answers, for a scheduler that has pinned what is bound.
    """
    return json.dumps({"partitions": dict(states(partitions)), "wait": seconds(within)}) + "\n"


def preemption(partitions: Iterable[Partition]) -> Iterator[Setting]:
    """Yield the cluster's settings without which no partition could be preempted.

    A partition's own mode counts for it, but Slurm wants one for the cluster that is not OFF (slurm.conf(5),
    PreemptMode).
    """
    modes = {partition.preempt_mode for partition in partitions} - {"OFF"}
    if modes:
        yield Setting("PreemptType", "preempt/partition_prio")
        yield Setting("PreemptMode", max(modes))


def clock(duration: str) -> str:
    """Return a duration of the resource's as Slurm writes times: `1-12:00:00`, or `UNLIMITED`."""
    whole = seconds(duration)
    if whole is None:
        return "UNLIMITED"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02d}:{minute:02d}:{second:02d}"


def _record(number: int, partition: Partition, *, gated: bool) -> Record:
    longest, usual = seconds(partition.max_time), seconds(partition.default_time)
    bounded = longest is not None and (usual is None or usual > longest)
    fields = (
        ("PartitionName", partition.name),
        ("Nodes", ",".join(partition.node_sets)),
        ("Default", "YES" if partition.default else "NO"),
        ("PriorityTier", str(partition.tier)),
        ("GraceTime", str(seconds(partition.grace_time))),
        ("MaxTime", clock(partition.max_time)),
        ("DefaultTime", clock(partition.max_time if bounded else partition.default_time)),
        ("PreemptMode", partition.preempt_mode),
        ("MinNodes", str(partition.min_nodes) if partition.min_nodes else ""),
        ("MaxNodes", "" if partition.max_nodes is None else str(partition.max_nodes)),
        ("AllowAccounts", ",".join(partition.allow_accounts)),
        ("AllowGroups", ",".join(partition.allow_groups)),
        ("AllowQos", ",".join(partition.allow_qos)),
        ("QOS", partition.qos),
        ("State", "DOWN" if gated else partition.state),
    )
    return Record((*((key, value) for key, value in fields if value), *_extra(number, partition)))


def _extra(number: int, partition: Partition) -> tuple[tuple[str, str], ...]:
    """Return a partition's further settings; they are read as the rest of its line."""
    field = f"spec.partitions[{number}].extra"
    try:
        found = parse(f"PartitionName={partition.name} {partition.extra}").lines
    except ConfError as error:
        raise SpecError(field, error.why) from error
    if len(found) != 1 or not isinstance(found[0], Record):
        raise SpecError(field, "settings stand in one line, as MaxMemPerCPU=4000 LLN=YES, without a comment")
    return found[0].fields[1:]


def _check_default(partitions: Sequence[Partition]) -> None:
    defaults = [partition.name for partition in partitions if partition.default]
    if len(defaults) > 1:
        raise SpecError(
            "spec.partitions", f"one partition can be the default, not both {defaults[0]} and {defaults[1]}"
        )
