"""Bare Slurm in pods, as a researcher meets it: MPI, many small jobs, jobs that take more memory than they may."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from e2e.command import KURM, Local, run
from kurm.local import cluster, images
from kurm.local.bare import BareSlurm

REPOSITORY = Path(__file__).parents[2]
TEST = Local("test")
RING = "cd /shared && sbatch --wait --parsable mpi-ping-pong.sbatch"
OUTPUT_LINES = 4

# Touches every page, so that the memory is really taken; says so if it lives to.
TAKE = "python3 -c 'b = bytearray({mib} << 20); b[::4096] = bytes([1]) * len(b[::4096]); print(\"took {mib} MiB\")'"


@dataclass(frozen=True)
class Bare:
    """The cluster `test` with bare Slurm on it, and what the demo printed when it made them."""

    slurm: BareSlurm
    printed: str

    def ssh(self, command: str, deadline: float = 120) -> str:
        """Run a command on the login node as the researcher."""
        return self.slurm.ssh(command, deadline=deadline)

    def pods(self, component: str) -> list[str]:
        """Return the names of a component's pods."""
        selector = f"--selector=app.kubernetes.io/component={component}"
        return [pod["metadata"]["name"] for pod in TEST.get("pods", "--namespace=bare", selector)["items"]]

    def restarts(self) -> dict[str, int]:
        """Return how often each slurmd container was started again."""
        pods = TEST.get("pods", "--namespace=bare", "--selector=app.kubernetes.io/component=slurmd")["items"]
        return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}

    def state(self, node: str) -> str:
        """Return a Slurm node's state, in sinfo's word."""
        return self.ssh(f"sinfo --noheader --nodes {node} --format %T").strip()


@pytest.fixture(scope="module")
def bare() -> Iterator[Bare]:
    """Make everything as `make demo` does, under another name; take it down afterwards."""
    TEST.kurm("down")
    printed = run(KURM, "local", "--name", TEST.name, "demo", "--bare", "--repository", REPOSITORY, deadline=3000)
    yield Bare(BareSlurm(cluster.find(TEST.name), REPOSITORY), printed)
    TEST.kurm("down")


def test_the_demo_shows_three_nodes_and_success(bare: Bare) -> None:
    """What `make demo` prints has a line for each of three different nodes, and the exit code of mpirun."""
    nodes = {line.split("on node ")[1].split(":")[0] for line in bare.printed.splitlines() if line.startswith("rank ")}
    assert nodes == {"slurmd-0", "slurmd-1", "slurmd-2"}
    assert "Exit code = 0" in bare.printed.splitlines()


def test_the_ring_runs_twenty_times_without_a_failure(bare: Bare) -> None:
    """MPI's start over three nodes is no matter of luck, and its output is on the shared storage at once."""
    for _ in range(20):
        job = bare.ssh(RING, deadline=180).strip()
        lines = bare.ssh(f"cat /shared/mpi-ping-pong-{job}.out").splitlines()
        assert (len(lines), lines[-1]) == (OUTPUT_LINES, "Exit code = 0"), lines


def test_fifty_jobs_over_two_nodes_run_one_after_another(bare: Bare) -> None:
    """Each `srun` sees two different nodes."""
    loop = "for i in $(seq 50); do srun --nodes 2 --ntasks-per-node 1 hostname | sort -u | wc -l; done"
    assert bare.ssh(loop, deadline=600).split() == ["2"] * 50


def test_a_job_that_takes_more_than_it_asked_for_is_killed(bare: Bare) -> None:
    """The kernel ends the job at its own limit; slurmd and the node do not notice."""
    before = bare.restarts()
    job = bare.ssh(f"srun --mem 100M {TAKE.format(mib=300)} 2>&1; echo ended with $?")
    assert "took" not in job
    assert "oom_kill" in job.replace("OOM Kill", "oom_kill"), job
    assert "ended with 0" not in job
    cluster.wait_until(
        partial(states_other_than, bare, "idle", "slurmd-[0-2]"), 30, "nodes are not idle 30 s later: {reason}"
    )
    assert bare.restarts() == before


def states_other_than(bare: Bare, wanted: str, nodes: str) -> str:
    """Return the states of these nodes if any differs from `wanted`, else nothing."""
    states = set(bare.ssh(f"sinfo --noheader --Node --nodes '{nodes}' --format %T").split())
    return "" if states == {wanted} else " ".join(sorted(states)) or "not registered yet"


@pytest.fixture
def limited(bare: Bare) -> Iterator[str]:
    """Add a compute node whose pod may use 1 GiB and which tells Slurm that it has 3,000 MB; return its name."""
    manifest = (REPOSITORY / "tests/e2e/bare/limited/slurmd-limited.yaml").read_text()
    name = TEST.get("statefulset", "--namespace=bare", "slurmd")["spec"]["template"]["spec"]["containers"][0]["image"]
    TEST.kubectl("apply", "--filename=-", stdin=manifest.replace(images.reference("slurmd"), name))
    cluster.wait_until(partial(states_other_than, bare, "idle", "slurmd-limited-0"), 60, "it did not come: {reason}")
    yield "slurmd-limited-0"
    TEST.kubectl("delete", "--namespace=bare", "statefulset/slurmd-limited", "--wait=true")


def test_a_pod_limit_below_what_slurm_granted_ends_the_job_and_not_slurmd(bare: Bare, limited: str) -> None:
    """A job granted 2 GiB that takes 1.5 GiB in a pod of 1 GiB is killed; the node takes jobs again within 30 s."""
    job = bare.ssh(f"srun --nodelist {limited} --mem 2G {TAKE.format(mib=1536)} 2>&1; echo ended with $?")
    killed = time.monotonic()
    assert "took" not in job
    assert "ended with 0" not in job
    again = bare.ssh(f"srun --nodelist {limited} --mem 100M hostname").strip()
    assert again == limited
    assert time.monotonic() - killed < 30


def test_no_zombie_is_left_in_any_slurmd_pod(bare: Bare) -> None:
    """A step that was killed is reaped by the pod's init; this test runs after all that kill jobs."""
    for pod in bare.pods("slurmd"):
        states = TEST.kubectl("exec", "--namespace=bare", pod, "--", "ps", "-eo", "stat=,args=")
        assert [line for line in states.splitlines() if line.startswith("Z")] == []
