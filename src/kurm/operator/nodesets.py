"""NodeSets: nodes claimed, pods made on them, and both given back without a job lost."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import structlog

from kurm.domain.load import Load
from kurm.domain.signals import NODE_SET, SLURM_DRAINED, SLURM_READY
from kurm.kube.cache import Change
from kurm.kube.controller import DONE, Again, Controller, Result
from kurm.kube.errors import NotFound
from kurm.kube.events import Recorder
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.operator import nodesetstatus, podtrouble, transitions
from kurm.operator.caches import Caches, node_set_of
from kurm.operator.clusters import Rendered
from kurm.operator.conditions import Trouble
from kurm.operator.errands import Errands, Outcome
from kurm.operator.fleet import Circumstances, Fleet, muster
from kurm.operator.metrics import Metrics
from kurm.operator.nodesetstatus import Facts, PodTrouble
from kurm.operator.objects import (
    ALL_NODES,
    CLUSTER_PODS,
    COMPONENT,
    INSTANCE,
    NODE_SETS,
    SLURM_CLUSTERS,
    Node,
    NodeSet,
    Pod,
    SlurmCluster,
)
from kurm.operator.pods import plan
from kurm.operator.render import slurmd
from kurm.operator.render.errors import SpecError
from kurm.operator.render.names import Part
from kurm.operator.writes import Writes

WORKERS = 4
GATHER = 0.2
"""Seconds between a change of a node or a pod and the look at its NodeSet: a thousand nodes come as a thousand changes,
and each look is at all of them."""
STATUS_EVERY = 1.0
"""Seconds between two writes of a status that differ in figures only."""
ARRIVAL = 10.0
"""Seconds that the SlurmCluster of a new NodeSet may take to come: one chart makes both, in whatever order."""
CHOICE = 10.0
"""Seconds that the choice among busy nodes is put off for, until each has said when it is free."""
REFUSED = 60.0
"""Seconds until something that the API server has refused is tried again: a quota may have room by then."""


class NodeSets:
    """The controller. `rendered` is what could be rendered of each SlurmCluster."""

    def __init__(
        self,
        session: Session,
        caches: Caches,
        writes: Writes,
        *,
        rendered: Mapping[Key, Rendered],
        recorder: Recorder,
        metrics: Metrics,
    ) -> None:
        self.controller: Controller[Key] = Controller("nodesets", self._timed, workers=WORKERS)
        self._session, self._caches, self._writes, self._rendered = session, caches, writes, rendered
        self._errands = Errands(session, writes, recorder)
        self._recorder, self._metrics = recorder, metrics
        self._told_at: dict[Key, float] = {}
        self._choosing: dict[Key, float] = {}
        """Since when a choice is put off; what is forgotten begins anew."""
        self._watch()

    def look_at_those_of(self, cluster: Key) -> None:
        """Look at the NodeSets of a SlurmCluster."""
        for one in self._caches.node_sets.by("cluster", cluster):
            self.controller.queue.add(one.key)

    def _watch(self) -> None:
        caches = self._caches
        caches.node_sets.on_change(lambda change: self.controller.queue.add(change.key))
        caches.pods.on_change(self._pod_changed)
        caches.nodes.on_change(self._node_changed)
        caches.clusters.on_change(self._cluster_changed)

    def _cluster_changed(self, change: Change[SlurmCluster]) -> None:
        told = {(one.metadata.uid, one.metadata.deletion_timestamp) for one in (change.old, change.new) if one}
        if change.old is None or change.new is None or len(told) > 1:
            self.look_at_those_of(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is None:
                continue
            if (key := node_set_of(pod)) is not None:
                self._later(key)
            elif pod.metadata.labels.get(COMPONENT) in {Part.SYNCER.value, Part.CONTROLLER.value}:
                of = Key(pod.metadata.namespace, pod.metadata.labels.get(INSTANCE, ""))
                for one in self._caches.node_sets.by("cluster", of):
                    self._later(one.key)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.old is None or change.new is None or _choosable(change.old) != _choosable(change.new):
            for one in self._caches.node_sets:
                self._later(one.key)

    def _later(self, key: Key) -> None:
        if key in self._caches.node_sets:
            self.controller.queue.add(key, after=GATHER)

    async def _timed(self, key: Key) -> Result:
        node_set = self._caches.node_sets.get(key)
        if node_set is None:
            self._told_at.pop(key, None)
            self._choosing.pop(key, None)
            self._writes.forget(NODE_SETS, key)
            return DONE
        node_set = self._writes.latest(NODE_SETS, node_set)
        fields = {"nodeset": str(key), "cluster": str(node_set.cluster)}
        with structlog.contextvars.bound_contextvars(**fields), self._metrics.timed("nodesets"):
            return await self._reconcile(node_set)

    async def _reconcile(self, node_set: NodeSet) -> Result:
        deleted = node_set.metadata.deletion_timestamp is not None
        cluster = self._caches.clusters.get(node_set.cluster)
        gone = await self._gone(node_set, cluster)
        troubles = [] if cluster is not None else [_missing(node_set)]
        rendered, template, unrenderable = self._template(node_set, cluster)
        troubles += unrenderable
        if not deleted and cluster is not None and not gone:
            node_set = await self._writes.hold(NODE_SETS, node_set)
        silent = "" if gone else self._silent(node_set)
        given = Circumstances(
            leaving=_leaving(node_set, deleted=deleted, gone=gone),
            cluster_uid=cluster.metadata.uid if cluster is not None else "",
            template=template,
            silent=bool(silent),
            patient=self._put_off_for(node_set.key) < CHOICE,
        )
        # A cache that has not heard yet of a condition that we have written would have it written once more.
        fleet = self._chosen(muster(self._caches, node_set, given, lambda node: self._writes.latest(ALL_NODES, node)))
        can_make = bool(template) and not deleted and not gone and not fleet.troubles
        todo = plan(fleet.slots, can_make=can_make, slurm_gone=gone, strategy=node_set.spec.update_strategy)
        outcome = await self._errands.run(fleet, todo, rendered if can_make else None)
        if deleted and fleet.empty and await self._nothing_left(fleet):
            await self._writes.let_go(NODE_SETS, node_set)
            return DONE
        wait = await self._write_status(fleet, [*troubles, *fleet.troubles, *outcome.troubles], silent)
        if cluster is None and _young(node_set):
            wait = min(wait or ARRIVAL, ARRIVAL)
        return _result(outcome, wait)

    def _put_off_for(self, key: Key) -> float:
        """Return for how many seconds the choice among busy nodes is put off already."""
        now = asyncio.get_running_loop().time()
        return now - self._choosing.get(key, now)

    def _chosen(self, fleet: Fleet) -> Fleet:
        """Remember since when its choice is put off."""
        if fleet.chosen.awaited:
            self._choosing.setdefault(fleet.node_set.key, asyncio.get_running_loop().time())
        else:
            self._choosing.pop(fleet.node_set.key, None)
        return fleet

    async def _gone(self, node_set: NodeSet, cluster: SlurmCluster | None) -> bool:
        """Whether the SlurmCluster is deleted, or about to be. That it is not in the cache is not enough to know it."""
        if cluster is not None:
            return cluster.metadata.deletion_timestamp is not None
        try:
            await self._session.get(SLURM_CLUSTERS, node_set.cluster)
        except NotFound:
            return True
        return False

    def _template(self, node_set: NodeSet, cluster: SlurmCluster | None) -> tuple[Rendered | None, str, list[Trouble]]:
        """Return what pods are made of, and its hash: empty while it is not known."""
        rendered = self._rendered.get(node_set.cluster)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            return None, "", []
        if rendered is None or rendered.cluster.uid != cluster.metadata.uid:
            message = f"SlurmCluster {cluster.metadata.name} has not been rendered: see its conditions"
            return None, "", [Trouble("ClusterNotRendered", message, stuck=False)]
        of = slurmd.NodeSet(node_set.metadata.name, node_set.metadata.uid, node_set.spec)
        try:
            return rendered, slurmd.template_hash(rendered.cluster, of, rendered.slurmd_hash), []
        except SpecError as error:
            return None, "", [Trouble("CannotBeRendered", str(error))]

    async def _nothing_left(self, fleet: Fleet) -> bool:
        """Whether the API server itself knows of no node and no pod: caches may lag behind our own writes."""
        nodes = await self._session.list(ALL_NODES, labels=f"{NODE_SET}={fleet.mine}")
        metadata = fleet.node_set.metadata
        pods = await self._session.list(
            CLUSTER_PODS, namespace=metadata.namespace, labels=slurmd.selector(metadata.name)
        )
        return not nodes and not pods

    def _silent(self, node_set: NodeSet) -> str:
        """Return why nobody can say what runs on the nodes; empty while somebody can."""
        for part, what in ((Part.SYNCER, "the syncer"), (Part.CONTROLLER, "slurmctld")):
            pods = self._caches.pods_of(node_set.cluster, part)
            if not any(pod.ready for pod in pods):
                why = podtrouble.trouble(pods, None).message
                return f"{what} of SlurmCluster {node_set.cluster.name} cannot be asked what runs there: {why}"
        return ""

    async def _write_status(self, fleet: Fleet, troubles: list[Trouble], silent: str) -> float | None:
        """Write the status if it is another one; return the seconds until to look again, None if no need is known."""
        node_set, now, moment = fleet.node_set, asyncio.get_running_loop().time(), datetime.now(UTC)
        facts = Facts(
            generation=node_set.metadata.generation,
            held=node_set.status,
            spec=node_set.spec,
            chosen=fleet.chosen,
            slots=fleet.slots,
            draining=_nodes(fleet, draining),
            drained=_nodes(fleet, drained),
            allocated=_allocated(fleet),
            leaving=fleet.leaving,
            selector=slurmd.selector(node_set.metadata.name),
            troubles=troubles,
            pod_trouble=_pod_trouble(fleet),
            silent=silent,
        )
        wanted = nodesetstatus.judge(facts, moment)
        again = nodesetstatus.again(facts, moment)
        if fleet.chosen.awaited:
            left = max(CHOICE - self._put_off_for(node_set.key), 0.0)
            again = left if again is None else min(again, left)
        if not nodesetstatus.differs(node_set.status, wanted):
            return again
        since = now - self._told_at.get(node_set.key, float("-inf"))
        if since < STATUS_EVERY and not nodesetstatus.urgent(node_set.status, wanted):
            return min(STATUS_EVERY - since, again or STATUS_EVERY)
        self._told_at[node_set.key] = now
        await self._writes.apply_status(NODE_SETS, node_set, nodesetstatus.manifest(wanted))
        transitions.record(self._recorder, NODE_SETS, node_set, node_set.status.conditions, wanted.conditions)
        return again


def _leaving(node_set: NodeSet, *, deleted: bool, gone: bool) -> str:
    if deleted:
        return f"NodeSet {node_set.metadata.name} is deleted"
    return f"SlurmCluster {node_set.cluster.name} is gone" if gone else ""


def _missing(node_set: NodeSet) -> Trouble:
    message = f"spec.clusterRef.name: there is no SlurmCluster {node_set.cluster.name!r} in this namespace"
    return Trouble("MissingSlurmCluster", message, stuck=not _young(node_set))


def _young(node_set: NodeSet) -> bool:
    made = node_set.metadata.creation_timestamp
    return made is not None and (datetime.now(UTC) - made).total_seconds() < ARRIVAL


def draining(pod: Pod) -> bool:
    """Whether Slurm gives a pod's node no jobs, and it still has some, or may have."""
    said = pod.condition(SLURM_READY)
    return said is not None and said.reason == "Draining"


