"""What every end-to-end test has: when it fails, the machines' logs are kept before anything is taken down."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

ARTIFACTS = Path(__file__).parent / "artifacts"
STATE = Path("/var/lib/kurm/local")
TAIL = 5


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of every test cluster in `artifacts/`, and show the end of each in the report of a failed test."""
    report = yield
    if report.failed and report.when in {"setup", "call"}:
        for log in sorted(STATE.glob("test*/machines/*/var/log/*.log")):
            kept = ARTIFACTS / item.name / log.relative_to(STATE)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, kept)
            lines = log.read_text(errors="replace").splitlines()[-TAIL:]
            report.sections.append((f"{log.relative_to(STATE)}, whole in {kept}", "\n".join(lines)))
    return report
