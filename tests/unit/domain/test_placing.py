"""What is to be asked of Slurm for a pod, by all that is known of the nodes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.asks import Ask
from kurm.domain.feasibility import Constraint, Node, Wish
from kurm.domain.gres import Gres
from kurm.domain.nodeset import Infeasible
from kurm.domain.placing import Placing, Prospect
from kurm.domain.podresources import Resources
from kurm.domain.podspec import Port
from kurm.domain.room import Free
from kurm.domain.selection import Requirement, Taint, Term

GIB = 1 << 30
SIZE = Resources(4000, 8 * GIB, 0, 10)
IDLE = Free(4, 8000, (), 4, 8000)
PLAIN = Ask(Constraint(), Resources(1000, GIB), cpus=1, memory=1024)


def _node(name: str, **fields: Any) -> Node:
    plain: dict[str, Any] = {"allocatable": SIZE, "node_set": "workers", "cpus": 4, "memory": 8000}
    return Node(name, **plain | fields)


def _placing(*nodes: Node, listed: Free | None = IDLE) -> Placing:
    placing = Placing()
    for node in nodes:
        placing.put_node(node)
    if listed is not None:
        placing.room.refresh({node.name: listed for node in nodes if node.node_set}, since=placing.room.mark())
    return placing


def test_an_idle_cluster_has_room_on_all_its_nodes() -> None:
    """Nothing is excluded, and nothing has to be said."""
    placing = _placing(_node("n1"), _node("n2"))
    found = placing.prospect(PLAIN)
    assert (found.feasible, found.room, placing.excluded(found)) == (2, True, ())
    assert placing.sentence(found) == "2 of 2 nodes can be used"


def test_nodes_that_a_pod_cannot_have_are_excluded_by_name() -> None:
    """With the reason for each; nodes outside of the pool are neither named nor counted."""
    placing = _placing(
        _node("n1", labels={"zone": "a"}),
        _node("n2"),
        _node("n3", labels={"zone": "a"}, unschedulable=True),
        _node("n4", labels={"zone": "a"}, taints=(Taint("gpu", "NoSchedule"),)),
        _node("n5"),
        _node("n6"),
        _node("n7"),
        _node("control", node_set=""),
    )
    found = placing.prospect(replace(PLAIN, constraint=Constraint(selector=(("zone", "a"),))))
    assert (found.feasible, found.room) == (1, True)
    assert placing.excluded(found) == ("n2", "n3", "n4", "n5", "n6", "n7")
    assert placing.sentence(found) == (
        "1 of 7 nodes can be used: 4 do not match spec.nodeSelector (n2, n5, n6 and 1 more), 1 is cordoned (n3), "
        "1 has the taint gpu, which the pod does not tolerate (n4)"
    )
    assert placing.infeasible(found)[0] == Infeasible("NodeSet", 1, ("control",))


def test_a_pod_that_no_node_can_have_is_told_why() -> None:
    """It would wait for ever."""
    placing = _placing(_node("n1"), _node("n2"))
    found = placing.prospect(replace(PLAIN, constraint=Constraint(cpus=5)))
    assert (found.feasible, found.room) == (0, False)
    assert placing.sentence(found) == "0 of 2 nodes can be used: 2 are too small in CPUs (n1, n2)"


def test_only_nodes_that_slurm_knows_are_excluded() -> None:
    """Slurm refuses a request that excludes a node of another name; and without a record it gives none away."""
    placing = _placing(_node("n1", ready=False))
    placing.put_node(_node("n2", ready=False))
    found = placing.prospect(PLAIN)
    assert placing.excluded(found) == ("n1",)
    placing.room.refresh({"n2": IDLE}, since=placing.room.mark(), whole=False)
    later = placing.prospect(PLAIN)
    assert placing.excluded(later) == ("n1", "n2")
    assert later.version != found.version


def test_the_same_nodes_have_the_same_version() -> None:
    """So a host list is made once for all pods that exclude the same nodes, whatever they ask otherwise."""
    placing = _placing(_node("n1"), _node("n2", ready=False))
    one, other = placing.prospect(PLAIN), placing.prospect(replace(PLAIN, cpus=2, constraint=Constraint(cpus=2)))
    assert one.version == other.version
    placing.put_node(_node("n1", unschedulable=True))
    assert placing.prospect(PLAIN).version != one.version
    placing.put_node(_node("n1"))
    assert placing.prospect(PLAIN).version == one.version


def test_the_pools_own_taint_can_become_another() -> None:
    """It keeps others away, never the cluster's own pods."""
    placing = _placing(_node("n1", taints=(Taint("kurm.dev/pool", "NoSchedule"),)))
    placing.put_node(_node("n2", taints=(Taint("own/pool", "NoSchedule"),)))
    for fenced, allowed in (("kurm.dev/pool", 0b01), ("own/pool", 0b10), ("kurm.dev/pool", 0b01)):
        placing.fence([fenced])
        assert placing.prospect(PLAIN).allowed == allowed


