"""What slurmctld's init answers at its port, and to whom."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from slurmctld_init.allocations import FIELDS, MARK, parse
from slurmctld_init.answers import Answers
from slurmctld_init.commands import CommandError
from slurmctld_init.gate import Gate
from slurmctld_init.hints import Hints
from slurmctld_init.jobs import Jobs
from slurmctld_init.server import Server
from slurmctld_init.status import Status
from slurmctld_init.token import valid

from kurm.slurm.controller import (
    Allocation,
    Allocations,
    JobEvent,
    JobNodes,
    OtherEpoch,
    SlurmctldInit,
    Untold,
)
from kurm.slurm.token import Identity, sign
from unit.slurm.fake_slurm import Token

KEY = bytes(range(32))
SLURM = sign(KEY, "slurm", now=time.time())
NONE = "N/A"
RUNNING = ("7", "ns/web.0a1b2c3d", "RUNNING", "None", "n[1-2]", "services", "100", "101", "N/A", "9", "kurm:c:o", NONE)
WAITING = ("8", "ns/web2.0a1b2c3e", "PENDING", "Priority", "", "services", "102", *[NONE] * 3, "kurm:c:p", "gres/f:4")
PREEMPTED = ("9", "ns/web3.0a1b2c3f", "SIGNALING", "None", "n3", "batch", "103", "104", "105", "125", "kurm:c:q", NONE)
FOREIGN = ("10", "mine", "RUNNING", "None", "n4", "batch", "103", "104", "N/A", "9", "(null)", NONE)


async def at_once() -> None:
    """Have nothing on its way."""


def printed(*jobs: tuple[str, ...]) -> str:
    """Return what squeue prints."""
    return "".join(MARK.join((*job, "")) + "\n" for job in jobs)


@dataclass
class Init:
    """slurmctld's init without a slurmctld."""

    address: str
    status: Status
    gate: Gate
    jobs: Jobs
    ran: list[tuple[str, ...]]
    output: str = ""
    problem: str = ""


@pytest.fixture
async def init(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Init]:
    """Serve one in its first life, with a gate over one partition."""
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "kurm-gate").write_text(json.dumps({"partitions": {"batch": "UP"}, "wait": 60}))
    ran: list[tuple[str, ...]] = []

    async def run(*words: str) -> str:
        ran.append(words)
        if found.problem:
            raise CommandError(found.problem)
        return found.output

    status, gate, jobs = Status(hash="h1", epoch="life"), Gate(run, tmp_path), Jobs(at_once)
    found = Init(f"http://127.0.0.1:{unused_tcp_port}/", status, gate, jobs, ran)
    gate.close(tmp_path)
    answers = Answers(status, Hints(), jobs, gate, run=run, key=tmp_path / "key")
    server = await Server(answers.routes).serve(unused_tcp_port)
    yield found
    server.close()


