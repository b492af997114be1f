"""What a cluster leaves on a machine: everything that `down` has to take away."""

import json
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

ROOTS = ("/var/lib/kurm/local", "/run/kurm/local")
NAMESPACES = ("net", "mnt", "pid", "uts", "ipc")


@dataclass(frozen=True)
class Footprint:
    """A picture of this machine; two are compared field by field."""

    processes: frozenset[str]
    """Those in a namespace other than ours or in a cgroup of Kurm's: "pid command". A cluster that is not a test's is
    somebody's, and lives on meanwhile: its processes do not count."""
    namespaces: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    tables: frozenset[str]
    files: frozenset[str]

    def without(self, other: "Footprint") -> dict[str, list[str]]:
        """Return what is here and not in the other, by kind; kinds without any are left out."""
        extra = {f.name: sorted(getattr(self, f.name) - getattr(other, f.name)) for f in fields(self)}
        return {kind: found for kind, found in extra.items() if found}


def take() -> Footprint:
    """Take a picture of this machine as it is now."""
    return Footprint(
        processes=frozenset(_processes()),
        namespaces=frozenset(item["name"] for item in json.loads(_ip("netns", "list") or "[]")),
        mounts=frozenset(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        cgroups=frozenset(str(path) for path in Path("/sys/fs/cgroup").glob("*/kurm*/*")),
        links=frozenset(item["ifname"] for item in json.loads(_ip("link"))),
        routes=frozenset(item["dst"] for item in json.loads(_ip("route", "show", "table", "all"))),
        tables=frozenset(_run("nft", "list", "tables").splitlines()),
        files=frozenset(str(path) for root in ROOTS for path in Path(root).glob("*")),
    )


def _processes() -> list[str]:
    ours = _namespaces("self")
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            foreign = _namespaces(directory.name) != ours
            groups = (directory / "cgroup").read_text()
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked, or is the machine's own first process
        somebodys = ":/kurm/" in groups and ":/kurm/test" not in groups
        if command and not somebodys and (foreign or ":/kurm/" in groups):
            found.append(f"{directory.name} {command}")
    return found


def _namespaces(pid: str) -> list[str]:
    return [str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in NAMESPACES]


def _ip(*argv: str) -> str:
    return _run("ip", "-j", *argv)


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
