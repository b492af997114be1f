"""Slurm's truth in its own words: `scontrol --detail --oneliner show job`, and `show node`, read."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from chaos.history import Job, Machine, Share
from kurm.slurm.hostlist import expand

ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
_FIELD = re.compile(r"(?:^| )([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=|$)")
_SHARE = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+)")
_UNITS = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def jobs(text: str, clock: Callable[[float], float]) -> tuple[Job, ...]:
    """Return the jobs that have not ended; `clock` turns seconds since 1970 into the history's."""
    found = (job(line, clock) for line in text.splitlines() if line.startswith("JobId="))
    return tuple(one for one in found if one is not None)


def job(line: str, clock: Callable[[float], float]) -> Job | None:
    """Return one job; None if it has ended."""
    fields = dict(_FIELD.findall(line))
    state = fields.get("JobState", "")
    if state in ENDED:
        return None
    wanted = tres(fields.get("ReqTRES", ""))
    return Job(
        id=int(fields["JobId"]),
        sluid=fields.get("SLUID", ""),
        name=fields.get("JobName", ""),
        state=state,
        reason=fields.get("Reason", ""),
        partition=fields.get("Partition", ""),
        priority=int(fields.get("Priority", "0")),
        signature=fields.get("AdminComment", ""),
        cpus=int(wanted.get("cpu", 0)),
        memory=int(wanted.get("mem", 0)),
        started=clock(_seconds(fields["StartTime"])) if state != "PENDING" else 0.0,
        slots=int(fields.get("NumTasks", "1") or 1),
        excluded=tuple(expand(fields["ExcNodeList"])) if fields.get("ExcNodeList", "(null)") != "(null)" else (),
        holds=shares(line),
    )


def _seconds(stamp: str) -> float:
    """Return seconds since 1970 of a time of Slurm's; the images' clock is UTC."""
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() if stamp != "Unknown" else 0.0


def shares(line: str) -> dict[str, Share]:
    """Return what a job holds of each node. A pending job has no such words."""
    found: dict[str, Share] = {}
    for hosts, ids, memory in _SHARE.findall(line):
        for node in expand(hosts):
            found[node] = Share(cpus=count(ids), memory=int(memory))
    return found


def count(ids: str) -> int:
    """Return how many ids are in "0-3,6"."""
    total = 0
    for part in ids.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1 if part else 0
    return total


def tres(text: str) -> dict[str, float]:
    """Return the resources of "cpu=2,mem=300M,node=1"; memory in MiB."""
    found: dict[str, float] = {}
    for name, _, value in (part.partition("=") for part in text.split(",") if "=" in part):
        number = re.match(r"([\d.]+)([KMGT]?)", value)
        if number:
            found[name] = float(number[1]) * (_UNITS[number[2]] if name == "mem" else 1)
    return found


def nodes(text: str) -> dict[str, Machine]:
    """Return the nodes by name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("NodeName="):
            fields = dict(_FIELD.findall(line))
            words = set(fields.get("State", "").replace("*", "").split("+"))
            taking = words.isdisjoint({"DRAIN", "DOWN", "FAIL", "MAINT", "NOT_RESPONDING"})
            found[fields["NodeName"]] = Machine(int(fields["CPUTot"]), int(fields["RealMemory"]), taking)
    return found
