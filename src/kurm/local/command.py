"""Starting other programs, with their failure turned into one sentence."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kurm.local.errors import LocalError

# Long enough for any command that talks to the kernel or to one daemon; builds give their own.
DEADLINE = 60.0


def run(*argv: str | Path, stdin: str | None = None, deadline: float = DEADLINE) -> str:
    """Run a command and return its standard output; raise LocalError with its own words if it fails.

    `deadline` is in seconds; a command that runs past it is killed.
    """
    words = [str(word) for word in argv]
    # A file, not a pipe, for "no input": some programs (ctr, kubectl) wait for ever on an inherited terminal.
    given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=deadline, check=False, **given)
    except FileNotFoundError:
        raise LocalError(f"the program {words[0]!r} is not installed: install it, or put it on PATH") from None
    except subprocess.TimeoutExpired:
        raise LocalError(f"`{' '.join(words)}` did not end within {deadline:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise LocalError(f"`{' '.join(words[:6])}` failed: {said[-1] if said else f'exit status {done.returncode}'}")
    return str(done.stdout)


def run_logged(
    argv: Sequence[str | Path],
    log: Path,
    what: str,
    *,
    deadline: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a long command with its output in the file `log`; raise LocalError with the cause it printed if it fails.

    The command dies with us (a killed `kurm` leaves no compiler behind). `deadline` is in seconds; `env` comes on
    top of our own environment.
    """
    words = ["setpriv", "--pdeathsig", "KILL", *(str(word) for word in argv)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LocalError(f"{what} did not end within {deadline / 60:.0f} min; its output is in {log}") from None
    if done.returncode != 0:
        raise LocalError(f"{what} failed: {cause(log.read_text(errors='replace'))} (all of its output is in {log})")


# What programs print when the network is at fault, in Go's, apt's and Python's words.
UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|TLS handshake|Could not (resolve|connect)|Temporary failure|Failed to establish"
)


def cause(output: str) -> str:
    """Return the line of a failed program's output that says why, after "no registry" if the network is at fault."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    unreachable = next((line for line in lines if UNREACHABLE.search(line)), None)
    if unreachable:
        return f"no registry: one cannot be reached, check the network and its settings: {unreachable[:300]}"
    if any("No space left on device" in line for line in lines):
        return "no disk: it is full"
    return lines[-1][:300]
