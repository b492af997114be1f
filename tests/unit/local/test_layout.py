"""Where the parts of a local cluster stand."""

from ipaddress import IPv4Network
from itertools import combinations

import pytest

from kurm.local.errors import LocalError
from kurm.local.layout import MAX_NODES, SLOTS, Layout, check_name, check_workers, choose_slot


def networks(slot: int) -> list[IPv4Network]:
    """Return every network that a cluster of that slot uses."""
    layout = Layout("any", slot, MAX_NODES)
    return [layout.network, layout.pods, layout.services]


def test_no_two_clusters_share_an_address() -> None:
    """Whatever slots two clusters have, their machines, pods and Services have different addresses."""
    everything = [network for slot in range(SLOTS) for network in networks(slot)]
    shared = [(one, other) for one, other in combinations(everything, 2) if one.overlaps(other)]
    assert shared == []


def test_every_pod_range_belongs_to_one_node_within_the_clusters() -> None:
    """Each node has a /24 of its own within the cluster's pod range, and an address within its network."""
    layout = Layout("any", 3, MAX_NODES)
    ranges = {node.pods for node in layout.nodes}
    assert len(ranges) == MAX_NODES + 1
    assert all(range_ is not None and range_.subnet_of(layout.pods) for range_ in ranges)
    assert all(machine.address in layout.network for machine in layout.machines)
    assert len({machine.address for machine in layout.machines} | {layout.host}) == MAX_NODES + 3


def test_workers_come_on_top_of_n0() -> None:
    """`--nodes 4` makes n1 to n4, the pool, and n0 for control pods."""
    assert [node.name for node in Layout("demo", 0, 4).nodes] == ["n0", "n1", "n2", "n3", "n4"]


def test_link_names_fit_the_kernel() -> None:
    """Linux allows 15 characters for the name of a link, whatever the cluster is called."""
    layout = Layout("a-name-of-20-letters", SLOTS - 1, MAX_NODES)
    assert all(len(name) <= 15 for name in (layout.bridge, *(machine.veth for machine in layout.machines)))


def test_the_first_free_slot_is_taken() -> None:
    """Slots of other clusters are passed over."""
    assert choose_slot({0, 1}, []) == 2


def test_a_slot_that_would_hide_a_network_of_the_host_is_passed_over() -> None:
    """A VPN that uses 172.30.0.0/23 keeps its addresses: slots 0 and 1 are not taken."""
    assert choose_slot(set(), [IPv4Network("172.30.0.0/23"), IPv4Network("192.0.2.0/24")]) == 2


def test_no_free_slot_is_told_with_what_to_do() -> None:
    """When every range is taken the error names the ranges, and how to free one."""
    with pytest.raises(LocalError, match=r"172\.30\.0\.0/24.*down.*ip route"):
        choose_slot(set(range(SLOTS)), [])


@pytest.mark.parametrize("name", ["", "Demo", "9lives", "a/b", "../etc", "x" * 21, "a b", "a;b"])
def test_a_name_that_could_not_stand_in_a_path_is_refused(name: str) -> None:
    """A cluster's name becomes part of paths, links and certificates."""
    with pytest.raises(LocalError, match="1 to 20 characters"):
        check_name(name)


@pytest.mark.parametrize("workers", [-1, 0, MAX_NODES + 1])
def test_an_impossible_number_of_nodes_is_refused(workers: int) -> None:
    """The error names the option, the value and what is allowed."""
    with pytest.raises(LocalError, match=f"--nodes {workers}: 1 to {MAX_NODES}"):
        check_workers(workers)


def test_an_unknown_node_is_told_with_the_known_ones() -> None:
    """`node stop n9` says which nodes there are."""
    with pytest.raises(LocalError, match=r"n9.*n0, n1, n2"):
        Layout("demo", 0, 2).node("n9")
