"""What users read in `kubectl describe`: one event per transition, and a count instead of repeats."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import structlog

from kurm.kube.errors import KubeError, NotFound
from kurm.kube.queue import Queue
from kurm.kube.resources import EVENTS, Key, Object, Resource, micro_time
from kurm.kube.session import Session

log = structlog.get_logger("kurm.kube")

T = TypeVar("T", bound=Object)

SERIES_SECONDS = 60.0  # a count is written at most so often
FORGET_SECONDS = 600.0  # what happens again after so long is a new event
MOST = 4096  # events in memory; past it new ones are dropped: events are for people, and must not take the process down
ATTEMPTS = 5
NOTE_LENGTH = 1024  # events.k8s.io/v1: noteLengthLimit


class Severity(StrEnum):
    """The types of event that Kubernetes knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass
class _Record:
    """An event that was recorded: how often, and what of it is written."""

    body: dict[str, Any]
    last: datetime
    count: int = 1
    written: Key | None = None
    written_count: int = 0


class Recorder:
    """Writes `events.k8s.io/v1` Events in its own time; `record` never waits and never fails."""

    def __init__(self, session: Session, controller: str, instance: str) -> None:
        self.session = session
        self._reporter = {"reportingController": controller, "reportingInstance": instance}
        self._records: dict[tuple[str, ...], _Record] = {}
        self._queue: Queue[tuple[str, ...]] = Queue()

    def record(
        self,
        resource: Resource[T],
        regarding: T,
        reason: str,
        note: str,
        *,
        action: str,
        severity: Severity = Severity.NORMAL,
    ) -> None:
        """Say that something happened to an object: `reason` and `action` in UpperCamelCase, `note` as a sentence."""
        metadata, now = regarding.metadata, datetime.now(UTC)
        note = note if len(note) <= NOTE_LENGTH else note[: NOTE_LENGTH - 3] + "..."
        key = (str(resource), metadata.uid, reason, action, severity, note)
        if known := self._records.get(key):
            known.count, known.last = known.count + 1, now
            self._queue.add(key, after=0.0 if known.written is None else SERIES_SECONDS)
            return
        if len(self._records) >= MOST:
            log.warning("event dropped: too many at once", reason=reason, object=str(regarding.key))
            return
        reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": metadata.name}
        reference |= {
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        }
        body: dict[str, Any] = {"type": severity, "reason": reason, "action": action, "note": note}
        place = {"name": f"{metadata.name}.{secrets.token_hex(8)}", "namespace": metadata.namespace or "default"}
        body |= {"metadata": place, "regarding": reference, "eventTime": micro_time(now)}
        self._records[key] = _Record(body | self._reporter, now)
        self._queue.add(key)

    async def run(self) -> NoReturn:
        """Write what is recorded; never ends, cancel it."""
        while True:
            key = await self._queue.take()
            try:
                await self._write(key)
            finally:
                self._queue.done(key)

    async def _write(self, key: tuple[str, ...]) -> None:
        record = self._records[key]
        if record.count == record.written_count:  # nothing new for long
            del self._records[key]
            return
        count = record.count
        try:
            if record.written is None:
                record.written = (await self.session.create(EVENTS, record.body)).key
            if count > 1:
                series = {"count": count, "lastObservedTime": micro_time(record.last)}
                await self.session.patch(EVENTS, record.written, {"series": series})
        except NotFound:  # it was kept for its hour, or its namespace is gone
            del self._records[key]
        except KubeError as error:
            if self._queue.failures(key) >= ATTEMPTS:
                log.warning("event lost", reason=record.body["reason"], why=str(error))
                self._queue.forget(key)
                del self._records[key]
            else:
                self._queue.retry(key)
        else:
            record.written_count = count
            self._queue.forget(key)
            self._queue.add(key, after=FORGET_SECONDS)
