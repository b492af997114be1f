"""What a person sees while something takes long."""

import io

import pytest
from rich.console import Console

from kurm.local.progress import Steps


def test_each_step_says_that_it_begins_and_how_it_ended() -> None:
    """Off a terminal (a log, CI) there are two plain lines for a step."""
    out = io.StringIO()
    steps = Steps(Console(file=out, width=100))
    with steps.step("Kubernetes"):
        steps.note("from the cache")
    begun, ended = out.getvalue().splitlines()
    assert begun == "  ... Kubernetes"
    assert ended.startswith("  ok  Kubernetes (from the cache) 0.")


def test_a_failed_step_is_marked_and_its_error_goes_on() -> None:
    """The line says which step it was; the error itself is told by whoever catches it."""
    out = io.StringIO()
    with pytest.raises(ValueError, match="no disk"), Steps(Console(file=out, width=100)).step("Images"):
        raise ValueError("no disk")
    assert out.getvalue().splitlines()[1].startswith(" fail Images 0.")