def test_a_host_port_is_free_on_nodes_without_another_pod_on_it() -> None:
    """And of a gang one pod can be on each node."""
    placing, ask = _placing(_node("n1"), _node("n2")), replace(PLAIN, ports=(Port(80),))
    placing.occupancy.put("other", "n1", Resources(), (Port(80),))
    found = placing.prospect(ask, slots=2)
    assert (placing.excluded(found), found.feasible, found.per_node, found.room) == (("n1",), 1, 1, False)
    assert placing.sentence(found).endswith("1 has another pod on host port 80 (n1)")
    placing.occupancy.drop("other")
    assert placing.prospect(ask, slots=2).room
    assert not placing.prospect(ask, slots=3).room


def test_a_volume_keeps_a_pod_where_it_can_be_reached() -> None:
    """Each volume for itself."""
    here = [Term((Requirement("kubernetes.io/hostname", "In", (name,)),)) for name in ("n1", "n2", "n3")]
    nodes = [_node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2", "n3", "n4")]
    placing = _placing(*nodes)
    found = placing.prospect(PLAIN, volumes=[[here[:2], here[1:]]])
    assert (placing.excluded(found), found.feasible) == (("n1", "n3", "n4"), 1)
    assert placing.refusal(PLAIN, "n1", volumes=[here[1:]]) == "n1 cannot reach a volume of the pod"


@pytest.mark.parametrize(
    ("reaches", "slots", "feasible", "per_node"),
    [
        ([("n1", "n2"), ("n2", "n3")], 2, ("n2",), 0),  # together where all can be
        ([("n1",), ("n3",)], 2, ("n1", "n3"), 1),  # each on its own, and no node without one of them
        ([("n1",), ("n3",)], 3, (), 1),  # the third may be anywhere, and Slurm is not told which slot is whose
        ([("n1",), ("n1",), ("n3",)], 3, (), 1),
        ([("n1", "n2"), ("n3",)], 2, (), 1),
    ],
)
def test_the_pods_of_a_gang_get_nodes_that_reach_the_volumes_of_all(
    reaches: list[tuple[str, ...]], slots: int, feasible: tuple[str, ...], per_node: int
) -> None:
    """Or each of them the one node that reaches its own. What else there is, is said to be impossible."""
    names = ("n1", "n2", "n3", "n4")
    placing = _placing(*(_node(name, labels={"kubernetes.io/hostname": name}) for name in names))
    volumes = [[[Term((Requirement("kubernetes.io/hostname", "In", reach),))]] for reach in reaches]
    found = placing.prospect(PLAIN, slots=slots, volumes=volumes)
    assert (tuple(sorted(set(names) - set(placing.excluded(found)))), found.per_node) == (feasible, per_node)
    if not feasible:
        words = "0 of 4 nodes can be used: 4 cannot reach the volumes of all pods of the gang (n1, n2, n3 and 1 more)"
        assert placing.sentence(found) == words
    assert placing.beyond(volumes[0], names) == frozenset(names) - set(reaches[0])


@pytest.mark.parametrize("number", [1, 4, 8])
def test_a_bound_pod_holds_what_its_own_node_has(number: int) -> None:
    """Not the share that it would be given now, and not less because its request or the rules have changed."""
    placing = _placing(
        _node("n1", gres={"nvidia.com/gpu": Gres("gpu", "h100", 8), "example.org/fpga": Gres("fpga", "", 2)}),
        _node("n2", gres={"nvidia.com/gpu": Gres("gpu", "a100", 4)}),
        _node("n3"),
    )
    asked = Constraint(wishes=(Wish("nvidia.com/gpu", "gpu", "", number),))
    sized = Resources(1000, GIB, 0, 1, (("nvidia.com/gpu", number),))
    for ask in (replace(PLAIN, constraint=asked), replace(PLAIN, resources=sized)):
        assert [placing.share(node, ask) for node in ("n1", "n2", "n3", "n4")] == [("gpu:8",), ("gpu:4",), (), ()]
    typed = replace(PLAIN, constraint=Constraint(wishes=(Wish("", "gpu", "h100"),)), resources=sized)
    assert placing.share("n1", typed) == ("gpu:h100:8",)  # said by an annotation, as of one that is refused by now
    renamed = replace(PLAIN, constraint=Constraint(wishes=(Wish("nvidia.com/gpu", "accel"),)), resources=sized)
    assert placing.share("n1", renamed) == ("gpu:8",)  # the NodeSet's word for it is another one by now
    assert placing.refusal(replace(PLAIN, constraint=asked), "n1", gres=["gpu:8"]) == ""
    if number <= 4:
        said = placing.refusal(replace(PLAIN, constraint=asked), "n1", gres=["gpu:4"])
        assert said == "n1 has other GRES than Slurm was asked for"


def test_nodes_to_be_avoided_are_excluded() -> None:
    """One that has just refused the pod is not asked for again at once."""
    placing = _placing(_node("n1"), _node("n2"))
    assert placing.excluded(placing.prospect(PLAIN, avoid=["n2", "gone"])) == ("n2",)


def test_a_kubelet_that_would_refuse_the_pod_is_not_asked() -> None:
    """Somebody's pod is there that Slurm does not know of."""
    placing = _placing(_node("n1"), _node("n2"))
    placing.occupancy.put("foreign", "n1", Resources(3500))
    found = placing.prospect(PLAIN)
    assert (placing.excluded(found), found.feasible, found.room) == (("n1",), 2, True)
    assert placing.refusal(PLAIN, "n1").startswith("cpu: 3500m of 4000m on n1 are requested already")


def test_no_more_of_a_gang_come_to_a_node_than_its_kubelet_takes_in() -> None:
    """Slurm counts four CPUs of a node on which slurmd's own pod leaves 3.95."""
    placing = _placing(_node("n1"), _node("n2"))
    for node in ("n1", "n2"):
        placing.occupancy.put(f"slurmd-{node}", node, Resources(50), stays=True)
    found = placing.prospect(PLAIN, slots=6)
    assert (found.per_node, found.room) == (3, True)
    assert placing.refusal(PLAIN, "n1", slots=3) == ""
    assert placing.refusal(PLAIN, "n1", slots=4).startswith("cpu: 50m of 4000m on n1 are requested already")


def test_a_full_node_is_not_excluded_for_being_full() -> None:
    """It is Slurm's to say when it is free, and to queue for it."""
    placing = _placing(_node("n1"))
    placing.occupancy.put("ours", "n1", Resources(4000))
    placing.room.hold("ours", {"n1": 1}, PLAIN.shape())
    placing.room.hold("theirs", {"n1": 1}, replace(PLAIN, cpus=3).shape())
    found = placing.prospect(PLAIN)
    assert (placing.excluded(found), found.feasible, found.room) == ((), 1, False)


@pytest.mark.parametrize(
    ("busy_nodes", "gres", "excluded", "per_node"),
    [
        ((), ("gpu:4",), ("n1", "n3"), 2),
        (("n2",), ("gpu:8",), ("n2", "n3"), 4),
        (("n1", "n2"), ("gpu:4",), ("n1", "n3"), 2),
    ],
)
def test_of_nodes_with_other_numbers_of_gpus_the_smallest_with_room_are_asked(
    busy_nodes: tuple[str, ...], gres: tuple[str, ...], excluded: tuple[str, ...], per_node: int
) -> None:
    """A pod has all GPUs of its node, and Slurm is asked for one number: nodes with another one are excluded."""
    eight, four = Gres("gpu", "h100", 8), Gres("gpu", "a100", 4)
    placing = _placing(
        _node("n1", gres={"nvidia.com/gpu": eight}),
        _node("n2", gres={"nvidia.com/gpu": four}),
        _node("n3"),
        listed=None,
    )
    free = {"n1": replace(IDLE, gres=(("gpu", 8),)), "n2": replace(IDLE, gres=(("gpu", 4),)), "n3": IDLE}
    placing.room.refresh(free, since=placing.room.mark())
    placing.room.doubt(busy_nodes)
    ask = replace(PLAIN, constraint=Constraint(wishes=(Wish("nvidia.com/gpu", "gpu", "", 2),)))
    found = placing.prospect(ask, slots=2)
    assert (found.gres, placing.excluded(found), found.per_node) == (gres, excluded, per_node)
    assert found.room == (len(busy_nodes) < 2)
    assert ask.request("n", "s", slots=2, gres=found.gres, per_node=found.per_node).slots_per_node == per_node


def test_after_a_refusal_such_pods_are_queued() -> None:
    """Until there is more room than there was."""
    placing = _placing(_node("n1"), _node("n2"))
    placing.room.hold("web", {"n1": 1}, PLAIN.shape())
    placing.no_room(placing.prospect(PLAIN))
    assert not placing.prospect(PLAIN).room
    placing.room.release("web")
    assert placing.prospect(PLAIN).room


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (_node("n1"), ""),
        (_node("n1", unschedulable=True), "n1 is cordoned"),
        (_node("n1", ready=False), "n1 is not ready"),
        (_node("n1", node_set=""), "n1 is in no NodeSet of the cluster"),
        (_node("n1", taints=(Taint("a/b", "NoExecute"),)), "n1 has the taint a/b, which the pod does not tolerate"),
        (_node("n1", allocatable=replace(SIZE, pods=0)), "pods: n1 has 0 of 0"),
        (_node("n2"), "n1 is not known"),
    ],
)
def test_a_granted_node_is_looked_at_again(node: Node, why: str) -> None:
    """Slurm was asked a moment ago, and the node is another one now."""
    assert _placing(node).refusal(PLAIN, "n1") == why


