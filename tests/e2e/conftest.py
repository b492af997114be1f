"""What every end-to-end test has: when it fails, the machines' logs are kept before anything is taken down."""

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from e2e import demo as shared
from e2e.command import KURM, run
from e2e.demo import REPOSITORY, TEST, Demo
from e2e.tenant import Tenant, tenant
from kurm.local import cluster
from kurm.local.charts import Charts

ARTIFACTS = Path(__file__).parent / "artifacts"
STATE = Path("/var/lib/kurm/local")
LONGEST = 2000
"""Letters of a failure that are said once more at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of every test cluster in `artifacts/`, and say where."""
    report = yield
    if report.failed and report.when in {"setup", "call"}:
        kept = ARTIFACTS / item.name
        for log in sorted(STATE.glob("test*/machines/*/var/log/*.log")):
            copy = kept / log.relative_to(STATE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, copy)
        report.sections.append(("the machines' logs", f"kept in {kept}"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last what failed and with which words: of a long report often only the end is at hand."""
    for report in (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")):
        terminalreporter.section(report.nodeid)
        crash = getattr(report.longrepr, "reprcrash", None)
        told = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else str(report.longrepr)
        terminalreporter.line(told[:LONGEST])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put those that share the demo together, and last: it is made once, and nobody else needs its name after that."""
    items.sort(key=lambda item: "demo" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def demo() -> Iterator[Demo]:
    """Make everything as `make demo` does, under another name; take it down afterwards."""
    TEST.kurm("down")
    printed = run(KURM, "local", "--name", TEST.name, "demo", "--repository", REPOSITORY, deadline=3000)
    yield Demo(Charts(cluster.find(TEST.name), REPOSITORY), printed)
    TEST.kurm("down")


@pytest.fixture
def told(demo: Demo, request: pytest.FixtureRequest) -> Iterator[None]:
    """Show the whole cluster when a test fails, the first time, and put it right for the others."""
    failures = request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        if failures == 0:
            shared.show(demo)
        demo.put_right()


@pytest.fixture
def owner(demo: Demo, told: None) -> Iterator[Tenant]:  # noqa: ARG001 - what failed is shown before it is cleaned up
    """A service owner with a namespace of their own."""
    with tenant(demo) as made:
        yield made
