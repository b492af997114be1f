"""Where servers under test keep what they write: in memory, if there is room.

A virtual machine's disk may cost it its cores: 2 GB written, or given back (`discard`), took 15 to 80 % of both away
for 20 s (steal in /proc/stat), and what was measured or waited for then told of nothing else.
"""

import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - for servers of ours, below a folder that mkdtemp makes
ROOM = 4 << 30
"""Bytes that have to be free: the integration tests left 1.3 GB there."""


def folder() -> str:
    """Return the folder in which to make temporary ones."""
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free >= ROOM:
        return str(SHARED_MEMORY)
    return tempfile.gettempdir()