def drained(pod: Pod) -> bool:
    """Whether Slurm gives a pod's node no jobs, and it has none."""
    return pod.holds(SLURM_DRAINED)


def _nodes(fleet: Fleet, which: Callable[[Pod], bool]) -> frozenset[str]:
    return frozenset(name for name, pod in fleet.pods.items() if not pod.going and which(pod))


def _allocated(fleet: Fleet) -> int | None:
    """Return how many nodes have jobs or pods; None while Slurm has not said it of each that it knows."""
    known = [pod for pod in fleet.pods.values() if not pod.going and pod.condition(SLURM_READY) is not None]
    loads = [Load.of(pod.metadata.annotations).allocated for pod in known]
    return None if None in loads else sum(load is True for load in loads)


def _choosable(node: Node) -> tuple[object, ...]:
    """Return what of a node is looked at: not the rest of its status, which changes every few minutes."""
    return node.metadata.labels, node.spec, node.ready, node.status.allocatable, node.metadata.uid


def _pod_trouble(fleet: Fleet) -> PodTrouble | None:
    found = [
        PodTrouble(slot.node, podtrouble.of_pod(fleet.pods[slot.node]))
        for slot in fleet.slots
        if slot.wanted and slot.node in fleet.pods and not fleet.pods[slot.node].ready
    ]
    return next(iter(sorted(found, key=lambda one: not one.why.stuck)), None)


def _result(outcome: Outcome, wait: float | None) -> Result:
    if outcome.error is not None:
        raise outcome.error
    if outcome.unfinished:
        return Again(0.0, "there is more of it")
    if outcome.troubles:
        return Again(REFUSED, outcome.troubles[0].reason)
    return DONE if wait is None else Again(wait, "to be told")
