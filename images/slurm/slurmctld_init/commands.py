"""Slurm's own commands, run beside slurmctld as SlurmUser."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping

from slurmctld_init.processes import Processes

SECONDS = 12.0
"""Until a command is given up; one waits ten seconds for a slurmctld that is away."""

Run = Callable[..., Awaitable[str]]
"""Runs a command and returns what it prints. Raises CommandError."""


class CommandError(Exception):
    """A command failed; the message holds its own words."""


class Commands:
    """Runs them with slurmctld's own environment. The processes below us are reaped by `processes`, these too."""

    def __init__(self, processes: Processes, environment: Callable[[], Mapping[str, str]]) -> None:
        self.processes, self._environment = processes, environment

    async def run(self, *words: str) -> str:
        """Run a command and return what it prints. Raises CommandError."""
        output, inlet = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0)
        )
        try:
            pid, ended = self.processes.start_command(*words, environment=self._environment(), output=inlet)
        except OSError as error:
            transport.close()
            raise CommandError(f"{words[0]}: {error.strerror}") from error
        finally:
            os.close(inlet)
        try:
            async with asyncio.timeout(SECONDS):
                printed = (await reader.read()).decode(errors="replace")
                status = await ended
        except TimeoutError as error:
            raise CommandError(f"{words[0]} took longer than {SECONDS:g} s") from error
        finally:
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            transport.close()
        if status != 0:
            raise CommandError(f"{words[0]}: {' '.join(printed.split()) or f'exit status {status}'}")
        return printed
