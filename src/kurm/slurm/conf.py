"""Slurm's configuration syntax: slurm.conf, cgroup.conf and gres.conf as ordered lines.

A file is a `Conf` of lines: comments, settings (`Key=value`), records (a line of several `Key=value` pairs: nodes,
partitions and the like) and includes. `parse` reads what Slurm's own parser reads (src/common/parse_config.c of Slurm
26.05): keys are case-insensitive, a value with white space stands in double quotes, `#` begins a comment wherever it
is not escaped, a backslash at the end of a line continues it and elsewhere takes the next letter as it is. Which keys
exist is Slurm's affair: an unknown one is kept.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kurm.slurm.errors import SlurmError

RECORDS = frozenset({"nodename", "nodeset", "partitionname", "downnodes", "poweraction", "name", "autodetect"})
"""Keys (in lower case) that begin a record: slurm.conf(5) and, the last two, gres.conf(5). Their lines may repeat."""
REPEATED = frozenset({"prolog", "epilog", "prologslurmctld", "epilogslurmctld", "slurmctldhost"})
"""Settings that add to one another when they are repeated; of any other the last line is in force."""

SPACE = " \t\r\v\f"
"""White space to Slurm: ASCII's, in one line."""
# parse_config.c, keyvalue_pattern. Slurm's grammar has more operators than "=", and no use for them in these files.
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*=\s*(?:"([^"]*)"(?=\s|$)|(\S+))', re.ASCII)
_INCLUDE = re.compile(r"include\s+(\S+)\s*", re.ASCII | re.IGNORECASE)
_COMMENT = re.compile(r"((?:[^#\\]|\\.|\\$)*)(#.*)?", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9_.]+")


class ConfError(SlurmError, ValueError):
    """Text that Slurm's parser would not take. `line` counts from 1; `key` is empty where none can be told."""

    def __init__(self, line: int, key: str, why: str) -> None:
        super().__init__(f"line {line}{f', {key}' if key else ''}: {why}")
        self.line, self.key, self.why = line, key, why


@dataclass(frozen=True)
class Comment:
    """A line that says nothing to Slurm: `text` begins with `#`, or is empty."""

    text: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Include:
    """Another file in this place. Slurm finds a relative path beside the file that names it."""

    path: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Setting:
    """`Key=value`. `line` is where it stood, 0 if it was made here."""

    key: str
    value: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Record:
    """Several pairs that describe one thing; the first pair says what it is and which one."""

    fields: tuple[tuple[str, str], ...]
    line: int = field(default=0, compare=False)

    @property
    def kind(self) -> str:
        """The first key, as it was written: `NodeName`, `PartitionName`."""
        return self.fields[0][0]

    @property
    def name(self) -> str:
        """The first value: which one it is. A host list for nodes."""
        return self.fields[0][1]

    def get(self, key: str) -> str | None:
        """Return the value of a key, None if the record has none; of several the last."""
        return next((value for name, value in reversed(self.fields) if same(name, key)), None)


Line = Comment | Include | Setting | Record


@dataclass(frozen=True)
class Conf:
    """A configuration file."""

    lines: tuple[Line, ...] = ()

    def get(self, key: str) -> str | None:
        """Return the value of a setting, None if there is none; of several the last, which is in force."""
        return next(reversed(self.all(key)), None)

    def all(self, key: str) -> tuple[str, ...]:
        """Return the values of a setting that may be repeated, in their order."""
        return tuple(setting.value for setting in self.settings() if same(setting.key, key))

    def settings(self) -> Iterator[Setting]:
        """Yield the settings in their order."""
        return (line for line in self.lines if isinstance(line, Setting))

    def records(self, kind: str) -> tuple[Record, ...]:
        """Return the records of a kind (`PartitionName`), in their order."""
        return tuple(line for line in self.lines if isinstance(line, Record) and same(line.kind, kind))


def same(one: str, other: str) -> bool:
    """Whether two keys are the same to Slurm."""
    return one.casefold() == other.casefold()


def parse(text: str) -> Conf:
    """Read a file. Raises ConfError for the first line that Slurm would not take for its form."""
    lines: list[Line] = []
    for number, logical, comments in _logical_lines(text):
        empty = not logical.strip(SPACE)
        lines += [Comment(comment, number) for comment in comments or ([""] if empty and text else [])]
        if not empty:
            lines.append(_line(number, logical))
    return Conf(tuple(lines))


def render(conf: Conf | Iterable[Line]) -> str:
    """Return the text of a file; parsed again it gives the same lines. Raises ConfError for what has no text."""
    lines = conf.lines if isinstance(conf, Conf) else conf
    return "".join(f"{render_line(line)}\n" for line in lines)


def render_line(line: Line) -> str:
    """Return one line's text, without the newline. Raises ConfError for what has no text."""
    match line:
        case Comment():
            if (line.text and not line.text.startswith("#")) or "\n" in line.text:
                raise ConfError(line.line, "", f"a comment is one line and begins with '#', not {line.text!r}")
            return line.text
        case Include():
            return f"Include {_escaped(line.path)}"
        case Setting():
            return _pair(line.key, line.value, line.line)
        case Record():
            return " ".join(_pair(key, value, line.line) for key, value in line.fields)


def _logical_lines(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each logical line with its first line's number and its comments; a continuation is joined as it stands."""
    start, whole, comments = 0, "", list[str]()
    for number, raw in enumerate(text.removesuffix("\n").split("\n"), 1):
        found = _COMMENT.fullmatch(raw)
        content, comment = (found[1], found[2]) if found else (raw, None)
        start = start or number
        comments += [comment.rstrip()] if comment else []
        # Slurm takes the comment away first, so a backslash before it continues the line too.
        if _CONTINUED.search(content):
            whole += _CONTINUED.sub(r"\1", content)
            continue
        yield start, whole + content, comments
        start, whole, comments = 0, "", []
    if start:
        yield start, whole, comments


def _line(number: int, text: str) -> Line:
    text = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
    if found := _INCLUDE.fullmatch(text):
        return Include(found[1], number)
    pairs: list[tuple[str, str]] = []
    end = 0
    while text[end:].strip(SPACE):
        found = _PAIR.match(text, end)
        if not found:
            key = re.match(r"\s*([A-Za-z0-9_.]*)", text[end:])
            wanted = "Include must begin its line" if _INCLUDE.fullmatch(text.strip(SPACE)) else "`Key=value` is wanted"
            raise ConfError(number, key[1] if key else "", f"{wanted}, not {text[end:].rstrip(SPACE)!r}")
        pairs.append((found[1], found[2] if found[2] is not None else found[3]))
        end = found.end()
    name, value = pairs[0]
    if name.casefold() in RECORDS:
        return Record(tuple(pairs), number)
    if len(pairs) > 1:
        raise ConfError(number, name, f"a line of its own is wanted for {pairs[1][0]!r}, which follows the value")
    return Setting(name, value, number)


def _pair(key: str, value: str, line: int) -> str:
    if not _KEY.fullmatch(key):
        raise ConfError(line, key, f"a key is made of letters, digits, '_' and '.', not {key!r}")
    if "\n" in value or "\0" in value:
        raise ConfError(line, key, f"a value is one line of text, not {value!r}")
    quoted = not value or bool(re.search(r'\s|^"[^"]*"$', value, re.ASCII))
    if quoted and '"' in value:
        raise ConfError(line, key, f"a value with white space cannot hold a double quote: {value!r}")
    text = _escaped(value)
    return f'{key}="{text}"' if quoted else f"{key}={text}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("#", "\\#")
