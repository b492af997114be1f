"""A machine of the cluster: a process tree with an init of its own, in namespaces of its own.

It has its own network, mounts, process ids, host name and IPC; its /var and /run are directories of the cluster's, so
the kubelet and containerd use the paths that every tool expects of a node (/var/lib/kubelet, /var/log/pods,
/run/containerd/containerd.sock). Killing it is a power failure: the kernel ends every process below its init, and with
the last of them go all its mounts.
"""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kurm.local import network
from kurm.local.cgroups import Cgroups
from kurm.local.layout import Layout, Machine
from kurm.local.pki import write_secret

BINARIES = "/var/lib/kurm/bin"
"""Where a machine sees the programs; the cache they come from may be below a path that its own /var or /tmp hides."""
VOLUMES = "/var/lib/kurm/volumes"
"""Where every machine sees the volumes of the default StorageClass."""


@dataclass(frozen=True)
class Service:
    """A daemon of a machine; its init starts it, and again whenever it ends."""

    name: str
    argv: Sequence[str]
    after: str = ""
    """A shell condition to wait for, if it would fail without."""


def install(machine: Machine, files: Mapping[str, bytes | str]) -> None:
    """Write a machine's files, given by the absolute paths (below /var) at which it will see them."""
    for path, content in files.items():
        write_secret(machine.state / path.lstrip("/"), content)


def boot(layout: Layout, machine: Machine, services: Sequence[Service], binaries: Path, cgroups: Cgroups) -> None:
    """Start the machine: its network, its mounts, its daemons. Returns at once; the daemons come up by themselves."""
    machine.run.mkdir(parents=True, exist_ok=True)
    for directory in ("lib/kurm/bin", "lib/kurm/volumes", "log", "tmp"):
        (machine.state / "var" / directory).mkdir(parents=True, exist_ok=True)
    network.attach(layout, machine)
    group = f"{machine.cgroup}/system"
    cgroups.make(group)
    script = machine.state / "init"
    script.write_text(init_script(layout, machine, services, binaries))
    enter = 'echo $$ >"$0" && exec "$@"'
    with (machine.state / "var/log/init.log").open("ab") as log:
        subprocess.Popen(
            [
                *("/bin/sh", "-c", enter, str(cgroups.tracking / group / "cgroup.procs")),
                # Not `ip netns exec`: it mounts a new /sys, which hides the cgroups.
                *("nsenter", f"--net={network.NAMESPACES / machine.netns}"),
                *("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL"),
                *("--uts", "--ipc", "/bin/bash", str(script)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def power_off(machine: Machine, cgroups: Cgroups) -> None:
    """End the machine as a power failure does: nothing is told, only its disk stays. Repeating it is harmless."""
    cgroups.kill(machine.cgroup)
    network.detach(machine)
    cgroups.remove(machine.cgroup)
    shutil.rmtree(machine.run, ignore_errors=True)


def is_on(machine: Machine, cgroups: Cgroups) -> bool:
    """Whether the machine has been booted and not powered off."""
    return bool(cgroups.pids(f"{machine.cgroup}/system"))


def init_script(layout: Layout, machine: Machine, services: Sequence[Service], binaries: Path) -> str:
    """Render the program that is process 1 of the machine. Pure.

    It is bash because a bash that waits also reaps what is left to it as process 1.
    """
    var, quote = machine.state / "var", shlex.quote
    lines = [
        "#!/bin/bash",
        f"# Process 1 of machine {machine.name} of the local cluster {layout.name}.",
        "set -eu",
        f"mount --bind {quote(str(binaries))} {quote(str(var))}/lib/kurm/bin",
        f"mount --bind {quote(str(layout.volumes))} {quote(str(var))}/lib/kurm/volumes",
        f"mount --bind {quote(str(machine.run))} /run",
        f"mount --rbind {quote(str(var))} /var",
        "mount -t tmpfs tmpfs /tmp",
        "mount -t proc proc /proc",
        "mount --make-rshared /  # the kubelet passes mounts on into pods",
        f"hostname {machine.name}",
        "sysctl -qw net.ipv4.ip_forward=1",
        "keep() {  # keep NAME COMMAND...: run it, and again when it ends",
        "  local name=$1 status; shift",
        "  while :; do",
        '    status=0; "$@" >>"/var/log/$name.log" 2>&1 || status=$?',
        '    echo "$(date +%T) $name ended with $status; starting it again" >&2',
        "    sleep 0.5",
        "  done",
        "}",
    ]
    for service in services:
        command = f"keep {service.name} {shlex.join(service.argv)}"
        if service.after:
            lines.append(f"{{ until {service.after}; do sleep 0.1; done; {command}; }} 2>&1 &")
        else:
            lines.append(f"{command} &")
    lines += ["wait", ""]
    return "\n".join(lines)
