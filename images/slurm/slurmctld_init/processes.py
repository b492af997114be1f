"""The processes below us: slurmctld, whose process id changes, and whatever it leaves behind.

slurmctld runs daemonised, not with -D, because of how it takes a new configuration. With -D it replaces itself and a
refused file ends it. As a daemon it starts a successor and gives way only when that one stands; a refused file costs a
line in the log. So its process id changes with each reconfigure, and no plain init can follow it. We are the subreaper
of all that it starts: whatever loses its parent becomes our child, so the current slurmctld is always a child of ours.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


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


def become_subreaper() -> None:
    """Have the kernel give us the processes below us that lose their parent. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Processes:
    """Starts, signals and reaps them, inside a running event loop."""

    def __init__(self, executable: str) -> None:
        self.executable = executable
        self.program = Path(executable).name[:15]  # the kernel keeps 15 characters
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit status of the slurmctld that `start` started, once none of it is left; 128 + N after signal N."""
        self._others: dict[int, asyncio.Future[int]] = {}
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(self, *arguments: str, environment: Mapping[str, str]) -> None:
        """Start slurmctld as a daemon; the one before, if any, must have ended."""
        self.ended = asyncio.get_running_loop().create_future()
        os.posix_spawn(self.executable, [self.executable, *arguments], environment, setsigmask=())

    def start_another(
        self, *arguments: str, environment: Mapping[str, str], output: int
    ) -> tuple[int, asyncio.Future[int]]:
        """Start a second slurmctld that stays our child (-D) and is no part of the first, in its own process group.

        `output` is the descriptor for what it prints. Return its process id and what will be its exit status.
        """
        return self.start_command(self.executable, *arguments, environment=environment, output=output)

    def start_command(
        self, *words: str, environment: Mapping[str, str], output: int
    ) -> tuple[int, asyncio.Future[int]]:
        """Start a program that is no slurmctld of ours, found by PATH; as `start_another`. Raises OSError."""
        printed = [(os.POSIX_SPAWN_DUP2, output, number) for number in (1, 2)]
        pid = os.posix_spawnp(words[0], words, environment, file_actions=printed, setpgroup=0, setsigmask=())
        self._others[pid] = asyncio.get_running_loop().create_future()
        return pid, self._others[pid]

    def daemons(self) -> list[int]:
        """Return the slurmctld processes, living or unreaped, that are children of ours: two at a change."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        found = [pid for pid in pids if name_of(pid) == self.program and parent_of(pid) == os.getpid()]
        return [pid for pid in found if pid not in self._others]

    def send(self, number: int) -> bool:
        """Send a signal to slurmctld; return whether there is one."""
        found = self.daemons()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(found)

    def _reap(self) -> None:
        """Reap every child that has ended, and tell of slurmctld's end when none of it is left.

        slurmctld's helper (slurmscriptd) and whatever they leave behind end without a meaning for us.
        """
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._tell(1)  # nothing is left, and slurmctld's own end was not seen: it never stood
                return
            if ended is None:
                return
            name = name_of(ended.si_pid)
            code = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
            status = code if code >= 0 else 128 - code
            if other := self._others.pop(ended.si_pid, None):
                other.set_result(status)
            # A successor is our child before its predecessor can be reaped, so "none" here means the end.
            elif name == self.program and not self.daemons():
                self._tell(status)

    def _tell(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)
