"""What all tests share."""

import asyncio
import tempfile
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from integration import ram

settings.register_profile("kurm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kurm")
"""Nothing is timed by a test: a host that is busy with others has taken 97 % of both cores for seconds."""
tempfile.tempdir = ram.folder()
LINES = 40
"""Of what a failed test has printed, from its begin and from its end: CI keeps a part of all that is printed."""
LONGEST = 2000
"""Letters of a failure that are said once more at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave out the middle of what a failed test has printed: 400 warnings have hidden what had failed."""
    report = yield
    if report.failed:
        report.sections = [(name, brief(text)) for name, text in report.sections]
    return report


def brief(text: str) -> str:
    """Return the lines from both ends of a text."""
    lines = text.splitlines()
    left_out = len(lines) - 2 * LINES
    if left_out <= 1:
        return text
    return "\n".join([*lines[:LINES], f"[{left_out} lines left out; pytest -s prints them]", *lines[-LINES:]])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last what failed and with which words: of a long report often only the end is at hand."""
    for report in (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")):
        terminalreporter.section(report.nodeid)
        crash = getattr(report.longrepr, "reprcrash", None)
        told = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else str(report.longrepr)
        terminalreporter.line(told[:LONGEST])


@pytest.fixture(scope="session", autouse=True)
def _idle_loop() -> Iterator[None]:
    """Have an event loop to be found between tests: looptime's plugin asks for one, and leaks what it is given else."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
