"""Instructions become few calls."""

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.agreement import (
    Create,
    Delete,
    Describe,
    Drain,
    Instruction,
    Mark,
    Place,
    Recall,
    Register,
    Remember,
    Undrain,
)
from kurm.domain.gres import Gres
from kurm.domain.noderecord import NodeRecord
from kurm.domain.world import Claim
from kurm.slurm.nodes import NewNode, Update
from kurm.syncer.plan import PLACED, Call, Change, Creation, Deletion, calls

SMALL = NodeRecord(cpus=4, real_memory=1000, gres=(), features=("nodeset:workers",), weight=1)
LARGE = NodeRecord(64, 256000, (Gres("gpu", "h100", 8), Gres("fpga", "", 2)), ("nodeset:gpu", "ssd"), 5)
MEMORY = "[kurm: drained=released]"
CLAIMS = {f"n{number}": Claim(f"uid-{number}", LARGE if number == 3 else SMALL) for number in range(9)}


def test_each_shape_is_one_creation_and_each_change_one_call() -> None:
    """Drains come first and deletions last."""
    instructions: list[Instruction] = [
        Create("n1"),
        Create("n2"),
        Create("n3"),
        Create("n0", slurmd="10.0.0.7"),
        Mark("n4", "uid-4"),
        Delete("old1"),
        Undrain("n5"),
        Drain("n6", "kurm: scaling in", "released", MEMORY),
        Drain("n7", "kurm: scaling in", "released", MEMORY),
        Describe("n8"),
        Remember("n0", ""),
        Recall("n4", ""),
        Register("n5"),
        Mark("n5", "uid-5", address="10.0.0.8"),
        Place("n4", "default:root:r1"),
        Place("n5", "default:root:r1"),
        Delete("old2"),
    ]
    expected: list[Call] = [
        Change(("n6", "n7"), Update(state="DRAIN", reason="kurm: scaling in", comment=MEMORY)),
        Change(("n4",), Update(extra="kurm:uid-4")),
        Change(("n5",), Update(state="UNDRAIN")),
        Change(("n8",), Update(features=("nodeset:workers",), weight=1)),
        Change(("n0",), Update(comment="")),
        Change(("n4",), Update(state="FUTURE", comment="")),
        Change(("n5",), Update(state="RESUME")),
        Change(("n5",), Update(extra="kurm:uid-5", address="10.0.0.8")),
        Change(("n4", "n5"), Update(topology="default:root:r1")),
        Creation(SMALL, {"n1": Update(extra="kurm:uid-1"), "n2": Update(extra="kurm:uid-2")}),
        Creation(LARGE, {"n3": Update(extra="kurm:uid-3")}),
        Creation(SMALL, {"n0": Update(extra="kurm:uid-0", address="10.0.0.7")}, "FUTURE"),
        Deletion(("old1", "old2")),
    ]
    assert calls(instructions, CLAIMS) == expected


def test_a_creation_says_all_of_the_shape() -> None:
    """As Slurm writes it."""
    expected = NewNode(
        names=("n3",),
        cpus=64,
        real_memory=256000,
        gres="gpu:h100:8,fpga:2",
        features=("nodeset:gpu", "ssd"),
        weight=5,
    )
    assert Creation(LARGE, {"n3": Update(extra="kurm:uid-3")}).body() == expected
    placed = Creation(replace(LARGE, topology="default:r1"), {"n3": Update(extra="kurm:uid-3")})
    assert placed.body() == msgspec.structs.replace(expected, topology="default:r1")
    assert placed.without_place().body() == expected


def test_places_are_given_in_parts() -> None:
    """Slurmctld serves nobody while it works out its tree for each of them."""
    names = [f"n{number}" for number in range(2 * PLACED + 1)]
    claims = {name: Claim(f"uid-{name}", replace(SMALL, topology="default:root:r1")) for name in names}
    for instructions in ([Place(name, "default:root:r1") for name in names], [Create(name) for name in names]):
        found = calls(instructions, claims)
        assert [len(one.nodes) for one in found] == [PLACED, PLACED, 1]
        assert [name for one in found for name in one.nodes] == names
    assert len(calls([Create(name) for name in names], dict.fromkeys(names, CLAIMS["n1"]))) == 1


@given(st.sets(st.integers(0, 99), min_size=1))
def test_halving_finds_every_node_and_ends(numbers: set[int]) -> None:
    """No node is lost on the way to the ones that stand alone."""
    whole = Creation(SMALL, {f"n{number}": Update(extra=f"uid-{number}") for number in numbers})
    waiting, alone = [whole], dict[str, Update]()
    while waiting:
        one = waiting.pop()
        halves = one.halves()
        waiting += halves
        if not halves:
            assert len(one.nodes) == 1
            alone |= one.marks
    assert alone == whole.marks
