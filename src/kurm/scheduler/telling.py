"""What pods that wait are told: the condition PodScheduled=False with a reason, and an event at each transition.

Nobody else sets it for our pods. It is written a while after the pod came, because most are bound by then; and so many
a second at most, because a thousand pods that wait cost the API server as many writes each time their reasons change.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from kurm.domain.steps import Tell
from kurm.kube.cache import Change
from kurm.kube.errors import Conflict, KubeError, NotFound
from kurm.kube.events import Recorder, Severity
from kurm.kube.queue import Queue
from kurm.kube.session import Patch, Session
from kurm.scheduler.metrics import Metrics
from kurm.scheduler.objects import OWN_PODS, SCHEDULED, Pod
from kurm.scheduler.pool import Pool

log = structlog.get_logger("kurm.scheduler")

PATIENCE = 1.0
"""Seconds before a pod is told why it waits."""
AGAIN = 30.0
"""Seconds between two messages of one reason."""
EVERY = 0.1
"""Seconds between two writes."""
MESSAGE = 1024
"""Letters of a message."""
BAD = frozenset({"Refused", "Infeasible"})
"""Reasons that time alone does not mend."""


class Telling:
    """Says it in its own time."""

    def __init__(
        self, kube: Session, pool: Pool, recorder: Recorder, metrics: Metrics, leads: Callable[[], bool]
    ) -> None:
        self._kube, self._pool, self._recorder, self._metrics, self._leads = kube, pool, recorder, metrics, leads
        self._wanted: dict[str, Tell] = {}
        self._told: dict[str, tuple[Tell, float]] = {}
        self._queue: Queue[str] = Queue()
        pool.pods.on_change(self._heed)

    def __len__(self) -> int:
        return len(self._wanted)

    def say(self, pod: Pod, told: Tell | None) -> None:
        """Note why a pod waits; None when there is no reason (any more)."""
        uid = pod.metadata.uid
        if told is None:
            self._wanted.pop(uid, None)
            self._told.pop(uid, None)
        elif self._wanted.get(uid) != told:
            self._wanted[uid] = told
            before, at = self._told.get(uid, (None, 0.0))
            same = before is not None and before.reason == told.reason
            self._queue.add(uid, after=max(PATIENCE, at + AGAIN - self._now()) if same else PATIENCE)

    def _heed(self, change: Change[Pod]) -> None:
        """Drop what was to be said of a pod that is gone."""
        if change.new is None and change.old is not None:
            self.say(change.old, None)

    def report(self, pod: Pod, reason: str, message: str) -> None:
        """Say of a pod what a person has to look at: an event."""
        self._recorder.record(OWN_PODS, pod, reason, message, action="Schedule", severity=Severity.WARNING)

    async def run(self) -> None:
        """Write; never ends, cancel it."""
        while True:
            uid = await self._queue.take()
            try:
                written = await self._write(uid)
                self._queue.forget(uid)
            except (NotFound, Conflict):
                written = True
            except KubeError as error:
                log.warning("a pod was not told why it waits", uid=uid, why=str(error))
                self._queue.retry(uid)
                written = True
            finally:
                self._queue.done(uid)
            if written:
                await asyncio.sleep(EVERY)

    async def _write(self, uid: str) -> bool:
        told, pod = self._wanted.get(uid), next(iter(self._pool.pods.by("uid", uid)), None)
        if told is None or pod is None or pod.spec.node_name or not self._leads():
            self._wanted.pop(uid, None)
            return False
        self._told[uid] = told, self._now()
        before, message = pod.condition(SCHEDULED), told.message[:MESSAGE]
        if before is not None and (before.status, before.reason, before.message) == ("False", told.reason, message):
            return False
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": SCHEDULED, "status": "False", "reason": told.reason, "message": message}
        status = {"conditions": [condition | {"lastTransitionTime": now}]}
        body = {"metadata": {"uid": uid}, "status": status}
        await self._kube.patch(OWN_PODS, pod.key, body, kind=Patch.STRATEGIC, subresource="status")
        self._metrics.told.inc()
        if before is None or before.reason != told.reason:
            severity = Severity.WARNING if told.reason in BAD else Severity.NORMAL
            self._recorder.record(OWN_PODS, pod, told.reason, message, action="Schedule", severity=severity)
        return True

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
