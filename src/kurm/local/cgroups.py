"""The control groups that a cluster's processes live in, by which they are found and ended.

With cgroup v1 each controller is a hierarchy of its own and a group is one directory in each of them; with v2 there
is one hierarchy. All processes of a machine of the cluster are below its group: what `down` has to end is what is in
there, whoever started it, also when the `kurm` that started it was killed before it could write anything down.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kurm.local.errors import LocalError

# What the kubelet, containerd and runc cannot do without.
NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio")
NEEDED_UNIFIED = ("cpu", "cpuset", "memory", "pids", "io")
POLL = 0.05


@dataclass(frozen=True)
class Cgroups:
    """The hierarchies of this machine, by controller ("" for cgroup v2's only one)."""

    roots: dict[str, Path]

    @property
    def unified(self) -> bool:
        """Whether this machine has cgroup v2 alone."""
        return "" in self.roots

    @property
    def tracking(self) -> Path:
        """The hierarchy by which processes are found."""
        return self.roots["" if self.unified else "pids"]

    def make(self, path: str) -> None:
        """Make the group `path` in every hierarchy, ready for processes."""
        for controller, root in self.roots.items():
            (root / path).mkdir(parents=True, exist_ok=True)
            above = root
            for part in Path(path).parts:
                if controller == "cpuset":
                    # A new cpuset is empty, and no process may join an empty one.
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (above / part / name).write_text((above / name).read_text())
                elif self.unified:
                    (above / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED_UNIFIED))
                above /= part

    def pids(self, path: str) -> set[int]:
        """Every process in the group and below it, in any hierarchy."""
        found: set[int] = set()
        for group in self._groups(path):
            try:
                found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
            except (FileNotFoundError, OSError):
                continue  # it went away while we looked
        return found

    def kill(self, path: str, deadline: float = 30.0) -> None:
        """End every process of the group and wait until none is left; raise LocalError after `deadline` seconds."""
        end = time.monotonic() + deadline
        while pids := self.pids(path):
            if time.monotonic() > end:
                raise LocalError(
                    f"processes {sorted(pids)} of cgroup {path} did not end within {deadline:.0f} s of SIGKILL"
                )
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(POLL)

    def remove(self, path: str, deadline: float = 10.0) -> None:
        """Remove the group and all below it; raise LocalError if the kernel holds one for `deadline` seconds.

        The kernel answers "busy" for a moment after the last process of a group has ended.
        """
        end = time.monotonic() + deadline
        while groups := list(self._groups(path)):
            for group in reversed(groups):
                try:
                    group.rmdir()
                except FileNotFoundError:
                    continue
                except OSError as refused:
                    if time.monotonic() > end:
                        raise LocalError(f"cgroup {group} cannot be removed: {refused.strerror}") from refused
                    time.sleep(POLL)
                    break

    def remove_if_empty(self, path: str) -> None:
        """Remove a group that others may still use, if none does."""
        for root in self.roots.values():
            with contextlib.suppress(OSError):
                (root / path).rmdir()

    def _groups(self, path: str) -> Iterator[Path]:
        """Yield the group's directories in all hierarchies, each before those below it."""
        for root in set(self.roots.values()):
            for directory, _, _ in os.walk(root / path):
                yield Path(directory)


def of_this_machine(mountinfo: str | None = None) -> Cgroups:
    """Read which hierarchies are mounted; raise LocalError naming the controllers that are missing."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    named: dict[str, Path] = {}
    unified: Path | None = None
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        where = Path(left.split()[4])
        if kind == "cgroup":
            controllers = options.split()[-1].split(",")
            named.update((name.removeprefix("name="), where) for name in controllers if name not in {"rw", "xattr"})
        elif kind == "cgroup2":
            unified = where
    if unified is not None and not named:
        return Cgroups({"": unified})
    if missing := [name for name in NEEDED if name not in named]:
        raise LocalError(
            f"no cgroup controller {', '.join(missing)} on this machine: boot a kernel that has them, "
            "and mount them below /sys/fs/cgroup"
        )
    if unified is not None:
        named["unified"] = unified  # a hybrid machine: no controller is there, but runc makes its groups in it too
    wanted = {*NEEDED, "systemd", "unified"}
    return Cgroups({name: root for name, root in named.items() if name in wanted})
