"""The second half of `make demo`: training and a service on the same nodes, each in its turn, with a time-line."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from kurm.local.charts import Charts
from kurm.local.cluster import wait_until
from kurm.local.errors import LocalError
from kurm.local.progress import Steps

EXAMPLE = "examples/inference-and-training"
FOLDER = "inference-and-training"
"""In the researcher's home, which all nodes share."""
NAMESPACE = "inference"
REPLICAS = 3
BEFORE = 3
"""Steps that the training has behind it when it is disturbed: its checkpoint is then worth something."""
DEADLINE = 90.0
"""Seconds for each of the turns: training gets the nodes, the service gets them, training gets them back."""
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/inference:http/proxy/"
_COLUMNS = (
    "NAME:.metadata.name,NODE:.spec.nodeName,"
    'READY:.status.conditions[?(@.type=="Ready")].status,ENDING:.metadata.deletionTimestamp'
)


@dataclass
class Seen:
    """A pod, and when what was seen of it; seconds of the monotonic clock."""

    created: float
    bound: float = 0.0
    node: str = ""
    ready: float = 0.0
    ending: float = 0.0


@dataclass
class Watch:
    """The pods of the namespace as kubectl's watch tells of them, by name."""

    pods: dict[str, Seen] = field(default_factory=dict)

    def tell(self, line: str) -> None:
        """Take in one line of kubectl's."""
        name, node, ready, ending = line.split()
        now = time.monotonic()
        seen = self.pods.setdefault(name, Seen(created=now))
        if node != "<none>" and not seen.bound:
            seen.bound, seen.node = now, node
        if ready == "True" and not seen.ready:
            seen.ready = now
        if ending != "<none>" and not seen.ending:
            seen.ending = now

    def waiting(self, what: str) -> str:
        """Return how many of the replicas are not yet `bound` or `ready`, nothing if all are."""
        reached = sum(bool(getattr(seen, what)) for seen in self.pods.values())
        return "" if reached >= REPLICAS else f"{reached} of {REPLICAS} are {what}"


@contextmanager
def watched(slurm: Charts) -> Iterator[Watch]:
    """Follow the pods of the namespace while the block runs."""
    program = Path(slurm.cluster.record.binaries) / "kubectl"
    words = (f"--kubeconfig={slurm.cluster.layout.kubeconfig}", f"--namespace={NAMESPACE}", "get", "pods")
    more = ("--watch-only", "--no-headers", "--output", f"custom-columns={_COLUMNS}")
    watch = Watch()
    with subprocess.Popen((program, *words, *more), stdout=subprocess.PIPE, text=True) as kubectl:
        follower = threading.Thread(target=_follow, args=(kubectl, watch), daemon=True)
        follower.start()
        try:
            yield watch
        finally:
            kubectl.terminate()
            follower.join()


def _follow(kubectl: "subprocess.Popen[str]", watch: Watch) -> None:
    for line in kubectl.stdout or ():
        watch.tell(line)


@dataclass
class Training:
    """The job that fills the nodes."""

    slurm: Charts
    job: str = ""

    def submit(self, repository: Path) -> None:
        """Put the program on the shared storage, without what an earlier run has left there, and submit it."""
        ssh = self.slurm.login.ssh
        ssh(f"rm -rf {FOLDER} && mkdir {FOLDER}")
        for name in ("train.py", "train.sbatch"):
            ssh(f"cat >{FOLDER}/{name}", stdin=(repository / EXAMPLE / name).read_text())
        self.job = ssh(f"cd {FOLDER} && sbatch --parsable train.sbatch").strip()

    def state(self) -> str:
        """Return squeue's words for it: its state and the reason."""
        return self.slurm.login.ssh(f"squeue --noheader --jobs {self.job} --format '%T %r'").strip()

    def step(self) -> int:
        """Return the step of its checkpoint, 0 if there is none."""
        said = self.slurm.login.ssh(f"cat {FOLDER}/train.json 2>/dev/null || true")
        return int(json.loads(said)["step"]) if said else 0

    def missing(self, step: int) -> str:
        """Return how far it is while its checkpoint is not yet at that step."""
        found = self.step()
        return "" if found >= step else f"its checkpoint is at step {found}; {self.state()}"

    def resumed(self) -> str:
        """Return what it said when it went on, with the step and the nodes; nothing if it never did."""
        return self.slurm.login.ssh(f"grep '^resumed at' {FOLDER}/train.out || true").strip()

    def end(self) -> None:
        """Cancel it, and wait until its nodes are free."""
        if self.job:
            self.slurm.login.ssh(f"scancel {self.job}")
            wait_until(self.state, DEADLINE, f"job {self.job} has not ended after {DEADLINE:.0f} s: {{reason}}")


