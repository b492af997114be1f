"""Run slurmctld as a daemon and be its init: reap, pass its log to our output, forward signals, end as it ends.

    slurmctld-init [ARGUMENT OF slurmctld]...

Signals: TERM and INT end slurmctld, HUP reconfigures it, USR2 reopens its log. Exit status: slurmctld's own, 128 + N if
signal N ended it.

In a cluster with an operator (/etc/slurm has a file `kurm-hash`) it also brings configurations into force: each new one
is copied, tried (`trial`), and only then given to slurmctld by a reconfigure. What Slurm refuses is told, with its
words, and slurmctld runs on with the last good one, which is kept beside its state (`folders`), so that a start with
a bad file is no crash loop either. What the trial refuses is not tried again until another one comes. What slurmctld
itself refuses may be right a little later, because its state was in the way: the place of a node record that is not in
the new topology.yaml. So that is tried again. Port 6819 tells all that (`answers`), and of which nodes and jobs the log
speaks (`hints`, `jobs`). Where pods are placed through Slurm it keeps partitions shut after a start (`gate`).
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurmctld_init.answers import Answers
from slurmctld_init.commands import Commands
from slurmctld_init.folders import Source, Store, TornError
from slurmctld_init.gate import Gate
from slurmctld_init.guard import Guard
from slurmctld_init.hints import Hints
from slurmctld_init.jobs import Jobs
from slurmctld_init.log import REFUSED, STANDS, TAKEN, Log, words
from slurmctld_init.processes import Processes, become_subreaper
from slurmctld_init.server import Server
from slurmctld_init.status import PORT, Status
from slurmctld_init.trial import trial

ENDING = (signal.SIGTERM, signal.SIGINT)
FORWARDED = (*ENDING, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
EVERY = 0.5
"""Seconds between looks at /etc/slurm. Polling reads a file of 16 letters. inotify would gain a quarter of a second of
the many that the kubelet takes, and Python has no interface to it."""
VERDICT_SECONDS = 10.0
"""Until slurmctld says whether it has taken a configuration; with 10,000 jobs it takes a few seconds."""
AGAIN, LATEST = 30.0, 600.0
"""Seconds until a configuration is tried again that passed its trial, and that slurmctld did not take: twice as many
each time, and no more than the second, because each try is a reconfigure and another one back."""
KEY = "jwt_hs256.key"
"""The file of the key that signs tokens, among the projected ones (operator/render/names.py)."""
TUNABLES = "glibc.malloc.tcache_count=65535"
"""What slurmctld's allocator keeps of each size for a thread; the most that glibc takes, seven by default. For each job
that it places slurmctld makes and frees a few small blocks a node. With 10,000 nodes an allocation costs it 9.5 ms of
CPU so, and 12.0 without (medians of ten runs each, 8.9 to 10.9 and 9.3 to 14.1), and no more memory."""
SIGNALS = 6
"""How often it is asked. A signal that comes while it resumes after a refusal can be lost; one too many is harmless."""


class EndedError(Exception):
    """slurmctld has ended, or was never to be; `status` is what we end with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Init:
    """One slurmctld's life. `arguments` are slurmctld's own."""

    def __init__(self, arguments: Sequence[str], log: Log) -> None:
        self.arguments, self.log = arguments, log
        self.source = Source(Path(os.environ.get("KURM_SOURCE", "/etc/slurm")))
        self.store = Store(Path(os.environ.get("KURM_STORE", "/var/spool/slurmctld/kurm")))
        self.guard = Guard(Path(os.environ.get("KURM_STATE", "/var/spool/slurmctld/state")))
        self.processes = Processes(os.environ.get("SLURMCTLD", "/usr/sbin/slurmctld"))
        self.status, self.hints, self.jobs = Status(), Hints(), Jobs(log.caught_up)
        log.tell(self.hints.hear)
        log.tell(self.jobs.hear)
        log.lost = self._heed_loss
        self.commands = Commands(self.processes, lambda: self._environment)
        self.gate = Gate(self.commands.run, self.guard.folder)
        self.ending = False
        """Whether slurmctld was told to end: that is no fault of its configuration."""
        self._seen = ""
        """The hash that was looked at last, whatever came of it."""
        self._again_at = float("inf")
        """When it is looked at once more, by the event loop's clock."""
        self._waits = AGAIN

    async def run(self) -> int:
        """Stay until slurmctld has ended; return its exit status."""
        operated = bool(self.source.hash())
        if conf := os.environ.pop("SLURM_CONF", ""):
            point(Path(conf).parent, self.store.current if operated else self.source.folder)
        if not operated:
            self._start(dict(os.environ))
            return await self.processes.ended
        key = self.source.folder / KEY
        answers = Answers(self.status, self.hints, self.jobs, self.gate, run=self.commands.run, key=key)
        try:
            server = await Server(answers.routes).serve(int(os.environ.get("KURM_STATUS_PORT", PORT)))
        except OSError as error:
            say(f"the configuration in force cannot be told: {error}")
        else:
            await server.start_serving()
        await self._begin()
        following = asyncio.ensure_future(self._follow())
        try:
            return await self.processes.ended
        finally:
            following.cancel()

    def _start(self, environment: dict[str, str]) -> None:
        tuned = {"GLIBC_TUNABLES": TUNABLES, **environment}
        self.processes.start("-L", str(self.log.path), *self.arguments, environment=tuned)

    @property
    def _environment(self) -> dict[str, str]:
        """slurmctld's, so that it finds its configuration in our copy and its key where the Secret is mounted."""
        key = os.environ.get("SLURM_SACK_KEY", f"{self.source.folder}/slurm.key")
        return dict(os.environ) | {"SLURM_CONF": f"{self.store.current}/slurm.conf", "SLURM_SACK_KEY": key}

    def _heed_loss(self) -> None:
        say("lines of slurmctld's log may be missing: its followers look at all")
        self.hints.ring.lose()
        self.jobs.lose()

    async def _begin(self) -> None:
        """Have slurmctld stand, with what is projected or the last good one; wait if Slurm takes neither.

        Raises EndedError if it ends though its configuration is not what is wrong.
        """
        while True:
            newest, good = await self._newest(), self.store.good
            if newest != good and (said := await self._tried(newest)):
                self._refuse(newest, said)
            elif (last := await self._stands(newest)) is None:
                return self._in_force(newest)
            elif self.ending or good in {"", newest}:
                raise EndedError(await self.processes.ended)
            else:
                self._refuse(newest, last)
                self._try_again_later()
            if good:
                say(f"starting with the last good configuration {good}")
                if await self._stands(good) is not None:
                    raise EndedError(await self.processes.ended)
                self.status.hash = good
                return None
            say("there is no last good configuration to start with: waiting for another one")
            while self.source.hash() == newest:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(EVERY)

    async def _stands(self, found: str) -> str | None:
        """Start slurmctld with a configuration; return None when it serves, else its last words, when it has ended."""
        self.store.use(found)
        if self.guard.hold_back():
            say("slurmctld was ended before it had saved all of its state: it starts with what there is")
        said: list[str] = []
        self.status.epoch = ""
        self.gate.close(self.store.current)
        await self.jobs.begin()
        with self.log.listen() as lines:
            self._start(self._environment)
            while (line := await self._next(lines)) != STANDS:
                if line is None:
                    return words(said, hidden=self._hidden(found)) or "slurmctld ended and did not say why"
                said.append(line)
        self.status.epoch = uuid.uuid4().hex
        self.gate.wait()
        return None

    async def _next(self, lines: "asyncio.Queue[str]") -> str | None:
        """Return the next line of the log; None when slurmctld has ended and all of it was read."""
        line = asyncio.ensure_future(lines.get())
        either: set[asyncio.Future[Any]] = {line, self.processes.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not line.done():
            await asyncio.sleep(0.1)  # what it wrote last may still be on its way
        if line.done():
            return line.result()
        line.cancel()
        return None

    async def _follow(self) -> None:
        """Bring each new configuration into force, for ever."""
        problem = ""
        while True:
            await asyncio.sleep(EVERY)
            try:
                self.guard.note()
                newest = self.source.hash()
                if newest and (newest != self._seen or asyncio.get_running_loop().time() >= self._again_at):
                    self._waits = AGAIN if newest != self._seen else min(2 * self._waits, LATEST)
                    self._again_at = float("inf")
                    await self._apply(self._take())
            except TornError:
                continue
            except (OSError, ValueError) as error:  # a full disk: it may be better in a second
                if str(error) != problem:
                    problem = str(error)
                    say(f"the new configuration cannot be taken: {problem}")

    async def _apply(self, newest: str) -> None:
        before = self.status.hash
        if newest == before:
            return self._in_force(newest)
        if said := await self._tried(newest):
            return self._refuse(newest, said)
        self.store.use(newest)
        if said := await self._reconfigured(newest):
            self._refuse(newest, said)
            self._try_again_later()
            # It may have been handed out already, so the good one is handed out again.
            self.store.use(before)
            await self._reconfigured(before)
            return None
        self.gate.renew(self.store.current)
        return self._in_force(newest)

    async def _reconfigured(self, found: str) -> str:
        """Have slurmctld read its configuration again; return its words if it does not take it, else nothing."""
        said: list[str] = []
        with self.log.listen() as lines:
            for _ in range(SIGNALS):
                self.processes.send(signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(VERDICT_SECONDS):
                        while not (line := await lines.get()).startswith((TAKEN, REFUSED)):
                            said.append(line)
                    if line.startswith(TAKEN):
                        return ""
                    return words(said, hidden=self._hidden(found)) or f"{REFUSED}."
        return f"slurmctld did not say within {SIGNALS * VERDICT_SECONDS:.0f} s whether it takes it"

    async def _newest(self) -> str:
        """Keep a copy of what is projected now, and return its hash."""
        while True:
            with contextlib.suppress(TornError):
                return self._take()
            await asyncio.sleep(EVERY)

    def _take(self) -> str:
        self._seen = self.store.take(self.source)
        return self._seen

    async def _tried(self, found: str) -> str:
        return await trial(self.store.of(found), self.processes, self._environment)

    def _try_again_later(self) -> None:
        self._again_at = asyncio.get_running_loop().time() + self._waits

    def _hidden(self, found: str) -> tuple[str, ...]:
        return f"{self.store.current}/", f"{self.store.of(found)}/"

    def _in_force(self, found: str) -> None:
        self.store.keep(found)
        self.status.hash, self.status.refused, self.status.words = found, "", ""
        say(f"configuration {found} is in force")

    def _refuse(self, found: str, said: str) -> None:
        self.status.refused, self.status.words = found, said
        say(f"configuration {found} is refused: {said}")


def point(link: Path, folder: Path) -> None:
    """Have a link lead to a folder; one that is there is from an earlier start. Raises OSError."""
    link.unlink(missing_ok=True)
    link.symlink_to(folder)


def say(text: str) -> None:
    """Write a line into the container's log."""
    sys.stderr.write(f"slurmctld-init: {text}\n")
    sys.stderr.flush()


async def _live(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="slurmctld-log-") as folder:
        log = Log(Path(folder))
        init = Init(arguments, log)
        life = asyncio.ensure_future(init.run())
        loop = asyncio.get_running_loop()
        stopped: list[int] = []

        def forward(number: int) -> None:
            init.ending = init.ending or number in ENDING
            if not init.processes.send(number) and number in ENDING:
                stopped.append(number)
                life.cancel()

        # Before the first child exists, so that no signal is lost.
        for number in FORWARDED:
            loop.add_signal_handler(number, forward, number)
        try:
            return await life
        except EndedError as error:
            return error.status
        except OSError as error:  # the state volume is full, or not ours to write
            say(f"cannot go on: {error}")
            return 1
        except asyncio.CancelledError:
            return 128 + stopped[0]
        finally:
            log.drain()


def main(arguments: Sequence[str]) -> int:
    """Live slurmctld's life, and return its exit status."""
    try:
        become_subreaper()
    except OSError as error:
        say(f"cannot become a subreaper: {error.strerror}")
        return 1
    return asyncio.run(_live(arguments))
