"""The release of a slurmd pod: why it shall go, since when, and for how long its jobs may run on. Pure.

It stands in one annotation, `REASON since TIME`. The time makes it unlike any other: it can be answered by name.
"""

from datetime import UTC, datetime, timedelta

from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.spec import seconds

_SINCE = " since "


def worded(reason: str, since: datetime) -> str:
    """Return a release as its annotation has it, to the millisecond: two in one second are two."""
    return f"{reason}{_SINCE}{_rfc3339(since, 'milliseconds')}"


def since(release: str) -> datetime | None:
    """Return when a release was told; None if it does not say."""
    _, found, moment = release.rpartition(_SINCE)
    try:
        return datetime.fromisoformat(moment) if found else None
    except ValueError:
        return None


def deadline(release: str, spec: NodeSetSpec) -> datetime | None:
    """Return until when jobs may run on; None if the release does not say since when it stands."""
    told = since(release)
    return told + timedelta(seconds=seconds(spec.busy_deadline) or 0) if told else None


def requeue_at(release: str, spec: NodeSetSpec) -> str:
    """Return when jobs that still run are to be requeued, as its annotation has it; empty for never."""
    until = deadline(release, spec) if spec.when_busy == "requeue" else None
    return _rfc3339(until, "seconds") if until else ""


def _rfc3339(moment: datetime, unit: str) -> str:
    return moment.astimezone(UTC).isoformat(timespec=unit).replace("+00:00", "Z")
