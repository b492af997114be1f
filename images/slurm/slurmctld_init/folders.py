"""Configurations as folders: what the kubelet projects, what slurmctld runs from, and the last good one.

In a configless cluster slurmctld hands out the files beside its slurm.conf, whenever a slurmd asks. So it never runs
from /etc/slurm, where a file appears before anybody has tried it, but from a copy: a link that is turned to a
configuration only after its trial. The copies are in the state volume, because the last good one must outlive the pod.
Keys are not copied: they stay in memory, where their Secret is mounted.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

HASH = "kurm-hash"
"""File (and key of the ConfigMap) with the hash of all others."""
KEYS = "*.key"
"""Files of the Secret that is projected into the same folder."""
_PREFIX = "of-"


class TornError(Exception):
    """The configuration was replaced while it was read; a new one is there."""


@dataclass(frozen=True)
class Source:
    """What the kubelet projects. It puts all files of a change in place at once, by turning the link `..data`."""

    folder: Path

    def hash(self) -> str:
        """Return the hash of what is projected now; empty if there is none, as in a cluster without an operator."""
        try:
            return (self.folder / HASH).read_text().strip()
        except FileNotFoundError:
            return ""

    def copy(self, folder: Path) -> str:
        """Copy all files but the keys into a new folder, and return their hash. Raises TornError."""
        data = self.folder / "..data"
        origin = data.resolve() if data.exists() else self.folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            for path in sorted(origin.iterdir()):
                # A key of a ConfigMap has no "..", and no file beside the projected ones is meant.
                if path.is_file() and not path.name.startswith("..") and not path.match(KEYS):
                    shutil.copy(path, folder / path.name)
                    _sync(folder / path.name)
            return (folder / HASH).read_text().strip()
        except FileNotFoundError as error:
            raise TornError(str(error)) from error


@dataclass(frozen=True)
class Store:
    """Our copies: a folder for each hash, and links to those that matter. Only one of us is there at a time."""

    folder: Path

    @property
    def current(self) -> Path:
        """The link to what slurmctld runs from."""
        return self.folder / "current"

    @property
    def good(self) -> str:
        """The hash of the last configuration that slurmctld is known to have taken; empty if there is none."""
        link = self.folder / "last-good"
        return link.readlink().name.removeprefix(_PREFIX) if link.is_dir() else ""

    def take(self, source: Source) -> str:
        """Keep a copy of what is projected, and return its hash. Raises TornError, OSError."""
        new = self.folder / "new"
        found = source.copy(new)
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,128}", found):
            raise ValueError(f"{HASH} holds {found!r}, which is no name for a folder: letters and digits are allowed")
        if not (self.of(found).exists() and found == self.good):
            # The last good one stays as it is: it is what has been tried.
            shutil.rmtree(self.of(found), ignore_errors=True)
            new.rename(self.of(found))
            _sync(self.folder)
        return found

    def of(self, found: str) -> Path:
        """Return the folder of a hash."""
        return self.folder / f"{_PREFIX}{found}"

    def use(self, found: str) -> None:
        """Have slurmctld run from this one, from its next start or reconfigure on."""
        self._turn(self.current, found)

    def keep(self, found: str) -> None:
        """Call this one the last good one, and forget all others."""
        self._turn(self.folder / "last-good", found)
        for path in self.folder.iterdir():
            if not path.is_symlink() and path != self.of(found):
                shutil.rmtree(path, ignore_errors=True)

    def _turn(self, link: Path, found: str) -> None:
        new = link.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.symlink_to(self.of(found).name)
        new.replace(link)
        _sync(self.folder)


def _sync(path: Path) -> None:
    """Have the disk hold it: a power cut must not leave an empty file under the name of a good one."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
