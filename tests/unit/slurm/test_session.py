"""The session and its transport against a slurmrestd that misbehaves on purpose. No time passes but virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from kurm.slurm import cluster, jobs, nodes
from kurm.slurm.errors import (
    AlreadyExists,
    ApiError,
    Busy,
    ControllerAway,
    DecodeError,
    InvalidTransition,
    NoReason,
    NotFound,
    ReleaseError,
    SlurmError,
    Unauthorized,
    Unreachable,
    api_error,
)
from kurm.slurm.nodes import NewNode, Update
from kurm.slurm.session import AWAY_SECONDS, Session
from kurm.slurm.token import Tokens
from unit.slurm.fake_slurmrestd import META, PONG, Slurmrestd, answer, refusal

Script = Callable[[str], bytes | None]
Fake = Callable[[Script], AbstractAsyncContextManager[tuple[Session, Slurmrestd]]]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Return what opens a session with a fake that answers by a script; ping always works."""

    @asynccontextmanager
    async def opened(script: Script) -> AsyncIterator[tuple[Session, Slurmrestd]]:
        server = Slurmrestd(tmp_path / "s", lambda line: answer(PONG) if line.endswith("/ping/") else script(line))
        async with server.run(), Session(f"unix:{server.socket}", Tokens(lambda: b"k" * 32, "slurm")) as session:
            yield session, server

    return opened


async def test_the_second_answer_of_an_error_is_nobodys(fake: Fake) -> None:
    """An error costs its connection, and the next request has its own answer."""

    def script(line: str) -> bytes:
        return refusal(2018) if "DELETE" in line else answer({"nodes": [{"name": "n1"}], "meta": META})

    async with fake(script) as (session, server):
        for _ in range(3):
            with pytest.raises(NotFound) as refused:
                await nodes.delete_nodes(session, ["n2"])
            assert (refused.value.number, str(refused.value)) == (2018, "tried: words (Slurm error 2018)")
            assert (await nodes.get_node(session, "n1")).name == "n1"
        assert server.connections == 4


async def test_good_answers_share_a_connection(fake: Fake) -> None:
    """One connection serves what comes one after the other; what comes at once has several, and not too many."""
    async with fake(lambda _: answer({"nodes": [], "meta": META})) as (session, server):
        for _ in range(5):
            await nodes.list_nodes(session)
        assert server.connections == 1
        await asyncio.gather(*(nodes.list_nodes(session) for _ in range(50)))
        assert 1 < server.connections <= 8


async def test_a_read_is_repeated_when_an_idle_connection_was_hung_up(fake: Fake) -> None:
    """A write is not: it may have been carried out."""
    said = [answer({"meta": META}), b"", answer({"nodes": [], "meta": META}), b""]
    async with fake(lambda _: said.pop(0)) as (session, server):
        await nodes.update_nodes(session, ["n1"], Update(state="UNDRAIN"))
        assert await nodes.list_nodes(session)
        with pytest.raises(Unreachable, match="it hung up before the end of its answer"):
            await nodes.update_nodes(session, ["n1"], Update(state="UNDRAIN"))
        assert [line.split()[0] for line in server.requests if "ping" not in line] == ["POST", "GET", "GET", "POST"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "hung up"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "it answered 'HTTP/1.1 200 OK'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "a body of 'many' bytes"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "it answered 'SSH-2.0-OpenSSH_9.2'"),
        (b"x" * (1 << 21), "no end of headers"),
    ],
)
async def test_what_is_no_answer_is_unreachable(fake: Fake, said: bytes, sentence: str) -> None:
    """With what came instead."""
    async with fake(lambda _: said) as (session, server):
        await session.ping()
        server.hang_up = True
        with pytest.raises(Unreachable, match=sentence):
            await session.request(nodes.NodesAnswer, "POST", "nodes/", body={}, deadline=5)


async def test_a_deadline_drops_the_connection(fake: Fake) -> None:
    """The answer that comes too late is not the next request's."""
    said = [None, answer({"nodes": [{"name": "right"}], "meta": META})]
    async with fake(lambda _: said.pop(0)) as (session, server):
        with pytest.raises(Unreachable, match=r"GET nodes/ took longer than 0\.05 s"):
            await nodes.list_nodes(session, deadline=0.05)
        assert (await nodes.get_node(session, "right")).name == "right"
        assert server.connections == 2
        assert session.traffic.failures == {("GET nodes/", "Unreachable"): 1}


async def test_a_slurmctld_that_is_away_is_asked_by_ping_first(tmp_path: Path) -> None:
    """Any other call would hold a thread of slurmrestd for ten seconds."""
    responding = [True]

    def script(line: str) -> bytes:
        if line.endswith("/ping/"):
            ping = {"hostname": "c", "responding": responding[0], "primary": True, "status": "connect failure"}
            return answer({"pings": [ping], "meta": META})
        return answer({"nodes": [], "meta": META}) if responding[0] else refusal(1800, "502 BAD GATEWAY")

    server = Slurmrestd(tmp_path / "s", script)
    async with server.run(), Session(f"unix:{server.socket}", Tokens(lambda: b"k" * 32, "slurm")) as session:
        await nodes.list_nodes(session)
        responding[0] = False
        for _ in range(5):
            with pytest.raises(ControllerAway):
                await nodes.list_nodes(session)
        assert session.traffic.calls["GET nodes/"] == 2
        session._away_since = asyncio.get_running_loop().time() - AWAY_SECONDS - 1
        with pytest.raises(ControllerAway):
            await nodes.list_nodes(session)
        assert session.traffic.calls["GET nodes/"] == 3
        responding[0] = True
        assert await nodes.list_nodes(session)


