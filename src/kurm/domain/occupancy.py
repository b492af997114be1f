"""What the pods on a node take, summed up as its kubelet does: so that no pod is sent there to be refused. Pure.

Pods count by UID, from the moment at which we send their binding until they have ended or are gone, so it does not
matter who tells first or how often. Nodes are known by name: pods may be told of before their node is.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kurm.domain.nodemask import Answers, Roster
from kurm.domain.noderecord import MEBIBYTE
from kurm.domain.podresources import Resources
from kurm.domain.podspec import Port

_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 nothing is bound here: these are addresses in pods' specs
"""Addresses that stand for all of a node's."""


@dataclass(slots=True)
class _Used:
    """The sums of one node."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0
    pods: int = 0
    extended: Counter[str] = field(default_factory=Counter)
    ports: Counter[tuple[str, int, str]] = field(default_factory=Counter)

    def add(self, pod: "_Pod", sign: int) -> None:
        self.cpu += sign * pod.resources.cpu
        self.memory += sign * pod.resources.memory
        self.storage += sign * pod.resources.storage
        self.pods += sign * pod.resources.pods
        for name, count in pod.resources.extended:
            self.extended[name] += sign * count
        for port in pod.ports:
            self.ports[port.protocol, port.host_port, port.host_ip] += sign

    def clash(self, port: Port) -> bool:
        """Return whether a pod on the node has the port on the same address, or one of both has it on all."""
        return any(
            count and (protocol, number) == (port.protocol, port.host_port) and _same(address, port.host_ip)
            for (protocol, number, address), count in self.ports.items()
        )


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    resources: Resources
    ports: tuple[Port, ...]
    stays: bool = False


class Occupancy:
    """Requests and host ports of all pods that have a node and have not ended, whoever placed them."""

    def __init__(self, roster: Roster | None = None) -> None:
        self._roster = Roster() if roster is None else roster
        self._allocatable: dict[str, Resources] = {}
        self._used: dict[str, _Used] = {}
        self._staying: dict[str, _Used] = {}
        self._pods: dict[str, _Pod] = {}
        self._fitting: Answers[Resources] = Answers(self._fits, self._fitting_all)
        self._clashing: Answers[Port] = Answers(self._clashes, self._clashing_all)

    def __len__(self) -> int:
        return len(self._pods)

    def node(self, name: str, allocatable: Resources | None) -> None:
        """Heed what a node has for pods; None if it is gone: nothing fits there."""
        if self._allocatable.get(name) == allocatable:
            return
        if allocatable is None:
            self._allocatable.pop(name, None)
        else:
            self._allocatable[name] = allocatable
        place = self._roster.place(name)
        if place is not None:  # which may have been another node's before
            self._fitting.changed(place)
            self._clashing.changed(place)

    def put(
        self, uid: str, node: str, resources: Resources, ports: Collection[Port] = (), *, stays: bool = False
    ) -> None:
        """Count a pod that has a node, or is just being bound; said again it is still one, elsewhere it moves.

        `stays`: it will not make room for others, because Slurm knows nothing of it (slurmd's, a DaemonSet's).
        """
        pod = _Pod(node, resources, tuple(ports), stays)
        if self._pods.get(uid) != pod:
            self.drop(uid)
            self._pods[uid] = pod
            self._count(pod, 1)

    def drop(self, uid: str) -> None:
        """Count a pod no longer: it is gone or has ended, or its bind has failed."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)

    def fits(self, node: str, resources: Resources, ports: Collection[Port] = (), *, uids: Iterable[str] = ()) -> str:
        """Return why its kubelet would refuse one more pod, empty if it would not.

        `uids`: pods that are not to be counted against themselves, because they may have been put already.
        """
        own = [pod for uid in uids if (pod := self._pods.get(uid)) is not None and pod.node == node]
        for pod in own:
            self._count(pod, -1)
        try:
            return self._refusal(node, resources, ports)
        finally:
            for pod in own:
                self._count(pod, 1)

    def _refusal(self, node: str, resources: Resources, ports: Collection[Port]) -> str:
        lacking = self._lacking(node, resources)
        if lacking:
            return lacking
        used = self._used.get(node)
        taken = next((port for port in ports if used and used.clash(port)), None)
        return f"host port {taken.host_port}/{taken.protocol} is taken on {node}" if taken else ""

    def where(self, uids: Iterable[str]) -> Mapping[str, list[str]]:
        """Return by node which of these pods have been put there."""
        found: dict[str, list[str]] = {}
        for uid in uids:
            if (pod := self._pods.get(uid)) is not None:
                found.setdefault(pod.node, []).append(uid)
        return found

    def most(self, nodes: Iterable[str], resources: Resources, limit: int) -> int:
        """Return how many such pods fit on the best of these nodes beside the pods that stay; `limit` is enough."""
        best = 0
        for name in nodes:
            have, used = self._allocatable.get(name), self._staying.get(name, _NOBODY)
            while have is not None and best < limit and not _short(name, have, used, resources.times(best + 1)):
                best += 1
        return best

    def unfit(self, resources: Resources) -> int:
        """Return the nodes whose kubelets would refuse one more pod, as a mask."""
        return self._roster.all & ~self._fitting.of(resources)

    def taken(self, port: Port) -> int:
        """Return the nodes where a host port is taken, as a mask."""
        return self._clashing.of(port)

    def _count(self, pod: _Pod, sign: int) -> None:
        if pod.stays:
            self._staying.setdefault(pod.node, _Used()).add(pod, sign)
        used = self._used.setdefault(pod.node, _Used())
        used.add(pod, sign)
        place = self._roster.place(pod.node)
        if place is not None:
            (self._fitting.fell if sign > 0 else self._fitting.rose)(place)
            if pod.ports:
                (self._clashing.rose if sign > 0 else self._clashing.fell)(place)
                used.ports = +used.ports
        if not used.pods:
            del self._used[pod.node]
            self._staying.pop(pod.node, None)

    def _fits(self, resources: Resources, place: int) -> bool:
        return not self._lacking(self._roster.name(place), resources)

    def _fitting_all(self, wanted: Resources) -> Iterator[int]:
        """Yield the places where it fits; the same as `_fits`, and faster where nobody is to be told why not."""
        cpu, memory, storage, pods = wanted.cpu, wanted.memory, wanted.storage, wanted.pods
        place, used_of = self._roster.place, self._used.get
        for name, have in self._allocatable.items():
            used = used_of(name, _NOBODY)
            if (
                pods <= have.pods - used.pods
                and (not cpu or cpu <= have.cpu - used.cpu)
                and (not memory or memory <= have.memory - used.memory)
                and (not storage or storage <= have.storage - used.storage)
                and not (wanted.extended and _extended(name, used.extended, have, wanted))
                and (found := place(name)) is not None
            ):
                yield found

    def _clashing_all(self, port: Port) -> Iterator[int]:
        for name, used in self._used.items():
            if used.ports and used.clash(port) and (found := self._roster.place(name)) is not None:
                yield found

    def _clashes(self, port: Port, place: int) -> bool:
        used = self._used.get(self._roster.name(place))
        return used is not None and used.clash(port)

    def _lacking(self, node: str, wanted: Resources) -> str:
        """Return what the node has too little of. As in the kubelet, nothing of a resource always fits."""
        have = self._allocatable.get(node)
        if have is None:
            return f"{node} is not known"
        return _short(node, have, self._used.get(node, _NOBODY), wanted)


