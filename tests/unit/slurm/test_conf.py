"""Slurm's configuration syntax."""

import re

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from kurm.slurm.conf import Comment, Conf, ConfError, Include, Record, Setting, parse, render

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=12)
VALUES = TEXT.filter(lambda value: '"' not in value or not re.search(r'\s|^"[^"]*"$', value, re.ASCII))
SETTINGS = st.builds(Setting, KEYS.filter(lambda key: key.lower() not in {"name", "autodetect"}), VALUES)
RECORDS = st.builds(
    lambda kind, name, rest: Record(((kind, name), *rest)),
    st.sampled_from(["NodeName", "PartitionName", "NodeSet", "DownNodes", "Name"]),
    VALUES,
    st.lists(st.tuples(KEYS, VALUES), max_size=4).map(tuple),
)
COMMENTS = st.builds(Comment, st.one_of(st.just(""), TEXT.map(lambda text: f"#{text}".rstrip())))
INCLUDES = st.builds(Include, st.from_regex(r"[a-z/.#\\]{1,10}", fullmatch=True))
CONFS = st.builds(
    lambda lines: Conf(tuple(lines)), st.lists(st.one_of(SETTINGS, RECORDS, COMMENTS, INCLUDES), max_size=8)
)


@given(conf=CONFS)
def test_what_is_rendered_is_read_back(conf: Conf) -> None:
    """Every line of every kind, whatever its values hold."""
    assert parse(render(conf)) == conf


@given(text=st.text(st.sampled_from('aB1_=#\\" \t\nInclude '), max_size=60))
def test_whatever_is_read_is_rendered_to_the_same(text: str) -> None:
    """Reading, writing and reading again changes nothing; what cannot be read is a ConfError and nothing else."""
    try:
        conf = parse(text)
    except ConfError as error:
        event(f"refused on line {error.line}")
        return
    assert parse(render(conf)) == conf


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Key=value", "value"),
        ("kEY = value  ", "value"),
        ('Key="a b"', "a b"),
        ('Key=""', ""),
        ("Key=a # b", "a"),
        ("Key=a\\#b", "a#b"),
        ("Key=a\\\\b", "a\\b"),
        ("Key=a\\\nb", "ab"),
        ("Key=a\\  # why\nb", "ab"),
        ("Key=a\nKey=b", "b"),
        ('Key="a', '"a'),
        ('Key="a"b"', '"a"b"'),
        ("Key=a\\", "a"),
        ("Key=a=b", "a=b"),
        ("Key=a\r", "a"),
    ],
)
def test_a_value_is_what_slurm_reads(text: str, value: str) -> None:
    """The same cases are put to Slurm itself in the integration tests."""
    assert parse(text).get("Key") == value


def test_a_file_has_lines_of_four_kinds() -> None:
    """In their order, with the number of the line where each begins."""
    text = '# hello\n\nClusterName=x # why\nNodeName=n[1-3] CPUs=4 Reason="a b"\nInclude more.conf\nA=\\\nb\nC=d\n'
    conf = parse(text)
    assert conf.lines == (
        Comment("# hello"),
        Comment(""),
        Comment("# why"),
        Setting("ClusterName", "x"),
        Record((("NodeName", "n[1-3]"), ("CPUs", "4"), ("Reason", "a b"))),
        Include("more.conf"),
        Setting("A", "b"),
        Setting("C", "d"),
    )
    assert [line.line for line in conf.lines] == [1, 2, 3, 3, 4, 5, 6, 8]
    (record,) = conf.records("nodename")
    assert (record.kind, record.name, record.get("reason"), record.get("none")) == ("NodeName", "n[1-3]", "a b", None)


def test_a_setting_may_be_repeated() -> None:
    """The last is in force; of those that add up, all."""
    conf = parse("Prolog=a\nProlog=b\n")
    assert (conf.get("prolog"), conf.all("PROLOG"), conf.get("epilog")) == ("b", ("a", "b"), None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\nClusterName", "line 2, ClusterName: `Key=value` is wanted, not 'ClusterName'"),
        ("A=\n", "line 1, A: `Key=value` is wanted, not 'A='"),
        ("A=1 B=2", "line 1, A: a line of its own is wanted for 'B', which follows the value"),
        ("PartitionName=x Nodes", "line 1, Nodes: `Key=value` is wanted, not ' Nodes'"),
        ("A=1\n Include x", "line 2, Include: Include must begin its line, not ' Include x'"),
        ("A=\\\n\\\nB c", "line 1, c: `Key=value` is wanted, not ' c'"),
    ],
)
def test_an_error_names_line_key_and_why(text: str, sentence: str) -> None:
    """As a person would look for it."""
    with pytest.raises(ConfError) as refused:
        parse(text)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "line",
    [
        Setting("A", 'a "b'),
        Setting("A", "a\nb"),
        Setting("A b", "c"),
        Setting("", "c"),
        Comment("hello"),
        Comment("#\n"),
    ],
)
def test_what_has_no_text_is_refused(line: Setting | Comment) -> None:
    """Rather than rendered to what Slurm would read differently."""
    with pytest.raises(ConfError):
        render([line])
