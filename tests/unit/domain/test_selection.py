"""Which nodes a NodeSet takes and gives back: told as tables, and as what holds of every world."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.load import NEVER, Load
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.selection import LABEL_LENGTH, Candidate, Selection, Taint, claim, select

MINE = claim("slurm", "workers")
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
ROOM = {"cpu": "4", "memory": "8Gi"}
FREE = Candidate("n1", labels={"pool": "a", "cores": "64"}, allocatable=ROOM)
OWN = replace(FREE, claim=MINE)


def _spec(**fields: object) -> NodeSetSpec:
    return msgspec.convert({"clusterRef": {"name": "demo"}} | fields, NodeSetSpec)


def _select(nodes: Sequence[Candidate], **fields: object) -> Selection:
    return select("workers", _spec(**fields), MINE, nodes)


def _named(node: Candidate, *names: str) -> list[Candidate]:
    return [replace(node, name=name) for name in names]


def _terms(*expressions: dict[str, object]) -> dict[str, object]:
    terms = [{"matchExpressions": [expression]} for expression in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("node", "fields", "reason"),
    [
        (FREE, {}, None),
        (FREE, {"nodeSelector": {"pool": "a"}}, None),
        (FREE, {"nodeSelector": {"pool": "b"}}, "NodeSelector"),
        (FREE, {"affinity": _terms({"key": "pool", "operator": "In", "values": ["a", "b"]})}, None),
        (FREE, {"affinity": _terms({"key": "pool", "operator": "NotIn", "values": ["a"]})}, "Affinity"),
        (FREE, {"affinity": _terms({"key": "gone", "operator": "NotIn", "values": ["a"]})}, None),
        (FREE, {"affinity": _terms({"key": "pool", "operator": "DoesNotExist"})}, "Affinity"),
        (FREE, {"affinity": _terms({"key": "cores", "operator": "Gt", "values": ["63"]})}, None),
        (FREE, {"affinity": _terms({"key": "cores", "operator": "Lt", "values": ["64"]})}, "Affinity"),
        (FREE, {"affinity": _terms({"key": "pool", "operator": "Gt", "values": ["1"]})}, "Affinity"),
        (FREE, {"affinity": _terms({"key": "x", "operator": "Exists"}, {"key": "pool", "operator": "Exists"})}, None),
        (FREE, {"affinity": _terms()}, "Affinity"),
        (replace(FREE, claim=claim("slurm", "other")), {}, "Claimed"),
        (replace(FREE, unschedulable=True), {}, "Unschedulable"),
        (replace(FREE, ready=False), {}, "NotReady"),
        (replace(FREE, taints=(Taint("gpu", "NoSchedule"),)), {}, "Taint/gpu"),
        (replace(FREE, taints=(Taint("gpu", "PreferNoSchedule"),)), {}, None),
        (replace(FREE, taints=(Taint("gpu", "NoSchedule", "yes"),)), {"tolerations": [{"key": "gpu"}]}, "Taint/gpu"),
        (
            replace(FREE, taints=(Taint("gpu", "NoSchedule", "yes"),)),
            {"tolerations": [{"key": "gpu", "value": "yes"}]},
            None,
        ),
        (replace(FREE, taints=(Taint("gpu", "NoExecute"),)), {"tolerations": [{"operator": "Exists"}]}, None),
        (replace(FREE, taints=(Taint("kurm.dev/pool", "NoSchedule"),)), {}, None),
        (
            replace(FREE, taints=(Taint("kurm.dev/pool", "NoSchedule"),)),
            {"taintKey": "own/pool"},
            "Taint/kurm.dev/pool",
        ),
        (replace(FREE, taints=(Taint("node.kubernetes.io/memory-pressure", "NoSchedule"),)), {}, None),
        (replace(FREE, allocatable={"cpu": "500m", "memory": "8Gi"}), {}, "TooFew/cpu"),
        (FREE, {"slurm": {"gres": {"nvidia.com/gpu": {}}}}, "TooFew/nvidia.com/gpu"),
    ],
)
def test_each_node_that_cannot_be_used_has_a_reason(
    node: Candidate, fields: dict[str, object], reason: str | None
) -> None:
    """And one that can has none, and is taken."""
    found = _select([node], **fields)
    assert found.infeasible.get(node.name) == reason
    assert found.claim == (() if reason else (node.name,))
    assert found.feasible == (0 if reason else 1)


@pytest.mark.parametrize(
    "change",
    [
        {"ready": False},
        {"unschedulable": True},
        {"taints": (Taint("gpu", "NoSchedule"),)},
        {"allocatable": {"cpu": "500m", "memory": "8Gi"}},
        {"taints": (Taint("node.kubernetes.io/unreachable", "NoExecute"),)},
    ],
    ids=str,
)
def test_a_node_that_it_has_is_kept_in_trouble(change: dict[str, object]) -> None:
    """Jobs run there: what keeps new pods away is no reason to take the node from Slurm."""
    found = _select([replace(OWN, **change)])  # type: ignore[arg-type]
    assert (found.keep, found.release, found.feasible) == (("n1",), (), 1)


@pytest.mark.parametrize(
    ("node", "fields", "reason"),
    [
        (OWN, {"nodeSelector": {"pool": "b"}}, "NodeSelector"),
        (OWN, {"affinity": _terms({"key": "x", "operator": "Exists"})}, "Affinity"),
        (replace(OWN, taints=(Taint("gpu", "NoExecute"),)), {}, "Taint/gpu"),
    ],
)
def test_a_node_of_another_kind_goes(node: Candidate, fields: dict[str, object], reason: str) -> None:
    """The NodeSet no longer asks for it, or its taint would evict the pod: it is released, jobs first."""
    found = _select([node], **fields)
    assert (found.keep, found.release, found.misfits) == ((), ("n1",), ("n1",))
    assert found.infeasible == {"n1": reason}


def test_the_wanted_number_is_claimed_in_the_order_of_names() -> None:
    """The same nodes, however Kubernetes lists them."""
    assert _select(_named(FREE, "n3", "n1", "n2"), replicas=2).claim == ("n1", "n2")
    assert _select(_named(FREE, "n3", "n1", "n2")).claim == ("n1", "n2", "n3")


def test_preferred_nodes_are_claimed_first() -> None:
    """The preferred part of an affinity orders what is claimed."""
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    nodes = [*_named(FREE, "n1", "n2"), replace(FREE, name="n9", labels={"pool": "b"})]
    assert _select(nodes, replicas=2, affinity=affinity).claim == ("n1", "n9")


def test_what_it_has_is_kept_before_what_comes_first() -> None:
    """A new node of a lower name moves nobody."""
    found = _select([*_named(FREE, "n1"), *_named(OWN, "n2", "n3")], replicas=2)
    assert (found.keep, found.claim, found.release) == (("n2", "n3"), (), ())


IDLE, BUSY = Load(allocated=False), Load(allocated=True)
FIRST = [
    ("going already", {"releasing": True}),
    ("not Ready", {"ready": False}),
    ("no slurmd answers", {"serving": False, "load": BUSY}),
    ("drained", {"drained": True}),
    ("idle", {"load": IDLE}),
    ("jobs end soon", {"load": Load(allocated=True, free_at=NOW)}),
    ("jobs have come to an idle one", {"load": Load(allocated=False, free_at=NOW + timedelta(hours=1))}),
    ("jobs end late", {"load": Load(allocated=True, free_at=NOW + timedelta(hours=2))}),
    ("jobs have no limit", {"load": Load(allocated=True, free_at=NEVER)}),
    ("cordoned, with jobs until nobody knows when", {"unschedulable": True, "load": BUSY}),
    ("jobs until nobody knows when", {"load": BUSY}),
]


def test_of_too_many_those_go_first_that_cost_the_least() -> None:
    """In this order, whatever they are called."""
    nodes = [replace(OWN, name=f"n{99 - place}", **given) for place, (_, given) in enumerate(FIRST)]  # type: ignore[arg-type]
    released = [set(_select(nodes, replicas=number).release) for number in range(len(nodes), -1, -1)]
    assert [after - before for before, after in pairwise(released)] == [{node.name} for node in nodes]


@pytest.mark.parametrize(
    ("loads", "replicas", "released", "awaited"),
    [
        ((IDLE, BUSY, BUSY), 2, ("n0",), ()),
        ((IDLE, BUSY, BUSY), 1, ("n0",), ("n1", "n2")),
        ((IDLE, BUSY, Load(allocated=True, free_at=NOW)), 1, ("n0",), ("n1",)),
        ((Load(free_at=NOW), Load(free_at=NEVER), Load(free_at=NOW)), 1, ("n0", "n2"), ()),
        ((IDLE, BUSY, BUSY), None, (), ()),
    ],
)
def test_the_choice_among_busy_nodes_is_put_off(
    loads: tuple[Load, ...], replicas: int | None, released: tuple[str, ...], awaited: tuple[str, ...]
) -> None:
    """Until it is known when each is free, if a busy one has to go at all; what is idle goes at once."""
    nodes = [replace(OWN, name=f"n{number}", load=load) for number, load in enumerate(loads)]
    found = select("workers", _spec(replicas=replicas), MINE, nodes, patient=True)
    assert (found.release, found.awaited) == (released, awaited)
    assert not _select(nodes, replicas=replicas).awaited


def test_a_node_on_its_way_out_is_taken_back_before_a_new_one() -> None:
    """It is there already, and its jobs run on."""
    found = _select([*_named(FREE, "n1"), replace(OWN, name="n2", releasing=True)], replicas=1)
    assert (found.keep, found.claim) == (("n2",), ())


def test_an_affinity_that_is_none_is_said() -> None:
    """The API server does not look into it: it is not in the pods."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": 1}}
    with pytest.raises(ValueError, match=r"spec\.affinity: .*nodeSelectorTerms"):
        _select([FREE], affinity={"nodeAffinity": required})


