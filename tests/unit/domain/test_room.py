"""Where Slurm has room, as far as is known."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.nodemask import Roster
from kurm.domain.room import Free, Room, Shape

NAMES = ("n1", "n2", "n3")
IDLE = Free(4, 8000, (("gpu", 8),), 4, 8000)
ONE = Shape(1, 1000)
ALL = 0b111


def _room(**found: Free) -> Room:
    roster = Roster()
    for name in NAMES:
        roster.add(name)
    room = Room(roster)
    room.refresh(found, since=room.mark())
    return room


@pytest.mark.parametrize(
    ("free", "shape", "fits"),
    [
        (IDLE, Shape(4, 8000), True),
        (IDLE, Shape(5, 1), False),
        (IDLE, Shape(1, 8001), False),
        (IDLE, Shape(1, 1, ("gpu:8",)), True),
        (IDLE, Shape(1, 1, ("gpu:h100:8",)), True),
        (replace(IDLE, gres=(("gpu", 7),)), Shape(1, 1, ("gpu:8",)), False),
        (IDLE, Shape(1, 1, exclusive=True), True),
        (replace(IDLE, cpus=3), Shape(1, 1, exclusive=True), False),
        (replace(IDLE, up=False), Shape(1, 1), False),
    ],
)
def test_there_is_room_where_all_of_a_slot_fits(free: Free, shape: Shape, fits: bool) -> None:  # noqa: FBT001 a column
    """On a node that takes jobs."""
    assert _room(n1=free).has(shape, ALL) == fits


def test_what_slurm_has_not_told_of_is_full() -> None:
    """Also a node that it has told of before, and not in its last list."""
    room = _room(n1=IDLE, n2=IDLE)
    assert (room.fitting(ONE), "n3" in room) == (0b011, False)
    room.refresh({"n2": IDLE}, since=room.mark())
    assert (room.fitting(ONE), "n1" in room) == (0b010, False)


def test_only_allowed_nodes_count() -> None:
    """The pod's constraint and its partition say which."""
    room = _room(n1=IDLE)
    assert (room.has(ONE, 0b001), room.has(ONE, 0b110)) == (True, False)


def test_a_grant_takes_and_its_end_gives_back() -> None:
    """Each of them once, however often it is told."""
    room, half = _room(n1=IDLE), Shape(2, 1000)
    for _ in range(2):
        room.hold("web", {"n1": 1}, half)
    assert (room.has(half, ALL), room.has(Shape(3, 1), ALL)) == (True, False)
    room.hold("db", {"n1": 1}, half)
    assert not room.has(ONE, ALL)
    for _ in range(2):
        room.release("web")
    assert (room.has(half, ALL), room.has(Shape(3, 1), ALL)) == (True, False)


def test_gres_are_taken_whole() -> None:
    """By the first pod on the node, until it is gone."""
    room, shape = _room(n1=IDLE), Shape(1, 1, ("gpu:8",))
    room.hold("train", {"n1": 2}, shape)
    assert (room.has(shape, ALL), room.has(ONE, ALL)) == (False, True)
    room.release("train")
    assert room.has(shape, ALL)


@pytest.mark.parametrize(
    ("shape", "slots", "fits"),
    [
        (ONE, 8, True),
        (ONE, 9, False),
        (Shape(3, 1), 2, True),
        (Shape(3, 1), 3, False),
        (Shape(1, 1, per_node=3), 6, True),
        (Shape(1, 1, per_node=3), 7, False),
    ],
)
def test_a_gang_has_room_if_all_of_its_slots_have(shape: Shape, slots: int, fits: bool) -> None:  # noqa: FBT001 a column
    """Several on one node, as many as fit there."""
    assert _room(n1=IDLE, n2=IDLE).has(shape, ALL, slots) == fits


def test_jobs_of_others_make_a_node_doubtful() -> None:
    """How much they take or free is not told: the node counts as full until its figures are read."""
    room = _room(n1=IDLE, n2=IDLE)
    room.doubt(["n1", "unheard-of"])
    assert (room.fitting(ONE), room.doubted) == (0b010, frozenset({"n1"}))
    room.refresh({"n1": replace(IDLE, cpus=1)}, since=room.mark(), whole=False)
    assert (room.fitting(ONE), room.fitting(Shape(2, 1)), room.doubted) == (0b011, 0b010, frozenset())


def test_a_grant_while_slurm_is_asked_counts_though_the_answer_may_not_know_it() -> None:
    """Else the next pod would be started at once into a full node, and Slurm would preempt for it."""
    room = _room(n1=IDLE)
    room.hold("old", {"n1": 1}, Shape(1, 1))
    mark = room.mark()
    room.hold("new", {"n1": 1}, Shape(1, 1))
    theirs = 1
    room.refresh({"n1": replace(IDLE, cpus=4 - 1 - theirs)}, since=mark)
    assert (room.has(ONE, ALL), room.has(Shape(2, 1), ALL)) == (True, False)


