"""slurmctld's init follows a daemon whose process id changes, passes its log on, and ends as it ends."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from slurmctld_init.guard import FILES, NAME, Guard

IMAGES = Path(__file__).parents[3] / "images/slurm"

# What slurmctld does as a daemon, and nothing else: it leaves its parents behind, writes to its log file, starts a
# successor on HUP (which may refuse), and ends on TERM.
DAEMON = f"""#!{sys.executable}
import ctypes, os, signal, sys
if "--broken" in sys.argv:
    sys.exit("bad configuration")
log = open(sys.argv[sys.argv.index("-L") + 1], "a", buffering=1)
if "SUCCESSOR" not in os.environ:
    for _ in range(2):
        if os.fork():
            os._exit(0)
        os.setsid()
    for number in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), number)
signals = {{signal.SIGHUP, signal.SIGTERM, signal.SIGUSR2}}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"slurmscriptd", 0, 0, 0)
    os._exit(3)  # ends with a status of its own, and its parent never asks for it
print("up", os.getpid(), *sys.argv[3:], file=log)
while True:
    received = signal.sigwait(signals)
    if received == signal.SIGTERM:
        print("down", os.getpid(), file=log)
        os._exit(7)
    if received == signal.SIGUSR2:
        os.kill(os.getpid(), signal.SIGKILL)
    if received == signal.SIGHUP:
        if os.fork() == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            os.execve(sys.argv[0], sys.argv, {{**os.environ, "SUCCESSOR": "1"}})
        os._exit(0)
"""


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Run the init with the daemon above; give the process and its output."""
    daemon = folder / "slurmctld"
    daemon.write_text(DAEMON)
    daemon.chmod(0o755)
    environment = {**os.environ, "SLURMCTLD": str(daemon), "PYTHONPATH": str(IMAGES)}
    with subprocess.Popen(
        [sys.executable, IMAGES / "slurmctld-init", *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as init:
        try:
            assert init.stdout is not None
            yield init, init.stdout
        finally:
            for pid in [*children(init.pid), init.pid]:
                if init.poll() is None:
                    os.kill(pid, signal.SIGKILL)


def children(parent: int) -> list[int]:
    """Return the ids of the process's children, zombies too."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
        except OSError:  # it ended while we looked
            continue
    return found


def test_the_log_of_a_daemon_comes_out_and_its_status_is_ours(tmp_path: Path) -> None:
    """A daemon has no output and no parent, yet its log is the container's output and its end the container's."""
    with running(tmp_path, "-v") as (init, output):
        word, pid, argument = output.readline().split()
        assert (word, argument) == ("up", "-v")
        assert int(pid) in children(init.pid)
        init.send_signal(signal.SIGTERM)
        assert output.readline() == f"down {pid}\n"
        assert init.wait() == 7


def test_a_reconfigure_changes_the_process_and_we_follow_it(tmp_path: Path) -> None:
    """HUP makes a successor; the log goes on, the predecessor's end is no end, and TERM reaches the successor."""
    with running(tmp_path) as (init, output):
        pids = [output.readline().split()[1]]
        for _ in range(3):
            init.send_signal(signal.SIGHUP)
            pids.append(output.readline().split()[1])
        assert len(set(pids)) == 4
        init.send_signal(signal.SIGTERM)
        assert output.readline() == f"down {pids[-1]}\n"
        assert init.wait() == 7


def test_a_killed_slurmctld_ends_the_container(tmp_path: Path) -> None:
    """A daemon that a signal ends gives 128 + the signal, as a shell would say it."""
    with running(tmp_path) as (init, output):
        output.readline()
        init.send_signal(signal.SIGUSR2)
        assert init.wait() == 128 + signal.SIGKILL


def test_a_start_that_fails_is_told_and_its_status_is_ours(tmp_path: Path) -> None:
    """What slurmctld says before it becomes a daemon comes out, and its status too."""
    with running(tmp_path, "--broken") as (init, _):
        _, said = init.communicate()
        assert said == "bad configuration\n"
        assert init.returncode == 1


def test_the_programs_need_nothing_but_python() -> None:
    """They run in images that have Python and none of Kurm's dependencies."""
    trees = [ast.parse(path.read_text()) for path in IMAGES.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "slurmctld_init"}


def test_slurms_guard_stands_once_all_of_its_state_was_saved(tmp_path: Path) -> None:
    """Before that a killed slurmctld would never start again; afterwards a file that is missing was lost."""
    guard = Guard(tmp_path)
    assert guard.hold_back() is False
    for name in (NAME, *FILES[1:]):
        (tmp_path / name).touch()
    assert (guard.hold_back(), (tmp_path / NAME).exists()) == (True, False)
    for name in (NAME, *FILES):
        (tmp_path / name).touch()
    assert guard.note() is True
    (tmp_path / FILES[0]).unlink()
    assert (guard.hold_back(), (tmp_path / NAME).exists()) == (False, True)
