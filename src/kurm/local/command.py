"""Starting other programs, with their failure turned into one sentence."""

import os
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
    """Run a long command with its output in the file `log`; raise LocalError with the log's last line if it fails.

    The command dies with us (a killed `kurm` leaves no compiler behind). `deadline` is in seconds; `env` comes on
    top of our own environment.
    """
    words = ["setpriv", "--pdeathsig", "KILL", *(str(word) for word in argv)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
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
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
        raise LocalError(f"{what} failed: {last[0][:300]} (all of its output is in {log})")
