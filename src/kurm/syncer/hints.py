"""The hints of slurmctld's log: which nodes it has spoken of, followed over HTTP at slurmctld's init.

While they come, nobody has to ask slurmctld for all nodes in case something has changed. They are hints: one that does
not come costs time and nothing else. What may have been missed (the init was started again, the ring was too short, we
start ourselves) is one list on the condition that anything has changed.
"""

import asyncio

import aiohttp
import msgspec
import structlog

from kurm.kube.backoff import Backoff
from kurm.slurm.hostlist import expand
from kurm.syncer.records import Records

log = structlog.get_logger("kurm.syncer")

DEADLINE = 30.0
"""Seconds for an answer: without a hint it comes after 20."""
BACKOFF = Backoff(first=0.5, most=10.0)


class Answer(msgspec.Struct, frozen=True):
    """What slurmctld's init tells."""

    next: int
    """What to ask for next."""
    nodes: tuple[str, ...] = ()
    """Nodes and host lists."""
    lost: bool = False
    """There were others, of which nothing is known."""


class HintsError(Exception):
    """No hints come; the message says why."""


class Hints:
    """Follows them. `address` is that of slurmctld's init (`http://demo-controller:6819/`)."""

    def __init__(self, address: str, records: Records, *, backoff: Backoff = BACKOFF) -> None:
        self.address, self.records = address, records
        self.answers = self.failures = self.hints = 0
        """Counted since the start."""
        self._backoff = backoff
        self._next = 0

    async def run(self) -> None:
        """Follow them; never ends, cancel it."""
        failures, problem = 0, ""
        async with aiohttp.ClientSession() as http:
            while True:
                try:
                    await self._once(http)
                except HintsError as error:
                    self.records.hears = False
                    self.failures += 1
                    failures += 1
                    if str(error) != problem:
                        problem = str(error)
                        log.warning("no hints from slurmctld's log", why=problem)
                    await asyncio.sleep(self._backoff.delay(failures))
                else:
                    if failures:
                        log.info("hints from slurmctld's log again")
                    failures, problem = 0, ""

    async def _once(self, http: aiohttp.ClientSession) -> None:
        answer = await self._ask(http)
        names = [name for hosts in answer.nodes for name in _expanded(hosts)]
        self.answers += 1
        self.hints += len(names)
        self._next = answer.next
        self.records.hears = True
        if answer.lost:
            self.records.recheck()
        else:
            self.records.heard(names)

    async def _ask(self, http: aiohttp.ClientSession) -> Answer:
        url = f"{self.address.rstrip('/')}/hints?after={self._next}"
        try:
            async with http.get(url, timeout=aiohttp.ClientTimeout(total=DEADLINE)) as answer:
                content = await answer.read()
                if answer.status != 200:  # noqa: PLR2004 - HTTP's "OK"
                    raise HintsError(f"{url} answered {answer.status} {answer.reason}")
                return msgspec.json.decode(content, type=Answer)
        except TimeoutError as error:
            raise HintsError(f"{self.address} did not answer in {DEADLINE:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise HintsError(f"{self.address} does not answer: {error}") from error
        except msgspec.DecodeError as error:
            raise HintsError(f"{self.address} answered what cannot be read: {error}") from error


def _expanded(hosts: str) -> tuple[str, ...]:
    try:
        return tuple(expand(hosts))
    except ValueError:
        return ()  # a line that only looked like one about a node
