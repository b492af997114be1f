"""slurmctld's log: a daemon has no output, so it comes through a pipe, goes to our output, and is listened to."""

import asyncio
import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

STANDS = "Running as primary controller"
"""The line (26.05) with which slurmctld begins to serve."""
TAKEN = "Relinquishing control to new"
"""The line with which it gives way to a successor that has taken the configuration."""
REFUSED = "Resuming operation, reconfigure failed"
"""The line with which it goes on because its successor has not."""
LINES = 5
"""Of its errors that are told as its words: the cause stands in the last ones."""
_ASIDE = re.compile(r"error: (High latency for 1000 calls to|Nodes .* not responding)")
"""Errors (26.05) about the machine and the nodes, at any moment: beside them the cause would not be seen."""
_STAMP = re.compile(r"^\[[^]]*\] *")


class Log:
    """The pipe. `path` is what slurmctld writes to (-L); whoever listens gets each line without its time stamp."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        os.mkfifo(self.path, 0o600)
        # We hold both ends, so slurmctld can open it at any time and we never see an end.
        self._source = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[str], None]] = []
        self._rest = b""
        # A thread: our output may block, and slurmctld's end and our signals must not wait for it.
        threading.Thread(target=self._pump, daemon=True).start()

    @contextmanager
    def listen(self) -> Iterator["asyncio.Queue[str]"]:
        """Give a queue of the lines from now on."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        hear = queue.put_nowait
        self._listeners.append(hear)
        try:
            yield queue
        finally:
            self._listeners.remove(hear)

    def tell(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with each line from now on."""
        self._listeners.append(hear)

    def drain(self) -> None:
        """Copy what is left to our output, without waiting for more. Whoever listens still gets it."""
        os.set_blocking(self._source, False)
        with contextlib.suppress(BlockingIOError):
            self._pump()

    def _pump(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._source, 1 << 16):
                os.write(sys.stdout.fileno(), chunk)
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._hear, chunk)

    def _hear(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = without_stamp(line.decode(errors="replace"))
            for hear in self._listeners:
                hear(text)


def without_stamp(line: str) -> str:
    """Return a line of the log without its time."""
    return _STAMP.sub("", line)


def words(lines: Iterable[str], hidden: Iterable[str] = ()) -> str:
    """Return what slurmctld says is wrong with its configuration, in its own words: its last errors, each once.

    `hidden` are texts that are left out of them: the folders of ours that nobody has heard of.
    """
    found = (line for line in lines if line.startswith(("error: ", "fatal: ")))
    errors = list(dict.fromkeys(line for line in found if not _ASIDE.match(line)))
    told = "; ".join(errors[-LINES:])
    for text in hidden:
        told = told.replace(text, "")
    return told
