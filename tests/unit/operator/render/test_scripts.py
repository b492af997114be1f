"""The start gate's first step: before all prolog scripts, and over at once where nothing is recorded."""

import subprocess
from pathlib import Path

import pytest

from kurm.domain.slurmcluster import Scripts, ScriptSource
from kurm.operator.render.scripts import GATE_FOLDER, hooks

GATE = "prolog-start-gate"


def test_the_start_gate_runs_before_users_own_prologs() -> None:
    """What they prepare for the job may be in use until the gate lets it through; slurmd runs them in this order."""
    scripts = Scripts(prolog=(ScriptSource(config_map_name="site"),))
    found = hooks(scripts, {"site": {"10-clean": "#!/bin/sh\n"}}, gate=True)
    assert [line.value for line in found.settings if line.key == "Prolog"] == [GATE, "prolog-00-10-clean"]


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        (None, False),
        ('kubernetes.io/config.source="api"\n', False),
        ('note="a\\ngate.kurm.dev/1"\n', False),
        ('a="b"\ngate.kurm.dev/b5e03999-5e54-442e-b3b6-30722bf73647="9,2,1000"\n', True),
    ],
    ids=["a slurmd pod from before", "no record", "no record, whatever is written", "a record"],
)
def test_more_is_asked_only_where_a_pod_is_recorded(tmp_path: Path, annotations: str | None, asked: bool) -> None:  # noqa: FBT001 - a column
    """Every job of the cluster runs this on each of its nodes: it is a shell and a grep."""
    if annotations is not None:
        (tmp_path / "annotations").write_text(annotations)
    (tmp_path / "start-gate").write_text("#!/bin/sh\necho asked; exit 7\n")
    (tmp_path / "start-gate").chmod(0o755)
    text = hooks(Scripts(), {}, gate=True).files[GATE]
    script = text.replace(GATE_FOLDER, str(tmp_path)).replace("/usr/local/sbin", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (("asked\n", 7) if asked else ("", 0))
