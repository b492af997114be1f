"""Which nodes a pod can never be given: one by one, and kept true while nodes come, change and go."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.feasibility import Constraint, Node, Nodes, Verdict, Wish
from kurm.domain.gres import Gres
from kurm.domain.nodemask import Roster
from kurm.domain.podresources import Resources
from kurm.domain.selection import Candidate, Requirement, Taint, Term, Toleration, _matches, tolerates

GIB = 1 << 30
POOL = Taint("kurm.dev/pool", "NoSchedule")
H100, A100 = Gres("gpu", "h100", 8), Gres("gpu", "a100", 4)
GOOD = Node(
    "n1",
    {"zone": "a", "cores": "64"},
    (POOL,),
    allocatable=Resources(8000, 64 * GIB, 10 * GIB, 110),
    node_set="workers",
    cpus=7,
    memory=60_000,
)


def _nodes(*nodes: Node) -> Nodes:
    table = Nodes()
    for node in nodes:
        table.put(node)
    return table


def _reasons(verdict: Verdict) -> dict[str, int]:
    return dict(verdict.reasons)


def _want(key: str, operator: str, *values: str) -> Constraint:
    return Constraint(required=(Term((Requirement(key, operator, values),)),))


@pytest.mark.parametrize(
    ("node", "constraint", "reason"),
    [
        (GOOD, Constraint(), ""),
        (replace(GOOD, node_set=""), Constraint(), "NodeSet"),
        (GOOD, Constraint(node_sets=("gpus",)), "Partition"),
        (GOOD, Constraint(node_sets=("gpus", "workers")), ""),
        (GOOD, Constraint(selector=(("zone", "a"),)), ""),
        (GOOD, Constraint(selector=(("zone", "b"),)), "NodeSelector"),
        (GOOD, Constraint(selector=(("rack", ""),)), "NodeSelector"),
        (GOOD, _want("zone", "In", "a", "b"), ""),
        (GOOD, _want("zone", "NotIn", "a"), "Affinity"),
        (GOOD, _want("rack", "NotIn", "r1"), ""),
        (GOOD, _want("rack", "DoesNotExist"), ""),
        (GOOD, _want("cores", "Gt", "63"), ""),
        (GOOD, _want("cores", "Lt", "64"), "Affinity"),
        (GOOD, Constraint(required=()), "Affinity"),
        (GOOD, Constraint(required=(Term(),)), "Affinity"),
        (GOOD, Constraint(required=(Term(match_fields=(Requirement("metadata.name", "In", ("n1",)),)),)), ""),
        (GOOD, Constraint(required=(Term(match_fields=(Requirement("metadata.name", "In", ("n2",)),)),)), "Affinity"),
        (replace(GOOD, unschedulable=True), Constraint(tolerations=(Toleration(operator="Exists"),)), "Unschedulable"),
        (replace(GOOD, ready=False), Constraint(tolerations=(Toleration(operator="Exists"),)), "NotReady"),
        (replace(GOOD, taints=(Taint("gpu", "NoSchedule"),)), Constraint(), "Taint/gpu"),
        (replace(GOOD, taints=(Taint("gpu", "PreferNoSchedule"),)), Constraint(), ""),
        (
            replace(GOOD, taints=(Taint("gpu", "NoExecute"),)),
            Constraint(tolerations=(Toleration("gpu", "Exists", effect="NoSchedule"),)),
            "Taint/gpu",
        ),
        (
            replace(GOOD, taints=(Taint("gpu", "NoExecute"),)),
            Constraint(tolerations=(Toleration("gpu", "Exists"),)),
            "",
        ),
        (GOOD, Constraint(cpus=7), ""),
        (GOOD, Constraint(cpus=8), "TooFew/cpu"),
        (GOOD, Constraint(memory=60_001), "TooFew/memory"),
        (GOOD, Constraint(storage=11 * GIB), "TooFew/ephemeral-storage"),
        (GOOD, Constraint(wishes=(Wish("nvidia.com/gpu", "gpu"),)), "Gres/gpu"),
    ],
)
def test_each_node_that_a_pod_cannot_be_given_has_a_reason(node: Node, constraint: Constraint, reason: str) -> None:
    """And one that can has none. The pool's own taint is tolerated for all pods."""
    (verdict,) = _nodes(node).verdicts(constraint)
    assert _reasons(verdict) == ({reason: 1} if reason else {})
    assert verdict.allowed == (0 if reason else 1)


