"""Why a node shall take no jobs, in one line, and what is remembered of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.causes import (
    CORDONED,
    LONGEST,
    NOT_READY,
    REASON,
    RELEASED,
    Memory,
    Told,
    of_node,
    of_pod,
    released,
    strongest_first,
)

GOOD = {"Ready": Told("True"), "DiskPressure": Told("False")}
KEYS = ("cordoned", "released", "not-ready", "pod", "condition/KernelDeadlock", "condition/example.com/Fan")


@pytest.mark.parametrize(
    ("cordoned", "annotations", "conditions", "reasons"),
    [
        pytest.param(False, {}, GOOD, [], id="a good node"),
        pytest.param(False, {}, {}, [], id="a kubelet that never said anything"),
        pytest.param(False, {REASON: "disk errors"}, GOOD, [], id="words alone cordon nothing"),
        pytest.param(True, {}, GOOD, ["kurm: cordoned"], id="cordoned"),
        pytest.param(True, {REASON: " disk\n errors "}, GOOD, ["kurm: cordoned: disk errors"], id="with words"),
        pytest.param(False, {}, {"Ready": Told("False")}, ["kurm: node not ready"], id="not ready"),
        pytest.param(
            False, {}, {"Ready": Told("Unknown", "no word")}, ["kurm: node not ready: no word"], id="not heard of"
        ),
        pytest.param(
            False, {}, {"KernelDeadlock": Told("True", "stuck")}, ["kurm: KernelDeadlock: stuck"], id="chosen"
        ),
        pytest.param(False, {}, {"KernelDeadlock": Told("Unknown")}, [], id="chosen, and not known"),
        pytest.param(False, {}, {"MemoryPressure": Told("True")}, [], id="a condition that nobody has chosen"),
    ],
)
def test_what_a_node_gives_as_reasons(
    cordoned: bool,  # noqa: FBT001 - a parameter of the table
    annotations: dict[str, str],
    conditions: dict[str, Told],
    reasons: list[str],
) -> None:
    """As `sinfo -R` shows them."""
    found = of_node(
        cordoned=cordoned, annotations=annotations, conditions=conditions, chosen=["KernelDeadlock", "Ready"]
    )
    assert [cause.reason for cause in found] == reasons


def test_a_cause_stands_before_what_it_brings_about() -> None:
    """A person's words are what people see, not what follows from them."""
    conditions = {"Ready": Told("False"), "B": Told("True"), "A": Told("True")}
    node = of_node(cordoned=True, annotations={}, conditions=conditions, chosen=["A", "B"])
    found = strongest_first([of_pod("is gone"), released("scaling in"), *reversed(node)])
    assert [cause.key for cause in found] == [CORDONED, RELEASED, "condition/A", "condition/B", NOT_READY, "pod"]


def test_a_persons_words_are_followed_and_a_machines_are_not() -> None:
    """The kubelet's messages tell of seconds that have passed: each would be a write."""
    (cordoned,) = of_node(cordoned=True, annotations={REASON: "disk errors"}, conditions=GOOD)
    assert cordoned.stands_in("kurm: cordoned: disk errors")
    assert not cordoned.stands_in("kurm: cordoned")
    (unready,) = of_node(cordoned=False, annotations={}, conditions={"Ready": Told("False", "no sign for 7 s")})
    assert unready.stands_in("kurm: node not ready: no sign for 3 s")
    assert unready.stands_in("kurm: node not ready")
    assert not unready.stands_in("kurm: cordoned")


def test_a_reason_is_one_line() -> None:
    """Of a length that a table can show."""
    (cause,) = of_node(cordoned=True, annotations={REASON: "bad\n" * 1000}, conditions={})
    assert len(cause.reason) <= len("kurm: cordoned: ") + LONGEST
    assert "\n" not in cause.reason


@given(
    st.sampled_from(("", *KEYS)),
    st.frozensets(st.sampled_from(KEYS)),
    st.sampled_from(("", "inventory 7", "a [b] c", "[kurm: drained=pod]", "x [kurm: overridden=pod] y")),
)
def test_a_memory_is_read_as_it_was_written(drained_for: str, overridden: frozenset[str], before: str) -> None:
    """An administrator's words stay in front of it, and writing it twice is writing it once."""
    memory = Memory(drained_for, overridden)
    comment = memory.beside(before)
    assert Memory.of(comment) == memory
    assert memory.beside(comment) == comment
    if not before.startswith("[kurm"):
        assert comment.startswith(before)


@pytest.mark.parametrize("comment", ["", "inventory 7", "[kurm: ]", "[kurm: nonsense]", "[kurm: drained= x=y]"])
def test_a_comment_that_remembers_nothing(comment: str) -> None:
    """Nobody is asked to keep it as we wrote it."""
    assert Memory() == Memory.of(comment)
