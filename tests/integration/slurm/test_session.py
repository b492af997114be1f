"""The session against a real slurmrestd: versions, errors, tokens, and a slurmctld that goes away."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from integration.slurm.conftest import opened, unknown_fields
from integration.slurm.lab import CONF, Lab
from kurm.slurm import cluster, jobs, nodes
from kurm.slurm.errors import (
    AccessDenied,
    ApiError,
    ControllerAway,
    NoReason,
    NotFound,
    ReleaseError,
    Unauthorized,
    Unreachable,
)
from kurm.slurm.nodes import NewNode, Update
from kurm.slurm.session import PARSERS, Session
from kurm.slurm.token import Identity, Tokens
from kurm.slurm.wire import Answer


async def test_the_newest_parser_is_taken_and_the_release_is_known(slurm: Session) -> None:
    """One ping settles both, with the first call; nothing is asked twice."""
    ping = await slurm.ping()
    assert (ping.responding, ping.hostname) == (True, "lab")
    assert slurm.release.startswith("26.05.")
    await slurm.ping()
    assert slurm.traffic.calls == {"GET ping/": 3}


async def test_the_next_parser_is_taken_if_the_first_is_not_there(slurm_lab: Lab) -> None:
    """A Kurm that knows a newer one too works with this Slurm."""
    tokens = Tokens(lambda: slurm_lab.key, "slurm")
    async with Session(f"unix:{slurm_lab.socket}", tokens, parsers=("v0.0.99", *PARSERS)) as slurm:
        assert (await cluster.get_controller(slurm)).release == slurm.release


async def test_another_release_is_refused_with_a_sentence(slurm: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kurm made for another Slurm would say so and do nothing."""
    monkeypatch.setattr("kurm.slurm.session.SERIES", "25.11")
    with pytest.raises(ReleaseError, match=r"is Slurm 26\.05\.\d+: Kurm works with Slurm 25\.11 only"):
        await nodes.list_nodes(slurm)
    assert slurm.traffic.calls == {"GET ping/": 1}


async def test_a_slurmrestd_without_our_parsers_is_refused(slurm_lab: Lab) -> None:
    """An older one than any that we know has other paths."""
    tokens = Tokens(lambda: slurm_lab.key, "slurm")
    async with Session(f"unix:{slurm_lab.socket}", tokens, parsers=("v0.0.9",)) as slurm:
        with pytest.raises(ReleaseError, match=r"has none of the data parsers v0\.0\.9"):
            await slurm.ping()


async def test_errors_and_answers_may_alternate(slurm: Session) -> None:
    """Slurmrestd sends each error twice; none of it is ever taken for the answer to the next request."""

    async def wrong(number: int) -> None:
        with pytest.raises(NotFound) as refused:
            await nodes.delete_nodes(slurm, [f"nowhere{number}"])
        assert (refused.value.number, refused.value.description) == (2018, f"Failure to delete node nowhere{number}")

    async def right() -> None:
        assert (await slurm.ping()).responding

    await asyncio.gather(*[call for number in range(50) for call in (wrong(number), right())])


async def test_every_field_of_an_update_is_known(slurm: Session) -> None:
    """And changes what it says; what all other tests send is looked at, too (`unknown_fields`)."""
    every = Update(
        state="DRAIN", reason="r", comment="c", extra="e", features=("f",), active_features=("f",), weight=3,
        address="127.0.0.1", hostname="localhost", resume_after=60,
    )  # fmt: skip
    await nodes.create_nodes(slurm, NewNode(names=("every",), cpus=1, real_memory=1, state="EXTERNAL"))
    await nodes.update_nodes(slurm, ["every"], every)
    found = await nodes.get_node(slurm, "every")
    assert (found.reason, found.comment, found.extra, found.features, found.weight) == ("r", "c", "e", ("f",), 3)
    await nodes.delete_nodes(slurm, ["every"])


async def test_a_misspelled_field_is_complained_of(slurm: Session) -> None:
    """So that its absence in all other tests means something."""
    await nodes.create_nodes(slurm, NewNode(names=("light",), cpus=1, real_memory=1, state="EXTERNAL"))
    with capture_logs() as logs:
        await slurm.request(Answer, "POST", "nodes/", body={"name": ["light"], "weigth": 3})
    assert ["weigth" in said for said in unknown_fields(logs)] == [True]
    await nodes.delete_nodes(slurm, ["light"])


async def test_whoever_slurm_does_not_believe_is_unauthorized(slurm_lab: Lab) -> None:
    """Another key, and a token that is over."""
    another = Tokens(lambda: b"x" * 32, "slurm")
    over = Tokens(lambda: slurm_lab.key, "slurm", clock=lambda: time.time() - 7200)
    for tokens in (another, over):
        async with Session(f"unix:{slurm_lab.socket}", tokens) as slurm:
            with pytest.raises(Unauthorized):
                await jobs.job_states(slurm)
            assert not (await slurm.ping()).responding


async def test_a_rotated_key_is_followed(slurm_lab: Lab) -> None:
    """A token that is refused is made anew once, with the key as it is now."""
    keys = [b"old-key-that-slurmctld-has-forgot", slurm_lab.key]
    async with Session(f"unix:{slurm_lab.socket}", Tokens(lambda: keys.pop(0), "slurm")) as slurm:
        await jobs.job_states(slurm)
    assert keys == []


