"""What is to be asked of Slurm for an owner at this moment: the request, the nodes that are out, and whether to wait."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.allocation import Job, Obstacle
from kurm.domain.jobrequest import JobRequest
from kurm.domain.podresources import Resources, requests
from kurm.scheduler.ledger import Ledger
from kurm.scheduler.objects import Pod
from kurm.scheduler.owners import Members, job_name
from kurm.scheduler.pool import Pool

FULL_FOR = 1.0
"""Seconds for which a request that found no room is queued at once."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What an owner is to ask for."""

    request: JobRequest
    size: Resources
    excluded: str = ""
    room: bool = True
    obstacle: Obstacle | None = None


class Prospects:
    """Says it, from what is known of pods and nodes."""

    def __init__(self, pool: Pool, ledger: Ledger) -> None:
        self._pool, self._ledger = pool, ledger
        self._full: dict[tuple[int, int, str], float] = {}

    def wish(self, members: Members, pods: list[Pod], *, avoid: Collection[str]) -> Wish:
        """Return what to ask for the pods of an owner that have not ended."""
        size = requests(pods[0].spec)
        settings, owner = self._pool.settings, members.owner
        request = JobRequest(
            job_name(owner),
            self._ledger.signature(owner.id),
            slots=owner.size,
            cpus=size.cpus,
            memory=size.mebibytes,
            partition=settings.partition,
        )
        full = self._full.get(_shape(request), 0.0)
        return Wish(request, size, excluded=",".join(avoid), room=full <= asyncio.get_running_loop().time())

    def no_room(self, wish: Wish) -> None:
        """Heed that Slurm had no room for it now."""
        self._full[_shape(wish.request)] = asyncio.get_running_loop().time() + FULL_FOR

    def granted(self, owner: str, wish: Wish, layout: Mapping[str, int]) -> None:
        """Heed what Slurm has given an owner."""

    def pinned(self, owner: str, wish: Wish, jobs: Iterable[Job]) -> None:
        """Heed what Slurm holds for an owner again."""

    def released(self, owner: str, jobs: Iterable[Job]) -> None:
        """Heed what Slurm has left of an owner's."""
        self._full.clear()

    def binding(self, pod: Pod, node: str) -> None:
        """Count a pod that is being bound."""

    def unbound(self, pod: Pod) -> None:
        """Count it no longer."""

    def refusal(self, wish: Wish, node: str) -> str:
        """Return why such a pod must not be bound to a node, empty if it may."""
        found = self._pool.node(node)
        if found is None:
            return "it is not one of the cluster's nodes"
        return ""


def _shape(request: JobRequest) -> tuple[int, int, str]:
    return request.cpus, request.memory, request.partition
