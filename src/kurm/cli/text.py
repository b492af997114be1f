"""How things look on a terminal, and in a pipe: whole lines, no colours, nothing cut off."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kurm.domain.diagnosis import Problem, Weight

PIPE_WIDTH = 10_000
"""Columns where nobody looks: a line stays a line for grep and awk."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_COLOURS = {Weight.OUTAGE: "bold red", Weight.STUCK: "red", Weight.DEGRADED: "red", Weight.COMING: "yellow"}
_GOOD = frozenset({"True", "InService", "up", "Ready", "Applied"})
_BAD = frozenset({"False", "Unknown", "Down", "NotReady", "Stuck", "down"})


def console(file: TextIO | None = None) -> Console:
    """Return where answers are printed: standard output."""
    out = file or sys.stdout
    return Console(file=out, highlight=False, width=None if out.isatty() else PIPE_WIDTH)


def plain(words: str) -> str:
    """Return words of others in one line, without what would move a cursor or change a colour."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in words).split())


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago something was, as kubectl has it: 45s, 12m, 3h, 20d."""
    if moment is None:
        return ""
    seconds = max(int(((now or datetime.now(UTC)) - moment).total_seconds()), 0)
    return next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= size), f"{seconds}s")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table in the house's style."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(_cell(str(value)) for value in row))
    return made


def _cell(value: str) -> Text:
    words = plain(value)
    return Text(words, style="green" if words in _GOOD else "red" if words in _BAD else "")


def line(out: Console, words: str, style: str = "") -> None:
    """Print one line, whole."""
    out.print(Text(words, style=style), soft_wrap=True)


def problem_lines(out: Console, problems: Sequence[Problem]) -> None:
    """Print problems, each as one sentence and the command to type below it."""
    for number, problem in enumerate(problems, 1):
        words = Text(f"{number:>3}  ")
        words.append(plain(problem.subject), style=_COLOURS.get(problem.weight, ""))
        words.append(f" {plain(problem.says)}")
        out.print(words, soft_wrap=True)
        line(out, f"       {problem.next}", "cyan")