def test_only_nodes_of_the_partition_are_to_be_excluded() -> None:
    """Slurm gives a job none of the others, and may not even know them."""
    other, free = replace(GOOD, name="n2", node_set="gpus"), replace(GOOD, name="n3", node_set="")
    table = _nodes(replace(GOOD, unschedulable=True), other, free, replace(GOOD, name="n4"))
    (verdict,) = table.verdicts(Constraint(node_sets=("workers",)))
    assert (verdict.excluded, verdict.allowed) == (0b0001, 0b1000)
    assert _reasons(verdict) == {"NodeSet": 0b0100, "Partition": 0b0010, "Unschedulable": 0b0001}


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        # A pod takes all GPUs of its node, so nodes with four and nodes with eight are asked for differently.
        (Wish("nvidia.com/gpu", "gpu", "", 2), [(("gpu:4",), 2, 0b10), (("gpu:8",), 4, 0b01)]),
        (Wish("nvidia.com/gpu", "gpu", "", 5), [(("gpu:8",), 1, 0b01)]),
        (Wish("nvidia.com/gpu", "gpu", "a100", 1), [(("gpu:a100:4",), 4, 0b10)]),
        (Wish("", "gpu", "h100", 8), [(("gpu:h100:8",), 1, 0b01)]),
        (Wish("nvidia.com/gpu", "gpu", "", 9), [((), 0, 0)]),
        (Wish("nvidia.com/gpu", "gpu", "v100", 1), [((), 0, 0)]),
    ],
)
def test_there_is_a_verdict_for_each_share_of_a_gres(
    wish: Wish, expected: list[tuple[tuple[str, ...], int, int]]
) -> None:
    """The smallest share first, with how many such pods a node's share is enough for."""
    table = _nodes(
        replace(GOOD, gres={"nvidia.com/gpu": H100}),
        replace(GOOD, name="n2", gres={"nvidia.com/gpu": A100}),
        replace(GOOD, name="n3"),
    )
    found = table.verdicts(Constraint(wishes=(wish,)))
    assert [(one.gres, one.per_node, one.allowed) for one in found] == expected
    assert all(one.allowed | one.excluded == 0b111 for one in found)


def test_two_kinds_of_one_gres_are_asked_for_by_their_types() -> None:
    """A number alone would be met by any of them."""
    table = _nodes(replace(GOOD, gres={"nvidia.com/gpu": H100, "amd.com/gpu": Gres("gpu", "mi300", 2)}))
    (verdict,) = table.verdicts(Constraint(wishes=(Wish("nvidia.com/gpu", "gpu"),)))
    assert verdict.gres == ("gpu:h100:8",)


def test_a_node_that_is_put_again_as_it_was_changes_nothing() -> None:
    """A kubelet's heartbeat is no news: verdicts stay the same objects."""
    table = _nodes(GOOD)
    before = table.verdicts(Constraint())
    assert not table.put(replace(GOOD))
    assert table.verdicts(Constraint()) is before


def test_a_record_of_another_size_counts_from_then_on() -> None:
    """The node was claimed anew, larger or smaller; or it is gone, and another one has its place."""
    roster, asked = Roster(), Constraint(cpus=8)
    table = Nodes(roster)
    table.put(GOOD)
    for cpus in (7, 8, 9, 7):
        table.put(replace(GOOD, cpus=cpus))
        assert table.verdicts(asked)[0].allowed == (cpus >= 8)
    table.put(replace(GOOD, cpus=9))
    table.drop("n1")
    roster.drop("n1")
    assert table.verdicts(asked)[0].allowed == 0
    table.put(replace(GOOD, name="n2"))
    assert _reasons(table.verdicts(asked)[0]) == {"TooFew/cpu": 1}


