"""Keeps the view of what Slurm has left true: a list of its nodes now and then, single ones when jobs change."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from kurm.domain.room import Free, Room
from kurm.kube.backoff import Backoff
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.terrain import Terrain
from kurm.slurm import nodes
from kurm.slurm.controller import JobEvent
from kurm.slurm.errors import NotFound, SlurmError
from kurm.slurm.hostlist import expand
from kurm.slurm.session import Session

log = structlog.get_logger("kurm.scheduler")

EVERY = 3600.0
"""Seconds between two lists if nothing calls for one: 2.5 KB for each node, a second of slurmrestd's for 2,500."""
LEAST, SHARE = 30.0, 0.02
"""Seconds from one list to the next, at least; and the share of the time that lists may take."""
SURPRISED = 300.0
"""Seconds from one list to the next, at least, if it is only that there was no room where some was believed to be."""
SETTLE = 0.5
"""Seconds after a hint until its nodes are read again: slurmctld's figures lag behind, and more hints may follow."""
ANSWERED = 1.0
"""Seconds after which an allocation of ours is known by the answer to our call."""
OTHERS = 16384
"""Jobs of others of which it is remembered where they run, for when they end."""
SINGLES = 50
"""Nodes that are read one after another, at once: up to 100 a second. If more wait, and more than a sixteenth of all, a
list is cheaper."""
AWAITED = Backoff(first=1.0, most=300.0)
"""Between looks at a node that takes jobs, says Kubernetes, and does not, says Slurm."""
RETRY = 2.0
PATIENCE = 30.0
"""Seconds for which pods wait for the first list. Without it all of them are queued: later is better than never."""
_AWAY = ("RESERVED", "MAINTENANCE", "PLANNED", "REBOOT_REQUESTED", "COMPLETING")
"""States in which a node takes no job of everybody's at once."""


