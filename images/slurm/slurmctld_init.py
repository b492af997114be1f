#!/usr/bin/python3
"""Run slurmctld as a daemon and be its init: reap, pass its log to our output, forward signals, end as it ends.

slurmctld runs daemonised, not with -D, because of how it takes a new configuration. With -D it replaces itself and a
refused file ends it. As a daemon it starts a successor and gives way only when that one stands; a refused file costs a
line in the log. So its process id changes with each reconfigure, and no plain init can follow it. We are the subreaper
of all that it starts: whatever loses its parent becomes our child, so the current slurmctld is always a child of ours.

    slurmctld-init [ARGUMENT OF slurmctld]...

Signals: TERM and INT end slurmctld, HUP reconfigures it, USR2 reopens its log. Exit status: slurmctld's own, 128 + N if
signal N ended it.
"""

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PROGRAM = "slurmctld"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def name_of(pid: int) -> str:
    """Return the process's name as the kernel knows it, also for a zombie; empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def parent_of(pid: int) -> int:
    """Return the id of the process's parent; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError):
        # The name stands in parentheses and may hold anything; the state and the parent follow it.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def daemons(program: str) -> list[int]:
    """Return the slurmctld processes, living or unreaped, that are children of ours: two for a moment at a change."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if name_of(pid) == program and parent_of(pid) == os.getpid()]


def reap(program: str) -> int | None:
    """Reap every child that has ended; return the exit status of slurmctld if none of it is left, else None.

    slurmctld's helper (slurmscriptd) and whatever they leave behind end without a meaning for us.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 1  # nothing is left, and slurmctld's own end was not seen: it never stood
        if ended is None:
            return None
        name = name_of(ended.si_pid)
        _, status = os.waitpid(ended.si_pid, 0)
        # A successor is our child before its predecessor can be reaped, so "none" here means the end.
        if name == program and not daemons(program):
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def pump(source: int) -> None:
    """Copy what comes out of `source` to our standard output, for ever."""
    while chunk := os.read(source, 1 << 16):
        os.write(sys.stdout.fileno(), chunk)


def drain(source: int) -> None:
    """Copy what is left in `source` to our standard output, without waiting for more."""
    os.set_blocking(source, False)
    with contextlib.suppress(BlockingIOError):
        pump(source)


def main(arguments: list[str]) -> int:
    """Start slurmctld, stay until it has ended, return its exit status."""
    executable = os.environ.get("SLURMCTLD", f"/usr/sbin/{PROGRAM}")
    program = Path(executable).name[:15]  # the kernel keeps 15 characters
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.stderr.write(f"slurmctld-init: cannot become a subreaper: {os.strerror(ctypes.get_errno())}\n")
        return 1
    # Blocked before the first child exists, so that no signal is lost; sigwait takes them one by one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
    with tempfile.TemporaryDirectory(prefix="slurmctld-log-") as folder:
        fifo = Path(folder) / "log"
        os.mkfifo(fifo, 0o600)
        # A daemon has no output. We hold both ends, so it can open the log at any time and we never see an end.
        log = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
        os.posix_spawn(executable, [executable, "-L", str(fifo), *arguments], os.environ, setsigmask=())
        threading.Thread(target=pump, args=(log,), daemon=True).start()
        while True:
            received = signal.sigwait({signal.SIGCHLD, *FORWARDED})
            if received != signal.SIGCHLD:
                for pid in daemons(program):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, received)
            elif (status := reap(program)) is not None:
                drain(log)
                return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