_NOBODY = _Used()


def _extended(node: str, used: Mapping[str, int], have: Resources, wanted: Resources) -> str:
    sizes = dict(have.extended)
    for name, count in wanted.extended:
        taken, size = used.get(name, 0), sizes.get(name, 0)
        if count > size - taken:
            return f"{name}: {taken} of {size} on {node} are requested already, and the pod requests {count}"
    return ""


def _short(node: str, have: Resources, used: _Used, wanted: Resources) -> str:
    """Return what a node with this much in use has too little of."""
    if wanted.pods > have.pods - used.pods:
        return f"pods: {node} has {used.pods} of {have.pods}"
    if 0 < wanted.cpu > have.cpu - used.cpu:
        return f"cpu: {used.cpu}m of {have.cpu}m on {node} are requested already, and the pod requests {wanted.cpu}m"
    if 0 < wanted.memory > have.memory - used.memory:
        return _bytes("memory", node, used.memory, have.memory, wanted.memory)
    if 0 < wanted.storage > have.storage - used.storage:
        return _bytes("ephemeral-storage", node, used.storage, have.storage, wanted.storage)
    return _extended(node, used.extended, have, wanted) if wanted.extended else ""


def _bytes(resource: str, node: str, used: int, have: int, wanted: int) -> str:
    taken, size, more = used / MEBIBYTE, have / MEBIBYTE, wanted / MEBIBYTE
    return f"{resource}: {taken:.0f} of {size:.0f} MiB on {node} are requested already, and the pod requests {more:.0f}"


def _same(one: str, other: str) -> bool:
    return one in _ANY or other in _ANY or one == other
