"""What a cluster leaves on a machine: everything that `down` has to take away."""

import json
import re
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

ROOTS = ("/var/lib/kurm/local", "/run/kurm/local")
OURS = re.compile(r":/kurm/test|/kurm/local/test")


@dataclass(frozen=True)
class Footprint:
    """A picture of this machine; two are compared field by field."""

    processes: frozenset[str]
    """Those of test clusters, as "pid command": by their cgroup, or, had one left that, by the mounts that it sees."""
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
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
            traces = (directory / "cgroup").read_text() + (directory / "mountinfo").read_text()
        except OSError:
            continue  # it ended while we looked, or is the machine's own first process
        if command and OURS.search(traces):
            found.append(f"{directory.name} {command}")
    return found


def _ip(*argv: str) -> str:
    return _run("ip", "-j", *argv)


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
