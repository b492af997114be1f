"""What Slurm has lost: records that pods were told of and that are no more, as after slurmctld lost its state.

The pods remember: the annotation `kurm.dev/slurm-state` stands on each whose node had a record when we looked last. So
a loss is seen after a restart of ours, too, and a record that was never made is none.
"""

import asyncio

import structlog

from kurm.domain.signals import SLURM_STATE
from kurm.domain.world import World
from kurm.kube.events import Recorder, Severity
from kurm.slurm.hostlist import compress
from kurm.syncer.objects import SLURM_CLUSTERS
from kurm.syncer.pool import Pool

log = structlog.get_logger("kurm.syncer")

GATHER = 2.0
"""Seconds for which more losses are waited for: one record may be found missing before the list that misses all."""
WORDS = 600
"""Letters of a host list in an event, which holds 1,024."""


class Losses:
    """Says once what is lost: in the log, and as an event of the SlurmCluster."""

    def __init__(self, pool: Pool, recorder: Recorder) -> None:
        self.pool = pool
        self._recorder = recorder
        self._said: set[str] = set()
        self._lost: set[str] = set()
        self._of = 0

    def note(self, world: World) -> None:
        """Look at what a round has found; call it before pods are told that their records are not there."""
        missing = (world.claims or {}).keys() - (world.records or {}).keys() if world.records is not None else set()
        had = {pod.spec.node_name for pod in self.pool.pods if pod.metadata.annotations.get(SLURM_STATE)}
        lost = (missing & had) - self._said
        self._said = (self._said | lost) & had  # told otherwise, or made anew, a record can be lost again
        if lost and not self._lost:
            self._of = len(had)
            asyncio.get_running_loop().call_later(GATHER, self._say)
        self._lost |= lost

    def _say(self) -> None:
        lost, self._lost = self._lost, set()
        hosts = ",".join(compress(lost))[:WORDS]
        log.warning("slurm has lost records", lost=len(lost), of=self._of, node=hosts)
        cluster = self.pool.cluster
        if cluster is None:
            return
        note = (
            f"Slurm has lost the records of {len(lost)} of {self._of} nodes, and with them their jobs: {hosts}. "
            "The records are made anew, and each slurmd is asked to register."
        )
        self._recorder.record(SLURM_CLUSTERS, cluster, "SlurmStateLost", note, action="Sync", severity=Severity.WARNING)
