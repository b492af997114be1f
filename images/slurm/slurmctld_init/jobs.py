"""Which jobs have started and ended, by slurmctld's log: whoever waits for one need not ask for it again and again.

A hint, as those of nodes: one that does not come costs time and nothing else. slurmctld tells all of them at "verbose"
(-v); that the backfill scheduler has started a job it tells with DebugFlags=HetJob only.

On which node a job has started is told for certain, too, which spares whoever has just been given one a call of Slurm's
(`nodes`). A user can write lines of the log, thousands at once: the name of a job may hold line breaks. But nobody can
take one away, and slurmctld writes its own before it answers. So a node is true if all lines on its job agree that were
written before the question. In doubt nothing is told: when lines are lost, or more come than are remembered, or when
slurmctld's own are missing, as an administrator has it say less.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from slurmctld_init.ring import Ring

GATHER = 0.002
"""Seconds for which more events are waited for: a pod waits for its job."""
_JOB = r"JobId=(?P<id>\d{1,10})(?:[_+]\S*?\((?P<own>\d{1,10})\))?"
"""A part of an array or of a heterogeneous job has its own number in parentheses: `JobId=7_3(9)`. Python raises at a
number of thousands of digits, which a user can write."""
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
"""A single node: no host list, and not the `(null)` of a job that waits."""
REMEMBERED = 40.0
"""Seconds for which a start is: longer than the scheduler waits for slurmrestd's answer (30 s) before it asks."""
DOUBT = 60.0
"""Seconds for which no line is believed after one of slurmctld's own may have been lost."""
LATE = 0.4
"""Seconds to hear all of the log; who asks waits for half a second."""
MOST = 65536
"""Starts that are remembered: more in 40 s are a flood."""
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
        # Where the last jobs have started, empty if it is not certain; and when that was last heard, the oldest first.
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
        if not await self._all_heard():
            self._doubt()  # of that life some lines are still to come
        self._nodes.clear()

    def lose(self) -> None:
        """Heed that lines may be missing from here on."""
        self.ring.lose()
        self._nodes.clear()
        self._doubt()

    def _note(self, job: int, nodes: str) -> None:
        now = time.monotonic()
        before, _ = self._nodes.pop(job, (nodes, now))
        believed = before == nodes and now >= self._believed_from and _NODE.fullmatch(nodes)
        self._nodes[job] = nodes if believed else "", now
        while now - (oldest := next(iter(self._nodes.values())))[1] > REMEMBERED or len(self._nodes) > MOST:
            del self._nodes[next(iter(self._nodes))]
            if now - oldest[1] <= REMEMBERED:
                self._doubt()

    def _doubt(self) -> None:
        self._believed_from = time.monotonic() + DOUBT

    async def nodes(self, jobs: Collection[int]) -> dict[str, str]:
        """Return the node of each job that has just started on one, by its id; Slurm has to be asked for the others."""
        if not await self._all_heard():
            return {}
        known = {job: self._nodes[job][0] for job in jobs if job in self._nodes}
        if len(known) < len(set(jobs)):
            self._doubt()
        return {str(job): node for job, node in known.items() if node}

    async def _all_heard(self) -> bool:
        """Wait until all is heard that was written until now; return whether it was in time."""
        try:
            async with asyncio.timeout(LATE):
                await self._caught_up()
        except TimeoutError:
            return False
        return True

    async def after(self, number: int) -> dict[str, Any]:
        """Return what came after a number (`next` of an earlier answer), waiting for it if nothing has.

        `lost`: some of it is not known any more, or never was.
        """
        events, lost = await self.ring.after(number)
        return {"next": self.ring.next, "jobs": events, "lost": lost}