async def test_an_identity_in_the_token_is_believed(slurm_lab: Lab) -> None:
    """A user whom slurmctld cannot look up acts under the uid of the claims, and may not touch nodes."""
    ada = Identity("ada", 12345, 12345, groups={"users": 100})
    async with Session(f"unix:{slurm_lab.socket}", Tokens(lambda: slurm_lab.key, ada)) as slurm:
        with pytest.raises(AccessDenied):
            await nodes.create_nodes(slurm, NewNode(names=("adas",), cpus=1, real_memory=1))
    async with asyncio.timeout(10):  # slurmctld's init passes its log on after slurmctld has answered
        while "uid=12345" not in slurm_lab.log():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.05)


async def test_slurmuser_may_come_by_claims_too(slurm_lab: Lab) -> None:
    """The uid of the claims decides, not the name."""
    who = Identity("kurm", 401, 401)
    async with Session(f"unix:{slurm_lab.socket}", Tokens(lambda: slurm_lab.key, who)) as slurm:
        await nodes.create_nodes(slurm, NewNode(names=("claimed",), cpus=1, real_memory=1))
        await nodes.delete_nodes(slurm, ["claimed"])


async def test_nobody_listens(tmp_path: Path) -> None:
    """A missing socket is told as such, at once."""
    async with Session(f"unix:{tmp_path}/none", Tokens(lambda: b"k" * 32, "slurm")) as slurm:
        with pytest.raises(Unreachable, match="no answer from slurmrestd at unix:"):
            await slurm.ping()


async def test_slurmctld_goes_and_comes_back(own_lab: Lab) -> None:
    """Each call says so within moments; none but the first holds a thread of slurmrestd for 10 s."""
    async with opened(own_lab) as slurm:
        await nodes.create_nodes(slurm, NewNode(names=("n1",), cpus=1, real_memory=1))
        before = await cluster.get_controller(slurm)
        own_lab.kill_controller()
        assert not (await slurm.ping()).responding
        with pytest.raises(ControllerAway):
            await nodes.list_nodes(slurm, deadline=20)
        start = time.monotonic()
        for _ in range(5):
            with pytest.raises(ControllerAway):
                await nodes.list_nodes(slurm)
        assert time.monotonic() - start < 25  # five that waited would take 50
        own_lab.start_controller()
        assert (await cluster.get_controller(slurm)).boot_time >= before.boot_time
        found = await nodes.list_nodes(slurm)
        assert found
        assert nodes.names_of(found.nodes or ()) in ({"n1"}, frozenset())  # saved up to 5 s late: a crash may forget it


async def test_slurmrestd_goes_and_comes_back(own_lab: Lab) -> None:
    """A session outlives the slurmrestd beside it."""
    async with opened(own_lab) as slurm:
        assert (await slurm.ping()).responding
        own_lab.kill_rest()
        with pytest.raises(Unreachable):
            await slurm.ping()
        own_lab.start_rest()
        assert (await slurm.ping()).responding


async def test_a_deadline_is_kept(own_lab: Lab) -> None:
    """A slurmctld that is stopped answers nothing; the caller has its sentence in time."""
    async with opened(own_lab) as slurm:
        await slurm.ping()
        for pid in own_lab.pids("slurmctld"):
            os.kill(pid, 19)  # SIGSTOP
        with pytest.raises(Unreachable, match=r"GET nodes/ took longer than 0\.5 s"):
            await nodes.list_nodes(slurm, deadline=0.5)
        for pid in own_lab.pids("slurmctld"):
            os.kill(pid, 18)  # SIGCONT


async def test_a_refused_configuration_leaves_the_old_one_running(own_lab: Lab) -> None:
    """It is refused without a reason; slurmctld lives on, and any Slurm command tells what is wrong with the file."""
    async with opened(own_lab) as slurm:
        own_lab.write_conf(CONF + "NonsenseKey=1\n")
        with pytest.raises(NoReason):
            await cluster.reconfigure(slurm)
        assert (await slurm.ping()).responding
        with pytest.raises(RuntimeError, match="Parsing error at unrecognized key: NonsenseKey"):
            own_lab.command("scontrol", "ping")
        own_lab.write_conf(CONF + "MaxTasksPerNode=77\n")
        await cluster.reconfigure(slurm)
        assert (await cluster.get_settings(slurm))["MaxTasksPerNode"] == 77


async def test_an_unknown_path_is_no_success(slurm: Session) -> None:
    """Slurmrestd's own errors are plain text, not JSON."""
    with pytest.raises(NotFound) as refused:
        await slurm.request(nodes.NodesAnswer, "GET", "nothing/")
    assert (refused.value.status, refused.value.number) == (404, 0)
    assert "Unable to find requested URL" in refused.value.error


async def test_failures_are_counted(slurm: Session) -> None:
    """By route and kind, so that a metric has few labels."""
    for name in ("nope1", "nope2"):
        with pytest.raises(ApiError):
            await nodes.delete_nodes(slurm, [name])
    assert slurm.traffic.failures == {("DELETE node/{}", "NotFound"): 2}
    assert slurm.traffic.received > 1000
