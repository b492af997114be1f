"""The operator: what it sees, the two controllers that write, and who may (one at a time, by a Lease).

                          +--> Clusters:  render, apply, judge -----> objects of a cluster, its status
Kubernetes --watch--> Caches         | rendered
                          +--> NodeSets:  choose, plan, judge ------> claims on nodes, slurmd's pods, status

All that is known is read again after a restart: nothing is remembered but what the API server has.
"""

import asyncio
from dataclasses import dataclass

import structlog

from kurm.kube import lease
from kurm.kube.events import Recorder
from kurm.kube.lease import Leadership
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.kube.watch import Pace
from kurm.operator.caches import Caches
from kurm.operator.clusters import Clusters
from kurm.operator.inputs import Inputs
from kurm.operator.metrics import Metrics
from kurm.operator.nodesets import NodeSets
from kurm.operator.objects import MANAGER
from kurm.operator.render.pods import Images
from kurm.operator.writes import Writes

log = structlog.get_logger("kurm.operator")

STUCK_SECONDS = 300.0
"""So long is no key ever due: a look has a deadline of a minute, and there are several workers."""
LEASE = "kurm-operator"


@dataclass(frozen=True)
class Settings:
    """What an operator is told."""

    images: Images
    namespace: str
    """Where the Lease is."""
    identity: str
    """The pod's name: whoever comes back under it need not wait for its own Lease."""
    terms: lease.Terms | None = None
    pace: Pace | None = None


class Operator:
    """Make it inside of the event loop that runs it."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self.metrics = Metrics()
        self.caches = Caches(session, pace=settings.pace)
        self.leadership = Leadership(session, Key(settings.namespace, LEASE), settings.identity, settings.terms)
        writes = Writes(session, leads=lambda: self.leadership.leads, metrics=self.metrics)
        self._recorder = Recorder(session, f"kurm.dev/{MANAGER}", settings.identity)
        self._inputs = Inputs(session, self._input_changed, pace=settings.pace)
        self.clusters = Clusters(
            session,
            self.caches,
            writes,
            images=settings.images,
            inputs=self._inputs,
            recorder=self._recorder,
            metrics=self.metrics,
            changed=self._rendered_changed,
        )
        self.node_sets = NodeSets(
            session,
            self.caches,
            writes,
            rendered=self.clusters.rendered,
            recorder=self._recorder,
            metrics=self.metrics,
        )
        self._measure()

    async def run(self) -> None:
        """Bring about what resources ask for while we lead; never ends by itself, cancel it.

        Raises LeadershipLost when another one leads: restart the process then.
        """
        async with asyncio.TaskGroup() as reading:
            # Read before we lead, so that a second operator takes over at once.
            following = reading.create_task(self.caches.run())
            try:
                await self.leadership.run(self._write)
            finally:
                following.cancel()
                await self._inputs.close()

    def stuck(self) -> list[str]:
        """Return why only a restart helps, in words; nothing while all is well."""
        waiting = {each.name: each.queue.oldest for each in (self.clusters.controller, self.node_sets.controller)}
        return [
            f"{name}: nobody has looked at what is due for {seconds:.0f} s"
            for name, seconds in waiting.items()
            if self.leadership.leads and seconds > STUCK_SECONDS
        ]

    def unready(self) -> list[str]:
        """Return what keeps it from leading well, in words. One that does not lead is ready to take over."""
        return [self.caches.problem] if self.caches.problem else []

    async def _write(self) -> None:
        await self.caches.wait_synced()
        log.info("brings about what resources ask for", clusters=len(self.caches.clusters))
        async with asyncio.TaskGroup() as writing:
            for work in (self.clusters.controller, self.node_sets.controller, self._recorder):
                writing.create_task(work.run())

    def _input_changed(self, cluster: Key) -> None:
        self.clusters.controller.queue.add(cluster)

    def _rendered_changed(self, cluster: Key) -> None:
        self.node_sets.look_at_those_of(cluster)

    def _measure(self) -> None:
        controllers = (self.clusters.controller, self.node_sets.controller)
        self.metrics.gauge(
            "cache_age_seconds",
            "Since the API server was last heard on a watch",
            "resource",
            {str(cache.resource): lambda cache=cache: cache.age for cache in self.caches},  # type: ignore[misc]
        )
        self.metrics.gauge(
            "queue_depth",
            "Resources that are due or in work",
            "controller",
            {one.name: lambda one=one: float(len(one.queue) + one.queue.working) for one in controllers},  # type: ignore[misc]
        )
        self.metrics.gauge(
            "leads", "Whether this process may write", "of", {"lease": lambda: float(self.leadership.leads)}
        )
