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
LINES = 10
WIDTH = 240
"""Of what is printed of each of the cluster's parts: CI keeps the end of all that is printed, and no file."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of every test cluster in `artifacts/`, and say where.

    The first failure's cluster is shown, too, and before anything of it is cleaned up.
    """
    report = yield
    if report.failed and report.when in {"setup", "call"}:
        kept = ARTIFACTS / item.name
        shown = item.funcargs.get("demo")
        if isinstance(shown, Demo):
            told = shared.told(shown)
            _keep(told, kept / "cluster.txt")
            if item.session.testsfailed == 0:
                report.sections.append(("the cluster", _brief(told)))
        for log in sorted(STATE.glob("test*/machines/*/var/log/*.log")):
            copy = kept / log.relative_to(STATE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, copy)
        report.sections.append(("the machines' logs", f"kept in {kept}"))
    return report


def _keep(told: list[list[str]], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for part in told for line in part))


def _brief(told: list[list[str]]) -> str:
    return "\n".join(line[:WIDTH] for first, *others in told for line in (first, *others[-LINES:]))


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
def mended(demo: Demo, request: pytest.FixtureRequest) -> Iterator[None]:
    """Put the cluster right for the others when a test has failed."""
    failures = request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        demo.put_right()


@pytest.fixture
def owner(demo: Demo, mended: None) -> Iterator[Tenant]:  # noqa: ARG001 - its own things go before the cluster's
    """A service owner with a namespace of their own."""
    with tenant(demo) as made:
        yield made
