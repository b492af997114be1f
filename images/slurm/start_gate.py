#!/usr/bin/python3 -IS
"""Let no job start over a container that still runs: the part of slurmd's first prolog that waits.

A pod's share of this node is a job of Slurm's, and Slurm gives it away the moment that job ends. The pod's containers
end later. So which pods hold what here is written to the slurmd pod's annotations ahead, and a job that starts waits
for those that still run though their job has ended, if what they hold is not free beside everything that Slurm has
given out. It asks nobody but slurmctld. Unknown means busy.

slurmd runs this as root, with no PATH, and shows its output to nobody unless it fails.
"""

import contextlib
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ANNOTATIONS = "/run/kurm/gate/annotations"
"""Where the kubelet projects the slurmd pod's annotations."""
CGROUPS = "/run/kurm/cgroup"
"""Where the host's /sys/fs/cgroup is mounted."""
LOG = "/proc/1/fd/2"
"""The container's log."""
WAIT = 120.0
"""Seconds that a job waits at most; below PrologTimeout, and why so long: docs/design/start-gate.md."""
LOOK_EVERY = 0.25
ASK_EVERY = 5.0
"""Seconds between two questions to slurmctld, while it answers."""
DEADLINE = 10.0
"""Seconds for one answer."""
EVERYTHING = sys.maxsize
"""CPUs or MiB, where it is not known how many."""
LIVE = {"RUNNING", "CONFIGURING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED"}
"""States of a job that has its resources (squeue(1)). SUSPENDED is not among them: Slurm sells its CPUs again."""
SUSPENDED = "SUSPENDED"

_KEY = "gate.kurm.dev/"
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?=\.slice$|$)")
_QUALITY = re.compile(r"(?:^|-)(?:burstable|besteffort)(?:\.slice)?$")
"""The cgroups of pods that do not have all that they ask for guaranteed."""
_JOB = re.compile(r"(?:scontrol: )*JobId=(\d+)\s")
_PODS_JOB = re.compile(r"(?:scontrol: )*JobId=\d+ JobName=([^\s/]+/\S+) UserId=slurm\(\d+\) .*? JobState=(\w+)")
"""A pod's job is user slurm's, and is called NAMESPACE/NAME.UID: names of Kubernetes', in which nothing can be hidden.
What stands behind the state a tenant may have written (Comment), and all of a user's job, its name first."""
_UNKNOWN_JOB = "slurm_load_jobs error: Invalid job id specified"
_GRES = re.compile(r"([^:,(]+)(?::[^:,(]+)?:(\d+)(?:\([^)]*\))?")


class Record(NamedTuple):
    """A pod that was given a share of this node."""

    uid: str
    job: int
    cpus: int
    memory: int
    """MiB."""
    gres: frozenset[str]


class Job(NamedTuple):
    """What slurmctld says of a pod's job; both are empty for a user's, which has got the number of a forgotten one."""

    name: str = ""
    state: str = ""


class Said(NamedTuple):
    """What a command has said."""

    output: str
    errors: str


class Node(NamedTuple):
    """What slurmctld has not given out here."""

    cpus: int
    memory: int
    """MiB."""
    gres_used: frozenset[str]
    """Kinds of which some are given out."""
    drained: bool


def records(text: str) -> list[Record]:
    """Read the file of annotations: a line `key="value"` for each, quoted as Go does it, so without line breaks."""
    lines = (line.partition("=") for line in text.split("\n") if line.startswith(_KEY))
    return [record(key.removeprefix(_KEY), value.strip('"')) for key, _, value in lines]


def record(uid: str, value: str) -> Record:
    """Read `JOB,CPUS,MIB[,GRES...]`; of a value that is none only the pod is known, which may then hold everything."""
    if re.fullmatch(r"\d+,\d+,\d+(,[^,\\]+)*", value, re.ASCII) is None:
        return Record(uid, 0, EVERYTHING, EVERYTHING, frozenset())
    job, cpus, memory, *gres = value.split(",")
    return Record(uid, int(job), int(cpus), int(memory), frozenset(gres))


class Cgroups:
    """The cgroups of the pods on this node, of cgroup v1 and v2, as cgroupfs and as systemd name them."""

    def __init__(self, mount: Path, own: str) -> None:
        """Find them by our own, `/proc/self/cgroup`: wherever the kubelet has its pods, we are one of them."""
        self._root: Path | None = None
        for folder, above, uid in _places(mount, own):
            with contextlib.suppress(OSError):  # it is not there
                if uid in _running(folder / above, {uid}):
                    self._root = folder / above
                    return

    @property
    def seen(self) -> bool:
        """Whether we see at least ourselves."""
        return self._root is not None

    def running(self, *uids: str) -> set[str]:
        """Return which of these pods have processes; all of them if that cannot be seen."""
        try:
            return set(uids) if self._root is None else _running(self._root, set(uids))
        except OSError:
            return set(uids)


