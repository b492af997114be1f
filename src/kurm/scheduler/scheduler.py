"""One scheduler: the views that it reads, the loops that write, and who may (one at a time, by a Lease).

Kubernetes --watch--> Pool, Owners --+--> Placer: allocation.decide --> jobs in Slurm, binds and ends of pods
Slurm --list, hints--> Truth, Ledger-+         |
                                               +--> Telling ----------> conditions and events of pods that wait
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from kurm.kube import lease
from kurm.kube.cache import Change
from kurm.kube.events import Recorder
from kurm.kube.lease import Leadership
from kurm.kube.resources import Key, OwnerReference
from kurm.kube.session import Session as KubeSession
from kurm.kube.watch import Pace as WatchPace
from kurm.scheduler.ahead import Ahead
from kurm.scheduler.binding import Binding
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.metrics import Gauges, Metrics
from kurm.scheduler.objects import MANAGER, SLURM_CLUSTERS, SlurmCluster
from kurm.scheduler.owners import Owners
from kurm.scheduler.placer import Placer
from kurm.scheduler.pool import Pool
from kurm.scheduler.prospects import Prospects
from kurm.scheduler.room import SlurmRoom
from kurm.scheduler.starts import Starts
from kurm.scheduler.telling import Telling
from kurm.scheduler.terrain import Terrain
from kurm.scheduler.truth import Truth
from kurm.scheduler.volumes import Volumes
from kurm.slurm.controller import PORT, JobEvent, SlurmctldInit
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.session import TokenSource

log = structlog.get_logger("kurm.scheduler")

STUCK_SECONDS = 60.0
"""So long without the loop coming by: it never waits that long for anything."""
TICK = 1.0
GATHER = 0.05
"""Seconds for which changes gather by which pods that wait may be placed: nodes come as one event each."""
PACE = WatchPace(gulp=0.01)
"""A pod that comes after quiet is seen at once; what follows gathers for less than half as long as elsewhere."""


@dataclass(frozen=True)
class Settings:
    """What a scheduler is told."""

    cluster: str
    namespace: str
    identity: str
    """The pod's name: whoever comes back under it need not wait for its own Lease."""
    controller: str = ""
    """Where slurmctld's init answers; `http://CLUSTER-controller:6819/` if empty."""
    terms: lease.Terms | None = None
    watch_pace: WatchPace | None = None

    @property
    def controller_address(self) -> str:
        """Where slurmctld's init answers."""
        return self.controller or f"http://{self.cluster}-controller:{PORT}/"

    @property
    def lease(self) -> Key:
        """The Lease that the cluster's schedulers share."""
        return Key(self.namespace, f"{self.cluster}-scheduler")


class RenamedError(Exception):
    """spec.scheduler.name is another one now: the pods that are followed are not ours. Restart the process."""


