"""slurmctld's init over HTTP (port 6819): what is in force, what its log tells, and whose allocations it knows.

It is the other side of images/slurm/slurmctld_init, which stands beside slurmctld in its pod.
"""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from types import TracebackType
from typing import Literal, Self, TypeVar

import msgspec

from kurm.slurm.errors import SlurmError
from kurm.slurm.session import TokenSource
from kurm.slurm.transport import Transport
from kurm.slurm.wire import Narrow

S = TypeVar("S", bound=msgspec.Struct)

PORT = 6819
CONNECTIONS = 8
"""Most questions at once. A scheduler asks four at most, one of which waits for news."""
DEADLINE = 5.0
"""Seconds for an answer that need not wait."""
LONG_DEADLINE = 30.0
"""Seconds for an answer to a long poll: without news it comes after 20."""
NODES_DEADLINE = 0.5
"""Seconds for the nodes of jobs: later they are asked of Slurm, which takes a few milliseconds."""
LISTING_DEADLINE = 15.0
"""Seconds for all allocations: 10,000 take about one, and a slurmctld that is away keeps squeue waiting for ten."""
TOKEN = "X-SLURM-USER-TOKEN"  # noqa: S105 - the name of a header


class Untold(SlurmError):  # noqa: N818 - like its siblings in errors.py
    """slurmctld's init does not answer as it should; the message says why."""


class OtherEpoch(Untold):
    """slurmctld has been started anew since: what was done for its earlier life is to be done again."""


class Status(Narrow):
    """What is in force."""

    hash: str = ""
    """Of the configuration and scripts in force: the ConfigMap's `kurm-hash`. Empty while slurmctld starts."""
    refused: str = ""
    """The hash of the newest one, if slurmctld has refused it."""
    words: str = ""
    """What Slurm said about that."""
    epoch: str = ""
    """One life of slurmctld: another one after each start of the daemon, the same after a reconfigure. Empty while
    slurmctld starts."""
    gate: Literal["closed", "open", "none"] = "none"
    """Whether partitions wait for `open_gate` (closed), have their states (open), or never wait (none)."""


class Hints(Narrow):
    """The nodes of which slurmctld's log has spoken."""

    next: int
    """What to ask for next."""
    nodes: tuple[str, ...] = ()
    """Nodes and host lists."""
    lost: bool = False
    """There were others, of which nothing is known."""


class JobEvent(Narrow):
    """A job of anybody's has started or ended, by slurmctld's log; a hint and no more."""

    id: int
    event: Literal["started", "ended"]
    nodes: str = ""
    """A host list, of a start only."""


class JobEvents(Narrow):
    """What has become of jobs."""

    next: int
    """What to ask for next."""
    jobs: tuple[JobEvent, ...] = ()
    lost: bool = False
    """There were others, of which nothing is known."""
    epoch: str = ""


class JobNodes(Narrow):
    """On which node each of some jobs has started, by its id, and in which life of slurmctld. Unlike a hint it is true.

    Slurm has to be asked for those that are missing.
    """

    epoch: str
    nodes: dict[int, str]


class Allocation(Narrow):
    """A live job of ours. Times are in seconds since 1970."""

    id: int
    name: str
    state: str
    """PENDING, RUNNING, COMPLETING, SUSPENDED, ... (squeue(1), %T)."""
    signature: str
    """Its admin_comment, which begins with `kurm:`."""
    reason: str = ""
    """Why it waits, in Slurm's word: `Priority`, `Resources`, `Dependency`, ...; `None` when it runs."""
    nodes: str = ""
    """A host list; empty before the start."""
    partition: str = ""
    submitted: int = 0
    started: int = 0
    """Of one that waits, when Slurm expects it to start; 0 if it does not know."""
    preempt: int = 0
    """When it was told to make room for another, 0 if it was not."""
    ends: int = 0
    """Of one that was told to make room: when its GraceTime is over. Slurm ends it then, up to ten seconds late."""
    gres: str | None = None
    """What it asks of each node: `gres/gpu:h100:4` (squeue(1), tres-per-node); None if the init does not say it."""


class Allocations(Narrow):
    """All live jobs of ours that slurmctld knows."""

    epoch: str
    jobs: tuple[Allocation, ...] = ()


class SlurmctldInit:
    """Asks it at an address (`http://demo-controller:6819/`). Use it as an async context.

    `tokens` gives SlurmUser's, as for slurmrestd; it is told only where it is asked for. All methods raise Untold, and
    within their deadlines.
    """

    def __init__(self, address: str, tokens: TokenSource | None = None) -> None:
        self.address = address.rstrip("/")
        self._tokens = tokens
        self._transport = Transport(address, connections=CONNECTIONS)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def status(self) -> Status:
        """Ask what is in force."""
        return await self._ask(Status, "GET", "/")

    async def hints(self, after: int) -> Hints:
        """Ask of which nodes the log has spoken since `after` (`next` of an earlier answer); waits for news."""
        return await self._ask(Hints, "GET", f"/hints?after={after}", deadline=LONG_DEADLINE)

    async def job_events(self, after: int) -> JobEvents:
        """Ask which jobs have started and ended since `after` (`next` of an earlier answer); waits for news."""
        return await self._ask(JobEvents, "GET", f"/jobs?after={after}", deadline=LONG_DEADLINE)

    async def job_nodes(self, jobs: Iterable[int]) -> JobNodes:
        """Ask on which nodes jobs have started that an answer of Slurm's has just named; only for those."""
        ids = ",".join(map(str, jobs))
        return await self._ask(JobNodes, "GET", f"/nodes?jobs={ids}", signed=True, deadline=NODES_DEADLINE)

    async def allocations(self) -> Allocations:
        """Ask for all live jobs of ours."""
        return await self._ask(Allocations, "GET", "/allocations", signed=True, deadline=LISTING_DEADLINE)

    async def open_gate(self, epoch: str) -> Status:
        """Say that all that is bound is pinned in this life of slurmctld: partitions get their states.

        Repeating it is harmless. Raises OtherEpoch if slurmctld has been started anew meanwhile.
        """
        body = {"epoch": epoch}
        return await self._ask(Status, "POST", "/open", body=body, signed=True, deadline=LISTING_DEADLINE)

    async def _ask(
        self,
        into: type[S],
        method: str,
        path: str,
        *,
        body: object = None,
        signed: bool = False,
        deadline: float = DEADLINE,
    ) -> S:
        url = f"{self.address}{path}"
        headers = {TOKEN: self._tokens()} if signed and self._tokens is not None else {}
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(deadline):
                answer = await self._transport.send(method, path, headers=headers, body=data)
            if answer.status == HTTPStatus.CONFLICT:
                raise OtherEpoch(f"{url} answered 409: slurmctld has been started anew")
            if answer.status != HTTPStatus.OK:
                raise Untold(f"{url} answered {answer.status}")
            return msgspec.json.decode(answer.content, type=into)
        except TimeoutError as error:
            raise Untold(f"{url} did not answer in {deadline:g} s") from error
        except OSError as error:
            raise Untold(f"{url} does not answer: {error}") from error
        except msgspec.DecodeError as error:
            raise Untold(f"{url} answered what cannot be read: {error}") from error
