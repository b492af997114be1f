"""What brings Slurm's records to what Kubernetes says: round after round over the nodes that somebody pointed at.

A round takes all nodes that are due, reads again what is old of them, decides, and writes with few calls. Every write
is followed by a look at its nodes, later each time that it was not enough: so what fails, what is refused and what has
no effect all wait in the same place, each node for itself, and none holds up the others.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec
import structlog

from kurm.domain.agreement import Create, Describe, Drain, Instruction, Mark, Place, Retract, Undrain, decide
from kurm.domain.world import Claim, Pod, World
from kurm.kube.backoff import Backoff
from kurm.kube.lease import LeadershipLost
from kurm.kube.queue import Queue
from kurm.slurm.cluster import get_settings
from kurm.slurm.errors import (
    AccessDenied,
    AlreadyExists,
    ApiError,
    ControllerAway,
    NoSuchPlace,
    SlurmError,
    TableFull,
    Unauthorized,
)
from kurm.slurm.hostlist import compress
from kurm.slurm.nodes import Update, create_nodes, delete_nodes, update_nodes
from kurm.syncer.losses import Losses
from kurm.syncer.metrics import Metrics
from kurm.syncer.plan import RESUME, UNDRAIN, Call, Change, Creation, Deletion, calls
from kurm.syncer.pool import Pool
from kurm.syncer.records import AT_ONCE, Records

log = structlog.get_logger("kurm.syncer")

# The jitter is small, so that the looks after one write are one round: 80 to 100 ms later.
BACKOFF = Backoff(first=0.1, most=30.0, jitter=0.2)
GATHER = 0.02
"""Seconds between the first node that is due and the round: a scale-out comes as one event for each node."""
UNREAD = (Create, Mark, Describe, Place, Retract)
"""What may be done without reading the record again. For a drain or a deletion it is read right before: Slurm's API
has no preconditions, and somebody else may have drained the node a moment ago."""
TICK = 1.0
"""Seconds between looks whether what stopped us is over."""
REFUSALS = 32
"""Most refusals of one creation in a round. To find one bad node among 10,000 takes 14; where all are bad, as before
slurmctld has their gres.conf, nobody shall be asked about each."""
WORDS = 200
"""Letters of a host list in the log."""


class UnknownGres(ApiError):  # noqa: N818 - named as the errors of kurm.slurm are
    """slurmctld does not know a GRES yet. It would make the record without it, and without a word, for good."""


OF_ALL = (AlreadyExists, NoSuchPlace, TableFull, UnknownGres, Unauthorized, AccessDenied)
"""Refusals of a creation that its halves would only repeat."""


class Rounds:
    """The loop. `leads` says whether we may write at this very moment.

    `looked` is told each node that was decided, `losses` what was found, before that.
    """

    def __init__(
        self,
        pool: Pool,
        records: Records,
        *,
        leads: Callable[[], bool],
        metrics: Metrics,
        losses: Losses,
        looked: Callable[[str], None],
    ) -> None:
        self.pool, self.records, self.metrics, self.losses = pool, records, metrics, losses
        self.queue: Queue[str] = Queue(backoff=BACKOFF)
        self.ticked_at = self._now()
        """When this loop last came by, by the event loop's clock."""
        self._leads, self._looked = leads, looked
        self._stopped = "not started"
        self._wrong_since: dict[str, float] = {}
        self._pointed_at: dict[str, float] = {}
        pool.on_change(self._point_at)
        records.on_change(self.queue.add, self.look_at_all)

    @property
    def stopped(self) -> str:
        """Why nothing is written, for people; empty while all is well."""
        return self.pool.problem or self.records.problem

    def look_at_all(self) -> None:
        """Look at every node that either side knows."""
        for name in {*self.pool.claimed(), *(self.records.known or ())}:
            self.queue.add(name)

    def _point_at(self, node: str) -> None:
        """Kubernetes says something else of a node: what Slurm said of it until now is too old to write by."""
        self._pointed_at[node] = self._now()
        self.queue.add(node)

    async def run(self) -> None:
        """Work; never ends, cancel it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            tasks.create_task(self._work())

    async def _tick(self) -> None:
        while True:
            self.ticked_at = self._now()
            stopped = self.stopped
            if stopped != self._stopped:
                if self._stopped and not stopped:
                    self.look_at_all()
                log.info("keeps both sides in agreement") if not stopped else log.warning("stopped", why=stopped)
                self._stopped = stopped
            await asyncio.sleep(TICK)

    async def _work(self) -> None:
        while True:
            nodes = [await self.queue.take()]
            try:
                await asyncio.sleep(GATHER)
                while len(self.queue):
                    nodes.append(await self.queue.take())
                await self._round(nodes)
            except LeadershipLost:
                raise
            except Exception:
                # A mistake of ours about one node must not end the others' syncing.
                log.exception("round failed", node=",".join(nodes)[:WORDS])
                self.records.lifted((node for node in nodes if self.records.lifting(node)), certainly=False)
                for node in nodes:
                    self.queue.retry(node)
            finally:
                for node in nodes:
                    self.queue.done(node)

    async def _round(self, nodes: list[str]) -> None:
        if self.stopped:
            return  # all are looked at when that is over
        begun = self._now()
        try:
            if again := [node for node in nodes if self.queue.failures(node)]:
                await self.records.refresh(again)
            world, instructions = self._decide(nodes)
            if instructions:
                read = _to_be_read(instructions)
                # Of a list that this round has read already all are new: a second one would hold up a thousand drains.
                # But a node that Kubernetes has pointed at since may have been drained by somebody between the two.
                await self.records.refresh(
                    read, since={node: max(begun, self._pointed_at.get(node, 0)) for node in read}
                )
                world, instructions = self._decide(nodes)
                late = _to_be_read(instructions) - read
                nodes = self._later(late, nodes)
                instructions = [one for one in instructions if one.node not in late]
        except SlurmError as error:
            self.records.lose(error)
            return
        self.losses.note(world)
        self._account(nodes, instructions, world)
        if not instructions:
            return
        if not self._leads():
            raise LeadershipLost("the Lease ran out before a write")
        # Before anything is awaited: from here on the pods of these nodes are told nothing by which one may be evicted.
        self.records.lifts(one.node for one in instructions if isinstance(one, Undrain))
        turns = asyncio.Semaphore(AT_ONCE)
        planned = calls(instructions, world.claims or {})
        # One after another where the order counts: a drain must not wait behind a thousand marks.
        for kind in (Change, Creation, Deletion):
            await asyncio.gather(*(self._carry_out(call, turns) for call in planned if isinstance(call, kind)))

    def _decide(self, nodes: Iterable[str]) -> tuple[World, list[Instruction]]:
        known = self.records.known
        if known is None or self.pool.problem:
            return World(None, None, None), []
        certain = [node for node in nodes if self.pool.known(node)]
        claims: dict[str, Claim] = {node: claim for node in certain if (claim := self.pool.claim(node))}
        pods: dict[str, Pod] = {node: pod for node in certain if (pod := self.pool.pod(node))}
        world = World(claims, pods, {node: known[node] for node in certain if node in known})
        return world, decide(world)

    def _later(self, late: Collection[str], nodes: list[str]) -> list[str]:
        """Leave nodes, pointed at while others were read, to the next round; return the others."""
        for node in late:
            self.queue.add(node)
        return [node for node in nodes if node not in late]

    def _account(self, nodes: list[str], instructions: Collection[Instruction], world: World) -> None:
        """Note which nodes are right, which are to be looked at again, and of which something is awaited from Slurm."""
        now, wrong = self._now(), {one.node for one in instructions}
        for node in nodes:
            self._looked(node)
            if node in wrong:
                self._wrong_since.setdefault(node, now)
                self.queue.retry(node)
                self.metrics.queue_retries.inc()
                continue
            self.queue.forget(node)
            if (since := self._wrong_since.pop(node, None)) is not None:
                self.metrics.to_slurm.observe(now - since)
            if world.records is not None:
                self._await_slurm(node, world)
        for one in instructions:
            self.metrics.instructions.labels(type(one).__name__).inc()
            if isinstance(one, Drain):
                self.metrics.drains.labels(one.cause).inc()

    def _await_slurm(self, node: str, world: World) -> None:
        record = (world.records or {}).get(node)
        pod, claim = (world.pods or {}).get(node), (world.claims or {}).get(node)
        if record is None and claim is None:
            self.records.forget([node])
            self._pointed_at.pop(node, None)
            return
        ending = record is not None and record.ours and record.draining and record.busy
        starting = record is not None and not record.registered and pod is not None and self.pool.ready(node)
        if ending or starting:
            self.records.waiting.add(node)
        else:
            self.records.waiting.discard(node)

    async def _carry_out(self, call: Call, turns: asyncio.Semaphore, budget: Iterator[int] | None = None) -> None:
        budget = iter(range(REFUSALS)) if budget is None else budget
        hosts = ",".join(compress(call.nodes))[:WORDS]
        try:
            async with turns:
                self.records.writes(call.nodes, done=False)
                try:
                    await self._send(call)
                finally:
                    self.records.writes(call.nodes, done=True)
        except ControllerAway as error:
            self._failed(call, hosts, error)
            self.records.lose(error)
        except ApiError as error:
            self._failed(call, hosts, error)
            if isinstance(error, NoSuchPlace) and (other := self._without_place(call)) is not None:
                await self._carry_out(other, turns, budget)
                return
            # Slurm makes all or none: find the one that it will not have, so that the others are made.
            if isinstance(call, Creation) and not isinstance(error, OF_ALL):
                for half in call.halves() if next(budget, None) is not None else ():
                    await self._carry_out(half, turns, budget)
        except SlurmError as error:
            self._failed(call, hosts, error)
            self.records.lose(error)
        else:
            if _lifts(call):
                self.records.lifted(call.nodes, certainly=True)
            log.info("written to slurm", call=type(call).__name__, node=hosts, nodes=len(call.nodes), **_told(call))
            if isinstance(call, Creation):
                marks = (Change((node,), update) for node, update in call.marks.items())
                await asyncio.gather(*(self._carry_out(one, turns) for one in marks))

    def _without_place(self, call: Call) -> Call | None:
        """Return what can be done though the topology in force has not the place that a record is to have.

        That place comes with another configuration, and slurmctld takes none in which a record's place is missing: so
        the place that it has is given up for now. A node without one takes jobs of one node only.
        """
        if isinstance(call, Creation):
            return call.without_place() if call.shape.topology else None
        known = self.records.known or {}
        held = tuple(node for node in call.nodes if node in known and known[node].topology)
        return Change(held, Update(topology="")) if isinstance(call, Change) and call.update.topology and held else None

    async def _send(self, call: Call) -> None:
        session, deadline = self.records.session, self.records.pace.deadline
        match call:
            case Creation():
                await self._look_for_gres(call)
                await create_nodes(session, call.body(), deadline=deadline)
            case Change():
                await update_nodes(session, call.nodes, call.update, deadline=deadline)
            case Deletion():
                await delete_nodes(session, call.nodes, deadline=deadline)

    async def _look_for_gres(self, call: Creation) -> None:
        wanted = {one.name for one in call.shape.gres}
        if not wanted:
            return
        settings = await get_settings(self.records.session, deadline=self.records.pace.deadline)
        unknown = wanted - set(msgspec.convert(settings.get("GresTypes", []), list[str]))
        if unknown:
            names = ", ".join(sorted(unknown))
            raise UnknownGres(status=200, description=f"slurmctld's GresTypes does not name {names} (yet)")

    def _failed(self, call: Call, hosts: str, error: SlurmError) -> None:
        self.metrics.errors.labels("slurm", type(error).__name__).inc()
        if _lifts(call):
            self.records.lifted(call.nodes, certainly=False)
        if isinstance(call, Creation):
            self.records.refused.update(dict.fromkeys(call.nodes, str(error)))
        log.warning(
            "not written to slurm", call=type(call).__name__, node=hosts, why=str(error), error=type(error).__name__
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _to_be_read(instructions: Iterable[Instruction]) -> set[str]:
    return {one.node for one in instructions if not isinstance(one, UNREAD)}


def _lifts(call: Call) -> bool:
    return isinstance(call, Change) and call.update.state in {UNDRAIN, RESUME}


def _told(call: Call) -> dict[str, str]:
    if isinstance(call, Change):
        told = ("state", "reason", "extra", "comment", "topology")
        return {name: value for name in told if (value := getattr(call.update, name))}
    return {}
