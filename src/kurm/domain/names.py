"""Names for Slurm from what stands in labels: always valid, always the same, and never one name for two texts. Pure.

A label's value is what somebody has typed. In a file of Slurm's a comma, a bracket or a line's end would be syntax, so
a name is the value itself only where that is letters, digits, `_`, `.` and `-`. Any other gets a hash, as does one that
looks as if it had one: so no value can be chosen to have another's name.
"""

import re
from collections.abc import Collection
from hashlib import blake2b

LENGTH = 63
"""Most letters of a name: those of a label's value (Kubernetes, "Labels and Selectors")."""

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
_HASHED = re.compile(r"-[0-9a-f]{10}", re.ASCII)
_HASH = 11
"""Letters that a hash takes, with its hyphen."""


def name(value: str, *, reserved: Collection[str] = ()) -> str:
    """Return the name for a value that is not empty; none of `reserved`, and at most LENGTH letters."""
    whole = _SAFE.fullmatch(value) and len(value) <= LENGTH and value not in reserved
    return value if whole and not _HASHED.fullmatch(value[-_HASH:]) else hashed(value, LENGTH)


def hashed(text: str, length: int) -> str:
    """Return so many letters that a person may recognise the text by, with a hash that no other text has."""
    start = re.sub(r"[^A-Za-z0-9_.-]+", "_", text, flags=re.ASCII)[: length - _HASH].strip("_.-") or "x"
    return f"{start}-{blake2b(text.encode(errors='surrogatepass'), digest_size=5).hexdigest()}"