MOSTLY = st.sampled_from([False, False, False, False, True])
LABELS = st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from(["1", "2", "x"]))
TAINTS = st.lists(
    st.builds(
        Taint,
        st.sampled_from(["gpu", "kurm.dev/pool"]),
        st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        st.sampled_from(["", "yes"]),
    ),
    max_size=2,
).map(tuple)
NODES = st.builds(
    Node,
    name=st.sampled_from([f"n{number}" for number in range(3)]),
    labels=LABELS,
    taints=TAINTS,
    unschedulable=MOSTLY,
    ready=MOSTLY.map(lambda away: not away),
    node_set=st.sampled_from(["workers", "workers", "gpus", ""]),
    cpus=st.integers(1, 3),
    memory=st.integers(2, 3),
    gres=st.sampled_from([{}, {"nvidia.com/gpu": H100}, {"nvidia.com/gpu": A100}]),
)
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(["zone", "rack", "none"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(["1", "2"]), max_size=2).map(tuple),
)
FIELDS = st.builds(
    Requirement,
    st.just("metadata.name"),
    st.sampled_from(["In", "NotIn"]),
    st.lists(st.sampled_from(["n0", "n1"]), max_size=2).map(tuple),
)
TERMS = st.builds(Term, st.lists(REQUIREMENTS, max_size=2).map(tuple), st.lists(FIELDS, max_size=1).map(tuple))
CONSTRAINTS = st.builds(
    Constraint,
    selector=st.sampled_from([(), (), (("zone", "1"),), (("zone", "1"), ("rack", "2"))]),
    required=st.none() | st.none() | st.lists(TERMS, max_size=2).map(tuple),
    tolerations=st.lists(
        st.builds(
            Toleration,
            st.sampled_from(["", "gpu"]),
            st.sampled_from(["Exists", "Equal"]),
            st.sampled_from(["", "yes"]),
            st.sampled_from(["", "NoSchedule"]),
        ),
        max_size=2,
    ).map(tuple),
    wishes=st.sampled_from(
        [(), (), (), (Wish("nvidia.com/gpu", "gpu", "", 2),), (Wish("nvidia.com/gpu", "gpu", "", 6),)]
    ),
    node_sets=st.sampled_from([None, ("workers",), ("gpus", "workers")]),
    cpus=st.integers(1, 3),
    memory=st.integers(1, 3),
)
CHEAP = st.builds(Constraint, cpus=st.integers(1, 2))


def _suits(node: Node, constraint: Constraint) -> bool:
    """Say of one node what `Nodes` says of all of them, by the code that NodeSets choose their nodes with."""
    candidate = Candidate(node.name, node.labels)
    return (
        node.node_set != ""
        and (constraint.node_sets is None or node.node_set in constraint.node_sets)
        and all(node.labels.get(key) == value for key, value in constraint.selector)
        and (constraint.required is None or any(_matches(term, candidate) for term in constraint.required))
        and not node.unschedulable
        and node.ready
        and all(
            taint == POOL
            or taint.key == POOL.key
            or taint.effect == "PreferNoSchedule"
            or any(tolerates(one, taint) for one in constraint.tolerations)
            for taint in node.taints
        )
        and node.cpus >= constraint.cpus
        and node.memory >= constraint.memory
        and all(
            wish.resource in node.gres and node.gres[wish.resource].count >= wish.count for wish in constraint.wishes
        )
    )


@given(
    steps=st.lists(st.one_of(NODES, NODES, NODES, st.sampled_from(["n0", "n1", "n2"])), min_size=1, max_size=12),
    constraints=st.lists(CHEAP | CONSTRAINTS, min_size=1, max_size=3),
)
def test_verdicts_are_those_of_each_node_by_itself(steps: list[Node | str], constraints: list[Constraint]) -> None:
    """Whatever came, changed and went before."""
    roster = Roster()
    table, there = Nodes(roster), dict[str, Node]()
    for step in steps:
        if isinstance(step, str):
            table.drop(step)
            roster.drop(step)
            there.pop(step, None)
        else:
            table.put(step)
            there[step.name] = step
        for constraint in constraints:
            _check(roster, table.verdicts(constraint), there, constraint)


def _check(roster: Roster, verdicts: tuple[Verdict, ...], there: dict[str, Node], constraint: Constraint) -> None:
    found = [name for verdict in verdicts for name in roster.names(verdict.allowed)]
    assert sorted(found) == sorted(name for name, node in there.items() if _suits(node, constraint))
    sets = constraint.node_sets
    partition = {name for name, node in there.items() if node.node_set and (sets is None or node.node_set in sets)}
    for verdict in verdicts:
        assert set(roster.names(verdict.allowed | verdict.excluded)) == partition
        told = [name for _, mask in verdict.reasons for name in roster.names(mask)]
        assert sorted([*told, *roster.names(verdict.allowed)]) == sorted(there)