class TimeLine:
    """What happened, in the order in which it was seen; the zero is the first entry."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, str]] = []

    def note(self, what: str, moment: float | None = None) -> None:
        """Write down what happened now, or at that moment of the monotonic clock."""
        self._entries.append((time.monotonic() if moment is None else moment, what))

    def lines(self) -> Iterator[str]:
        """Yield a line for each entry, with the seconds since the first."""
        entries = sorted(self._entries)
        for moment, what in entries:
            yield f"{moment - entries[0][0]:7.2f} s  {what}"


def show(slurm: Charts, images: Mapping[str, str], repository: Path, steps: Steps, console: Console) -> None:
    """Run the example and print its time-line. LocalError when a turn does not come, or when training begins anew."""
    training, line = Training(slurm), TimeLine()
    try:
        with steps.step("Training on all nodes"):
            training.submit(repository)
            apply(slurm, images["slurmd"], repository)
            late = f"training is not at step {BEFORE} after {DEADLINE:.0f} s: {{reason}}"
            wait_until(partial(training.missing, BEFORE), DEADLINE, late)
        with steps.step("A service takes nodes"), watched(slurm) as watch:
            serve(slurm, training, watch, line)
        with steps.step("Training goes on"):
            give_back(slurm, training, line)
    finally:
        console.print("\n" + "\n".join(line.lines()), highlight=False, soft_wrap=True)
        scale(slurm, 0)
        training.end()


def apply(slurm: Charts, image: str, repository: Path) -> None:
    """Apply the service without replicas, with an image that the nodes have: they can pull none."""
    objects = list(yaml.safe_load_all((repository / EXAMPLE / "inference.yaml").read_text()))
    for workload in (one for one in objects if one["kind"] == "Deployment"):
        for container in workload["spec"]["template"]["spec"]["containers"]:
            container["image"] = image
    whole = {"apiVersion": "v1", "kind": "List", "items": objects}
    slurm.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(whole))


def scale(slurm: Charts, replicas: int) -> None:
    """Scale the service."""
    slurm.cluster.kubectl(f"--namespace={NAMESPACE}", "scale", "deployment/inference", f"--replicas={replicas}")


def serve(slurm: Charts, training: Training, watch: Watch, line: TimeLine) -> None:
    """Scale the service up, and wait until it answers from all of its replicas."""
    line.note(f"training is at step {training.step()}; inference is scaled to {REPLICAS}")
    scale(slurm, REPLICAS)
    requeued = partial(_once_requeued, training, line, [])

    def bound() -> str:
        requeued()
        return watch.waiting("bound")

    wait_until(bound, DEADLINE, f"the pods of inference are not bound after {DEADLINE:.0f} s: {{reason}}")
    for name, seen in watch.pods.items():
        line.note(f"{name} is bound to {seen.node}, {(seen.bound - seen.created) * 1000:.0f} ms old", seen.bound)
    said: list[str] = []

    def answered() -> str:
        requeued()
        try:
            said[:] = [slurm.cluster.kubectl("get", f"--raw={SERVICE}").strip()]
        except LocalError as error:
            return str(error)
        return ""

    wait_until(answered, DEADLINE, f"inference does not answer after {DEADLINE:.0f} s: {{reason}}")
    line.note(f"HTTP is answered: {said[0]}")
    wait_until(partial(watch.waiting, "ready"), DEADLINE, f"inference is not whole after {DEADLINE:.0f} s: {{reason}}")
    line.note(f"all {REPLICAS} replicas are ready", max(seen.ready for seen in watch.pods.values()))


def _once_requeued(training: Training, line: TimeLine, seen: list[str]) -> None:
    """Write down, once, that the training runs no longer."""
    state = "" if seen else training.state()
    if state and not state.startswith("RUNNING"):
        seen.append(state)
        line.note(f"training gives its nodes back ({state.split()[0]})")


def give_back(slurm: Charts, training: Training, line: TimeLine) -> None:
    """Scale the service down, and wait until the training goes on from its checkpoint, not from the beginning."""
    kept = training.step()
    line.note(f"inference is scaled to 0; the checkpoint of the training is at step {kept}")
    scale(slurm, 0)
    wait_until(
        lambda: "" if training.resumed() else training.state(),
        DEADLINE,
        f"training has not gone on after {DEADLINE:.0f} s: {{reason}}",
    )
    resumed = training.resumed()
    line.note(f"training has {resumed}")
    if not resumed.startswith(f"resumed at step {kept} "):
        raise LocalError(f"training said {resumed!r}, but its checkpoint was at step {kept}")
    wait_until(partial(training.missing, kept + 1), DEADLINE, "training makes no step: {reason}")
