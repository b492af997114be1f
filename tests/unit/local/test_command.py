"""Programs that fail, and what is said about it."""

from pathlib import Path

import pytest

from kurm.local.command import cause, run, run_logged
from kurm.local.errors import LocalError


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("go: x: Get https://h/: dial tcp 127.0.0.1:9: connect: connection refused\ngo: giving up", "no registry: "),
        ("Err:1 http://h bookworm\n  Could not resolve 'h'\nE: Some index files failed", "no registry: "),
        ("link: write /x: No space left on device\nexit 2", "no disk: it is full"),
        ("one\n\n  the last line  \n", "the last line"),
        ("", "it printed nothing"),
    ],
)
def test_the_cause_is_found_in_what_a_program_printed(output: str, expected: str) -> None:
    """The network and the disk are named; anything else is told in the program's own last words."""
    assert cause(output).startswith(expected)


def test_a_failed_command_is_told_in_its_own_words() -> None:
    """The sentence has the command and the last line of its standard error."""
    with pytest.raises(LocalError, match=r"`sh -c .*` failed: the disk is on fire"):
        run("sh", "-c", "echo the disk is on fire >&2; exit 3")


def test_a_program_that_is_not_there_is_named() -> None:
    """The sentence says what to install."""
    with pytest.raises(LocalError, match="'no-such-program' is not installed"):
        run("no-such-program")


def test_a_command_that_hangs_is_ended() -> None:
    """Every wait has a deadline."""
    with pytest.raises(LocalError, match="did not end within 0 s"):
        run("sleep", "60", deadline=0.1)


def test_the_output_of_a_long_command_is_kept(tmp_path: Path) -> None:
    """The error names the file that holds all of it."""
    log = tmp_path / "log"
    with pytest.raises(LocalError, match=f"making it failed: no luck .*{log}"):
        run_logged(["sh", "-c", "echo begun; echo no luck; exit 1"], log, "making it", deadline=10)
    assert log.read_text() == "begun\nno luck\n"