@pytest.mark.parametrize("before", [{"n1": IDLE}, {}], ids=["known", "new"])
def test_an_end_that_the_list_counts_already_frees_no_more_than_there_is(before: dict[str, Free]) -> None:
    """Slurm tells the end and the list in any order; a node may come to be known when we hold a part of it already."""
    room = _room(**before)
    room.hold("web", {"n1": 1}, Shape(2, 1))
    room.hold("db", {"n1": 1}, Shape(1, 1))
    room.refresh({"n1": replace(IDLE, cpus=3)}, since=room.mark())
    room.release("web")
    assert (room.has(Shape(3, 1), ALL), room.has(Shape(4, 1), ALL)) == (True, False)


def test_a_refusal_closes_a_shape_until_something_is_freed_there() -> None:
    """Other shapes go on; so does this one on nodes that were not asked for, and a smaller gang."""
    room = _room(n1=IDLE, n2=IDLE, n3=IDLE)
    room.hold("web", {"n1": 1}, ONE)
    room.close(ONE, 0b011)
    assert (room.has(ONE, 0b011), room.has(ONE, ALL)) == (False, True)
    assert (room.has(Shape(1, 500), 0b011), room.has(ONE, 0b011, 2)) == (True, True)
    room.hold("db", {"n2": 1}, ONE)
    assert not room.has(ONE, 0b011)
    room.release("web")
    assert (room.has(ONE, 0b001), room.has(ONE, 0b010)) == (True, False)


def test_a_whole_list_opens_what_was_closed() -> None:
    """It is the truth, and newer than the refusal."""
    room = _room(n1=IDLE)
    room.close(ONE, ALL)
    room.refresh({"n1": IDLE}, since=room.mark())
    assert room.has(ONE, ALL)


SHAPES = st.builds(
    Shape, st.integers(1, 3), st.integers(1, 3), st.sampled_from([(), ("gpu:2",)]), st.booleans(), st.integers(0, 1)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("hold"), st.sampled_from("abcd"), st.dictionaries(st.sampled_from(NAMES), st.just(1)), SHAPES
        ),
        st.tuples(st.just("release"), st.sampled_from("abcd")),
        st.tuples(st.just("look"), SHAPES),
        st.tuples(st.just("refresh")),
        st.tuples(st.just("some"), st.sampled_from(NAMES)),
    ),
    max_size=25,
)
SIZE = Free(4, 4, (("gpu", 2),), 4, 4)


@given(steps=STEPS, shape=SHAPES)
def test_room_is_what_is_left_of_all_holds(steps: list[tuple[Any, ...]], shape: Shape) -> None:
    """If Slurm always tells the truth and knows every grant: whatever was held, freed, looked at and listed before."""
    room = _room(**dict.fromkeys(NAMES, SIZE))
    holds: dict[str, tuple[dict[str, int], Shape]] = {}
    for kind, *said in steps:
        if kind == "hold":
            owner, layout, own = said
            others = [one for name, one in holds.items() if name != owner]
            if all(_granted(_left(others, name), own) for name in layout):
                room.hold(owner, layout, own)
                holds[owner] = layout, own
        elif kind == "release":
            room.release(said[0])
            holds.pop(said[0], None)
        elif kind == "look":
            room.has(said[0], ALL)
        elif kind == "refresh":
            room.refresh({name: _left(holds.values(), name) for name in NAMES}, since=room.mark())
        else:
            room.refresh({said[0]: _left(holds.values(), said[0])}, since=room.mark(), whole=False)
    for place, name in enumerate(NAMES):
        left = _left(holds.values(), name)
        fits = left.cpus >= shape.cpus and left.memory >= shape.memory
        if shape.exclusive:
            fits = fits and (left.cpus, left.memory) == (4, 4)
        if not any("gpu" in "".join(own.gres) for layout, own in holds.values() if name in layout) or not shape.gres:
            assert room.has(shape, 1 << place) == fits
        else:
            assert not room.has(shape, 1 << place)


def _granted(left: Free, shape: Shape) -> bool:
    """Whether Slurm would grant a slot: a node's GPUs are one owner's."""
    return left.cpus >= shape.cpus and left.memory >= shape.memory and (not shape.gres or dict(left.gres)["gpu"] > 0)


def _left(holds: Any, name: str) -> Free:
    """Return what Slurm would say of a node with these holds."""
    here = [shape for layout, shape in holds if name in layout]
    gpus = 0 if any(shape.gres for shape in here) else 2
    return Free(4 - sum(one.cpus for one in here), 4 - sum(one.memory for one in here), (("gpu", gpus),), 4, 4)
