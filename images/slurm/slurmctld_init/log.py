"""slurmctld's log: a daemon has no output, so it comes through a pipe, goes to our output, and is listened to."""

import array
import asyncio
import contextlib
import fcntl
import os
import re
import select
import sys
import termios
import threading
import time
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
STALLED = 4.0
"""Seconds that our output may take. slurmctld drops a line that has no room for 5 s (26.05, _fd_writeable)."""
_STAMP = re.compile(r"^\[[^]]*\] *")


class Log:
    """The pipe. `path` is what slurmctld writes to (-L); whoever listens gets each line without its time stamp.

    `lost` is called when lines may be missing before those that come next.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        os.mkfifo(self.path, 0o600)
        # We hold both ends, so slurmctld can open it at any time and we never see an end.
        self._source = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[str], None]] = []
        self.lost: Callable[[], None] = lambda: None
        self._rest = b""
        # Bytes: those that have left the pipe, and of those the ones that were heard. Who has the lock may compare the
        # first with what is in the pipe.
        self._taking, self._taken, self._heard = threading.Lock(), 0, 0
        self._more = asyncio.Event()
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

    async def caught_up(self) -> None:
        """Wait until all is heard that slurmctld had written when this was called."""
        with self._taking:
            waiting = array.array("i", [0])
            fcntl.ioctl(self._source, termios.FIONREAD, waiting)
            written = self._taken + waiting[0]
        while self._heard < written:
            self._more.clear()
            await self._more.wait()

    def drain(self) -> None:
        """Copy what is left to our output, without waiting for more. Whoever listens still gets it."""
        while self._pass_on():
            pass

    def _pump(self) -> None:
        some = select.poll()
        some.register(self._source, select.POLLIN)
        while True:
            some.poll()
            self._pass_on()

    def _pass_on(self) -> bool:
        """Copy what is in the pipe to the loop and to our output; return whether there was any."""
        with self._taking:
            try:
                chunk = os.read(self._source, 1 << 16)
            except BlockingIOError:
                return False
            self._taken += len(chunk)
            self._call(self._hear, chunk)
        begun = time.monotonic()
        os.write(sys.stdout.fileno(), chunk)
        if time.monotonic() - begun > STALLED:
            self._call(self.lost)
        return True

    def _call(self, hear: Callable[..., None], *what: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(hear, *what)

    def _hear(self, chunk: bytes) -> None:
        try:
            self._tell(chunk)
        finally:  # or who waits for all to be heard would wait for ever
            self._heard += len(chunk)
            self._more.set()

    def _tell(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = without_stamp(line.decode(errors="replace"))
            for hear in self._listeners:
                try:
                    hear(text)
                except Exception as error:  # noqa: BLE001 - tenants write here, and a line must not cost others theirs
                    sys.stderr.write(f"slurmctld-init: a line of slurmctld's log cannot be read: {error}\n")
                    self.lost()


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
