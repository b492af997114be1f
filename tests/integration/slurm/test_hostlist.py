"""Host lists as Slurm itself reads and writes them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.slurm.lab import Lab
from kurm.slurm.hostlist import HostlistError, compress, expand

NAMES = st.sets(st.from_regex(r"[a-z][a-z0-9.-]{0,8}[0-9]{0,4}", fullmatch=True), min_size=1, max_size=30)
SLOW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@SLOW
@given(names=NAMES)
def test_slurm_reads_what_we_compress(slurm_lab: Lab, names: set[str]) -> None:
    """Whatever the names are, `scontrol show hostnames` gives them back."""
    (expression,) = compress(names)
    shown = slurm_lab.command("scontrol", "show", "hostnames", expression).split()
    assert set(shown) == names
    assert list(expand(expression)) == shown


@SLOW
@given(names=NAMES)
def test_we_are_never_longer_than_slurm(slurm_lab: Lab, names: set[str]) -> None:
    """And we read what Slurm writes."""
    (ours,) = compress(names)
    theirs = slurm_lab.command("scontrol", "show", "hostlistsorted", ",".join(sorted(names))).strip()
    assert len(ours) <= len(theirs)
    assert set(expand(theirs)) == names


@pytest.mark.parametrize(
    "expression",
    ["n[1-3]", "n[01-03,7]", "n[1-2,2-3]", "a[1-2]b[1-2]", "n[1-3]-[1-2]", "n1,,n2", ",n1,", "n[5]", "n[1-03]", "[1-3]",
     "n[9-11],n[09-11]", "n[1-3]x", "n-1,n-2", "n[00-1]"],
)  # fmt: skip
def test_both_read_the_same(slurm_lab: Lab, expression: str) -> None:
    """The same names in the same order."""
    assert list(expand(expression)) == slurm_lab.command("scontrol", "show", "hostnames", expression).split()


@pytest.mark.parametrize("expression", ["n[3-1]", "n[1", "n[]", "n[1,,2]", "n[a]", "n[1--2]", "n[1-70000]", "n[1:2]"])
def test_both_refuse_the_same(slurm_lab: Lab, expression: str) -> None:
    """What Slurm does not take we do not send."""
    assert slurm_lab.command("scontrol", "show", "hostnames", expression) == ""  # it complains, and exits with 0
    with pytest.raises(HostlistError):
        expand(expression)
