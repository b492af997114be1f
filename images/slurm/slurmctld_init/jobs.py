"""Which jobs have started and ended, by slurmctld's log: whoever waits for one need not ask for it again and again.

A hint, as those of nodes: one that does not come costs time and nothing else. slurmctld tells all of them at "verbose"
(-v); that the backfill scheduler has started a job it tells with DebugFlags=HetJob only.

On which node a job has started is told for certain, too, which spares whoever has just been given one a call of Slurm's
(`nodes`). A user can write a line of the log: the name of a job may hold line breaks. But nobody can take one away, and
slurmctld writes its own before it answers. So what all lines say that were written before the question is true.
"""

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from slurmctld_init.ring import RING, Ring

GATHER = 0.002
"""Seconds for which more events are waited for: a pod waits for its job."""
_JOB = r"JobId=(?P<id>\d+)(?:[_+]\S*?\((?P<own>\d+)\))?"
"""A part of an array or of a heterogeneous job has its own number in parentheses: `JobId=7_3(9)`."""
_LINES = {
    # slurmctld 26.05: at once, by the main scheduler, by the backfill scheduler.
    "started": (
        rf"sched: _slurm_rpc_allocate_resources {_JOB} NodeList=(?P<nodes>\S+) ",
        rf"sched: Allocate {_JOB} NodeList=(?P<nodes>\S+) ",
        rf"sched/backfill: _start_job: (?:HETJOB: )?Started {_JOB} in \S+ on (?P<nodes>\S+)$",
    ),
    # Cancelled, or preempted; done; at its time limit; by the end of a node.
    "ended": (
        rf"job_signal: 9 of (?:running|pending|suspended|configuring|requeuing) {_JOB} successful",
        rf"_?job_complete: {_JOB} (?:done|cancelled by)",
        rf"(?:Time limit exhausted|Reservation ended) for {_JOB}",
        rf"(?:\w+: )?Preemption GraceTime reached {_JOB}",
        rf"Killing {_JOB} on (?:failed node|defunct partition) ",
        rf"requeue job {_JOB} due to failure of node ",
    ),
}
_NODE = re.compile(r"[\w.-]+")
DOUBT = 5.0
"""Seconds after a loss of lines for which none is believed: slurmctld's own may be the one that is missing. Who was
answered meanwhile asks sooner than that."""
_PATTERNS = [(event, re.compile(line)) for event, lines in _LINES.items() for line in lines]


def event(line: str) -> dict[str, Any] | None:
    """Return what a line of the log (without its time) says has become of a job; None if it says nothing of that."""
    if "JobId=" not in line:
        return None
    for name, pattern in _PATTERNS:
        if found := pattern.match(line):
            parts = found.groupdict()
            told = {"id": int(parts["own"] or parts["id"]), "event": name}
            return told | ({"nodes": parts["nodes"]} if name == "started" else {})
    return None


class Jobs:
    """What the log says of jobs. `caught_up` waits until all of it is heard that was written when it was called."""

    def __init__(self, caught_up: Callable[[], Awaitable[None]]) -> None:
        self.ring: Ring[dict[str, Any]] = Ring(GATHER)
        self._caught_up = caught_up
        # Where the last jobs have started, empty if lines say different things; and when that was first heard.
        self._nodes: dict[int, tuple[str, float]] = {}
        self._believed_from = 0.0

    def hear(self, line: str) -> None:
        """Take a line of the log, without its time."""
        if found := event(line):
            self.ring.add(found)
            if "nodes" in found:
                self._note(found["id"], found["nodes"])

    async def begin(self) -> None:
        """Forget where jobs have started, before slurmctld is started: the ids of an earlier life may come again.

        Not by what the log says of a start: with a line of his own a user could have slurmctld's forgotten.
        """
        await self._caught_up()
        self._nodes.clear()

    def lose(self) -> None:
        """Heed that lines may be missing from here on."""
        self.ring.lose()
        self._nodes.clear()
        self._believed_from = time.monotonic() + DOUBT

    def _note(self, job: int, nodes: str) -> None:
        now = time.monotonic()
        before, since = self._nodes.pop(job, (nodes, now))
        believed = before == nodes and now >= self._believed_from and _NODE.fullmatch(nodes)
        self._nodes[job] = nodes if believed else "", since
        while len(self._nodes) > RING:
            _, since = self._nodes.pop(next(iter(self._nodes)))
            if now - since < DOUBT:  # a flood of forged lines: slurmctld's own may be the one that is forgotten
                self._believed_from = now + DOUBT

    async def nodes(self, jobs: Iterable[int]) -> dict[str, str]:
        """Return the node of each job that has started on one, by its id; Slurm has to be asked for the others."""
        await self._caught_up()
        return {str(job): node for job in jobs if (node := self._nodes.get(job, ("", 0.0))[0])}

    async def after(self, number: int) -> dict[str, Any]:
        """Return what came after a number (`next` of an earlier answer), waiting for it if nothing has.

        `lost`: some of it is not known any more, or never was.
        """
        events, lost = await self.ring.after(number)
        return {"next": self.ring.next, "jobs": events, "lost": lost}
