"""The programs of Debian's that a local cluster needs on its host."""

import os
import shutil
from pathlib import Path

from kurm.local.command import run, run_logged
from kurm.local.errors import LocalError

PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",  # the portmap plug-in, for pods with host ports
    "conntrack": "conntrack",
    "socat": "socat",  # kubectl port-forward
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "sysctl": "procps",
    "mount": "mount",
}
INSTALL_DEADLINE = 600.0


def missing() -> list[str]:
    """Debian packages whose programs are not on this machine."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = (package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None)
    return sorted(set(absent))


def install(packages: list[str], log: Path) -> None:
    """Install Debian packages; raise LocalError saying what to install by hand where that cannot be done."""
    if shutil.which("apt-get") is None:
        raise LocalError(
            f"not on this machine: {', '.join(packages)} (Debian's names); install them, this is no Debian"
        )
    # Their services are not wanted: each node starts a containerd of its own.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    update, get = ["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    run_logged(update, log, "apt-get update", deadline=INSTALL_DEADLINE)
    run_logged(get, log, f"apt-get install {' '.join(packages)}", deadline=INSTALL_DEADLINE, env=quiet)


def kernel_can_bridge() -> bool:
    """Whether the kernel makes bridges; a container without CAP_NET_ADMIN and CAP_SYS_ADMIN says no."""
    try:
        # In a network namespace that goes with the command: one that was left by a killed process, or is another's at
        # this moment, would look like a kernel that makes none.
        run("unshare", "--net", "ip", "link", "add", "kurm-try", "type", "bridge")
    except LocalError:
        return False
    return True
