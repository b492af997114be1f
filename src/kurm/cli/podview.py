"""What is read of both sides for one pod, and what the scheduler's own pure decisions say of it now."""

import contextlib
from collections.abc import Collection, Iterable, Sequence

from kurm.cli import queuedjob
from kurm.cli.errors import CommandError
from kurm.cli.podstory import Gang, Nodes, Story, Wanted
from kurm.cli.queuedjob import QueuedJob
from kurm.cli.queues import UnansweredError
from kurm.cli.view import CLUSTERS, SlurmCluster, View, condition, read
from kurm.domain import gres, noderecord
from kurm.domain.asks import Ask, RefusedError, Rules
from kurm.domain.feasibility import Node
from kurm.domain.gangs import UNKNOWN, Owner, finished, gather, job_of, owner_of, owner_was, rank
from kurm.domain.placing import Placing
from kurm.domain.podresources import NOTHING, Resources, requests
from kurm.domain.podspec import host_ports
from kurm.domain.selection import Taint, claim
from kurm.domain.signals import ALLOCATION, NODE_SET
from kurm.kube import resources as kube
from kurm.kube.errors import ApiError, Forbidden, NotFound
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.scheduler.objects import JOBS, OWN_PODS, BatchJob, Pod
from kurm.scheduler.volumes import Needs, Volumes


async def look(session: Session, namespace: str, name: str) -> Story:
    """Return all that is known of a pod. Raises CommandError if there is none of the name, KubeError."""
    try:
        pod = await session.get(OWN_PODS, Key(namespace, name))
    except NotFound as error:
        raise CommandError(f"there is no Pod {name!r} in namespace {namespace}") from error
    clusters = await _clusters(session, namespace)
    schedulers = {one.spec.scheduler.name: one for one in clusters if one.spec.scheduler}
    cluster = schedulers.get(pod.spec.scheduler_name)
    if cluster is None:
        return Story(pod, schedulers={known: str(one.key) for known, one in schedulers.items()})
    return await _Look(session, pod, cluster, await read(session, cluster.metadata.namespace)).story()


async def _clusters(session: Session, namespace: str) -> Sequence[SlurmCluster]:
    """Return the SlurmClusters of all namespaces, or of the pod's own if that is all that may be seen."""
    try:
        try:
            return await session.list(CLUSTERS)
        except Forbidden:
            return await session.list(CLUSTERS, namespace=namespace)
    except NotFound as error:
        raise CommandError(f"Kurm is not installed at {session.config.server}: it knows no {CLUSTERS}") from error


