"""Whose slurmd pods make room for new ones now, and how many nodes may be out of service for it. Pure.

`renew` knows no history. What it names is told to go, and stays told; what it no longer names is told to stay. So a
smaller budget takes nodes back that wait for their jobs, and OnDelete takes all of them back.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kurm.domain.nodeset import UpdateStrategy


@dataclass(frozen=True)
class Member:
    """A node that the NodeSet wants; in service with a pod of the newest template if nothing else is said."""

    node: str
    outdated: bool = False
    """Its pod would be made otherwise now."""
    serving: bool = True
    """Slurm gives it jobs, and its pod is to stay."""
    told: bool = False
    """Its pod is told to go."""
    broken: bool = False
    """Its pod does not answer, and its node is well: with a new one it can only win."""
    absent: bool = False
    """It has no pod, one that ends, or a new one that does not answer yet."""
    made: float = 0.0
    """When its pod was made, in seconds since the epoch."""


def limit(strategy: UpdateStrategy, nodes: int) -> int:
    """Return how many of that many nodes may be out of service: a share is rounded up, and at least one node."""
    wanted = strategy.max_unavailable
    if isinstance(wanted, int):
        return wanted
    return max(-(-nodes * int(wanted.removesuffix("%")) // 100), 1)


def renew(members: Iterable[Member], strategy: UpdateStrategy) -> frozenset[str]:
    """Return the nodes whose outdated pods are told to go, or stay told.

    - A pod that does not answer costs nothing: a bad image stops at the budget, and the good one after it gets past.
    - Those that are told go on, as many as the budget allows, whatever else has failed meanwhile.
    - A node that is out of service for another reason (cordoned, drained by an administrator) comes before one in
      service. It is one of the budget, too: by the time it could come back it would be out because of us.
    - Of those the newest pod comes first: one that was renewed, and is outdated again before its node is back, is out
      because of us, and Slurm's words do not tell it from the others.
    - A node in service is taken only while those out of service, for whatever reason, leave room.
    """
    nodes = sorted(members, key=lambda one: one.node)
    if strategy.type == "OnDelete":
        return frozenset()
    most = limit(strategy, len(nodes))
    outdated = [one for one in nodes if one.outdated and not one.absent]
    free = [one for one in outdated if one.broken]
    told = [one for one in outdated if one.told and not one.broken][:most]
    waiting = [one for one in outdated if not one.told and not one.broken]
    # What may be out because of us: one that does not answer may have been told while it did, and a new one that is not
    # in service may not have come back from its renewal yet.
    renewed = [one for one in nodes if one.absent or not (one.outdated or one.serving)]
    room = max(most - len(told) - len(free) - len(renewed), 0)
    aside = sorted((one for one in waiting if not one.serving), key=lambda one: -one.made)[:room]
    out = sum(not one.serving for one in nodes)
    serving = [one for one in waiting if one.serving][: max(min(room - len(aside), most - out), 0)]
    return frozenset(one.node for one in (*free, *told, *aside, *serving))