@given(st.text("ab.-", max_size=63), st.text("ab-", min_size=1, max_size=40), st.text("ab-", min_size=1, max_size=40))
def test_claims_are_label_values_and_tell_node_sets_apart(namespace: str, one: str, other: str) -> None:
    """A namespace and a name together may be longer than a label's value may be."""
    assert len(claim(namespace, one)) <= LABEL_LENGTH
    assert (claim(namespace, one) == claim(namespace, other)) == (one == other)


_NODES = st.lists(
    st.builds(
        Candidate,
        name=st.from_regex(r"n[0-9]{1,2}", fullmatch=True),
        labels=st.sampled_from([{"pool": "a"}, {"pool": "b"}]),
        taints=st.sampled_from([(), (Taint("x", "NoSchedule"),), (Taint("x", "NoExecute"),)]),
        allocatable=st.sampled_from([ROOM, {"cpu": "0", "memory": "0"}]),
        ready=st.booleans(),
        unschedulable=st.booleans(),
        claim=st.sampled_from(["", MINE, "other"]),
        releasing=st.booleans(),
        serving=st.booleans(),
        drained=st.booleans(),
        load=st.sampled_from([Load(), Load(allocated=False), Load(allocated=True, free_at=NOW)]),
    ),
    max_size=12,
    unique_by=lambda node: node.name,
)
_FIELDS = st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 14), "nodeSelector": st.just({"pool": "a"})})


