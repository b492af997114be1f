"""Where nodes are, from their labels."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.topology import LENGTH, ROOT, UNLABELLED, Topology, labelled, path, place

TREE = Topology(type="tree", node_labels=("zone", "rack"))
BLOCK = Topology(type="block", node_labels=("domain",), block_sizes=(4,))
VALUES = st.sampled_from(["", "a", "b", "a/b", ROOT, UNLABELLED, "A"]) | st.text()


@pytest.mark.parametrize(
    ("topology", "labels", "expected"),
    [
        (None, {"zone": "eu1"}, ""),
        (TREE, {"zone": "eu1", "rack": "r7"}, "default:root:eu1:eu1/r7"),
        (TREE, {"zone": "eu1"}, "default:root:eu1:eu1/unlabelled"),
        (TREE, {"zone": "eu1", "rack": ""}, "default:root:eu1:eu1/unlabelled"),
        (TREE, {"rack": "r7"}, "default:root:unlabelled"),
        (TREE, {}, "default:root:unlabelled"),
        (TREE, {"zone": "root", "rack": "r7"}, "default:root:root-4cce2b92a5:root-4cce2b92a5/r7"),
        (BLOCK, {"domain": "nvl-3"}, "default:nvl-3"),
        (BLOCK, {}, "default:unlabelled"),
        (
            Topology(type="block", node_labels=("zone", "rack"), block_sizes=(4,)),
            {"zone": "a", "rack": "b"},
            "default:a/b",
        ),
    ],
)
def test_a_place_is_what_slurm_takes(topology: Topology | None, labels: dict[str, str], expected: str) -> None:
    """In a tree the way from the root, of blocks the name; what is missing has a name of its own."""
    assert place(topology, labels) == expected


@given(st.tuples(VALUES, VALUES), st.tuples(VALUES, VALUES))
def test_two_places_never_have_one_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Nor does a switch have the name of one above it; and every name is one that Slurm takes."""
    first, second = (path(TREE, {"zone": zone, "rack": rack}) for zone, rack in (one, other))
    known = [tuple(value for value in pair[: 2 if pair[0] else 1]) for pair in (one, other)]
    assert (first[-1] == second[-1]) == (first == second) == (known[0] == known[1])
    assert ROOT not in first
    assert len(set(first)) == len(first)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./-]*", name) and len(name) <= LENGTH for name in first)
    assert labelled(first) == bool(one[0])
