"""One syncer: the caches and tables that it reads, the loops that write, and who may (one at a time, by a Lease).

Kubernetes --watch--> Pool ----+--> Rounds: decide, plan -----> Slurm's records
Slurm --lists, GETs--> Records-+--> Conditions: say ----------> pods' conditions, events
slurmctld's init --HTTP-----------> Configuration ------------> SlurmCluster's status
slurmctld's log  --HTTP--> Hints --> Records
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

from kurm.kube import lease
from kurm.kube.apply import Applier
from kurm.kube.events import Recorder
from kurm.kube.lease import Leadership
from kurm.kube.resources import Key, OwnerReference
from kurm.kube.session import Session as KubeSession
from kurm.kube.watch import Pace as WatchPace
from kurm.slurm.controller import PORT as STATUS_PORT
from kurm.slurm.controller import SlurmctldInit
from kurm.slurm.session import Session as SlurmSession
from kurm.syncer import records
from kurm.syncer.conditions import Conditions
from kurm.syncer.configuration import Configuration
from kurm.syncer.hints import Hints
from kurm.syncer.jobs import Jobs
from kurm.syncer.losses import Losses
from kurm.syncer.metrics import Gauges, Metrics
from kurm.syncer.objects import MANAGER, SLURM_CLUSTERS
from kurm.syncer.pool import DEAD_AFTER, Pool
from kurm.syncer.records import Records
from kurm.syncer.rounds import Rounds

log = structlog.get_logger("kurm.syncer")

STUCK_SECONDS = 60.0
"""So long without the loop coming by: it never waits that long for anything."""


@dataclass(frozen=True)
class Settings:
    """What a syncer is told."""

    cluster: str
    namespace: str
    identity: str
    """The pod's name: whoever comes back under it need not wait for its own Lease."""
    controller: str = ""
    """Where slurmctld's init tells its configuration; `http://CLUSTER-controller:6819/` if empty."""
    drain_conditions: Collection[str] = ()
    """Types of Kubernetes' node conditions (node-problem-detector's, say) that drain a node while they are True."""
    dead_after: float = DEAD_AFTER
    """Seconds for which a Kubernetes node is not heard of before it is held for dead."""
    terms: lease.Terms | None = None
    pace: records.Pace | None = None
    watch_pace: WatchPace | None = None

    @property
    def controller_address(self) -> str:
        """Where slurmctld's init tells its configuration."""
        return self.controller or f"http://{self.cluster}-controller:{STATUS_PORT}/"

    @property
    def lease(self) -> Key:
        """The Lease that the cluster's syncers share."""
        return Key(self.namespace, f"{self.cluster}-syncer")


class Syncer:
    """Make it inside of the event loop that runs it."""

    def __init__(self, kube: KubeSession, slurm: SlurmSession, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.cluster, settings.namespace)
        self.init = SlurmctldInit(settings.controller_address)
        self.leadership = Leadership(kube, settings.lease, settings.identity, settings.terms, owner=self._owner)
        self.pool = Pool(
            kube,
            settings.namespace,
            settings.cluster,
            drain_conditions=settings.drain_conditions,
            dead_after=settings.dead_after,
            pace=settings.watch_pace,
        )
        self.records = Records(slurm, pace=settings.pace)
        self._recorder = Recorder(kube, f"kurm.dev/{MANAGER}", settings.identity)
        applier = Applier(kube, MANAGER)

        def leads() -> bool:
            return self.leadership.leads

        self.jobs = Jobs(self.pool, self.records)
        self.conditions = Conditions(
            self.pool,
            self.records,
            applier=applier,
            recorder=self._recorder,
            leads=leads,
            metrics=self.metrics,
            load=self.jobs.load,
        )
        self.jobs.on_change(self.conditions.controller.queue.add)
        self.rounds = Rounds(
            self.pool,
            self.records,
            leads=leads,
            metrics=self.metrics,
            losses=Losses(self.pool, self._recorder),
            looked=self.conditions.controller.queue.add,
        )
        self.configuration = Configuration(
            self.pool,
            self.init,
            applier=applier,
            leads=leads,
            metrics=self.metrics,
            changed=self._reconfigured,
            version=lambda: slurm.release,
        )
        self.hints = Hints(self.init, self.records)
        self.metrics.watch(slurm.traffic, kube.traffic, self._gauges())

    async def run(self) -> None:
        """Keep both sides in agreement while we lead; never ends by itself, cancel it.

        Raises LeadershipLost when another one leads: restart the process then.
        """
        async with self.init, asyncio.TaskGroup() as reading:
            # Read before we lead, so that a second syncer takes over at once.
            followers = [reading.create_task(one.run()) for one in (self.pool, self.records, self.hints)]
            try:
                await self._cluster_is_there()
                await self.leadership.run(self._write)
            finally:
                for task in followers:
                    task.cancel()

    def stuck(self) -> list[str]:
        """Return why only a restart helps, in words; nothing while all is well."""
        silence = asyncio.get_running_loop().time() - self.rounds.ticked_at
        leads = self.leadership.leads and silence > STUCK_SECONDS
        return [f"the loop has not come by for {silence:.0f} s"] if leads else []

    def unready(self) -> list[str]:
        """Return why it writes nothing now, in words; nothing while all is well."""
        holder = self.leadership.holder or "nobody"
        problems = [] if self.leadership.leads else [f"does not lead: {holder} holds lease {self.settings.lease}"]
        return [*problems, *filter(None, (self.pool.problem, self.records.problem))]

    async def _cluster_is_there(self) -> None:
        """Wait for our SlurmCluster: the Lease is to go with it, and without one there is nothing to do."""
        there = asyncio.Event()
        self.pool.clusters.on_change(lambda change: there.set() if change.new else None)
        await self.pool.clusters.wait_synced(float("inf"))
        if self.pool.cluster is None:
            log.warning("there is no such SlurmCluster; waiting for it")
            await there.wait()

    def _owner(self) -> OwnerReference | None:
        cluster = self.pool.cluster
        if cluster is None:
            return None
        kind = SLURM_CLUSTERS.kind
        return OwnerReference(kind, cluster.metadata.name, cluster.metadata.uid, SLURM_CLUSTERS.api_version)

    async def _write(self) -> None:
        for cache in self.pool.caches:
            await cache.wait_synced(float("inf"))
        async with asyncio.TaskGroup() as writing:
            for work in (self.rounds, self.conditions.controller, self.configuration, self.jobs, self._recorder):
                writing.create_task(work.run())

    def _reconfigured(self) -> None:
        self.records.expire()
        self.rounds.look_at_all()

    def _gauges(self) -> Gauges:
        def ages() -> Mapping[str, float]:
            found = {str(cache.resource): cache.age for cache in self.pool.caches}
            return found | {"slurm nodes": self.records.age}

        def depths() -> Mapping[str, float]:
            queues = {"nodes": self.rounds.queue, "pods": self.conditions.controller.queue}
            return {name: float(len(queue) + queue.working) for name, queue in queues.items()}

        return {
            "cache_age_seconds": ("Since a view of one side was last known to be true", ages),
            "queue_depth": ("Nodes that are due or in work", depths),
            "leads": ("Whether this process may write", lambda: {"lease": float(self.leadership.leads)}),
            "hears_hints": ("Whether hints come from slurmctld's log", lambda: {"log": float(self.records.hears)}),
            "waiting_nodes": ("Nodes that wait for Slurm", lambda: {"slurm": float(len(self.records.waiting))}),
        }