def _running(root: Path, uids: set[str]) -> set[str]:
    return {uid for uid, folder in _pods(root) if uid in uids and _populated(folder)}


def _pods(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the cgroups of pods below one: its own, and those of its folders for the qualities of service.

    One look at each folder, and none for each pod: a node may have hundreds of records. Raises OSError if there is no
    such cgroup.
    """
    for folder in _folders(root):
        if found := _POD.search(folder.name):
            yield found[1].replace("_", "-"), folder  # systemd takes - for a separator
            continue
        with contextlib.suppress(OSError):  # it went away
            for below in _folders(folder):
                if found := _POD.search(below.name):
                    yield found[1].replace("_", "-"), below


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _places(mount: Path, own: str) -> Iterator[tuple[Path, Path, str]]:
    """Yield hierarchies, the cgroup above all pods in each, and our own pod's UID, as we may find them.

    Only those that tell of processes in any process namespace: cgroup v2's, also where it stands beside v1's, and that
    of v1's controller pids. `cgroup.procs` leaves out what runs in other containers.
    """
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "pids" not in controllers.split(","):
            continue
        parts = Path(path.lstrip("/")).parts
        place = max((at for at, part in enumerate(parts) if _POD.search(part)), default=0)
        if place:
            found = _POD.search(parts[place])
            above = parts[: place - 1] if _QUALITY.search(parts[place - 1]) else parts[:place]
            for name in [controllers] if controllers else ["", "unified"]:
                yield mount / name, Path(*above), found[1].replace("_", "-") if found else ""


def _populated(folder: Path) -> bool:
    """Return whether a process is in a cgroup or below it; what vanishes while we look has none."""
    for file, populated in (("cgroup.events", r"^populated 1$"), ("pids.current", r"^[1-9]")):
        try:
            return bool(re.search(populated, Path(folder, file).read_text(encoding="ascii"), re.MULTILINE))
        except FileNotFoundError:
            continue
        except OSError as error:
            return error.errno != errno.ENODEV  # it went away between opening and reading
    return False


def state_of(number: int) -> str | None:
    """Ask slurmctld for the state of whichever job; empty for one that it does not know, None if it does not answer.

    squeue can be asked for nothing else. scontrol shows what its owner wrote, too: line breaks, and lines like its own.
    """
    fields = ("--noheader", "--all", "--array", "--states=all", f"--jobs={number}", "--Format=JobID:20,State:30")
    said = _run("squeue", *fields)
    if said is None or _UNKNOWN_JOB in said.errors:
        return None if said is None else ""
    found = dict(line.split() for line in said.output.splitlines() if len(line.split()) == len(("JobID", "State")))
    return found.get(str(number))


def jobs(numbers: Iterable[int]) -> dict[int, Job] | None:
    """Ask slurmctld for jobs of pods; those that it does not know are not in the answer. None if it does not answer.

    scontrol takes its commands from its input here: so one process asks for each job alone. squeue would fetch all
    jobs of the cluster if it is asked for more than one. Number 0, which is none, would have scontrol show all.
    """
    asked = {number for number in numbers if number}
    commands = "".join(f"show job {number}\n" for number in sorted(asked))
    return answered(asked, _run("scontrol", "--oneliner", commands=commands)) if asked else {}


def answered(asked: set[int], said: Said | None) -> dict[int, Job] | None:
    """Read what scontrol said of jobs; None unless it has an answer for each."""
    known: dict[int, Job] = {}
    for line in (said.output if said else "").split("\n"):  # and not at other line breaks, which a comment may hold
        if (number := _JOB.match(line)) and int(number[1]) in asked:
            found = _PODS_JOB.match(line)
            known.setdefault(int(number[1]), Job(*found.groups()) if found else Job())
    unknown = sum(line.endswith(_UNKNOWN_JOB) for line in said.errors.splitlines()) if said else 0
    return known if said is not None and len(known) + unknown == len(asked) else None


def node(name: str) -> Node | None:
    """Ask slurmctld what is left of a node; None if it does not answer."""
    said = _run("scontrol", "--oneliner", "--details", "show", "node", name)
    return left_of(said.output if said else None)


def left_of(said: str | None) -> Node | None:
    """Read what scontrol said of a node; None if that is no node."""
    fields = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", said or ""))
    try:
        cpus = int(fields["CPUEfctv"]) - int(fields["CPUAlloc"])
        memory = int(fields["RealMemory"]) - int(fields.get("MemSpecLimit", 0)) - int(fields["AllocMem"])
    except (KeyError, ValueError):
        return None
    used = frozenset(kind for kind, count in _GRES.findall(fields.get("GresUsed", "")) if int(count))
    return Node(cpus, memory, used, "DRAIN" in fields.get("State", ""))


def alive(held: Record, known: dict[int, Job]) -> bool:
    """Return whether a pod's share is still its own."""
    job = known.get(held.job)
    return job is not None and job.state in LIVE


def share(held: Record, known: dict[int, Job]) -> Record:
    """Return what of a pod's share Slurm may have given out again: the CPUs alone, where its job is suspended."""
    job = known.get(held.job)
    return held._replace(memory=0, gres=frozenset()) if job is not None and job.state == SUSPENDED else held


def overlap(leaving: Iterable[Record], left: Node) -> bool:
    """Return whether Slurm has given out again what leaving pods hold."""
    pods = list(leaving)
    return (
        sum(pod.cpus for pod in pods) > left.cpus
        or sum(pod.memory for pod in pods) > left.memory
        or any(pod.gres & left.gres_used for pod in pods)
    )


def named(pod: Record, known: dict[int, Job]) -> str:
    """Return what a pod is called: with the name that its job has, as long as slurmctld remembers it."""
    job = known.get(pod.job)
    if job is None or not job.name:
        return f"pod {pod.uid}"
    owner, _, uid = job.name.rpartition(".")
    return f"pod {owner} ({pod.uid})" if pod.uid.startswith(uid) else f"pod {pod.uid} of {owner}"


class Gate:
    """The wait of one job on one node."""

    def __init__(self, name: str, job: int, annotations: Path, cgroups: Cgroups) -> None:
        self.name, self.job, self.annotations, self.cgroups = name, job, annotations, cgroups
        self.why = ""
        self._known: dict[int, Job] = {}
        self._ask_at = 0.0

    def held(self) -> bool:
        """Return whether the job must wait (`why` says for what)."""
        recorded = records(self.annotations.read_text())
        populated = self.cgroups.running(*(pod.uid for pod in recorded))
        running = [pod for pod in recorded if pod.uid in populated]
        if running and (not self.why or time.monotonic() >= self._ask_at):
            self.why = self._reason(running)
            self._ask_at = time.monotonic() + ASK_EVERY
        return bool(running and self.why)

    def _reason(self, running: list[Record]) -> str:
        """Return why the job waits for these pods, or nothing if it need not."""
        mine = state_of(self.job)
        known = jobs(pod.job for pod in running if pod.job != self.job) if mine is not None else None
        if known is None or mine is None:
            unknown = f"{self._all(running)}: it still runs, and slurmctld does not say whether its job has ended"
            return self.why or unknown
        self._known |= known
        if mine == "COMPLETING" or mine not in LIVE:
            return ""  # it was cancelled while it waited: nothing will start
        leaving = [share(pod, known) for pod in running if not alive(pod, known)]
        left = node(self.name) if leaving else None
        if not leaving or (left and not overlap(leaving, left)):
            return ""
        ended = f"its job {leaving[0].job} has ended" if leaving[0].job else "has no Slurm job"
        if not self.cgroups.seen:
            return f"{self._all(leaving)}: {ended}, and this node's cgroups cannot be seen"
        return f"{self._all(leaving)}: it still runs, and {ended}"

    def _all(self, pods: list[Record]) -> str:
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        return named(pods[0], self._known) + more

    def drain(self, waited: float) -> None:
        """Take the node out, unless somebody has: with the reason by which slurmctld would do it nobody could tell."""
        left = node(self.name)
        if left is None or not left.drained:
            reason = f"Reason=start-gate: {self.why}, for {waited:.0f} s"
            _run("scontrol", "update", f"NodeName={self.name}", "State=DRAIN", reason)


def _run(*command: str, commands: str = "") -> Said | None:
    """Run one of Slurm's commands and return what it said; None if it did not in time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SCONTROL_"))}
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **environment},
            input=commands,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Said(done.stdout, done.stderr)


def say(text: str) -> None:
    """Write a line into the container's log, and into what slurmd shows if we fail."""
    line = f"start-gate: {text}\n"
    sys.stderr.write(line)
    try:
        with Path(LOG).open("a", encoding="utf-8") as log:
            log.write(line)
    except OSError:
        pass  # there is no such log where nobody runs us in a container


def wait(gate: Gate, at_most: float = WAIT) -> int:
    """Return 0 when the job may start, 1 when it has waited in vain for `at_most` seconds and the node is drained."""
    begun, said = time.monotonic(), ""
    while gate.held():
        if gate.why != said:
            said = gate.why
            say(f"job {gate.job} waits for {said}")
        if time.monotonic() - begun > at_most:
            gate.drain(at_most)
            say(f"job {gate.job} cannot start here: it waited {at_most:.0f} s for {said}")
            return 1
        time.sleep(LOOK_EVERY)
    if said:
        say(f"job {gate.job} goes on after {time.monotonic() - begun:.1f} s")
    return 0


def main() -> int:
    """Be slurmd's prolog."""
    cgroups = Cgroups(Path(CGROUPS), Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    job = int(os.environ["SLURM_JOB_ID"])
    return wait(Gate(os.environ["SLURMD_NODENAME"], job, Path(ANNOTATIONS), cgroups))


if __name__ == "__main__":
    sys.exit(main())
