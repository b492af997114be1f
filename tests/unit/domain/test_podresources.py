"""What a pod takes of a node: as Kubernetes counts, and as Slurm does."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.noderecord import quantity
from kurm.domain.podresources import Resources, requests
from kurm.domain.podspec import PodSpec, claims, host_ports
from unit.domain.pods import pod, spec

GIB = 1 << 30


def _asking(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": amounts}}


@pytest.mark.parametrize(
    ("fields", "cpu", "memory"),
    [
        ({"containers": [_asking(cpu="500m", memory="1Gi"), _asking(cpu="1", memory="1Gi")]}, 1500, 2 * GIB),
        ({"containers": [{}]}, 0, 0),
        # Of the init containers, which run one after the other, the largest counts, if it is more than all the others.
        (
            {
                "containers": [_asking(cpu="1", memory="3Gi")],
                "initContainers": [_asking(cpu="2", memory="1Gi"), _asking(cpu="500m", memory="2Gi")],
            },
            2000,
            3 * GIB,
        ),
        # A sidecar runs beside the init containers behind it, not those before it, and beside the containers.
        (
            {
                "containers": [_asking(cpu="1")],
                "initContainers": [_asking(cpu="4"), _asking(cpu="2") | {"restartPolicy": "Always"}, _asking(cpu="3")],
            },
            5000,
            0,
        ),
        ({"containers": [_asking(cpu="1")], "overhead": {"cpu": "250m", "memory": "1Gi"}}, 1250, GIB),
        # What the pod as a whole asks takes the place of its containers', resource by resource; overhead comes on top.
        (
            {
                "containers": [_asking(cpu="4", memory="1Gi")],
                "resources": {"requests": {"cpu": "2"}},
                "overhead": {"cpu": "1"},
            },
            3000,
            GIB,
        ),
    ],
)
def test_requests_are_what_kubernetes_counts(fields: dict[str, Any], cpu: int, memory: int) -> None:
    """KEP-753 for init containers and sidecars, KEP-2837 for pods as a whole, KEP-688 for overhead."""
    found = requests(msgspec.convert(fields, PodSpec))
    assert (found.cpu, found.memory, found.pods) == (cpu, memory, 1)


@pytest.mark.parametrize(
    ("cpu", "memory", "cpus", "mebibytes"),
    [("100m", "1Mi", 1, 1), ("1001m", "1025Ki", 2, 2), ("0", "0", 1, 1), ("3", "1G", 3, 954), ("2.5", "1e9", 3, 954)],
)
def test_slurm_counts_whole_cpus_and_mebibytes(cpu: str, memory: str, cpus: int, mebibytes: int) -> None:
    """Rounded up; nothing is one, because no memory would be all of the node's in Slurm's words."""
    found = requests(spec(containers=[_asking(cpu=cpu, memory=memory)]))
    assert (found.cpus, found.mebibytes) == (cpus, mebibytes)


def test_other_resources_are_kept_by_name() -> None:
    """Those of zero are as good as absent; ephemeral storage is no extended resource."""
    amounts = {"nvidia.com/gpu": "2", "example.com/fpga": "0", "ephemeral-storage": "1Gi"}
    found = requests(spec(containers=[_asking(**amounts), _asking(**{"nvidia.com/gpu": "1"})]))
    assert (found.extended, found.storage) == ((("nvidia.com/gpu", 3),), GIB)


def test_pods_of_one_template_share_their_resources() -> None:
    """What differs from pod to pod of a ReplicaSet, the name of a token's volume, is not looked at."""
    one, other = (pod(f"web-{number}", volumes=[{"name": f"kube-api-access-{number}"}]) for number in range(2))
    assert requests(one.spec) is requests(other.spec)


def test_a_quantity_that_is_none_is_said() -> None:
    """The API server lets none through; a test's own typing error is told."""
    with pytest.raises(ValueError, match="'much' is no quantity"):
        requests(spec(containers=[_asking(cpu="much")]))


def test_a_node_has_what_its_allocatable_says() -> None:
    """Pods are a resource of a node as well."""
    found = Resources.of({"cpu": "3920m", "memory": "2Gi", "pods": "110", "nvidia.com/gpu": "8", "hugepages-2Mi": "0"})
    assert found == Resources(3920, 2 * GIB, 0, 110, (("nvidia.com/gpu", 8),))


def test_claims_are_those_of_ephemeral_volumes_too() -> None:
    """Kubernetes names the claim of an ephemeral volume after the pod and the volume."""
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "token", "projected": {}},
    ]
    assert claims(pod("web-0", volumes=volumes)) == ("data-web-0", "web-0-scratch")


def test_host_ports_are_those_of_containers_and_sidecars() -> None:
    """An init container that ends has given its port back before the next container starts."""
    port = {"containerPort": 80, "hostPort": 80}
    init = [{"ports": [port | {"hostPort": 81}]}, {"ports": [port | {"hostPort": 82}], "restartPolicy": "Always"}]
    found = host_ports(spec(containers=[{"ports": [port, {"containerPort": 90}]}], initContainers=init))
    assert [one.host_port for one in found] == [80, 82]


_AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/fpga"]), st.sampled_from(["0", "1", "2", "3", "5"]), max_size=3
)
_INIT = st.tuples(_AMOUNTS, st.booleans())


@given(
    containers=st.lists(_AMOUNTS, min_size=1, max_size=3),
    init=st.lists(_INIT, max_size=4),
    overhead=_AMOUNTS,
    whole=st.none() | _AMOUNTS,
)
def test_every_moment_of_a_pods_life_fits_into_its_requests(
    containers: list[dict[str, str]],
    init: list[tuple[dict[str, str], bool]],
    overhead: dict[str, str],
    whole: dict[str, str] | None,
) -> None:
    """The same told as a story: as each init container runs, and then all containers, what runs at that moment."""
    fields: dict[str, Any] = {
        "containers": [_asking(**amounts) for amounts in containers],
        "initContainers": [_asking(**amounts) | ({"restartPolicy": "Always"} if on else {}) for amounts, on in init],
        "overhead": overhead,
    }
    if whole is not None:
        fields["resources"] = {"requests": whole}
    found = requests(msgspec.convert(fields, PodSpec))
    for name, have in (("cpu", Decimal(found.cpu) / 1000), ("memory", found.memory)):
        decided = whole is not None and name in whole
        needed = quantity((whole or {})[name]) if decided else max(_moments(name, containers, init))
        assert have == needed + quantity(overhead.get(name, "0"))
    fpga = max(_moments("example.com/fpga", containers, init)) + quantity(overhead.get("example.com/fpga", "0"))
    assert dict(found.extended).get("example.com/fpga", 0) == fpga


def _moments(name: str, containers: list[dict[str, str]], init: list[tuple[dict[str, str], bool]]) -> list[Decimal]:
    """Return how much of a resource runs at each moment of the pod's life."""

    def amount(of: Mapping[str, str]) -> Decimal:
        return quantity(of.get(name, "0"))

    moments = []
    for place, (own, _) in enumerate(init):
        moments.append(amount(own) + sum(amount(other) for other, stays in init[:place] if stays))
    return [*moments, sum((amount(one) for one in [*containers, *(own for own, on in init if on)]), Decimal(0))]
