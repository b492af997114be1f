"""Slurm's host list expressions: `n[1-3,07-12],gpu1` for many names at once.

The grammar is the one of Slurm's src/common/hostlist.c as `scontrol show hostnames` applies it: names separated by
commas, and in brackets numbers and ranges of numbers. A range's first number gives the width to which all of it are
padded with zeros. Several brackets in one name multiply. A name may bear its numbers anywhere, but only those at its
end are compressed here, as Slurm's own tools do.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from kurm.slurm.errors import SlurmError

RANGE = 64 * 1024
"""Most names that Slurm takes in one range (MAX_RANGE in hostlist.c)."""
MOST = 128 * 1024
"""Most names that an expression may stand for: twice as many as there can be nodes (MaxNodeCount, 65,533). A user can
write a line of slurmctld's log, and n[0-65535][0-65535] is four billion."""
LIMIT = 50_000
"""Characters of one expression. A request with 208,000 was seen to pass; Slurm repeats it in its errors and its log."""
# Slurm reads numbers as unsigned long: longer ones would come back as others. Eighteen digits always fit.
_DIGITS = 18
_NUMBERED = re.compile(rf"(.*?)([0-9]{{1,{_DIGITS}}})", re.DOTALL)
_FORBIDDEN = re.compile(r"[\[\],\s]")


class HostlistError(SlurmError, ValueError):
    """An expression that Slurm would not take; the message shows it and says why."""


def expand(expression: str) -> tuple[str, ...]:
    """Return the names that an expression stands for, in its order, repeats included.

    Raises HostlistError if Slurm would not take it, or if there are more than `MOST`.
    """
    found: list[str] = []
    for item in _items(expression):
        if item:
            found.extend(_names(item, expression, MOST - len(found)))
    return tuple(found)


def compress(names: Iterable[str], *, limit: int = LIMIT) -> tuple[str, ...]:
    """Return the shortest expressions for a set of names, each at most `limit` characters long; () for no names.

    The order is that of names and numbers, not the given one, so equal sets give equal text. Raises HostlistError for a
    name that an expression cannot hold, or that alone is longer than the limit.
    """
    expressions: list[str] = []
    for prefix, ranges in _grouped(sorted(set(names))):
        for piece in _pieces(prefix, ranges, limit):
            if expressions and len(expressions[-1]) + 1 + len(piece) <= limit:
                expressions[-1] += f",{piece}"
            else:
                expressions.append(piece)
    return tuple(expressions)


def _items(expression: str) -> Iterator[str]:
    """Split at the commas that stand outside of brackets."""
    start = depth = 0
    for index, letter in enumerate(expression):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in {0, 1}:
            raise HostlistError(f"host list {expression!r}: brackets must be closed, and cannot stand in one another")
        if letter == "," and depth == 0:
            yield expression[start:index]
            start = index + 1
    if depth:
        raise HostlistError(f"host list {expression!r}: a bracket is not closed")
    yield expression[start:]


def _names(item: str, expression: str, most: int) -> Iterator[str]:
    """Yield the names of one item: text and brackets by turns, the last bracket counting fastest."""
    parts = re.split(r"\[([^]]*)\]", item)
    if any(_FORBIDDEN.search(text) for text in parts[::2]):
        raise HostlistError(f"host list {expression!r}: a name holds no white space")
    ranges = [list(_numbers(text, expression)) for text in parts[1::2]]
    if math.prod(sum(len(numbers) for numbers, _ in one) for one in ranges) > most:
        raise HostlistError(f"host list {expression[:60]!r} stands for more than {MOST} names")
    numbers = [[f"{number:0{width}d}" for numbers, width in one for number in numbers] for one in ranges]
    choices = [[text] if index % 2 == 0 else numbers[index // 2] for index, text in enumerate(parts)]
    return map("".join, itertools.product(*choices))


def _numbers(bracket: str, expression: str) -> Iterator[tuple[range, int]]:
    """Yield the numbers of a bracket, and to how many digits they are padded."""
    for part in bracket.split(","):
        found = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}})(?:-([0-9]{{1,{_DIGITS}}}))?", part)
        if not found:
            raise HostlistError(f"host list {expression!r}: in brackets stand numbers and ranges as 1-3, not {part!r}")
        low, high = int(found[1]), int(found[2] or found[1])
        if not 0 <= high - low < RANGE:
            raise HostlistError(f"host list {expression!r}: the range {part} must rise, by less than {RANGE}")
        yield range(low, high + 1), len(found[1])


def _grouped(names: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each prefix with its ranges as text ("1-3", "07"), in order; a name without a number has no range."""
    numbers: dict[str, list[str]] = {}
    for name in names:
        if not name or _FORBIDDEN.search(name):
            raise HostlistError(f"host name {name!r}: it must not be empty, nor hold brackets, commas or white space")
        found = _NUMBERED.fullmatch(name)
        # A longer run of digits would leave some in the prefix, and Slurm would read them all as one number.
        if found and not found[1][-1:].isdigit():
            numbers.setdefault(found[1], []).append(found[2])
        else:
            numbers.setdefault(name, []).insert(0, "")
    for prefix, texts in sorted(numbers.items()):
        if texts[0] == "":
            yield prefix, []
        if ranges := list(_ranges(filter(None, texts))):
            yield prefix, ranges


def _ranges(texts: Iterable[str]) -> Iterator[str]:
    """Yield ranges over numbers of any widths: 9 goes on with 10, and so does 09; 1 does not go on with 02."""
    runs: dict[str, list[str]] = {}  # by the number that would continue the run
    done: list[list[str]] = []
    for text in sorted(texts, key=lambda text: (int(text), len(text))):
        run = runs.pop(text, None)
        if run is None or len(run) == RANGE:
            run = []
            done.append(run)
        run.append(text)
        # A run's width is its first number's. If two runs wait for the same number (9 and 09, for 10), either will do.
        runs[f"{int(text) + 1:0{len(run[0])}d}"] = run
    return (run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in done)


def _pieces(prefix: str, ranges: list[str], limit: int) -> Iterator[str]:
    """Yield `prefix[ranges]`, in as many pieces as the limit needs."""
    waiting: list[str] = []
    length = 0
    for part in ranges or [""]:
        if waiting and len(prefix) + len("[,]") + length + len(part) > limit:
            yield _piece(prefix, waiting, limit)
            waiting, length = [], 0
        length += len(part) + bool(waiting)
        waiting.append(part)
    yield _piece(prefix, waiting, limit)


def _piece(prefix: str, ranges: list[str], limit: int) -> str:
    alone = len(ranges) == 1 and "-" not in ranges[0]
    piece = prefix + ranges[0] if alone else f"{prefix}[{','.join(ranges)}]"
    if len(piece) > limit:
        raise HostlistError(f"host list {piece!r}: it is longer than {limit} characters and cannot be split")
    return piece
