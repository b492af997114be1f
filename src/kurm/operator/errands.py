"""Instructions carried out: many nodes at a time, each node's own one after the other."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from kurm.domain.agreement import RELEASE
from kurm.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from kurm.kube.events import Recorder
from kurm.kube.resources import Key, micro_time
from kurm.kube.session import Session
from kurm.operator import claims
from kurm.operator.clusters import Rendered
from kurm.operator.conditions import Trouble
from kurm.operator.fleet import Fleet
from kurm.operator.objects import ALL_NODES, CLUSTER_PODS, NODE_SETS, owned_by
from kurm.operator.pods import Claim, Create, Delete, GiveUp, Instruction, Release, Stay
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
                since = micro_time(datetime.now(UTC))[:-4] + "Z"
                await self._annotate(fleet, name, f"{reason} since {since}", "released")
                self._recorder.record(NODE_SETS, fleet.node_set, "Releasing", f"{name}: {reason}", action="Release")
            case Stay():
                await self._annotate(fleet, name, None, "to stay")
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

    async def _annotate(self, fleet: Fleet, node: str, release: str | None, what: str) -> None:
        pod = fleet.pods[node]
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {RELEASE: release}}}
        await self._writes.patch(CLUSTER_PODS, pod.key, body, what=what, pod=pod.metadata.name)

    async def _give_up(self, fleet: Fleet, node: str) -> None:
        """Give up the claim, if there is truly no pod: the cache may not yet know of one that we made."""
        metadata = fleet.node_set.metadata
        try:
            pod = await self._session.get(CLUSTER_PODS, Key(metadata.namespace, names.slurmd_pod(metadata.name, node)))
        except NotFound:
            pod = None
        if pod is None or not owned_by(pod, metadata.uid):
            patch = claims.giving_up(fleet.nodes[node], fleet.mine)
            await self._writes.patch(ALL_NODES, Key("", node), patch, what="given up")