class Scheduler:
    """Make it inside of the event loop that runs it. `cluster` is the SlurmCluster as it is now."""

    def __init__(
        self,
        kube: KubeSession,
        slurm: SlurmSession,
        tokens: TokenSource,
        settings: Settings,
        cluster: SlurmCluster,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.init = SlurmctldInit(settings.controller_address, tokens)
        self.leadership = Leadership(kube, settings.lease, settings.identity, settings.terms, owner=self._owner)
        self._cluster, self._due = cluster, False
        self._ticked_at = asyncio.get_running_loop().time()
        name = cluster.spec.scheduler.name if cluster.spec.scheduler else "kurm"
        pace = settings.watch_pace or PACE
        self.pool = Pool(kube, settings.namespace, settings.cluster, scheduler=name, pace=pace)
        self.ledger = Ledger(lambda: cluster.metadata.uid)
        self._recorder = Recorder(kube, f"kurm.dev/{MANAGER}", settings.identity)

        def leads() -> bool:
            return self.leadership.leads

        self.terrain = Terrain(self.pool, self._look_at_waiting)
        self.room = SlurmRoom(slurm, self.terrain, self.ledger, self._look_at_waiting)
        self.owners = Owners(self.pool, self._look_at)
        self.binding = Binding(kube, self.pool, self.metrics)
        self.ahead = Ahead(
            kube, pool=self.pool, owners=self.owners, ledger=self.ledger, binding=self.binding, leads=leads
        )
        self.binding.ahead, self.binding.unbound = self.ahead.look_at, self.terrain.discount
        self.owners.arriving = self.ahead.arriving
        self.telling = Telling(kube, self.pool, self._recorder, self.metrics, leads)
        volumes = Volumes(kube)
        self.pool.pods.on_change(volumes.heed)
        self.pool.clusters.on_change(self._heed_cluster)
        self.placer = Placer(
            slurm,
            pool=self.pool,
            owners=self.owners,
            ledger=self.ledger,
            prospects=Prospects(self.terrain, self.ledger, self.room, volumes),
            volumes=volumes,
            binding=self.binding,
            telling=self.telling,
            starts=Starts(self.init),
            metrics=self.metrics,
            leads=leads,
        )
        self.truth = Truth(slurm, self.init, ledger=self.ledger, metrics=self.metrics, heard=self._heard)
        self.ledger.on_change(self._look_at, self._look_at_all)
        self.placer.looked = self.truth.looked
        self.truth.given_up = self.placer.gives_up
        self.truth.bound = lambda: {*self.owners.bound(), *self.ledger.owners()}
        self.truth.opened = self._look_at_waiting
        self.truth.missed = self.room.missed
        self.metrics.watch(slurm.traffic, kube.traffic, self._gauges())

    async def run(self) -> None:
        """Place pods while we lead; never ends by itself, cancel it.

        Raises LeadershipLost when another one leads, RenamedError when its pods are called otherwise: restart then.
        """
        async with self.init, asyncio.TaskGroup() as reading:
            # Read before we lead, so that a second scheduler takes over at once.
            followers = [reading.create_task(one.run()) for one in (self.pool, self.truth, self.room)]
            try:
                await self.pool.clusters.wait_synced(float("inf"))
                await self.leadership.run(self._write)
            finally:
                for task in followers:
                    task.cancel()

    def stuck(self) -> list[str]:
        """Return why only a restart helps, in words; nothing while all is well."""
        silence = asyncio.get_running_loop().time() - self._ticked_at
        leads = self.leadership.leads and silence > STUCK_SECONDS
        return [f"the loop has not come by for {silence:.0f} s"] if leads else []

    def unready(self) -> list[str]:
        """Return why it places nothing now, in words; nothing while all is well."""
        holder = self.leadership.holder or "nobody"
        problems = [] if self.leadership.leads else [f"does not lead: {holder} holds lease {self.settings.lease}"]
        known = "" if self.ledger.known else "what Slurm holds is not known yet"
        closed = "" if self.ledger.open else "what is bound is looked at first, after slurmctld's start or ours"
        return [*problems, *filter(None, (self.pool.problem, self.ledger.problem or known or closed))]

    async def _write(self) -> None:
        for cache in self.pool.caches:
            await cache.wait_synced(float("inf"))
        async with asyncio.TaskGroup() as writing:
            for work in (self.placer, self.binding, self.ahead, self.telling, self._recorder):
                writing.create_task(work.run())
            writing.create_task(self.truth.recover(self.placer.look_at))
            writing.create_task(self._tick())

    async def _tick(self) -> None:
        away = False
        while True:
            self._ticked_at = asyncio.get_running_loop().time()
            name = self.pool.settings.name
            if self.pool.cluster is not None and name != self.pool.scheduler:
                raise RenamedError(f"spec.scheduler.name is {name}, and was {self.pool.scheduler}")
            if self.ledger.problem and not away:
                self._look_at_waiting()  # to be told so
            away = bool(self.ledger.problem)
            await asyncio.sleep(TICK)

    def _look_at(self, owner: str) -> None:
        self.placer.look_at(owner)

    def _look_at_all(self) -> None:
        # One whose pod is gone and whose job was just cancelled is known to nobody but who waits for it.
        for owner in {*self.owners.all(), *self.truth.awaited()}:
            self.placer.look_at(owner)

    def _heed_cluster(self, change: Change[SlurmCluster]) -> None:
        """Look at all when what it says may have changed: of pods on dead nodes, and when a node is dead."""
        old, new = (one.spec if one is not None else None for one in (change.old, change.new))
        if old is not None and new is not None and old != new:
            self._look_at_all()

    def _heard(self, events: Sequence[JobEvent]) -> None:
        self.room.heard(events)
        self.placer.nudge.heard(events)

    def _look_at_waiting(self) -> None:
        """Look at all that wait, once for all changes of a moment."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(GATHER, self._look_now)

    def _look_now(self) -> None:
        self._due = False
        for owner in self.owners.waiting():
            self.placer.look_at(owner)

    def _owner(self) -> OwnerReference | None:
        metadata, kind = self._cluster.metadata, SLURM_CLUSTERS.kind
        return OwnerReference(kind, metadata.name, metadata.uid, SLURM_CLUSTERS.api_version)

    def _gauges(self) -> Gauges:
        def one(label: str, value: Callable[[], float]) -> Callable[[], Mapping[str, float]]:
            return lambda: {label: value()}

        queue = self.placer.controller.queue
        return {
            "cache_age_seconds": (
                "Since a view of one side was last known to be true",
                lambda: {str(cache.resource): cache.age for cache in self.pool.caches},
            ),
            "queue_depth": ("Owners that are due or in work", one("owners", lambda: float(len(queue) + queue.working))),
            "leads": ("Whether this process may write", one("lease", lambda: float(self.leadership.leads))),
            "hears_hints": ("Whether hints come from slurmctld's log", one("log", lambda: float(self.truth.hears))),
            "allocations": ("Jobs that Slurm holds for pods", one("slurm", lambda: float(len(self.ledger)))),
            "waiting_pods": (
                "Pods that were given a reason why they wait",
                one("pods", lambda: float(len(self.telling))),
            ),
        }