class SlurmRoom:
    """The loop. `changed` is called after each list, when Slurm has other nodes, and when there is no list in time.

    A list of 10,000 nodes holds slurmrestd up for seconds, so there is one at the start and after each start of
    slurmctld, and later only if something has turned out to be wrong. What changes is read node by node: where others'
    jobs start and end, and, until it is true, where Kubernetes has a node that Slurm ought to use.
    """

    def __init__(self, slurm: Session, terrain: Terrain, ledger: Ledger, changed: Callable[[], None]) -> None:
        self._slurm, self._terrain, self._ledger, self._changed = slurm, terrain, ledger, changed
        self._wanted = asyncio.Event()
        self._others: dict[int, str] = {}
        self._awaited: dict[str, tuple[int, float]] = {}  # by node: how often it was looked at in vain, when it is next
        self._listed_at = self._list_again = float("-inf")
        self._epoch, self._room = "", terrain.placing.room
        self._surprised = self._missed = False
        self._patient_until = float("inf")
        terrain.on_node(self.moved, self.want)

    @property
    def known(self) -> bool:
        """Whether there is a view of Slurm's room; also if none is to be had."""
        listed = self._listed_at > float("-inf") and self._room is self._terrain.placing.room
        return listed or self._now() >= self._patient_until

    def heard(self, events: Iterable[JobEvent]) -> None:
        """Heed which jobs have started and ended. Whether they are ours is known a moment later, with the answer."""
        asyncio.get_running_loop().call_later(ANSWERED, self._doubt, tuple(events))

    def _doubt(self, events: Iterable[JobEvent]) -> None:
        names: list[str] = []
        for event in events:
            if self._ledger.mine(event.id):
                continue
            if event.event == "started":
                self._others[event.id] = event.nodes
                while len(self._others) > OTHERS:
                    del self._others[next(iter(self._others))]
            names += _expanded(event.nodes or self._others.pop(event.id, ""))
        if names:
            self._terrain.placing.room.doubt(names)
            self._wanted.set()

    def want(self) -> None:
        """Have what is doubted read again soon."""
        self._wanted.set()

    def surprised(self) -> None:
        """Heed that Slurm has no room where it was believed to have some: more may be wrong."""
        self._surprised = True

    def missed(self) -> None:
        """Heed that jobs have started and ended of which nobody has told."""
        self._missed = True
        self._wanted.set()

    def moved(self, name: str) -> None:
        """Heed that a node has changed in Kubernetes: Slurm may be about to use it (again)."""
        if self._listed_at > float("-inf"):
            self._awaited.pop(name, None)
            self._await([name])
            self._wanted.set()

    def _await(self, names: Iterable[str]) -> None:
        """Look at these nodes again, later each time, as long as Slurm does not use them and Kubernetes says it may."""
        room, nodes, now = self._terrain.placing.room, self._terrain.placing.nodes, self._now()
        for name in names:
            node = nodes.get(name)
            if node is None or not node.node_set or not node.ready or node.unschedulable or room.up(name):
                self._awaited.pop(name, None)
            else:
                failures = self._awaited.get(name, (0, 0.0))[0] + 1
                self._awaited[name] = failures, now + AWAITED.delay(failures)

    async def run(self) -> None:
        """Read; never ends, cancel it."""
        await self._ledger.listed()  # by then it is known in which life of slurmctld this is
        self._patient_until = self._now() + PATIENCE
        asyncio.get_running_loop().call_at(self._patient_until, self._changed)
        while True:
            try:
                await self._read()
            except SlurmError as error:
                log.debug("slurm's nodes are not read", why=str(error))
                await asyncio.sleep(RETRY)
                continue
            try:
                async with asyncio.timeout_at(max(self._next, self._now() + SETTLE)):
                    await self._wanted.wait()
                await asyncio.sleep(SETTLE)
            except TimeoutError:
                pass
            self._wanted.clear()

    @property
    def _next(self) -> float:
        """When there is something to read though nobody wants it."""
        again = self._list_again if self._missed else self._listed_at + EVERY
        return min([again, *(at for _, at in self._awaited.values())])

    async def _read(self) -> None:
        room, now = self._terrain.placing.room, self._now()
        names = sorted({*room.doubted, *(name for name, (_, at) in self._awaited.items() if at <= now)})
        other = self._room is not room or self._epoch != self._ledger.epoch
        wrong = self._missed or len(names) > max(SINGLES, len(room) // 16)
        wrong |= self._surprised and now >= self._listed_at + SURPRISED
        if other or now >= self._listed_at + EVERY or (wrong and now >= self._list_again):
            await self._list(room)
        elif names:
            await self._read_singly(room, names[:SINGLES])
            if names[SINGLES:]:
                self._wanted.set()

    async def _list(self, room: Room) -> None:
        epoch, begun, mark = self._ledger.epoch, self._now(), room.mark()
        self._missed = False
        answer = await nodes.list_nodes(self._slurm)
        found = {node.name: _free(node) for node in (answer.nodes if answer else None) or ()}
        room.refresh(found, since=mark)
        self._listed_at, self._epoch, self._room, self._surprised = begun, epoch, room, False
        self._list_again = begun + max(LEAST, (self._now() - begun) / SHARE)
        down = {node.name for node in self._terrain.placing.nodes if not room.up(node.name)}
        self._awaited = {name: waited for name, waited in self._awaited.items() if name in down}
        self._await(down)
        log.debug("slurm's nodes are listed", nodes=len(found), seconds=round(self._now() - begun, 3))
        self._changed()

    async def _read_singly(self, room: Room, names: Iterable[str]) -> None:
        mark = room.mark()
        await nodes.recount_nodes(self._slurm)
        found: dict[str, Free] = {}
        gone: list[str] = []
        for name in names:
            try:
                found[name] = _free(await nodes.get_node(self._slurm, name))
            except NotFound:
                gone.append(name)
        epoch = room.epoch
        room.refresh(found, since=mark, whole=False)
        room.drop(gone)
        self._await(names)
        if room.epoch != epoch:  # which nodes jobs in the queue must exclude is another matter now
            self._changed()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _free(node: nodes.Node) -> Free:
    has, used = _gres(node.gres), _gres(node.gres_used)
    return Free(
        cpus=node.cpus - node.alloc_cpus,
        memory=node.real_memory - node.alloc_memory,
        gres=tuple(sorted((name, count - used.get(name, 0)) for name, count in has.items())),
        all_cpus=node.cpus,
        all_memory=node.real_memory,
        up=not (node.closed or node.has(*_AWAY)),
    )


def _gres(text: str) -> dict[str, int]:
    """Read a node's GRES as Slurm shows it, `gpu:h100:8(S:0-1),fpga:1`; in use with indices, `gpu:h100:2(IDX:0-1)`."""
    found: dict[str, int] = {}
    depth, plain = 0, ""
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        plain += letter if depth == 0 and letter != ")" else ""
    for one in plain.split(","):
        name, *rest = one.strip().split(":")
        if name and name != "(null)":
            count = rest[-1] if rest else "1"
            found[name] = found.get(name, 0) + (int(count) if count.isdecimal() else 1)
    return found


def _expanded(hosts: str) -> tuple[str, ...]:
    try:
        return tuple(expand(hosts))
    except ValueError:
        return ()
