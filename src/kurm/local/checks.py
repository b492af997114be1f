"""What must be true of this machine before a cluster is made; each failure is a sentence that says what to do."""

import os
import shutil
from pathlib import Path

from kurm.local import build
from kurm.local import packages as debian
from kurm.local.errors import LocalError
from kurm.local.progress import Steps

GIB = 1 << 30
# Built programs, module and compiler caches, Slurm's images, and five nodes that each unpack those: 14 GiB were seen.
DISK = 15 * GIB
# A kubelet takes about six, containerd and pods some more. With the kernel's 128 the third cluster's kubelets end with
# "inotify_init: too many open files".
INOTIFY_INSTANCES = 8192


def root() -> None:
    """Raise LocalError for anyone but root."""
    if os.geteuid() != 0:
        raise LocalError("kurm local needs root, for network namespaces, mounts and cgroups: run it with sudo")


def disk(needed: int = DISK) -> None:
    """Raise LocalError if the disk of the state or of the cache is too full; `needed` is in bytes."""
    for directory in (Path("/var/lib"), build.cache()):
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise LocalError(
                f"no disk: {directory} has {free / GIB:.1f} GiB free and {needed / GIB:.0f} GiB are needed; free some"
            )


def inotify(instances: int = INOTIFY_INSTANCES) -> None:
    """Raise the kernel's limit of inotify instances, which is one for all of root's processes; never lower it."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < instances:
        limit.write_text(str(instances))


def packages(steps: Steps) -> None:
    """Install what is missing of Debian's packages."""
    if absent := debian.missing():
        with steps.step(f"Debian packages: {', '.join(absent)}"):
            debian.install(absent, build.cache() / "logs/apt.log")
    if not debian.kernel_can_bridge():
        raise LocalError(
            "this machine's kernel makes no network bridge for us: kurm local needs CAP_SYS_ADMIN, "
            "CAP_NET_ADMIN and bridges"
        )
