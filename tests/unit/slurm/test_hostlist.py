"""Host lists: what they hold, and that nothing is lost on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.slurm.hostlist import RANGE, HostlistError, compress, expand

NAMES = st.sets(st.from_regex(r"[a-z]{0,2}[a-z0-9.-]{0,6}[a-z-]?[0-9]{0,5}", fullmatch=True).filter(bool), max_size=40)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", ""),
        ("x", "x"),
        ("n[1-3,07-09],gpu1", "n1 n2 n3 n07 n08 n09 gpu1"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[09-11]", "n09 n10 n11"),
        ("n[1-03]", "n1 n2 n3"),
        ("a[1-2]b[1-2]", "a1b1 a1b2 a2b1 a2b2"),
        ("n[1-2]x", "n1x n2x"),
        ("n1,,n2,", "n1 n2"),
        ("n[1-2,2]", "n1 n2 n2"),
    ],
)
def test_an_expression_stands_for_names(expression: str, names: str) -> None:
    """In the order of the expression, padded as its first number is."""
    assert expand(expression) == tuple(names.split())


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ("n3 n1 n2", "n[1-3]"),
        ("n01 n02 n1 n2", "n[1-2,01-02]"),
        ("n9 n10 n11", "n[9-11]"),
        ("n09 n10", "n[09-10]"),
        ("n9 n09 n10 n11", "n[9,09-11]"),
        ("n099 n100", "n[099-100]"),
        ("a a1 a2", "a,a[1-2]"),
        ("y x", "x,y"),
        ("a1b1 a1b2 a2b1", "a1b[1-2],a2b1"),
        ("1 2", "[1-2]"),
        ("n1234567890123456789 n1234567890123456790", "n1234567890123456789,n1234567890123456790"),
    ],
)
def test_names_are_compressed_to_the_shortest(names: str, expression: str) -> None:
    """Whatever their order is."""
    assert compress(names.split()) == (expression,)


def test_no_names_are_no_expression() -> None:
    """An empty host list would mean another thing to each of Slurm's calls."""
    assert compress([]) == ()


@given(names=NAMES)
def test_nothing_is_lost_and_nothing_comes_twice(names: set[str]) -> None:
    """Expanding what was compressed gives the names."""
    expanded = [name for expression in compress(names) for name in expand(expression)]
    assert sorted(expanded) == sorted(names)


@given(names=NAMES, limit=st.integers(20, 60))
def test_a_limit_is_kept_and_loses_nothing(names: set[str], limit: int) -> None:
    """Each piece is short enough, and together they are all."""
    pieces = compress(names, limit=limit)
    assert all(len(piece) <= limit for piece in pieces)
    assert sorted(name for piece in pieces for name in expand(piece)) == sorted(names)


def test_a_range_is_no_longer_than_slurm_takes() -> None:
    """More than 65,536 names in a row become two ranges."""
    (expression,) = compress(f"n{number}" for number in range(RANGE + 1))
    assert expression == f"n[0-{RANGE - 1},{RANGE}]"


@pytest.mark.parametrize(
    "expression", ["n[3-1]", "n[1", "n[1]]", "n[[1]]", "n[]", "n[1,,2]", "n[a]", "n 1", "n[0-65536]"]
)
def test_what_slurm_refuses_is_refused(expression: str) -> None:
    """With a sentence that shows it."""
    with pytest.raises(HostlistError, match=r"^host list '"):
        expand(expression)


@pytest.mark.parametrize(
    "expression", ["n[0-65535][0-65535]", f"n[{','.join(['0-65535'] * 200)}]", ",".join(["n[0-65535]"] * 3)]
)
def test_what_would_be_billions_of_names_is_refused(expression: str) -> None:
    """Before there is a single one: who can write a line of a log must not fill our memory."""
    with pytest.raises(HostlistError, match="stands for more than 131072 names"):
        expand(expression)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """A comma in a name would make two of it."""
    with pytest.raises(HostlistError, match="host name"):
        compress([name])


def test_a_name_longer_than_the_limit_is_refused() -> None:
    """It cannot be split."""
    with pytest.raises(HostlistError, match="longer than 5 characters"):
        compress(["abcdef"], limit=5)