@pytest.fixture
async def asked(init: Init) -> AsyncIterator[SlurmctldInit]:
    """Ask it as SlurmUser."""
    async with SlurmctldInit(init.address, Token(SLURM)) as found:
        yield found


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session of HTTP."""
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_scheduler_learns_what_lives_and_opens_the_gate(init: Init, asked: SlurmctldInit) -> None:
    """Its own jobs only; then partitions take their states."""
    status = await asked.status()
    assert (status.hash, status.epoch, status.gate) == ("h1", "life", "closed")
    init.output = printed(RUNNING, FOREIGN)
    found = await asked.allocations()
    one = Allocation(7, "ns/web.0a1b2c3d", "RUNNING", "kurm:c:o", "None", "n[1-2]", "services", 100, 101, gres="N/A")
    assert Allocations("life", (one,)) == found
    with pytest.raises(OtherEpoch):
        await asked.open_gate("earlier life")
    assert init.gate.state == "closed"
    assert (await asked.open_gate("life")).gate == "open"
    assert init.ran[-1] == ("scontrol", "update", "PartitionName=batch", "State=UP")


async def test_what_became_of_jobs_is_told_with_the_epoch(init: Init, asked: SlurmctldInit) -> None:
    """Who asks for the first time has missed what was before."""
    first = await asked.job_events(0)
    assert (first.lost, first.epoch) == (True, "life")
    init.jobs.hear("_job_complete: JobId=5 done")
    assert (JobEvent(5, "ended"),) == (await asked.job_events(first.next)).jobs
    assert (await asked.hints(0)).lost


async def test_where_jobs_have_started_is_told_with_the_epoch(
    init: Init, asked: SlurmctldInit, http: aiohttp.ClientSession
) -> None:
    """Of those that are asked for; who is asked for nothing, or for nonsense, says nothing."""
    for job, node in ((5, "n1"), (6, "n2"), (7, "n3")):
        init.jobs.hear(f"sched: _slurm_rpc_allocate_resources JobId={job} NodeList={node} usec=1")
    assert JobNodes("life", {5: "n1", 7: "n3"}) == await asked.job_nodes([5, 7, 9])
    for query in ("", "?jobs=", "?jobs=x,-1,²", f"?jobs={'5' * 5000}", "?after=5"):
        async with http.get(f"{init.address}nodes{query}", headers={"X-SLURM-USER-TOKEN": SLURM}) as answer:
            assert await answer.json() == {"epoch": "life", "nodes": {}}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        SLURM[:-3] + "AAA",
        sign(KEY, "slurm", now=time.time() - 10_000),
        sign(bytes(32), "slurm", now=time.time()),
        sign(KEY, "ann", now=time.time()),
        sign(KEY, Identity("ann", 1000, 1000), now=time.time()),
    ],
)
async def test_others_are_refused(init: Init, token: str) -> None:
    """No token, a forged one, one that is over, one of another cluster, one of a user."""
    async with SlurmctldInit(init.address, Token(token)) as asked:
        with pytest.raises(Untold, match="401"):
            await asked.allocations()
        with pytest.raises(Untold, match="401"):
            await asked.open_gate("life")
        with pytest.raises(Untold, match="401"):
            await asked.job_nodes([1])
    assert init.ran == []


def test_an_unsigned_token_is_none() -> None:
    """Whatever its header says."""
    head = "eyJhbGciOiJub25lIn0"
    assert not valid(f"{head}.{SLURM.split('.')[1]}.", KEY, time.time())
    assert valid(SLURM, KEY, time.time())


async def test_a_slurm_that_does_not_answer_is_told(init: Init, asked: SlurmctldInit) -> None:
    """An empty list would say that nothing lives."""
    init.problem = "squeue: error: Unable to contact slurm controller"
    with pytest.raises(Untold, match="503"):
        await asked.allocations()
    with pytest.raises(Untold, match="503"):
        await asked.open_gate("life")
    init.problem, init.status.epoch = "", ""
    with pytest.raises(Untold, match="503"):
        await asked.allocations()


async def test_nonsense_is_no_harm(init: Init, http: aiohttp.ClientSession) -> None:
    """A body that is too long is not read, another path is not there."""
    async with http.get(f"{init.address}etc") as answer:
        assert answer.status == 404
    with pytest.raises(aiohttp.ClientError):
        await http.post(f"{init.address}open", data=b"x" * 5000)
    async with http.post(f"{init.address}open", data=b"[]", headers={"X-SLURM-USER-TOKEN": SLURM}) as answer:
        assert answer.status == 400


def test_what_squeue_prints_is_read() -> None:
    """Of one that waits, one that was told to make room, and none of others."""
    assert len(RUNNING) == len(FIELDS)
    waiting, preempted = parse(printed(FOREIGN, WAITING, PREEMPTED) + "slurm_load_jobs error\n")
    assert tuple(waiting[key] for key in ("id", "state", "reason", "nodes", "started")) == (
        8,
        "PENDING",
        "Priority",
        "",
        0,
    )
    assert "preempt" not in waiting
    assert (preempted["state"], preempted["preempt"], preempted["ends"]) == ("RUNNING", 105, 125)
