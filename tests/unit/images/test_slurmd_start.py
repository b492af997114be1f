"""slurmd's start waits for the node's record where others make it, and nowhere else."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START = Path(__file__).parents[3] / "images/slurm/slurmd_start.py"
SCONTROL = """#!/bin/sh
# Answers with the next of the files 1, 2, 3; the last one stays.
read count <count
[ -e $((count + 1)) ] && echo $((count + 1)) >count
echo "$SLURM_CONF_SERVER $*" >>asked
. ./$count
"""
SACKD = """#!/bin/sh
echo "$*" >>lent
touch sack.socket
exec sleep 60
"""
SLURMD = '#!/bin/sh\necho became "$@"\n'
UNKNOWN = "echo 'Node n1 not found' >&2; exit 1"
CONFUSED = "echo 'scontrol: error: _fetch_child: failed to fetch remote configs' >&2; exit 1"


@contextmanager
def starting(
    folder: Path, *arguments: str, answers: tuple[str, ...], sackd: str = SACKD
) -> Iterator["subprocess.Popen[str]"]:
    """Run it with what scontrol will say."""
    for name, text in {"scontrol": SCONTROL, "sackd": sackd, "slurmd": SLURMD, "count": "1\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for number, answer in enumerate(answers, start=1):
        (folder / str(number)).write_text(answer)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURMD": str(folder / "slurmd")}
    environment["SLURM_SACK_SOCKET"] = str(folder / "sack.socket")
    command = [sys.executable, str(START), *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def start(folder: Path, *arguments: str, answers: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return what slurmd was started with in the end, and the log."""
    with starting(folder, *arguments, answers=answers) as process:
        became, log = process.communicate(timeout=30)
    # Only root may use the numbers up.
    return became.strip(), [line for line in log.splitlines() if "namespace numbers" not in line]


@pytest.fixture
def slurmctld() -> Iterator[socket.socket]:
    """Bind slurmctld's port on this machine: connections are refused until it listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def ours(slurmctld: socket.socket) -> tuple[str, ...]:
    """Return slurmd's arguments as the operator renders them."""
    return ("-b", "-Z", "-N", "n1", "--conf-server", f"127.0.0.1:{slurmctld.getsockname()[1]}")


def test_a_record_that_is_there_is_taken_at_once(tmp_path: Path, slurmctld: socket.socket) -> None:
    """One question, to the slurmctld that slurmd will ask, and not a word in the log."""
    slurmctld.listen()
    arguments = ours(slurmctld)
    assert start(tmp_path, *arguments, answers=("exit 0",)) == (f"became -D {' '.join(arguments)}", [])
    assert (tmp_path / "asked").read_text() == f"{arguments[-1]} --oneliner show node n1\n"
    assert (tmp_path / "lent").read_text() == f"-D --conf-server {arguments[-1]}\n"


def test_a_sackd_that_fails_is_told_and_started_again(tmp_path: Path, slurmctld: socket.socket) -> None:
    """Without a credential nothing can be asked; its own last words are the reason."""
    slurmctld.listen()
    arguments = ours(slurmctld)
    failing = "#!/bin/sh\necho '[2026-01-01] fatal: no key' >&2\nexit 1\n"
    with starting(tmp_path, *arguments, answers=("exit 0",), sackd=failing) as process:
        assert process.stderr is not None
        away = f"slurmd-start: waiting: slurmctld at {arguments[-1]} does not answer: fatal: no key\n"
        assert process.stderr.readline() == away
        (tmp_path / "sackd").write_text(SACKD)
        became, _ = process.communicate(timeout=30)
    assert became == f"became -D {' '.join(arguments)}\n"


def test_each_state_of_the_wait_is_told_once(tmp_path: Path, slurmctld: socket.socket) -> None:
    """There is an answer that is none, then no record, then one: slurmd starts after that, and no sooner."""
    slurmctld.listen()
    arguments = ours(slurmctld)
    became, log = start(tmp_path, *arguments, answers=(CONFUSED, UNKNOWN, UNKNOWN, "exit 0"))
    assert became == f"became -D {' '.join(arguments)}"
    away = f"slurmctld at {arguments[-1]} does not answer: _fetch_child: failed to fetch remote configs"
    assert log[:2] == [
        f"slurmd-start: waiting: {away}",
        "slurmd-start: waiting: slurmctld does not know node n1 yet",
    ]
    assert [line.rpartition(",")[0] for line in log[2:]] == ["slurmd-start: slurmctld knows node n1"]


def test_a_slurmctld_that_is_away_is_waited_for(tmp_path: Path, slurmctld: socket.socket) -> None:
    """Its port is tried; scontrol, which would take 10 s to say so, is not asked before somebody listens."""
    arguments = ours(slurmctld)
    with starting(tmp_path, *arguments, answers=("exit 0",)) as process:
        assert process.stderr is not None
        away = f"slurmd-start: waiting: slurmctld at {arguments[-1]} does not answer: Connection refused\n"
        assert process.stderr.readline() == away
        assert not (tmp_path / "asked").exists()
        slurmctld.listen()
        became, _ = process.communicate(timeout=30)
    assert became == f"became -D {' '.join(arguments)}\n"


def test_a_slurmd_that_makes_its_record_itself_does_not_wait(tmp_path: Path) -> None:
    """As in bare Slurm (--conf), or with a slurm.conf of its own: scontrol is not asked."""
    bare = ("-Z", "-N", "n1", "--conf-server", "slurmctld:6817", "--conf", "CPUs=2 RealMemory=3000")
    for arguments in (bare, ("-N", "n1"), ("-Z", "-N", "n1"), ("-V",)):
        assert start(tmp_path, *arguments, answers=("exit 1",))[0] == f"became -D {' '.join(arguments)}"
    assert not (tmp_path / "asked").exists()