class _Look:
    """One look at a pod that a cluster's scheduler is to place."""

    def __init__(self, session: Session, pod: Pod, cluster: SlurmCluster, view: View) -> None:
        self._session, self._pod, self._cluster, self._view = session, pod, cluster, view
        self._unknown = list(view.unknown)
        node_sets = {one.metadata.name: one.spec for one in view.node_sets_of(cluster)}
        self._node_sets = {claim(cluster.metadata.namespace, name): (name, spec) for name, spec in node_sets.items()}
        settings = cluster.spec.scheduler
        assert settings is not None, "only clusters with a scheduler are looked at"  # noqa: S101 - tells mypy
        self._rules = Rules(settings, cluster.spec.partitions, node_sets)

    async def story(self) -> Story:
        """Put it together. What cannot be read is told in words."""
        refused, wanted, gang, nodes = "", None, None, None
        job = await self._job()
        owner = self._bound_for(job)
        try:
            ask = self._rules.ask(self._pod)
            owner = owner or owner_of(self._pod, job.spec if job else None)
            wanted = _wanted(ask)
            gang = await self._gang(owner, ask, finished(job.status) if job else frozenset())
            if not self._pod.spec.node_name:
                nodes = await self._nodes(ask, owner)
        except RefusedError as error:
            refused = "" if self._pod.spec.node_name else str(error)  # one that is bound was not refused
        return Story(
            self._pod,
            str(self._cluster.key),
            refused=refused,
            wanted=wanted,
            gang=gang,
            jobs=await self._jobs(owner) if owner else (),
            nodes=nodes,
            unknown=self._unknown,
        )

    async def _job(self) -> BatchJob | None:
        """Return the Job that the pod has a rank of, None for none, and for one that is gone before its pods."""
        uid = job_of(self._pod)
        if not uid:
            return None
        name = next(one.name for one in self._pod.metadata.owner_references if one.uid == uid)
        try:
            found = await self._session.get(JOBS, Key(self._pod.metadata.namespace, name))
        except NotFound:
            return None
        return found if found.metadata.uid == uid else None

    def _bound_for(self, job: BatchJob | None) -> Owner | None:
        """Return the owner for whom the pod was bound, whatever it and its Job say by now; None if it waits."""
        bound_for = self._pod.metadata.annotations.get(ALLOCATION) if self._pod.spec.node_name else None
        if not bound_for:
            return None
        with contextlib.suppress(RefusedError):
            if (owner := owner_of(self._pod, job.spec if job else None)).id == bound_for:
                return owner
        return owner_was(self._pod, bound_for)

    async def _gang(self, owner: Owner, ask: Ask, ended: Collection[int]) -> Gang | None:
        """Return the gang, None for a pod alone. Raises RefusedError if its pods do not go together."""
        if owner.size in {1, UNKNOWN}:
            return None
        here = await self._session.list(OWN_PODS, namespace=self._pod.metadata.namespace)
        members = [one for one in here if not one.over and not one.leaving and self._same(one)]
        gather(owner, [(one, ask if one == self._pod else self._rules.ask(one)) for one in members], ended)
        names = tuple(sorted(one.metadata.name for one in members))
        what = "Job" if owner.indexed else "gang"
        return Gang(f"{what} {owner.namespace}/{owner.name}", owner.size, names, _missing(owner, members, ended))

    def _same(self, other: Pod) -> bool:
        """Whether a pod of the namespace belongs to the same gang: by its Job, or by its annotations."""
        try:
            uid = job_of(other)
            return uid == job_of(self._pod) and (bool(uid) or owner_of(other) == owner_of(self._pod))
        except RefusedError:
            return False

    async def _nodes(self, ask: Ask, owner: Owner) -> Nodes | None:
        """Return which nodes are out, and why; None if nodes cannot be read."""
        if self._view.nodes is None:
            return None
        placing = Placing({spec.taint_key for _, spec in self._node_sets.values()})
        for node in self._view.nodes:
            placing.put_node(self._fact(node))
        for pod in await self._bound() if ask.ports else ():
            placing.occupancy.put(pod.metadata.uid, pod.spec.node_name, requests(pod.spec), host_ports(pod.spec))
        terms = (await self._volumes()).terms
        prospect = placing.prospect(ask, slots=owner.size, volumes=[terms] if terms else ())
        return Nodes(len(self._view.nodes), prospect.feasible, placing.infeasible(prospect))

    async def _volumes(self) -> Needs:
        """Return what its claims come to while it has no node."""
        volumes = Volumes(self._session)
        try:
            await volumes.read([self._pod])
        except ApiError as error:
            self._unknown.append(f"Where its volumes can be reached is not known: {error.message}")
        return volumes.needs(self._pod)

    async def _bound(self) -> Iterable[Pod]:
        """Return the pods that have nodes: only host ports ask for all of them."""
        try:
            found = await self._session.list(OWN_PODS, fields="spec.nodeName!=")
        except Forbidden as error:
            self._unknown.append(f"Which host ports are taken is not known: {error.message}")
            return ()
        return (pod for pod in found if not pod.over and pod.metadata.uid != self._pod.metadata.uid)

    def _fact(self, node: kube.Node) -> Node:
        """Return a node as the scheduler sees it."""
        meta = node.metadata
        ready = condition(node.status.conditions, "Ready")
        name, spec = self._node_sets.get(meta.labels.get(NODE_SET, ""), ("", None))
        settled = meta.annotations.get(gres.GRES, "")
        cpus = memory = 0
        allocatable = NOTHING
        with contextlib.suppress(ValueError):  # Slurm has no record of such a node, and so it has no room
            allocatable = Resources.of(node.status.allocatable)
            if spec is not None:
                record = noderecord.node_record(name, spec, node.status.allocatable, meta.labels, settled=settled)
                cpus, memory = record.cpus, record.real_memory
        return Node(
            meta.name,
            meta.labels,
            tuple(Taint(taint.key, taint.effect, taint.value) for taint in node.spec.taints),
            unschedulable=node.spec.unschedulable,
            ready=ready is not None and ready.status == "True",
            allocatable=allocatable,
            node_set=name,
            cpus=cpus,
            memory=memory,
            gres=gres.read(settled) or {},
        )

    async def _jobs(self, owner: Owner) -> Sequence[QueuedJob]:
        # What slurmctld had forgotten is pinned again by a job for each node of a gang.
        node = self._pod.spec.node_name
        names = [owner.job_name, *([f"{owner.job_name}@{node}"] if node and owner.size > 1 else [])]
        try:
            return await queuedjob.ask(self._session, self._view.pods_of(self._cluster), names)
        except UnansweredError as error:
            self._unknown.append(f"Slurm could not be asked for its job: {error}")
            return ()


def _wanted(ask: Ask) -> Wanted:
    return Wanted(
        ask.cpus,
        ask.memory,
        tuple(f"{wish.name}:{wish.type}" if wish.type else wish.name for wish in ask.constraint.wishes),
        ask.partition,
        ask.account,
        ask.qos,
        ask.time_limit,
    )


def _missing(owner: Owner, there: Sequence[Pod], ended: Collection[int]) -> str:
    """Say which pods of a gang are missing: of a Job by their ranks, of others by their number."""
    if not owner.indexed:
        missing = owner.size - len(there)
        return f"{missing} more with the annotation slurm.kurm.dev/gang: {owner.name}" if missing > 0 else ""
    ranks = {rank(pod) for pod in there} | set(ended)
    missing_ranks = ", ".join(str(one) for one in range(owner.size) if one not in ranks)
    return f"those of index {missing_ranks}" if missing_ranks else ""
