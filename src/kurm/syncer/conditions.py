"""What pods are told of Slurm's nodes: conditions and annotations in one write, on transitions only; an event at each.

A pod that was never told anything is not in service and not drained; nobody needs a write to know that. So the first
words about a pod that is still on its way (no record yet, not registered yet) wait for a minute: most pods are in
service by then, and have cost one write.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import structlog

from kurm.domain.report import RESUMING, Said, say
from kurm.domain.signals import (
    RELEASE,
    SLURM_ALLOCATED,
    SLURM_DOWN,
    SLURM_DRAINED,
    SLURM_DRAINING,
    SLURM_JOBS,
    SLURM_JOBS_END,
    SLURM_READY,
    SLURM_REASON,
    SLURM_STATE,
)
from kurm.kube.apply import Applier
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.errors import ApiError, KubeError, NotFound
from kurm.kube.events import Recorder, Severity
from kurm.kube.lease import LeadershipLost
from kurm.kube.resources import Condition, micro_time
from kurm.slurm.errors import SlurmError
from kurm.syncer.jobs import Load
from kurm.syncer.metrics import Metrics
from kurm.syncer.objects import SLURMD_PODS, Pod
from kurm.syncer.pool import Pool
from kurm.syncer.records import Records

log = structlog.get_logger("kurm.syncer")

ON_ITS_WAY = frozenset({"NoRecord", "NotRegistered"})
QUIET_SECONDS = 60.0
"""How long a pod may be on its way before it is told so."""
FRESH = 1.0
"""Seconds. A pod that is told to be drained may be deleted: that is never said by what was read longer ago."""
MINUTE = 60.0
"""Seconds between two writes to a pod that say no more than that jobs have come to its node, or gone."""
WORKERS = 8
_ANNOTATIONS = (SLURM_STATE, SLURM_REASON, SLURM_ALLOCATED, SLURM_JOBS, SLURM_JOBS_END)
_TELLING = {
    "Draining": ("SlurmDraining", Severity.NORMAL, "Slurm gives the node no more jobs: {}"),
    "Drained": ("SlurmDrained", Severity.NORMAL, "Slurm gives the node no more jobs, and none is left: {}"),
    "Down": ("SlurmDown", Severity.WARNING, "Slurm holds the node for down: {}"),
    "NotOurs": ("SlurmNotOurs", Severity.WARNING, "{}"),
    "Overridden": ("SlurmResumed", Severity.WARNING, "the node takes jobs: {}"),
    "InService": ("SlurmInService", Severity.NORMAL, "the node takes jobs"),
}


class Conditions:
    """Writes them; `controller` is to be run, and told which nodes to look at (`controller.queue.add(node)`)."""

    def __init__(
        self,
        pool: Pool,
        records: Records,
        *,
        applier: Applier,
        recorder: Recorder,
        leads: Callable[[], bool],
        metrics: Metrics,
        load: Callable[[str], Load | None] = lambda _: None,
    ) -> None:
        """`load`: what is known of the jobs on a node that is to become free; None for all others."""
        self._load = load
        self._told_at: dict[str, float] = {}
        self.pool, self.records, self.metrics = pool, records, metrics
        self.controller: Controller[str] = Controller("conditions", self._reconcile, workers=WORKERS)
        self._applier, self._recorder, self._leads = applier, recorder, leads
        self._wrong_since: dict[str, float] = {}
        self._seen_since: dict[str, float] = {}
        pool.pods.on_change(lambda change: self._forget(change.old) if change.new is None and change.old else None)

    async def _reconcile(self, node: str) -> Result:
        results = [await self._tell(node, pod) for pod in self.pool.pods_on(node)]
        return min((one for one in results if isinstance(one, Again)), key=lambda one: one.after, default=DONE)

    async def _tell(self, node: str, pod: Pod) -> Result:
        said = self._said(node)
        if said is None or not self.pool.known(node):
            return DONE  # all nodes are looked at when it is known again
        if said.reason == RESUMING and (one := self.pool.pod(node)) is not None and one.held:
            return DONE  # the drain is being lifted, and that is told with one write
        wanted = conditions(pod, said)
        if (right := self._says_it(pod, wanted, annotations(said, self._load(node)))) is not None:
            self._right(pod)
            return right
        if pod.condition(SLURM_READY) is None and said.reason in ON_ITS_WAY and self._load(node) is None:
            waited = self._now() - self._seen_since.setdefault(pod.metadata.uid, self._now())
            if waited < QUIET_SECONDS:
                return Again(QUIET_SECONDS - waited, "it may be in service by then")
        self._wrong_since.setdefault(pod.metadata.uid, self._now())
        if said.drained and (changed := await self._not_drained(node, said)):
            return changed
        await self._write(node, pod, said, wanted)
        return DONE

    def _says_it(self, pod: Pod, wanted: list[Condition], noted: dict[str, str]) -> Result | None:
        """Return what is left to be done if a pod says already what it is to say, None if it does not."""
        if wanted != [pod.condition(one.type) for one in wanted]:
            return None
        if noted == _annotated(pod):
            return DONE
        waits = self._told_at.get(pod.metadata.uid, float("-inf")) + MINUTE - self._now()
        if waits > 0 and noted | _allocated(pod) == _annotated(pod):
            return Again(waits, "jobs come and go, and a pod is told once a minute")
        return None

    async def _not_drained(self, node: str, said: Said) -> Result | None:
        """Ask again whether a node is drained that is to be told so; None if it is."""
        if self.records.lifting(node):
            return Again(FRESH, "its drain is being lifted, or may be")
        try:
            await self.records.refresh([node], since={node: self._now() - FRESH})
        except SlurmError as error:
            self.records.lose(error)
            return DONE
        return Again(0.0, "it has changed") if self.records.lifting(node) or self._said(node) != said else None

    def _said(self, node: str) -> Said | None:
        known = self.records.known
        if known is None or self.pool.problem:
            return None
        said, refusal = say(self.pool.claim(node), known.get(node), self.pool.pod(node)), self.records.refused.get(node)
        return replace(said, message=refusal) if said.reason == "NoRecord" and refusal else said

    async def _write(self, node: str, pod: Pod, said: Said, wanted: list[Condition]) -> None:
        if not self._leads():
            raise LeadershipLost("the Lease ran out before a write")
        status = {"conditions": [_manifest(one) for one in wanted]}
        if said.drained:
            self.pool.told.tells(pod)  # and nothing is awaited since it was asked whether its drain is being lifted
        try:
            # For the very version that was seen: if this one gets lost, whatever is written next refuses it for good.
            answer = await self._applier.apply_status(
                SLURMD_PODS, pod, status, annotations=annotations(said, self._load(node)), exactly=said.drained
            )
        except NotFound:
            return
        except KubeError as error:
            if isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                self.pool.told.refused(pod)
            self.metrics.errors.labels("pods", type(error).__name__).inc()
            raise
        self._told_at[pod.metadata.uid] = self._now()
        self.pool.told.answered(answer)
        if said.reason == RESUMING:
            self.pool.look_at(node)  # its drain waits for this
        self.metrics.pod_writes.inc()
        log.info("pod told", node=node, pod=str(pod.key), reason=said.reason, message=said.message)
        before = pod.condition(SLURM_READY)
        if (
            said.reason in _TELLING
            and not (before is None and said.ready)
            and (not before or before.reason != said.reason)
        ):
            reason, severity, note = _TELLING[said.reason]
            self._recorder.record(SLURMD_PODS, pod, reason, note.format(said.message), action="Sync", severity=severity)

    def _right(self, pod: Pod) -> None:
        if (since := self._wrong_since.pop(pod.metadata.uid, None)) is not None:
            self.metrics.to_pods.observe(self._now() - since)

    def _forget(self, pod: Pod) -> None:
        self._wrong_since.pop(pod.metadata.uid, None)
        self._seen_since.pop(pod.metadata.uid, None)
        self._told_at.pop(pod.metadata.uid, None)
        self._applier.forget(SLURMD_PODS, pod.key)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def conditions(pod: Pod, said: Said) -> list[Condition]:
    """Return the conditions as they are to be. The time of a transition stays while the status does."""
    draining, down = said.reason == "Draining", said.reason == "Down"
    others = {"Draining": "Draining", RESUMING: RESUMING}
    drained = "Drained" if said.drained else others.get(said.reason, "NotDrained")

    def one(kind: str, reason: str, *, holds: bool) -> Condition:
        return _condition(pod, kind, holds=holds, reason=reason, message=said.message if holds else "")

    return [
        _condition(pod, SLURM_READY, holds=said.ready, reason=said.reason, message=said.message),
        one(SLURM_DRAINING, "Draining" if draining else "NotDraining", holds=draining),
        _condition(pod, SLURM_DRAINED, holds=said.drained, reason=drained, message=_answered(pod, said)),
        one(SLURM_DOWN, "Down" if down else "NotDown", holds=down),
    ]


def annotations(said: Said, load: Load | None = None) -> dict[str, str]:
    """Return the annotations as they are to be; one that has nothing to say is not there."""
    found = {SLURM_STATE: said.state, SLURM_REASON: said.slurm_reason}
    if said.allocated is not None:
        found[SLURM_ALLOCATED] = "true" if said.allocated or load is not None else "false"
    if load is not None:
        found[SLURM_JOBS] = str(load.count)
        found[SLURM_JOBS_END] = "never" if load.end is None else rfc3339(datetime.fromtimestamp(load.end, UTC))
    return {name: value for name, value in found.items() if value}


def _annotated(pod: Pod) -> dict[str, str]:
    held = pod.metadata.annotations
    return {name: held[name] for name in _ANNOTATIONS if name in held}


def _allocated(pod: Pod) -> dict[str, str]:
    held = pod.metadata.annotations
    return {SLURM_ALLOCATED: held[SLURM_ALLOCATED]} if SLURM_ALLOCATED in held else {}


def _answered(pod: Pod, said: Said) -> str:
    """Return the release to which "drained" is the answer: one that was said of an earlier release counts for none."""
    return pod.metadata.annotations.get(RELEASE, said.message) if said.drained else ""


def _condition(pod: Pod, kind: str, *, holds: bool, reason: str, message: str) -> Condition:
    before, status = pod.condition(kind), str(holds)
    since = before.last_transition_time if before is not None and before.status == status else None
    # Kubernetes keeps whole seconds; with more the condition read back would never be the one that was written.
    return Condition(kind, status, reason, message, since or datetime.now(UTC).replace(microsecond=0))


def _manifest(condition: Condition) -> dict[str, Any]:
    moment = condition.last_transition_time
    parts = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    return parts | ({"lastTransitionTime": rfc3339(moment)} if moment else {})


def rfc3339(moment: datetime) -> str:
    """Return a `meta/v1` Time: whole seconds."""
    return micro_time(moment).partition(".")[0] + "Z"