@given(_NODES, _FIELDS, st.randoms())
def test_every_world_is_decided_within_bounds(
    nodes: list[Candidate], fields: dict[str, object], random: Random
) -> None:
    """Never more than replicas; never another's node; every node it has is kept or released; no order matters."""
    found = _select(nodes, **fields)
    own = {node.name for node in nodes if node.claim == MINE}
    wanted = fields.get("replicas")
    together = len(found.keep) + len(found.claim)
    if isinstance(wanted, int):
        assert together == min(wanted, found.feasible)
        assert not (found.claim and set(found.release) - set(found.misfits))
    else:
        assert together == found.feasible
        assert set(found.release) == set(found.misfits)
    assert set(found.keep) | set(found.release) == own
    assert not set(found.keep) & set(found.release)
    assert {node.claim for node in nodes if node.name in found.claim} <= {""}
    assert found.feasible + len(found.infeasible) == len(nodes)
    shuffled = list(nodes)
    random.shuffle(shuffled)
    assert _select(shuffled, **fields) == found


@given(_NODES, _FIELDS)
def test_what_is_done_needs_not_be_done_again(nodes: list[Candidate], fields: dict[str, object]) -> None:
    """When it is claimed and on its way out as decided, the next look decides nothing new."""
    first = _select(nodes, **fields)
    after = [
        replace(node, claim=MINE, releasing=False)
        if node.name in {*first.keep, *first.claim}
        else replace(node, releasing=node.name in first.release)
        for node in nodes
    ]
    second = _select(after, **fields)
    assert second.keep == tuple(sorted({*first.keep, *first.claim}))
    assert (second.claim, second.release) == ((), first.release)
