"""Which clusters there are on this machine: one small file each, and the locks that keep two `kurm local` apart."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from kurm.local.errors import LocalError
from kurm.local.layout import RUN_ROOT, STATE_ROOT, Layout


class Record(msgspec.Struct, frozen=True):
    """What is written down of a cluster: enough to find all of it again after a crash."""

    name: str
    slot: int
    workers: int
    phase: Literal["starting", "up"]
    binaries: str = ""
    """The directory of the programs that it runs."""

    @property
    def layout(self) -> Layout:
        """Where everything of the cluster stands."""
        return Layout(self.name, self.slot, self.workers)


def read(name: str) -> Record | None:
    """Return the cluster's record, or None if there is no such cluster (or nothing was written of it)."""
    try:
        return msgspec.json.decode(_path(name).read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write(record: Record) -> None:
    """Write the record so that a crash leaves the old one or the new one."""
    path = _path(record.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(record))
    new.rename(path)


def names() -> list[str]:
    """Every cluster that left a trace on this machine."""
    return sorted(path.name for path in STATE_ROOT.glob("*") if path.is_dir())


def taken_slots() -> set[int]:
    """Return the slots of all clusters."""
    return {record.slot for name in names() if (record := read(name))}


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold the cluster's lock for the block; raise LocalError at once if another `kurm local` works on it.

    The lock is the kernel's and ends with its holder, however that ends.
    """
    path = RUN_ROOT / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            raise LocalError(
                f"another `kurm local` (process {pid}) is at work on cluster {name!r}: wait for it"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _path(name: str) -> Path:
    return STATE_ROOT / name / "cluster.json"
