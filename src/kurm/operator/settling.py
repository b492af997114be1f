"""When many nodes change, one configuration comes of it: what is rendered from nodes waits until they have settled.

A relabel of a thousand nodes comes as a thousand changes within some seconds. Each configuration is a reconfigure of
slurmctld, which tells every slurmd of it; so nodes' labels and resources are rendered anew only when they have been
quiet for a while, or when a while has passed in which they never were.
"""

import asyncio

from kurm.kube.resources import Key

QUIET = 2.0
"""Seconds without a change of any claimed node of a cluster after which they count as settled."""
MOST = 10.0
"""Seconds from the first change after which what there is by then is rendered in any case."""


class Settling:
    """By cluster: since when its nodes change. Times are the event loop's."""

    def __init__(self) -> None:
        self._first: dict[Key, float] = {}
        self._last: dict[Key, float] = {}

    def changed(self, cluster: Key) -> None:
        """Note that a node of a cluster has changed now."""
        now = asyncio.get_running_loop().time()
        self._first.setdefault(cluster, now)
        self._last[cluster] = now

    def left(self, cluster: Key) -> float:
        """Return the seconds until a cluster's nodes count as settled; 0 if they do."""
        if cluster not in self._first:
            return 0.0
        until = min(self._last[cluster] + QUIET, self._first[cluster] + MOST)
        return max(until - asyncio.get_running_loop().time(), 0.0)

    def noted(self, cluster: Key) -> bool:
        """Whether any of its nodes has changed since it was forgotten."""
        return cluster in self._first

    def forget(self, cluster: Key) -> None:
        """Forget what has changed: it is rendered, or the cluster is gone."""
        self._first.pop(cluster, None)
        self._last.pop(cluster, None)
