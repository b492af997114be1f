"""What the pods on a node take, summed up as its kubelet does: so that no pod is sent there to be refused. Pure."""

from collections.abc import Collection

from kurm.domain.nodemask import Roster
from kurm.domain.podresources import Resources
from kurm.domain.podspec import Port


class Occupancy:
    """Requests and host ports of all pods that have a node and have not ended, whoever placed them."""

    def __init__(self, roster: Roster | None = None) -> None:
        raise NotImplementedError

    def node(self, name: str, allocatable: Resources) -> None:
        """Heed what a node has for pods."""
        raise NotImplementedError

    def put(self, uid: str, node: str, resources: Resources, ports: Collection[Port] = ()) -> None:
        """Count a pod that has a node, or is just being bound; said again it is still one, elsewhere it moves."""
        raise NotImplementedError

    def drop(self, uid: str) -> None:
        """Count a pod no longer: it is gone or has ended, or its bind has failed."""
        raise NotImplementedError

    def fits(self, node: str, resources: Resources, *, uid: str = "") -> str:
        """Return why its kubelet would refuse one more pod, empty if it would not.

        `uid`: a pod that is not to be counted against itself.
        """
        raise NotImplementedError

    def unfit(self, resources: Resources) -> int:
        """Return the nodes whose kubelets would refuse one more pod, as a mask."""
        raise NotImplementedError

    def taken(self, ports: Collection[Port]) -> int:
        """Return the nodes where one of these host ports is taken, as a mask."""
        raise NotImplementedError
