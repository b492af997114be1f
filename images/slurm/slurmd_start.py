#!/usr/bin/python3
"""Prepare the container for slurmd and become it: slurmd-start [ARGUMENT OF slurmd]...

Two things are done first.

slurmd with -Z and no --conf takes a node record that somebody else makes. Without one it would run on, unknown to
slurmctld. So we wait until slurmctld knows the node, however long: pod and record may be made in any order, and
slurmctld may be away. The startup probe bounds it. Asking takes a credential, and only daemons may make one from the
cluster's key: so sackd runs for as long as we ask, and lends it to scontrol.

Linux 6.18 numbers namespaces from per-CPU batches of 4,096 and refuses (EINVAL) to bind a mount namespace to a file
when its number is lower than that of the mount namespace around it. Slurm's namespace plugins do exactly that for each
job, so about one launch in three fails: when this container was made on one CPU and the job's namespace on another,
whose batch is older. Using up what is left of each CPU's batch once makes every later number higher than ours.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FIRST_KERNEL = (6, 18)
BATCH = 4096  # numbers that a CPU takes at a time
MARGIN = 100
EVERY = 1.0
"""Seconds between two questions for the node's record."""
DEADLINE = 60.0
"""Seconds for one answer of scontrol's."""
CONNECT_SECONDS = 5.0
"""For a connection: before scontrol is asked, which tries for 10 s when nobody is there."""
SOCKET = "/run/slurm/sack.socket"
"""Where sackd and scontrol meet (sackd(8))."""
SACKD_SECONDS = 10.0
"""For sackd to be there: it fetches the configuration first."""
PORT = 6817
"""slurmctld's, where its address names none (slurm.conf(5), SlurmctldPort)."""


def awaited(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the node whose record slurmd is to take, and slurmctld's address; empty if there is none to wait for."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument("-N", dest="node", default="")
    parser.add_argument("-Z", dest="dynamic", action="store_true")
    parser.add_argument("--conf", default="")
    parser.add_argument("--conf-server", dest="server", default="")
    try:
        found, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError:
        return "", ""  # slurmd itself says what is wrong with them
    made_elsewhere = found.dynamic and not found.conf and found.node and found.server
    return (found.node, found.server) if made_elsewhere else ("", "")


class Sackd:
    """The daemon that lends the cluster's key to scontrol, while we ask."""

    def __init__(self, server: str) -> None:
        self.server = server
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as we do

    def missing(self) -> str:
        """Start it if it does not run; return why it cannot, or nothing when it is there."""
        socket_path = Path(os.environ.get("SLURM_SACK_SOCKET", SOCKET))
        if self._process is None:
            socket_path.unlink(missing_ok=True)  # of a container before this one, on the same file system
            command = ["sackd", "-D", "--conf-server", self.server]
            self._log.truncate(0)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + SACKD_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            if socket_path.exists():
                return ""
            time.sleep(0.05)
        return self.stop() or f"sackd did not come up in {SACKD_SECONDS:.0f} s"

    def stop(self) -> str:
        """End it, and return the last line that it wrote."""
        process, self._process = self._process, None
        if process is None:
            return ""
        process.terminate()
        try:
            process.wait(SACKD_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].rpartition("] ")[2] if lines else ""


def missing(node: str, sackd: Sackd) -> str:
    """Ask slurmctld for the node's record; return why it cannot be taken yet, or nothing if it is there."""
    server = sackd.server
    if away := unreachable(server) or sackd.missing():
        return f"slurmctld at {server} does not answer: {away}"
    environment = {**os.environ, "SLURM_CONF_SERVER": server, "LC_ALL": "C"}
    command = ["scontrol", "--oneliner", "show", "node", node]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"slurmctld at {server} does not answer"
    if done.returncode == 0:
        return ""
    said = (done.stdout + done.stderr).strip()
    if "not found" in said:
        return f"slurmctld does not know node {node} yet"
    reason = re.sub(r"^scontrol: \w+: ", "", said.splitlines()[0]) if said else f"scontrol ended with {done.returncode}"
    return f"slurmctld at {server} does not answer: {reason}"


def unreachable(server: str) -> str:
    """Return why none of `host[:port][,...]` takes a connection; nothing if one does."""
    why = "there is no address"
    for address in server.split(","):
        host, _, port = address.partition(":")
        try:
            with socket.create_connection((host, int(port or PORT)), CONNECT_SECONDS):
                return ""
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or str(error)
    return why


def wait_for_record(node: str, server: str) -> None:
    """Return when slurmctld knows the node; each new state is one line in the log."""
    said, begun, sackd = "", time.monotonic(), Sackd(server)
    while state := missing(node, sackd):
        if state != said:
            said = state
            say(f"waiting: {state}")
        time.sleep(EVERY)
    sackd.stop()
    if said:
        say(f"slurmctld knows node {node}, after {time.monotonic() - begun:.0f} s")


def say(text: str) -> None:
    """Write a line into the container's log."""
    sys.stderr.write(f"slurmd-start: {text}\n")
    sys.stderr.flush()


def kernel() -> tuple[int, int]:
    """Return the running kernel's version, as (6, 18); (0, 0) if it says something else."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def use_up_batch(cpu: int) -> None:
    """Make and drop as many namespaces on this CPU as one batch has numbers: UTS ones, which cost least."""
    if (child := os.fork()) == 0:
        try:
            os.sched_setaffinity(0, {cpu})
            for _ in range(BATCH + MARGIN):
                os.unshare(os.CLONE_NEWUTS)
        except OSError as error:
            say(f"CPU {cpu}: cannot use up its namespace numbers: {error.strerror}")
        finally:
            os._exit(0)  # jobs that need no mount namespace run all the same
    os.waitpid(child, 0)


def main(arguments: Sequence[str]) -> None:
    """Wait, prepare, and become slurmd."""
    node, server = awaited(arguments)
    if node:
        wait_for_record(node, server)
    if kernel() >= FIRST_KERNEL:
        for number in sorted(os.sched_getaffinity(0)):
            use_up_batch(number)
    # -D: in the foreground, below the pod's init, which reaps what its jobs leave.
    os.execv(os.environ.get("SLURMD", "/usr/sbin/slurmd"), ["slurmd", "-D", *arguments])  # noqa: S606 - the point


if __name__ == "__main__":
    main(sys.argv[1:])
