"""Slurm's side: its node records, here. One whole list at the start; after that as little as will do.

What is read in between, cheapest first: nothing; one record, when somebody hints at it or we have just written to it;
a list on the condition that anything has changed, when many are asked about, and now and then as a net for what nobody
hinted at. A list of 5,000 nodes costs Slurm a second, so the net is cast the less often the dearer it is.

**Hints.** `hint(name)` says "look at this node again", from wherever it is known: our own writes, pods that become
Ready, and (`heard`) the log of slurmctld, which says "update_node: node n1 state set to ...". While that log is heard
(`hears`) the net is not cast: any start of a job makes a conditional list a whole one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from kurm.domain.world import Record
from kurm.kube.backoff import TICK, Backoff
from kurm.slurm.errors import ControllerAway, NotFound, SlurmError
from kurm.slurm.nodes import Node, get_node, list_nodes, recount_nodes
from kurm.slurm.session import Session

log = structlog.get_logger("kurm.syncer")

SINGLES = 16
"""Up to so many nodes, or up to a sixteenth of all, are read one by one (1.2 ms each), more by a list."""
BACKOFF = Backoff(first=0.2, most=10.0)
FORGET_FAILURES = 60.0
"""Seconds after which the next failure counts as the first."""
AT_ONCE = 4
"""Requests at the same time: slurmrestd has two threads for each CPU, and others wait for them too."""

ECHO = 0.08
"""Seconds after a write of ours in which a hint is taken for its echo: we look at what we wrote later than that."""
STORM = 4.0
"""For so many times as long as a list took no other is asked for by hints: a log may speak of all nodes for minutes."""

FLAGS = frozenset(
    {
        *("UNKNOWN", "FUTURE", "ERROR", "FAIL", "INVALID_REG", "NOT_RESPONDING", "MAINTENANCE"),
        *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_REQUESTED", "REBOOT_ISSUED"),
    }
)
"""Words of a node's state (data_parser's `NODE_STATES`) that a pod is told. Those of its load change with each job."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often Slurm is asked, in seconds."""

    waiting: float = 1.0
    """Between looks at nodes that are about to change: a job is ending, a slurmd is starting."""
    net: float = 5.0
    """Between conditional lists, at least; `whole` while hints are heard."""
    whole: float = 300.0
    """Between whole lists, and between conditional lists at most."""
    share: float = 0.02
    """Of the time that lists may take: after one that took a second the next comes 50 s later."""
    deadline: float = 15.0
    """Of a request. slurmrestd gives up on slurmctld after 10."""
    backoff: Backoff = BACKOFF
    """Between attempts to reach Slurm."""


def as_record(node: Node) -> Record:
    """Return what matters of a node's record. A state that Slurm has not settled yet counts as busy."""
    return Record(
        extra=node.extra,
        draining=node.draining,
        reason=node.reason,
        busy=node.busy or not node.state or node.has("UNKNOWN"),
        registered=node.registered,
        attached=node.slurmd_start_time.value not in {None, 0},
        down=node.has("DOWN"),
        flags=tuple(sorted(FLAGS.intersection(node.state))),
        comment=node.comment,
        features=node.features,
        weight=node.weight,
        topology=node.topology,
        address=node.address,
    )


