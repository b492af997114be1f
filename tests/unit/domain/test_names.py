"""Names from labels: a table, and for any two texts that they are valid, lasting and two."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.names import LENGTH, name

RESERVED = ("root", "unlabelled")


@pytest.mark.parametrize("value", ["eu1", "a.b-c_d", "007", "true", "Rack-7", "x" * LENGTH])
def test_the_value_of_a_label_is_its_own_name(value: str) -> None:
    """Kubernetes lets nothing else into one."""
    assert name(value, reserved=RESERVED) == value


@pytest.mark.parametrize("value", ["root", "a,b", "[1-3]", "a\nSwitchName=x", "-", "é", "x" * 64, "eu1-0123456789"])
def test_any_other_gets_a_hash(value: str) -> None:
    """Reserved words, syntax, what is too long, and what looks as if it had a hash."""
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{10}", name(value, reserved=RESERVED))


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_values_never_have_one_name(one: str, other: str) -> None:
    """Also if one is what the other was made: no value can be chosen to have another's name."""
    first, second = name(one, reserved=RESERVED), name(other, reserved=RESERVED)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", first)
    assert (first == second) == (one == other)
    assert name(first, reserved=RESERVED) != first or first == one
    assert first not in RESERVED
