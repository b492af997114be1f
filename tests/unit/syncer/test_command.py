"""`kurm syncer` says in one sentence what is wrong with its options."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kurm.cli import app


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"slurmrestd": "/run/slurmrestd.sock"}, ("--slurmrestd", "unix:/path", "/run/slurmrestd.sock")),
        ({"controller": "https://demo:6819/"}, ("--controller", "http://host:port", "https://demo:6819/")),
        ({"controller": "http://demo:6819/init"}, ("--controller", "http://host:port", "http://demo:6819/init")),
        ({"jwt-key": "/absent"}, ("--jwt-key", "does not exist")),
        ({"drain-condition": "fan, loud"}, ("--drain-condition", "'fan, loud'", "letters, digits")),
        ({"dead-after": "5 minutes"}, ("--dead-after", "'5 minutes'", "as 90s, 10m")),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, wrong: dict[str, str], words: tuple[str, ...]) -> None:
    """With its value and what is allowed, and no traceback."""
    (tmp_path / "key").write_bytes(b"k" * 32)
    options = {"cluster": "demo", "namespace": "slurm", "slurmrestd": "unix:/run/slurmrestd.sock"}
    options |= {"jwt-key": str(tmp_path / "key"), **wrong}
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = CliRunner().invoke(app, ["syncer", *arguments], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    assert result.exit_code == 2
    for word in words:
        assert word in result.output
