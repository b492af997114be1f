"""Keeps the view of what Slurm has left true: a list of its nodes now and then, single ones when jobs change."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from kurm.domain.room import Free
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.terrain import Terrain
from kurm.slurm import nodes
from kurm.slurm.controller import JobEvent
from kurm.slurm.errors import NotFound, SlurmError
from kurm.slurm.hostlist import expand
from kurm.slurm.session import Session

log = structlog.get_logger("kurm.scheduler")

EVERY = 300.0
"""Seconds between two lists: 2.5 KB for each node."""
SETTLE = 0.5
"""Seconds after a hint until its nodes are read again: slurmctld's figures lag behind, and more hints may follow."""
ANSWERED = 1.0
"""Seconds after which an allocation of ours is known by the answer to our call."""
OTHERS = 16384
"""Jobs of others of which it is remembered where they run, for when they end."""
SINGLY = 50
"""Most nodes that are read one by one; a list is cheaper for more."""
RETRY = 2.0
_DOWN: tuple[str, ...] = (
    "DOWN",
    "DRAIN",
    "FAIL",
    "INVALID_REG",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "POWERING_UP",
    "POWERING_DOWN",
)
_DOWN += ("RESERVED", "MAINTENANCE", "PLANNED", "REBOOT_ISSUED", "REBOOT_REQUESTED", "FUTURE", "COMPLETING", "UNKNOWN")
"""States in which a node takes no job at once."""


class SlurmRoom:
    """The loop. `changed` is called after each list."""

    def __init__(self, slurm: Session, terrain: Terrain, ledger: Ledger, changed: Callable[[], None]) -> None:
        self._slurm, self._terrain, self._ledger, self._changed = slurm, terrain, ledger, changed
        self._wanted = asyncio.Event()
        self._others: dict[int, str] = {}
        self._listed_at = float("-inf")
        self._epoch = ""

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

    async def run(self) -> None:
        """Read; never ends, cancel it."""
        while True:
            try:
                await self._read()
            except SlurmError as error:
                log.debug("slurm's nodes are not read", why=str(error))
                await asyncio.sleep(RETRY)
                continue
            try:
                async with asyncio.timeout(max(self._listed_at + EVERY - self._now(), 0.1)):
                    await self._wanted.wait()
                await asyncio.sleep(SETTLE)
            except TimeoutError:
                pass
            self._wanted.clear()

    async def _read(self) -> None:
        room, now = self._terrain.placing.room, self._now()
        doubted, mark = room.doubted, room.mark()
        stale = now >= self._listed_at + EVERY or self._epoch != self._ledger.epoch
        if stale or len(doubted) > SINGLY:
            epoch = self._ledger.epoch
            answer = await nodes.list_nodes(self._slurm)
            found = {node.name: _free(node) for node in (answer.nodes if answer else None) or ()}
            self._terrain.placing.room.refresh(found, since=mark)
            self._listed_at, self._epoch = now, epoch
            self._changed()
            return
        if not doubted:
            return
        await nodes.recount_nodes(self._slurm)
        found = {}
        for name in doubted:
            try:
                found[name] = _free(await nodes.get_node(self._slurm, name))
            except NotFound:
                self._listed_at = float("-inf")
                self._wanted.set()
        self._terrain.placing.room.refresh(found, since=mark, whole=False)

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
        up=not node.has(*_DOWN),
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