async def test_another_release_is_refused(tmp_path: Path) -> None:
    """Before anything else is asked of it."""
    meta = {"slurm": {"release": "25.11.2"}}
    server = Slurmrestd(tmp_path / "s", lambda _: answer({"pings": [], "meta": meta}))
    async with server.run(), Session(f"unix:{server.socket}", Tokens(lambda: b"k" * 32, "slurm")) as session:
        with pytest.raises(ReleaseError, match=r"is Slurm 25\.11\.2: Kurm works with Slurm 26\.05 only"):
            await nodes.list_nodes(session)
        assert server.requests == ["GET /slurm/v0.0.45/ping/"]


async def test_an_answer_that_does_not_fit_is_told_with_its_call(fake: Fake) -> None:
    """And with the field."""
    async with fake(lambda _: answer({"nodes": [{"name": "n1", "cpus": "many"}]})) as (session, _):
        with pytest.raises(DecodeError, match=r"^GET nodes/: Expected `int`, got `str` - at `\$\.nodes\[0\]\.cpus`"):
            await nodes.list_nodes(session)


async def test_names_are_escaped_in_paths(fake: Fake) -> None:
    """A host list's brackets too; slurmrestd takes them no other way."""
    async with fake(lambda _: answer({"meta": META})) as (session, server):
        await nodes.delete_nodes(session, ["n1", "n2", "x"])
        await jobs.job_states(session, [1, 2])
        assert server.requests[1:] == [
            "DELETE /slurm/v0.0.45/node/n%5B1-2%5D%2Cx",
            "GET /slurm/v0.0.45/jobs/state/?job_id=1&job_id=2",
        ]


async def test_an_update_says_only_what_it_changes(fake: Fake) -> None:
    """Numbers are in Slurm's form, and empty lists too."""
    async with fake(lambda _: answer({"meta": META})) as (session, server):
        await nodes.update_nodes(session, ["n2", "n1"], Update(weight=3, features=(), state="DRAIN"))
        assert server.bodies[-1] == (
            b'{"name":["n[1-2]"],"state":["DRAIN"],"features":[""],"features_act":[""],'
            b'"weight":{"set":true,"infinite":false,"number":3}}'
        )


async def test_no_names_are_no_call(fake: Fake) -> None:
    """An empty host list might mean all of them."""
    async with fake(lambda _: b"") as (session, server):
        await nodes.update_nodes(session, [], Update(state="DOWN"))
        await nodes.delete_nodes(session, [])
        await nodes.create_nodes(session, NewNode(names=(), cpus=1, real_memory=1))
        assert await jobs.cancel_jobs(session, []) == ()
        assert server.requests == []


async def test_an_empty_list_of_jobs_for_nothing_new_is_no_list(fake: Fake) -> None:
    """Slurm answers so where it says 304 of nodes; taken for a list it would end every pod."""
    nothing = {"jobs": [], "last_update": {"set": True, "infinite": False, "number": 0}, "meta": META}
    async with fake(lambda _: answer(nothing)) as (session, _):
        assert await jobs.list_jobs(session, since=7) is None


async def test_not_modified_is_no_list(fake: Fake) -> None:
    """It has no length and no body."""
    async with fake(lambda _: b"HTTP/1.1 304 NOT MODIFIED\r\n\r\n") as (session, server):
        assert await nodes.list_nodes(session, since=7) is None
        assert await cluster.list_partitions(session, since=7) is None
        assert server.connections == 1


@pytest.mark.parametrize(
    ("number", "status", "kind"),
    [
        (2018, 422, NotFound), (2017, 404, NotFound), (2168, 422, AlreadyExists), (2016, 422, Busy),
        (-1, 500, NoReason), (2180, 422, InvalidTransition), (1800, 502, ControllerAway), (5004, 504, ControllerAway),
        (1007, 511, Unauthorized), (0, 401, Unauthorized), (0, 404, NotFound), (2031, 422, ApiError),
        (0, 200, ApiError), (104, 500, ControllerAway), (22, 500, ApiError),
    ],
)  # fmt: skip
def test_an_error_is_told_by_its_number(number: int, status: int, kind: type[SlurmError]) -> None:
    """Else by the status."""
    assert type(api_error(status=status, number=number)) is kind


@pytest.mark.parametrize(
    "address", ["", "unix:", "unix:relative", "http://", "http://host", "https://host:1", "/run/x"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """With what it must be."""
    with pytest.raises(ValueError, match="it must be unix:/path or http://host:port"):
        Session(address, Tokens(lambda: b"", "slurm"))


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (NewNode(names=(), cpus=4, real_memory=100), "NodeName=n1 State=CLOUD CPUs=4 RealMemory=100"),
        (
            NewNode(
                names=(), cpus=4, real_memory=100, gres="gpu:h100:8", features=("a", "b"), weight=0, topology="t:leaf"
            ),
            "NodeName=n1 State=CLOUD CPUs=4 RealMemory=100 Gres=gpu:h100:8 Feature=a,b Weight=0 Topology=t:leaf",
        ),
        (
            NewNode(names=(), cpus=2, real_memory=1, state="EXTERNAL", address="127.0.0.1", hostname="localhost"),
            "NodeName=n1 State=EXTERNAL CPUs=2 RealMemory=1 NodeAddr=127.0.0.1 NodeHostName=localhost",
        ),
    ],
)
def test_a_record_is_a_line_of_slurm_conf(new: NewNode, line: str) -> None:
    """What is not given is left out; 0 is given."""
    assert new.line("n1") == line
