"""What pods were last told, also where the watch has not brought it back yet.

A pod that was told to be drained may be evicted, so jobs must not come to its node before that is taken back. Whether
it was told so cannot be read from the cache alone: our last write may be on its way to the server, or its answer lost,
or the watch a moment behind.
"""

import asyncio
from collections.abc import Callable

from kurm.domain.signals import SLURM_DRAINED
from kurm.syncer.objects import Pod

LOST = 60.0
"""Seconds after which a write without an answer has happened, or never will: kube-apiserver's --request-timeout."""


class Told:
    """The server's answers to our writes, until the cache has them, and the writes without an answer.

    A pod is told to be drained for the very version that was seen. So such a write without an answer is of no more
    consequence as soon as there is a later version: either that came of it, and says so, or it is refused for good.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: seconds, the event loop's if not given."""
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._answers: dict[str, Pod] = {}
        self._unanswered: dict[str, tuple[int, float]] = {}

    def newest(self, pod: Pod) -> Pod:
        """Return the newer one of what the cache holds and of what the server has answered us."""
        answer = self._answers.get(pod.metadata.uid)
        return answer if answer is not None and _version(answer) > _version(pod) else pod

    def proven(self, pod: Pod) -> bool:
        """Whether a pod (the newest of it) was told, or may have been told, that its node is drained."""
        found = pod.condition(SLURM_DRAINED)
        version, lost_at = self._unanswered.get(pod.metadata.uid, (-1, 0.0))
        return (_version(pod) <= version and self._clock() < lost_at) or (found is not None and found.status == "True")

    def tells(self, pod: Pod) -> None:
        """Note that a pod is being told to be drained; call it before the first byte is sent."""
        self._unanswered[pod.metadata.uid] = _version(pod), self._clock() + LOST

    def answered(self, pod: Pod) -> None:
        """Note the pod as the server has answered a write of ours with it."""
        self._answers[pod.metadata.uid] = pod

    def refused(self, pod: Pod) -> None:
        """Note that the server says that it has not made the write."""
        self._unanswered.pop(pod.metadata.uid, None)

    def seen(self, pod: Pod) -> None:
        """Drop what is of no more use beside what the cache holds now."""
        if pod is self.newest(pod):
            self._answers.pop(pod.metadata.uid, None)

    def forget(self, pod: Pod) -> None:
        """Drop what is kept of a pod that is gone."""
        self._answers.pop(pod.metadata.uid, None)
        self._unanswered.pop(pod.metadata.uid, None)


def _version(pod: Pod) -> int:
    # Kubernetes 1.35 and newer promise that versions of one kind can be compared as numbers.
    return int(pod.metadata.resource_version or "0")
