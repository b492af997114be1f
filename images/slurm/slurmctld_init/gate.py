"""The gate: after a start of slurmctld nothing starts until what runs on the nodes is known to it again.

slurmctld saves its state seconds late. What it forgot by a crash it would give away at once, with pods still there. So
where pods are placed slurm.conf has all partitions DOWN, with ReconfigFlags=KeepPartState, and the file `kurm-gate`
beside it says which states they are to have. The scheduler pins what is bound and opens the gate. If it is away the
gate opens by itself after `wait` seconds: Slurm's own users shall not wait for ever.

A reconfigure keeps states, so the gate stays open; partitions that are new to it get theirs at once. But KeepPartState
means a restart, too: slurmctld reads from its file `part_state` that they were UP, and starts jobs in the second in
which it returns. So that file is taken away before a start.
"""

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from slurmctld_init.commands import CommandError, Run

FILE = "kurm-gate"
NONE, CLOSED, OPEN = "none", "closed", "open"
SAVED = ("part_state", "part_state.old")
"""Where slurmctld (26.05, load_all_part_state) finds the states that partitions had."""
AGAIN = 1.0
"""Seconds until partitions are set once more that could not be."""
STATES = frozenset({"UP", "DOWN", "DRAIN", "INACTIVE"})
_NAME = re.compile(r"[\w.-]{1,256}")


class Gate:
    """`run` runs one of Slurm's commands; `saved` is the folder of slurmctld's state."""

    def __init__(self, run: Run, saved: Path) -> None:
        self.state = NONE
        self._run, self._saved = run, saved
        self._partitions: dict[str, str] = {}
        self._wait = 0.0
        self._working = asyncio.Lock()
        self._waiting: asyncio.Task[None] | None = None

    def close(self, folder: Path) -> None:
        """Take up what a configuration says, which slurmctld is about to be started with. Raises OSError."""
        self._then(None)
        self._partitions, self._wait = read(folder)
        self.state = CLOSED if self._partitions else NONE
        for name in SAVED if self._partitions else ():
            (self._saved / name).unlink(missing_ok=True)

    def wait(self) -> None:
        """Open by itself when the time is over that the configuration gives the scheduler: slurmctld answers now."""
        if self.state == CLOSED:
            self._then(self._open_later(self._wait))

    def renew(self, folder: Path) -> None:
        """Take up what a configuration says, which slurmctld has just been reconfigured with."""
        before, was = self._partitions, self.state
        self._partitions, _ = read(folder)
        if not self._partitions:
            self.state = NONE
            self._then(None)
        elif was != CLOSED:
            self.state = OPEN
            new = {name: state for name, state in self._partitions.items() if before.get(name) != state}
            self._then(self._keep_setting(new))

    async def open(self) -> None:
        """Have partitions take their states. Repeating it is harmless. Raises CommandError."""
        async with self._working:
            if self.state == CLOSED:
                await self._set(self._partitions)
                self.state = OPEN
                _say("partitions have their states")

    async def _open_later(self, wait: float) -> None:
        await asyncio.sleep(wait)
        if self.state == CLOSED:
            _say(f"nobody has opened the gate in {wait:g} s: partitions get their states")
        while self.state == CLOSED:
            try:
                await self.open()
            except CommandError as error:
                _say(f"partitions cannot be set: {error}")
                await asyncio.sleep(AGAIN)

    async def _keep_setting(self, partitions: Mapping[str, str]) -> None:
        while True:
            try:
                return await self._set(partitions)
            except CommandError as error:
                _say(f"partitions cannot be set: {error}")
                await asyncio.sleep(AGAIN)

    async def _set(self, partitions: Mapping[str, str]) -> None:
        refused: CommandError | None = None
        for name, state in partitions.items():
            try:
                await self._run("scontrol", "update", f"PartitionName={name}", f"State={state}")
            except CommandError as error:
                refused = error
        if refused:
            raise refused

    def _then(self, work: object) -> None:
        """Do this from now on, and nothing else."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.ensure_future(work) if asyncio.iscoroutine(work) else None


def read(folder: Path) -> tuple[dict[str, str], float]:
    """Return the partitions' states, and for how many seconds to wait; no partitions if there is no gate.

    What cannot be read is no gate either, and is told: partitions then stay as slurm.conf has them.
    """
    try:
        found = json.loads((folder / FILE).read_text())
        partitions, wait = dict(found["partitions"]), float(found["wait"])
    except FileNotFoundError:
        return {}, 0.0
    except (OSError, ValueError, TypeError, KeyError) as error:
        _say(f"{FILE} cannot be read: {type(error).__name__}: {error}")
        return {}, 0.0
    for name, state in partitions.items():
        if not _NAME.fullmatch(name) or state not in STATES:
            _say(f"{FILE}: {name!r}: {state!r} is no partition and its state, one of {', '.join(sorted(STATES))}")
            return {}, 0.0
    return partitions, wait


def _say(text: str) -> None:
    sys.stderr.write(f"slurmctld-init: {text}\n")
    sys.stderr.flush()
