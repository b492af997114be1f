"""What slurmctld's init tells of a log: why a configuration is not taken, and nothing else; and when it knows all."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from slurmctld_init import log as module
from slurmctld_init.log import Log, words

CAUSE = ["error: Parsing error at unrecognized key: Bad", "fatal: Unable to process configuration file"]


def test_only_what_is_wrong_with_the_configuration_is_told() -> None:
    """A busy machine and silent nodes are complained of at any moment, amid a refusal, too."""
    said = [
        "error: High latency for 1000 calls to gettimeofday(): 237 microseconds",
        "Running with local authentication",
        CAUSE[0],
        "error: Nodes gpu-[0-7] not responding",
        CAUSE[1],
    ]
    assert "; ".join(CAUSE) == words(said)


def test_an_error_is_told_once_and_without_our_folders() -> None:
    """A parser says the same of each file that includes another, and nobody has heard of the trial's folder."""
    said = ["error: in /run/trial/slurm.conf: Bad", "error: in /run/trial/slurm.conf: Bad", CAUSE[1]]
    assert f"error: in slurm.conf: Bad; {CAUSE[1]}" == words(said, hidden=["/run/trial/"])


def test_of_many_errors_the_last_ones_are_told() -> None:
    """The cause stands at the end."""
    errors = [f"error: {number}" for number in range(7)]
    assert "; ".join([*errors[-4:], "fatal: 7"]) == words([*errors, "fatal: 7"])


async def test_all_that_was_written_is_heard_when_it_says_so(tmp_path: Path) -> None:
    """However much is in the pipe, and on its way from there; half a line counts as written."""
    log, heard = Log(tmp_path), list[str]()
    log.tell(heard.append)
    with log.path.open("w") as slurmctld:
        for number in range(2000):
            slurmctld.write(f"[2026-11-23T05:00:00.000] line {number}\n")
            slurmctld.flush()
            if number % 100 == 0:
                await log.caught_up()
                assert f"line {number}" == heard[-1]
        slurmctld.write("half")
        slurmctld.flush()
        await log.caught_up()
        slurmctld.write(" a line\n")
        slurmctld.flush()
        await log.caught_up()
    assert [f"line {number}" for number in range(2000)] + ["half a line"] == heard


async def test_an_output_that_was_stuck_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurmctld drops lines then, and whoever follows the log must not take it for whole."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    monkeypatch.setattr("sys.stdout.fileno", lambda: write)
    monkeypatch.setattr(module, "STALLED", 0.05)
    log, lost = Log(tmp_path), asyncio.Event()
    log.lost = lost.set
    os.write(write, b"x" * (1 << 16))  # nobody reads our output
    with log.path.open("w") as slurmctld:
        slurmctld.write("a line\n")
    await log.caught_up()
    time.sleep(0.1)  # noqa: ASYNC251 - the other thread is stuck meanwhile
    assert not lost.is_set()
    os.read(read, 1 << 16)
    async with asyncio.timeout(5):
        await lost.wait()


async def test_a_line_that_cannot_be_read_costs_nobody_another(tmp_path: Path) -> None:
    """Tenants write lines: who fails at one goes on with the next, as do all others, and is told of a loss."""
    log, heard, lost = Log(tmp_path), list[str](), list[bool]()
    log.tell(lambda line: heard.append(str(int(line))))
    log.tell(heard.append)
    log.lost = lambda: lost.append(True)
    with log.path.open("w") as slurmctld:
        slurmctld.write("1\nx\n2\n")
    await log.caught_up()
    assert heard == ["1", "1", "x", "2", "2"]
    assert lost == [True]
