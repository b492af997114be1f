"""Instructions carried out: many nodes at a time, each node's own one after the other."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from kurm.domain import release
from kurm.domain.signals import PROTECTED, RELEASE, REQUEUE_AT, SLURM_DRAIN
from kurm.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from kurm.kube.events import Recorder
from kurm.kube.resources import Key
from kurm.kube.session import Session
from kurm.operator import claims, slurmdrain
from kurm.operator.clusters import Rendered
from kurm.operator.conditions import Trouble
from kurm.operator.fleet import Fleet
from kurm.operator.objects import ALL_NODES, CLUSTER_PODS, NODE_SETS, Node, owned_by
from kurm.operator.pods import (
    Claim,
    Create,
    Delete,
    Expose,
    GiveUp,
    Instruction,
    Protect,
    Release,
    Requeue,
    Stay,
    Tell,
    Told,
)
from kurm.operator.render import names, slurmd
from kurm.operator.render.errors import SpecError
from kurm.operator.writes import Writes

log = structlog.get_logger("kurm.operator")

AT_ONCE = 16
"""Nodes that are written to at the same time."""
BATCH = 256
"""Nodes in one go: its writes take seconds, and what has changed meanwhile is seen before the next."""


@dataclass
class Outcome:
    """What came of it."""

    troubles: list[Trouble] = field(default_factory=list)
    """What the API server will not have."""
    error: KubeError | None = None
    """The first that may pass by itself."""
    unfinished: bool = False
    """There was more than one batch of it."""


class Errands:
    """Runs them."""

    def __init__(self, session: Session, writes: Writes, recorder: Recorder) -> None:
        self._session, self._writes, self._recorder = session, writes, recorder

    async def run(self, fleet: Fleet, instructions: Iterable[Instruction], rendered: Rendered | None) -> Outcome:
        """Carry out instructions. What fails on one node does not hold up the others."""
        by_node: dict[str, list[Instruction]] = {}
        for instruction in instructions:
            by_node.setdefault(instruction.node, []).append(instruction)
        outcome = Outcome(unfinished=len(by_node) > BATCH)
        room = asyncio.Semaphore(AT_ONCE)

        async def one(node: str, own: Sequence[Instruction]) -> None:
            async with room:
                with structlog.contextvars.bound_contextvars(node=node):
                    await self._node(fleet, own, rendered, outcome)

        async with asyncio.TaskGroup() as group:
            for node, own in list(by_node.items())[:BATCH]:
                group.create_task(one(node, own))
        return outcome

    async def _node(
        self, fleet: Fleet, instructions: Sequence[Instruction], rendered: Rendered | None, outcome: Outcome
    ) -> None:
        try:
            for instruction in instructions:
                await self._carry_out(fleet, instruction, rendered)
        except SpecError as error:
            outcome.troubles.append(Trouble("CannotBeRendered", str(error)))
        except (Invalid, Forbidden) as error:
            log.warning("refused", why=error.message)
            outcome.troubles.append(Trouble("Refused", f"the API server says: {error.message}"))
        except Conflict as error:
            outcome.error = outcome.error or error
        except NotFound:
            return  # the node or the pod is gone, and a watch is about to say so
        except KubeError as error:
            if outcome.error is None or isinstance(outcome.error, Conflict):
                outcome.error = error

    async def _carry_out(self, fleet: Fleet, instruction: Instruction, rendered: Rendered | None) -> None:
        name = instruction.node
        match instruction:
            case Claim():
                patch = claims.taking(fleet.nodes[name], fleet.mine, fleet.node_set.spec)
                await self._writes.patch(ALL_NODES, Key("", name), patch, what="claimed")
            case Create() if rendered is not None:
                await self._create(fleet, name, rendered)
            case Release(reason=reason):
                told = release.worded(reason, datetime.now(UTC))
                requeue = release.requeue_at(told, fleet.node_set.spec) or None
                await self._annotate(fleet, name, {RELEASE: told, REQUEUE_AT: requeue}, "released")
                self._recorder.record(NODE_SETS, fleet.node_set, "Releasing", f"{name}: {reason}", action="Release")
            case Stay():
                await self._annotate(fleet, name, {RELEASE: None, REQUEUE_AT: None}, "to stay")
            case Requeue(at=at):
                await self._annotate(fleet, name, {REQUEUE_AT: at or None}, "deadline")
            case Protect() | Expose():
                await self._guard(fleet, instruction)
            case Tell(told=said):
                await self._tell(fleet.nodes[name], said)
            case Delete(why=why):
                await self._writes.delete(CLUSTER_PODS, fleet.pods[name], exact=True, why=why)
            case GiveUp():
                await self._give_up(fleet, name)

    async def _create(self, fleet: Fleet, node: str, rendered: Rendered) -> None:
        metadata = fleet.node_set.metadata
        of = slurmd.NodeSet(metadata.name, metadata.uid, fleet.node_set.spec)
        manifest = slurmd.pod(rendered.cluster, of, node, rendered.slurmd_hash)
        try:
            await self._writes.create(CLUSTER_PODS, manifest, pod=manifest["metadata"]["name"])
        except AlreadyExists:
            return  # made a moment ago, or an earlier NodeSet's and about to go: a watch tells of either

    async def _annotate(self, fleet: Fleet, node: str, annotations: Mapping[str, str | None], what: str) -> None:
        pod = fleet.pods[node]
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        await self._writes.patch(CLUSTER_PODS, pod.key, body, what=what, pod=pod.metadata.name)

    async def _guard(self, fleet: Fleet, what: Protect | Expose) -> None:
        """Put the label on, or take it off the very version of the pod that says that nothing runs there.

        The syncer takes that word back before it lets Slurm send jobs again: this write fails then.
        """
        pod = fleet.pods[what.node]
        metadata: dict[str, object] = {"uid": pod.metadata.uid, "labels": {PROTECTED: "true"}}
        if isinstance(what, Expose):
            metadata |= {"resourceVersion": pod.metadata.resource_version, "labels": {PROTECTED: None}}
        word = "protected" if isinstance(what, Protect) else "may be evicted"
        await self._writes.patch(CLUSTER_PODS, pod.key, {"metadata": metadata}, what=word, pod=pod.metadata.name)

    async def _tell(self, node: Node, told: Told | None) -> Node:
        return await self._writes.apply_status(ALL_NODES, node, slurmdrain.manifest(node, told, datetime.now(UTC)))

    async def _give_up(self, fleet: Fleet, node: str) -> None:
        """Give up the claim, if there is truly no pod: the cache may not yet know of one that we made."""
        metadata = fleet.node_set.metadata
        try:
            pod = await self._session.get(CLUSTER_PODS, Key(metadata.namespace, names.slurmd_pod(metadata.name, node)))
        except NotFound:
            pod = None
        if pod is None or not owned_by(pod, metadata.uid):
            seen = fleet.nodes[node]
            if seen.condition(SLURM_DRAIN) is not None:
                # First: nobody would look after the condition of a node that is no longer ours.
                seen = await self._tell(seen, None)
            patch = claims.giving_up(seen, fleet.mine)
            await self._writes.patch(ALL_NODES, Key("", node), patch, what="given up")
