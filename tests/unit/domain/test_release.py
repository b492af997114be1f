"""Releases: worded so that no two are the same, and read again; and what the syncer has said of a node's jobs."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kurm.domain import release
from kurm.domain.load import NEVER, Load
from kurm.domain.nodeset import ClusterRef, NodeSetSpec

NOW = datetime(2026, 11, 21, 18, 0, 0, 123000, tzinfo=UTC)
TOLD = "scaling in since 2026-11-21T18:00:00.123Z"
SPEC = NodeSetSpec(cluster_ref=ClusterRef("demo"), busy_deadline="1h30m")
REQUEUE = NodeSetSpec(cluster_ref=ClusterRef("demo"), busy_deadline="1h30m", when_busy="requeue")


def test_a_release_says_since_when() -> None:
    """In UTC, to the millisecond, wherever the clock that told it stands."""
    assert release.worded("scaling in", NOW.astimezone(timezone(timedelta(hours=2)))) == TOLD
    assert release.since(TOLD) == NOW


@pytest.mark.parametrize("words", ["", "scaling in", "on holiday since yesterday"])
def test_one_that_does_not_say_since_when_is_never_late(words: str) -> None:
    """Somebody has written it by hand: there is nothing to reckon from."""
    assert (release.since(words), release.deadline(words, SPEC), release.requeue_at(words, REQUEUE)) == (None, None, "")


def test_jobs_are_requeued_only_where_that_is_asked_for() -> None:
    """The same time is a deadline of patience otherwise."""
    assert release.deadline(TOLD, SPEC) == NOW + timedelta(minutes=90)
    assert (release.requeue_at(TOLD, SPEC), release.requeue_at(TOLD, REQUEUE)) == ("", "2026-11-21T19:30:00Z")


@pytest.mark.parametrize(
    ("annotations", "expected", "idle"),
    [
        ({}, Load(), False),
        ({"kurm.dev/slurm-allocated": "false"}, Load(allocated=False), True),
        ({"kurm.dev/slurm-allocated": "true"}, Load(allocated=True), False),
        ({"kurm.dev/slurm-allocated": "perhaps", "kurm.dev/slurm-jobs-end": "soon"}, Load(), False),
        (
            {"kurm.dev/slurm-allocated": "false", "kurm.dev/slurm-jobs-end": "2026-11-21T18:00:00.123Z"},
            Load(allocated=False, free_at=NOW),
            False,
        ),
        ({"kurm.dev/slurm-jobs-end": "never"}, Load(free_at=NEVER), False),
        ({"kurm.dev/slurm-jobs-end": "2026-11-21T18:00:00"}, Load(), False),
    ],
)
def test_what_is_not_known_is_busy(annotations: dict[str, str], expected: Load, idle: bool) -> None:  # noqa: FBT001
    """A time without a zone is no time; a node that is said to be idle and to have jobs has jobs."""
    found = Load.of(annotations)
    assert (found, found.idle) == (expected, idle)
