"""The live jobs of Kurm's scheduler, as slurmctld knows them: those of SlurmUser with a signature of ours.

Over REST a job is 27 KB, and there is no list of one user's. squeue asks for exactly these, and prints what is needed.
"""

from typing import Any

from slurmctld_init.commands import Run

USER = "slurm"
OURS = "kurm:"
"""How a signature begins; it stands in the job's admin_comment, which no user can write."""
MARK = "\x1f"
"""Between fields: a control character, which no name in Kubernetes or Slurm has."""
FIELDS = {
    "id": "JobID",
    "name": "Name",
    "state": "State",
    "reason": "Reason",
    "nodes": "NodeList",
    "partition": "Partition",
    "submitted": "SubmitTime",
    "started": "StartTime",
    "preempt": "PreemptTime",
    "ends": "EndTime",
    "signature": "admin_comment",
    "gres": "tres-per-node",
}
"""Fields of ours and of squeue(1), --Format."""
NUMBERS = frozenset({"id", "submitted", "started", "preempt", "ends"})
SIGNALING = "SIGNALING"
"""Told of a running job whose nodes are being sent a signal, as at a preemption: of an external one for seconds."""
COMMAND = (
    *("env", "SLURM_TIME_FORMAT=%s", "SQUEUE_FORMAT=", "squeue", "--noheader", "--all", f"--user={USER}"),
    f"--Format={','.join(f'{field}:{MARK}' for field in FIELDS.values())}",
)


def parse(printed: str) -> list[dict[str, Any]]:
    """Return the jobs that are ours; `preempt` and `ends` only of those that were told to make room."""
    found: list[dict[str, Any]] = []
    for line in printed.splitlines():
        words = dict(zip(FIELDS, line.split(MARK), strict=False))
        if words.get("signature", "").startswith(OURS) and words["id"].isdecimal():
            job = {name: _number(word) if name in NUMBERS else word for name, word in words.items()}
            job["state"] = "RUNNING" if job["state"] == SIGNALING else job["state"]
            found.append({name: job[name] for name in job if job["preempt"] or name not in {"preempt", "ends"}})
    return found


async def allocations(run: Run) -> list[dict[str, Any]]:
    """Ask for them. Raises CommandError."""
    return parse(await run(*COMMAND))


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else 0  # N/A
