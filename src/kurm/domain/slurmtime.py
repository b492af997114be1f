"""Times as people write them for Slurm. Pure."""

import re

from kurm.domain.jobrequest import UNLIMITED
from kurm.domain.spec import DURATION, seconds

ALLOWED = "minutes, [D-]HH:MM:SS or D-HH as in sbatch --time, a duration as 90m, 1h30m or 7d, or UNLIMITED"
"""What `minutes` takes, in words."""

_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?", re.ASCII)
_ENDLESS = frozenset({"UNLIMITED", "INFINITE"})


def minutes(text: str) -> int:
    """Return a time limit in minutes, rounded up. Raises ValueError for what is none.

    Slurm's forms are those of sbatch(1): a number alone is minutes, two are MM:SS, three HH:MM:SS, and behind D- the
    first is hours. Beyond them a Duration, as our resources have it.
    """
    if text.upper() in _ENDLESS:
        return UNLIMITED
    found = seconds(text) if re.fullmatch(DURATION, text) else _clock(text)
    if not found or found >= UNLIMITED * 60:
        raise ValueError(f"{text!r} is no time limit")
    return -(-found // 60)


def _clock(text: str) -> int:
    """Return Slurm's own forms in seconds; 0 for what is none."""
    found = _CLOCK.fullmatch(text)
    if not found:
        return 0
    days, *rest = found.groups()
    numbers = [int(number) for number in rest if number is not None]
    if days is not None:
        hours, minute, second = (*numbers, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minute) * 60 + second
    whole = {1: (0, *numbers, 0), 2: (0, *numbers), 3: tuple(numbers)}[len(numbers)]
    return (whole[0] * 60 + whole[1]) * 60 + whole[2]