class Records:
    """The table of records. It is whole or not known; `problem` says why it is not."""

    def __init__(self, session: Session, *, pace: Pace | None = None) -> None:
        self.session = session
        self.pace = pace or Pace()
        self.problem = "Slurm's nodes have not been read yet"
        """Why nothing is known; empty while the table is good."""
        self.waiting: set[str] = set()
        """Nodes whose state is about to change in Slurm; whoever decides about a node keeps its name here or not."""
        self.refused: dict[str, str] = {}
        """Why Slurm did not make the record of a node when it was last asked to."""
        self.hears = False
        """Whether hints come from slurmctld's log at the moment."""
        self._written: dict[str, float] = {}
        self._lifting: dict[str, float] = {}
        self._lifted_at: dict[str, float] = {}
        self._records: dict[str, Record] = {}
        self._read_at: dict[str, float] = {}
        self._hinted: set[str] = set()
        self._missed = False
        self._wake = asyncio.Event()
        self._reading = asyncio.Lock()
        self._tell: Callable[[str], None] = lambda _: None
        self._recovered: Callable[[], None] = lambda: None
        self._last_update = 0
        self._whole_at = self._list_at = float("-inf")
        self._costs: deque[float] = deque(maxlen=2)
        self._failures, self._failed_at = 0, float("-inf")

    @property
    def known(self) -> Mapping[str, Record] | None:
        """All records by the names of their nodes, None while that is not known."""
        return None if self.problem else self._records

    @property
    def age(self) -> float:
        """Seconds since all of the table was last known to be true; infinite if it never was."""
        return self._now() - self._list_at

    def on_change(self, tell: Callable[[str], None], recovered: Callable[[], None]) -> None:
        """Call `tell` with the name of a node whose record has changed, `recovered` when all is known (again)."""
        self._tell, self._recovered = tell, recovered

    def lifts(self, names: Iterable[str]) -> None:
        """Note that drains are about to be lifted: nobody may be told that these nodes are drained (`lifting`)."""
        self._lifting.update(dict.fromkeys(names, float("inf")))

    def lifted(self, names: Iterable[str], *, certainly: bool) -> None:
        """Note that they were; or, if not `certainly`, that it is not known whether they were or still will be."""
        for name in names:
            self._lifted_at[name] = self._now()
            if certainly:
                self._lifting.pop(name, None)
            else:
                self._lifting[name] = self._now() + self.pace.deadline

    def lifting(self, name: str) -> bool:
        """Whether a drain is being lifted, or may be, by a call of which the answer is not there."""
        return self._lifting.get(name, float("-inf")) >= self._now()

    def hint(self, *names: str) -> None:
        """Read these nodes again soon."""
        self._hinted.update(names)
        self._wake.set()

    def heard(self, names: Iterable[str]) -> None:
        """Read these nodes again soon, as far as anybody knows them, but for the echo of our own writes."""
        now = self._now()
        for name, until in tuple(self._written.items()):
            if until < now:
                del self._written[name]
        self.hint(*(name for name in names if name in self._records and name not in self._written))

    def writes(self, names: Iterable[str], *, done: bool) -> None:
        """Note that a write of ours to these nodes begins, or is done: we look at them after it anyway."""
        self._written.update(dict.fromkeys(names, self._now() + ECHO if done else float("inf")))

    def recheck(self) -> None:
        """Ask soon whether anything has changed, and for all of it if so: hints were missed."""
        self._missed = True
        self._wake.set()

    def expire(self) -> None:
        """Read a whole list soon: something has happened to all of Slurm."""
        self._whole_at = float("-inf")
        self._wake.set()

    def lose(self, error: SlurmError) -> None:
        """Forget what is known: Slurm is away. All is read anew when it is back."""
        if not self.problem:
            self._count_failure()
            log.warning("slurm is away", why=str(error))
        self.problem = str(error)
        self._wake.set()

    def _count_failure(self) -> None:
        # A Slurm that answers reads and fails at writes would be read as a whole again and again if good lists counted.
        now = self._now()
        self._failures = 1 if now - self._failed_at > FORGET_FAILURES else self._failures + 1
        self._failed_at = now

    async def run(self) -> None:
        """Keep the table true; never ends, cancel it."""
        while True:
            if self.problem and self._failures:
                await asyncio.sleep(self.pace.backoff.delay(self._failures))
            try:
                await self._once()
            except SlurmError as error:
                if self.problem:
                    self._count_failure()
                self.lose(error)

    async def refresh(self, names: Collection[str], *, since: Mapping[str, float] = MappingProxyType({})) -> None:
        """Read nodes again, but those of which Slurm was asked at or after `since` (by the event loop's clock).

        For a name that is not in `since` that is now. What was asked before a drain was lifted counts for nothing after
        it. Raises SlurmError; see `lose`.
        """
        now, never = self._now(), float("-inf")
        async with self._reading:  # one that waited its turn may find its question answered
            await self._read(
                [
                    name
                    for name in sorted(names)
                    if self._read_at.get(name, never) < max(since.get(name, now), self._lifted_at.get(name, never))
                ]
            )

    async def _once(self) -> None:
        if self.problem or self._now() >= self._whole_at + self.pace.whole:
            async with self._reading:
                await self._list(since=0)
            return
        if self._hinted and not self._stormy:
            hinted, self._hinted = self._hinted, set()
            await self.refresh(hinted)
            return
        await self._sleep()
        if self._now() >= self._net_due:
            async with self._reading:
                await self._list(since=self._last_update)
        elif self._now() >= self._waiting_due and not self._hinted and not self.problem:
            await self.refresh(self.waiting)

    @property
    def _list_cost(self) -> float:
        """Seconds that a list takes: the less of the last two.

        One that waited until slurmctld was back says nothing of it, and would make the net rare.
        """
        return min(self._costs, default=0.0)

    @property
    def _singles(self) -> int:
        return max(SINGLES, len(self._records) // 16)

    @property
    def _stormy(self) -> bool:
        """Whether hints are so many that they are a list, so soon after the last one that they wait for more."""
        return len(self._hinted) > self._singles and self._now() < self._list_at + STORM * self._list_cost

    @property
    def _net_due(self) -> float:
        """When it is asked next whether anything has changed that nobody hinted at."""
        if self._missed:
            return self._list_at + STORM * self._list_cost
        rare = self.pace.whole if self.hears else max(self.pace.net, self._list_cost / self.pace.share)
        return self._list_at + min(rare, self.pace.whole)

    @property
    def _waiting_due(self) -> float:
        """When the nodes that change are looked at again: one by one soon, by a list as its cost allows."""
        if not self.waiting:
            return float("inf")
        last = min(self._read_at.get(name, 0.0) for name in self.waiting)
        cost = self._list_cost / self.pace.share if len(self.waiting) > self._singles else 0.0
        return last + max(self.pace.waiting, cost)

    async def _sleep(self) -> None:
        self._wake.clear()
        until = min(self._net_due, self._waiting_due, self._whole_at + self.pace.whole)
        try:
            # `waiting` may change meanwhile: never sleep past the time at which it would be due.
            async with asyncio.timeout(min(max(until - self._now(), TICK), self.pace.waiting)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _read(self, names: Collection[str]) -> None:
        if len(names) > self._singles:
            await self._list(since=self._last_update)
            return
        asked_at = self._now()
        found = await self._singly(names)
        if stale := [name for name, node in found.items() if node is not None and node.draining and node.busy]:
            # Its job may have ended: that would be seen by nobody until somebody lists all nodes.
            await recount_nodes(self.session, deadline=self.pace.deadline)
            found |= await self._singly(stale)
        for name, node in found.items():
            self._put(name, None if node is None else as_record(node))
            self._read_at[name] = asked_at
            if self._written.get(name, 0.0) < float("inf"):
                self._written.pop(name, None)

    async def _singly(self, names: Iterable[str]) -> dict[str, Node | None]:
        """Read nodes one by one; None for one that Slurm does not know. Raises SlurmError."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> Node | None:
            async with turns:
                try:
                    return await get_node(self.session, name, deadline=self.pace.deadline)
                except NotFound:
                    return None

        asked = list(names)
        answers = await asyncio.gather(*map(one, asked), return_exceptions=True)
        found: dict[str, Node | None] = {}
        for name, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found

    async def _list(self, *, since: int) -> None:
        """Read all nodes; those that are not in the list are gone."""
        start, self._missed = self._now(), False
        recovers = self.problem != "" and self._failures > 0
        answer = await list_nodes(self.session, since=since, deadline=4 * self.pace.deadline)
        if answer is not None:
            if answer.nodes is None or answer.last_update.value is None:
                raise ControllerAway(status=200, description="slurmctld's answer has no list of nodes")
            if not recovers:
                self._costs.append(self._now() - start)
            self._last_update = answer.last_update.value
            there = {node.name: as_record(node) for node in answer.nodes}
            for name in self._records.keys() - there.keys():
                self._put(name, None)
            for name, record in there.items():
                self._put(name, record)
        self._list_at = start
        self._read_at = dict.fromkeys([*self._records, *self._read_at], start)
        self._written = {name: until for name, until in self._written.items() if until == float("inf")}
        if since == 0:
            self._whole_at = start
        if self.problem:
            log.info("slurm's nodes are known", nodes=len(self._records), seconds=round(self._now() - start, 3))
            self.problem = ""
            self._recovered()

    def _put(self, name: str, record: Record | None) -> None:
        if self._records.get(name) == record:
            return
        if record is None:
            del self._records[name]
        else:
            self._records[name] = record
            self.refused.pop(name, None)
        self._tell(name)

    def forget(self, names: Iterable[str]) -> None:
        """Drop what is kept of names that neither side knows any more."""
        for name in names:
            if name not in self._records:
                self._read_at.pop(name, None)
                self._lifting.pop(name, None)
                self._lifted_at.pop(name, None)
                self.refused.pop(name, None)
                self.waiting.discard(name)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
