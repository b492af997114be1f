"""A user's lines and ours."""

import pytest

from kurm.slurm.conf import ConfError, parse, render
from kurm.slurm.owned import LISTS, OWNED, REFUSED, OwnedError, check, join, merge


@pytest.mark.parametrize("key", OWNED)
def test_what_kurm_owns_is_refused_in_any_case(key: str) -> None:
    """With a sentence that names the field, the line, the key and the reason."""
    line = "Include x" if key == "Include" else f"{key.upper()}=x"
    with pytest.raises(OwnedError) as refused:
        check(f"# mine\nDebugFlags=Backfill\n{line}\n")
    assert str(refused.value) == f"spec.config.extra, line 3: {key} cannot be set here: {OWNED[key]}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "PreemptMode=SUSPEND,GANG",
            "x, line 1: PreemptMode=SUSPEND cannot be set here: a suspended job's CPUs are sold",
        ),
        ("preemptmode=gang", "x, line 1: preemptmode=gang cannot be set here: time slicing suspends jobs"),
        ("PrologFlags=Contain,NoHold", "x, line 1: PrologFlags=NoHold cannot be set here: "),
        ("AuthAltParameters=max_token_lifespan=9,jwt_key=/x", "x, line 1: AuthAltParameters=jwt_key=/x cannot be set"),
        (
            "CommunicationParameters=disable_http",
            "x, line 1: CommunicationParameters=disable_http cannot be set here: ",
        ),
    ],
)
def test_a_part_of_a_list_may_be_refused(text: str, sentence: str) -> None:
    """The list as such is the user's to extend."""
    with pytest.raises(OwnedError) as refused:
        check(text, field="x")
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize("text", ["PrologTimeout=10", "ReconfigFlags=KeepPartInfo", "schedulerparameters=x,DEFER"])
def test_what_would_break_the_placing_of_pods_is_refused_where_there_is_any(text: str) -> None:
    """Elsewhere it is the user's, as it always was."""
    with pytest.raises(OwnedError, match=r"spec\.config\.extra, line 1: .* cannot be set here: "):
        check(text, scheduler=True)
    assert render(check(text)) == f"{text}\n"
    assert render(check("SchedulerParameters=defer_batch", scheduler=True)) == "SchedulerParameters=defer_batch\n"


def test_any_other_line_passes() -> None:
    """Also a key that nobody knows: Slurm will tell."""
    text = "PreemptMode=REQUEUE\nSlurmctldParameters=user_resv_delete\nNoSuchKey=1\n"
    assert render(check(text)) == text
    with pytest.raises(ConfError, match="line 1, hello"):
        check("hello")


@pytest.mark.parametrize(
    ("ours", "extra", "merged"),
    [
        ("A=1\nB=2\n", "b=3\nC=4\n", "A=1\nB=3\nC=4\n"),
        ("SchedulerParameters=bf_interval=1,defer\n", "schedulerparameters=bf_window=9,bf_interval=30\n",
         "SchedulerParameters=bf_interval=30,defer,bf_window=9\n"),
        ("PrologFlags=Contain\n", "PrologFlags=X11\n", "PrologFlags=Contain,X11\n"),
        ("NodeSet=a Feature=b\n", "# mine\nDebugFlags=Gres\n", "NodeSet=a Feature=b\n# mine\nDebugFlags=Gres\n"),
        ("SlurmctldParameters=enable_configless\n", "SlurmctldParameters=a\nSlurmctldParameters=b\n",
         "SlurmctldParameters=enable_configless,a,b\n"),
    ],
)  # fmt: skip
def test_lines_are_merged(ours: str, extra: str, merged: str) -> None:
    """Lists grow, other settings give way, the rest follows."""
    assert render(merge(parse(ours), check(extra))) == merged


def test_a_part_replaces_one_of_its_name() -> None:
    """Case is no difference, and an empty part is none."""
    assert join("a=1,B", "b, A=2,,c") == "A=2,b,c"


def test_the_tables_agree() -> None:
    """What has refused parts is a list, and nothing is both owned and a list."""
    assert {key.casefold() for key in REFUSED} <= LISTS
    assert LISTS.isdisjoint(key.casefold() for key in OWNED)
