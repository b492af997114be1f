"""`kurm syncer` says in one sentence what is wrong with its options."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kurm.cli import app


@pytest.mark.parametrize(
    ("slurmrestd", "key", "condition", "words"),
    [
        ("/run/slurmrestd.sock", "key", "Fan", ("--slurmrestd", "unix:/path", "/run/slurmrestd.sock")),
        ("unix:/run/slurmrestd.sock", "absent", "Fan", ("--jwt-key", "does not exist")),
        ("unix:/run/slurmrestd.sock", "key", "fan, loud", ("--drain-condition", "'fan, loud'", "letters, digits")),
    ],
)
def test_a_wrong_option_is_named(
    tmp_path: Path, slurmrestd: str, key: str, condition: str, words: tuple[str, ...]
) -> None:
    """With its value and what is allowed, and no traceback."""
    (tmp_path / "key").write_bytes(b"k" * 32)
    options = {"cluster": "demo", "namespace": "slurm", "slurmrestd": slurmrestd, "jwt-key": str(tmp_path / key)}
    options |= {"drain-condition": condition}
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = CliRunner().invoke(app, ["syncer", *arguments], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    assert result.exit_code == 2
    for word in words:
        assert word in result.output
