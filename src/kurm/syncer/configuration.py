"""Which configuration slurmctld runs with: read from its init over HTTP, written into the SlurmCluster's status.

slurmctld's init is the one that sees a projected configuration, has slurmctld take it and hears what it says. It tells
that at `http://NAME-controller:6819/`.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from kurm.domain.slurmcluster import SlurmClusterCondition
from kurm.domain.spec import Condition
from kurm.kube.apply import Applier
from kurm.kube.errors import Conflict, KubeError, NotFound
from kurm.kube.lease import LeadershipLost
from kurm.slurm.controller import SlurmctldInit, Status, Untold
from kurm.syncer.conditions import rfc3339
from kurm.syncer.metrics import Metrics
from kurm.syncer.objects import SLURM_CLUSTERS, SlurmCluster
from kurm.syncer.pool import Pool

log = structlog.get_logger("kurm.syncer")

EVERY = 2.0
"""Seconds between questions."""
PATIENCE = 30.0
"""Seconds without an answer before the condition says so; a restart is shorter."""
MESSAGE = 4096
"""Letters of Slurm's words, the bound of `status.configRefused.message`."""
_CONFIGURED = SlurmClusterCondition.CONFIGURED


def status(cluster: SlurmCluster, applied: Status | None, problem: str, version: str = "") -> dict[str, Any] | None:
    """Return our part of a SlurmCluster's status, None if it says that already.

    `applied` is what was last told, None if nothing ever was; `problem` why nothing is told now, for people; `version`
    is Slurm's, empty while it is not known.
    """
    held = cluster.status
    known = applied.hash if applied and applied.hash else held.config_hash
    before = next((one for one in held.conditions if one.type == _CONFIGURED), None)
    state, reason, message = _judged(applied, problem)
    same = before is not None and before.status == state
    moment = before.last_transition_time if before is not None and same else datetime.now(UTC)
    condition = Condition(_CONFIGURED.value, state, moment, reason, message)
    refused = {"hash": applied.refused, "message": applied.words[:MESSAGE]} if applied and applied.refused else None
    standing = msgspec.to_builtins(held.config_refused)
    version = version or held.version
    same = before == condition and known == held.config_hash and version == held.version
    if same and (problem or refused == standing):
        return None
    told: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": rfc3339(moment),
    }
    parts: dict[str, Any] = {
        "conditions": [told],
        "configHash": known,
        "configRefused": refused or (standing if problem else None),
        "version": version,
    }
    return {name: value for name, value in parts.items() if value}


def _judged(applied: Status | None, problem: str) -> tuple[Any, str, str]:
    if problem or applied is None:
        return "Unknown", "ControllerAway", problem
    if applied.refused:
        return "False", "Refused", applied.words or "slurmctld refused the newest configuration without a word"
    if not applied.hash:
        return "Unknown", "Starting", "slurmctld is starting"
    return "True", "Applied", ""


class Configuration:
    """Asks, and writes. `changed` is called when another configuration has come into force."""

    def __init__(
        self,
        pool: Pool,
        init: SlurmctldInit,
        *,
        applier: Applier,
        leads: Callable[[], bool],
        metrics: Metrics,
        changed: Callable[[], None],
        version: Callable[[], str],
    ) -> None:
        self.pool, self.metrics, self._init = pool, metrics, init
        self._applier, self._leads, self._changed, self._version = applier, leads, changed, version
        self._applied: Status | None = None
        self._heard_at = self._now()

    async def run(self) -> None:
        """Ask and write, for ever; cancel it."""
        while True:
            await self._once()
            await asyncio.sleep(EVERY)

    async def _once(self) -> None:
        problem = ""
        try:
            applied = await self._init.status()
        except Untold as error:
            if self._now() - self._heard_at < PATIENCE:
                return
            problem = f"slurmctld's init does not tell: {error}"
        else:
            if self._applied is not None and applied.hash != self._applied.hash:
                self._changed()
            self._applied, self._heard_at = applied, self._now()
        cluster = self.pool.cluster
        if cluster is None or self.pool.problem:
            return
        if (wanted := status(cluster, self._applied, problem, self._version())) is not None:
            await self._write(cluster, wanted)

    async def _write(self, cluster: SlurmCluster, wanted: dict[str, Any]) -> None:
        if not self._leads():
            raise LeadershipLost("the Lease ran out before a write")
        try:
            await self._applier.apply_status(SLURM_CLUSTERS, cluster, wanted)
        except (NotFound, Conflict):
            return
        except KubeError as error:  # asked again in EVERY seconds
            self.metrics.errors.labels("cluster", type(error).__name__).inc()
            log.warning("status not written", why=str(error))
        else:
            log.info(
                "configuration told", hash=wanted.get("configHash", ""), condition=wanted["conditions"][0]["status"]
            )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