def test_what_was_on_a_node_that_comes_back_is_still_counted() -> None:
    """Its place may have been another node's meanwhile."""
    placing = _placing(_node("n1"), _node("n2"))
    placing.occupancy.put("web", "n1", Resources(4000))
    placing.room.hold("web", {"n1": 1}, replace(PLAIN, cpus=4).shape())
    assert placing.prospect(PLAIN).room
    placing.drop_node("n1")
    placing.put_node(_node("n3"))
    assert placing.refusal(PLAIN, "n1") == "n1 is not known"
    placing.put_node(_node("n1"))
    found = placing.prospect(PLAIN, avoid=["n2", "n3"])
    assert (found.feasible, found.room) == (1, False)


def test_a_node_in_the_place_of_another_is_not_taken_for_it() -> None:
    """Slurm knew it before Kubernetes did: it has room, and the one before had none; and the other way round."""
    placing = _placing(_node("n1"))
    placing.room.refresh(
        {"n1": replace(IDLE, cpus=0), "n2": IDLE, "n3": replace(IDLE, cpus=0)}, since=placing.room.mark()
    )
    placing.occupancy.put("foreign", "n3", Resources(3500), [Port(80)])
    rooms = []
    for name in ("n1", "n2", "n3", "n2"):
        placing.put_node(_node(name))
        found = placing.prospect(PLAIN)
        rooms.append((found.room, placing.occupancy.unfit(PLAIN.resources), placing.occupancy.taken(Port(80))))
        placing.drop_node(name)
    assert rooms == [(False, 0, 0), (True, 0, 0), (False, 1, 1), (True, 0, 0)]


