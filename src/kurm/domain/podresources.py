"""What a pod takes of a node: as Kubernetes counts it, and in Slurm's whole CPUs and MiB. Pure.

The rules are Kubernetes' own (k8s.io/component-helpers/resource, PodRequests), so that what Slurm grants, what the
scheduler sums up and what the kubelet checks is the same figure. Pods of one template share one `Resources`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from kurm.domain.noderecord import MEBIBYTE, quantity
from kurm.domain.podspec import SIDECAR, PodSpec, requests_key

CPU, MEMORY, STORAGE = "cpu", "memory", "ephemeral-storage"
PODS = "pods"
_KNOWN = frozenset({CPU, MEMORY, STORAGE, PODS})
_POD_LEVEL = frozenset({CPU, MEMORY})
"""What `spec.resources` decides; hugepages do as well."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a pod takes, or what a node has. Hashable: equal ones are interchangeable."""

    cpu: int = 0
    """Millicores."""
    memory: int = 0
    """Bytes."""
    storage: int = 0
    """Bytes of ephemeral storage."""
    pods: int = 1
    extended: tuple[tuple[str, int], ...] = ()
    """All other resources by name, in its order, with whole numbers: `("nvidia.com/gpu", 8)`."""

    @property
    def cpus(self) -> int:
        """Whole CPUs, as Slurm counts: 100m is one, and so is nothing."""
        return max(1, -(-self.cpu // 1000))

    @property
    def mebibytes(self) -> int:
        """MiB, rounded up; at least one, because none is all of the node's in Slurm's words."""
        return max(1, -(-self.memory // MEBIBYTE))

    def times(self, number: int) -> "Resources":
        """Return what so many of such pods take."""
        extended = tuple((name, count * number) for name, count in self.extended)
        return Resources(self.cpu * number, self.memory * number, self.storage * number, self.pods * number, extended)

    @classmethod
    def of(cls, quantities: Mapping[str, str]) -> "Resources":
        """Return what quantities say, of a node's allocatable or a sum of requests. Raises ValueError for none.

        Extended resources of zero are left out: they are as good as absent.
        """
        extended = ((name, whole(text)) for name, text in quantities.items() if name not in _KNOWN)
        return cls(
            milli(quantities.get(CPU, "0")),
            whole(quantities.get(MEMORY, "0")),
            whole(quantities.get(STORAGE, "0")),
            whole(quantities.get(PODS, "0")),
            tuple(sorted((name, count) for name, count in extended if count)),
        )


NOTHING = Resources(pods=0)


def requests(spec: PodSpec) -> Resources:
    """Return what a pod takes, as Kubernetes counts it; the same object for pods of one template.

    Containers at once, or an init container with the sidecars before it if that is more; then what the pod as a whole
    asks, which is instead of its containers' CPU, memory and hugepages; and overhead. Raises ValueError for a quantity
    that is none.
    """
    key = requests_key(spec)
    known = _cache.get(key)
    if known is None:
        if len(_cache) >= _CACHED:
            _cache.clear()
        known = _cache[key] = _requests(spec)
    return known


def size_of(spec: PodSpec) -> Resources:
    """Return what a pod takes; nothing for one whose quantities are none, which no kubelet takes in."""
    try:
        return requests(spec)
    except ValueError:
        return NOTHING


_CACHED = 4096
"""Templates that are remembered: all of a cluster's at any time, more or less, at some 1 KB."""
_cache: dict[bytes, Resources] = {}


def _requests(spec: PodSpec) -> Resources:
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, container.resources.requests.items())
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        own = container.resources.requests
        if container.restart_policy == SIDECAR:
            _add(total, own.items())
            _add(sidecars, own.items())
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, own.items())
        peak = {name: max(peak.get(name, 0), moment.get(name, 0)) for name in peak | moment}
    total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in total | peak}
    if spec.resources is not None:
        whole_pod = spec.resources.requests.items()
        total |= {name: _amount(name, text) for name, text in whole_pod if _of_pod(name)}
    _add(total, spec.overhead.items())
    extended = tuple(sorted((name, count) for name, count in total.items() if name not in _KNOWN and count))
    return Resources(total.get(CPU, 0), total.get(MEMORY, 0), total.get(STORAGE, 0), 1, extended)


def _add(total: dict[str, int], quantities: Iterable[tuple[str, str]]) -> None:
    for name, text in quantities:
        total[name] = total.get(name, 0) + _amount(name, text)


def _amount(name: str, text: str) -> int:
    return milli(text) if name == CPU else whole(text)


def _of_pod(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


@lru_cache(maxsize=16384)
def milli(text: str) -> int:
    """Return a quantity in thousandths, rounded up. Raises ValueError for what is none."""
    return _up(quantity(text) * 1000)


@lru_cache(maxsize=16384)
def whole(text: str) -> int:
    """Return a quantity as a whole number, rounded up. Raises ValueError for what is none."""
    return _up(quantity(text))


def _up(number: Decimal) -> int:
    return int(number.to_integral_value(ROUND_CEILING))
