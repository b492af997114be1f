"""What the pods on a node take, by their kubelet's account."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.nodemask import Roster
from kurm.domain.occupancy import Occupancy
from kurm.domain.podresources import Resources
from kurm.domain.podspec import Port

GIB = 1 << 30
SIZE = Resources(4000, 8 * GIB, 20 * GIB, 3, (("nvidia.com/gpu", 8),))


def _one_node() -> Occupancy:
    roster = Roster()
    roster.add("n1")
    occupancy = Occupancy(roster)
    occupancy.node("n1", SIZE)
    occupancy.put("first", "n1", Resources(3000, 6 * GIB, 0, 1, (("nvidia.com/gpu", 8),)))
    return occupancy


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Resources(1000, 2 * GIB), ""),
        (Resources(1001), "cpu: 3000m of 4000m on n1 are requested already, and the pod requests 1001m"),
        (Resources(0, 3 * GIB), "memory: 6144 of 8192 MiB on n1 are requested already, and the pod requests 3072"),
        (
            Resources(storage=21 * GIB),
            "ephemeral-storage: 0 of 20480 MiB on n1 are requested already, and the pod requests 21504",
        ),
        (
            Resources(extended=(("nvidia.com/gpu", 1),)),
            "nvidia.com/gpu: 8 of 8 on n1 are requested already, and the pod requests 1",
        ),
        (Resources(pods=3), "pods: n1 has 1 of 3"),
    ],
)
def test_what_the_kubelet_would_refuse_is_not_sent(wanted: Resources, why: str) -> None:
    """And it is said in numbers."""
    occupancy = _one_node()
    assert occupancy.fits("n1", wanted) == why
    assert occupancy.unfit(wanted) == (1 if why else 0)


def test_a_pod_that_asks_nothing_fits_on_a_node_that_is_full() -> None:
    """As in the kubelet: only what is asked for is looked at, beside the number of pods."""
    occupancy = _one_node()
    occupancy.put("greedy", "n1", Resources(9000))
    assert occupancy.fits("n1", Resources(0, GIB)) == ""
    occupancy.put("third", "n1", Resources())
    assert occupancy.fits("n1", Resources()) == "pods: n1 has 3 of 3"


def test_a_node_that_is_not_known_takes_nothing() -> None:
    """Its pods may be told of before it is, and count from then on."""
    occupancy = _one_node()
    occupancy.put("early", "n2", Resources(4000))
    assert occupancy.fits("n2", Resources()) == "n2 is not known"
    occupancy.node("n2", SIZE)
    assert occupancy.fits("n2", Resources(1)).startswith("cpu: 4000m of 4000m on n2")


def test_a_pod_is_not_counted_against_itself() -> None:
    """Whoever looks again before a bind has put it already, or has not."""
    occupancy = _one_node()
    for _ in range(2):
        assert occupancy.fits("n1", Resources(1000), uids=["mine"]) == ""
        occupancy.put("mine", "n1", Resources(1000))
    assert occupancy.fits("n1", Resources(1), uids=["another"]) != ""


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (Port(80), True),
        (Port(81), False),
        (Port(80, protocol="UDP"), False),
        (Port(80, "10.0.0.1"), True),
        (Port(80, "10.0.0.2"), False),
        (Port(443), True),
        (Port(443, "10.0.0.2"), True),
    ],
)
def test_a_host_port_is_taken_once(wanted: Port, taken: bool) -> None:  # noqa: FBT001 a table's column
    """On one address, or on all of them if one of both asks for all."""
    occupancy = _one_node()
    occupancy.put("other", "n1", Resources(), [Port(80, "10.0.0.1"), Port(443, "0.0.0.0")])  # noqa: S104
    assert occupancy.taken(wanted) == int(taken)
    why = f"host port {wanted.host_port}/TCP is taken on n1" if taken else ""
    assert occupancy.fits("n1", Resources(), [wanted]) == why
    occupancy.drop("other")
    assert occupancy.taken(wanted) == 0


AMOUNTS = st.builds(
    Resources,
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 1),
    st.just(1),
    st.sampled_from([(), (("gpu", 1),), (("gpu", 2),)]),
)
SIZES = st.builds(
    Resources,
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([(), (("gpu", 3),)]),
)
PORTS = st.lists(st.builds(Port, st.sampled_from([80, 81]), st.sampled_from(["", "a", "b"])), max_size=1)
NAMES = st.sampled_from(["n1", "n2", "n3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcde"), NAMES, AMOUNTS, PORTS),
        st.tuples(st.just("drop"), st.sampled_from("abcde")),
        st.tuples(st.just("node"), NAMES, st.none() | SIZES),
    ),
    max_size=25,
)


@given(steps=STEPS, wanted=AMOUNTS, port=st.builds(Port, st.just(80), st.sampled_from(["", "a"])))
def test_sums_are_those_of_the_pods_that_are_there(steps: list[tuple[Any, ...]], wanted: Resources, port: Port) -> None:
    """Whatever came and went before, and however often it was said."""
    roster = Roster()
    for name in ("n1", "n2", "n3"):
        roster.add(name)
    occupancy = Occupancy(roster)
    pods: dict[str, tuple[str, Resources, list[Port]]] = {}
    nodes: dict[str, Resources] = {}
    for kind, *said in steps:
        if kind == "put":
            uid, node, resources, ports = said
            occupancy.put(uid, node, resources, ports)
            pods[uid] = node, resources, ports
        elif kind == "drop":
            occupancy.drop(said[0])
            pods.pop(said[0], None)
        else:
            name, size = said
            occupancy.node(name, size)
            nodes.pop(name, None)
            if size is not None:
                nodes[name] = size
        occupancy.unfit(wanted)
        occupancy.taken(port)
    anew = Occupancy(roster)
    for name, size in nodes.items():
        anew.node(name, size)
    for uid, (node, resources, ports) in pods.items():
        anew.put(uid, node, resources, ports)
    assert (occupancy.unfit(wanted), occupancy.taken(port)) == (anew.unfit(wanted), anew.taken(port))
    for place, name in enumerate(("n1", "n2", "n3")):
        here = [one for one in pods.values() if one[0] == name]
        size = nodes.get(name)
        fits = size is not None and _plainly(size, [one[1] for one in here], wanted)
        assert (occupancy.fits(name, wanted) == "") == fits
        assert bool(occupancy.unfit(wanted) >> place & 1) != fits
        clash = any(
            one.host_port == 80 and {one.host_ip, port.host_ip} != {"a", "b"} for _, _, own in here for one in own
        )
        assert bool(occupancy.taken(port) >> place & 1) == clash


def _plainly(size: Resources, here: list[Resources], wanted: Resources) -> bool:
    """Return the same as a sum over all pods of the node."""

    def left(of: str) -> int:
        return int(getattr(size, of)) - sum(int(getattr(one, of)) for one in here)

    sums = all(
        not getattr(wanted, of) or getattr(wanted, of) <= left(of) for of in ("cpu", "memory", "storage", "pods")
    )
    gpus = dict(size.extended).get("gpu", 0) - sum(dict(one.extended).get("gpu", 0) for one in here)
    return sums and dict(wanted.extended).get("gpu", 0) <= max(gpus, 0)


def test_a_gang_is_spread_by_what_the_best_kubelet_takes_in() -> None:
    """Beside pods that stay; those that Slurm has placed will make room, and enough is enough."""
    occupancy = _one_node()
    occupancy.put("slurmd", "n1", Resources(50, GIB), stays=True)
    assert occupancy.most(["n1", "gone"], Resources(1000), 8) == 2  # the third pod would be one pod too many
    assert occupancy.most(["n1"], Resources(2000), 8) == 1
    assert occupancy.most(["n1"], Resources(1000), 1) == 1
    assert occupancy.most(["n1"], Resources(5000), 8) == 0
    occupancy.drop("slurmd")
    assert occupancy.most(["n1"], Resources(2000), 8) == 2