NAMES = st.sampled_from(["n1", "n2", "n3"])
ASKS = st.builds(
    lambda cpu, zone, port: Ask(
        Constraint(selector=(("zone", zone),) if zone else ()),
        Resources(cpu * 1000),
        (Port(port),) if port else (),
        cpus=cpu,
    ),
    st.integers(1, 4),
    st.sampled_from(["", "a"]),
    st.sampled_from([0, 80]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), NAMES, st.sampled_from(["a", "b"]), st.booleans()),
        st.tuples(st.just("gone"), NAMES),
        st.tuples(st.just("pod"), st.sampled_from("abc"), NAMES, ASKS),
        st.tuples(st.just("end"), st.sampled_from("abc")),
        st.tuples(st.just("list"), st.sets(NAMES)),
        st.tuples(st.just("look"), ASKS),
    ),
    max_size=25,
)


class _World:
    """What there is, to be told of at once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[str, Ask]] = {}
        self.listed: set[str] = set()

    def told(self) -> Placing:
        placing = Placing()
        for node in self.nodes.values():
            placing.put_node(node)
        for uid, (place, ask) in self.pods.items():
            self.bind(placing, uid, place, ask)
        self.list(placing)
        return placing

    def bind(self, placing: Placing, uid: str, node: str, ask: Ask) -> None:
        placing.occupancy.put(uid, node, ask.resources, ask.ports)
        placing.room.hold(uid, {node: 1}, ask.shape())

    def list(self, placing: Placing) -> None:
        """Tell what Slurm would, who knows all pods."""
        left = {name: 4 - sum(ask.cpus for node, ask in self.pods.values() if node == name) for name in self.listed}
        found = {name: replace(IDLE, cpus=cpus) for name, cpus in left.items()}
        placing.room.refresh(found, since=placing.room.mark())


@given(steps=STEPS, ask=ASKS)
def test_how_it_came_about_does_not_matter(steps: list[tuple[Any, ...]], ask: Ask) -> None:
    """What is said of a pod follows from what there is, not from the order in which it was told."""
    placing, world = Placing(), _World()
    for kind, *said in steps:
        if kind == "node":
            name, zone, unschedulable = said
            world.nodes[name] = _node(name, labels={"zone": zone}, unschedulable=unschedulable)
            placing.put_node(world.nodes[name])
        elif kind == "gone":
            world.nodes.pop(said[0], None)
            placing.drop_node(said[0])
        elif kind == "pod":
            uid, node, own = said
            world.pods[uid] = node, own
            world.bind(placing, uid, node, own)
        elif kind == "end":
            world.pods.pop(said[0], None)
            placing.occupancy.drop(said[0])
            placing.room.release(said[0])
        elif kind == "list":
            world.listed = said[0]
            world.list(placing)
        else:
            placing.prospect(said[0])
    told = world.told()
    assert _plain(placing, placing.prospect(ask)) == _plain(told, told.prospect(ask))
    assert {name: placing.refusal(ask, name) for name in ("n1", "n2", "n3")} == {
        name: told.refusal(ask, name) for name in ("n1", "n2", "n3")
    }


def _plain(placing: Placing, found: Prospect) -> tuple[object, ...]:
    reasons = {one.reason: (one.nodes, sorted(one.examples)) for one in placing.infeasible(found)}
    return found.feasible, found.room, sorted(placing.excluded(found)), reasons
