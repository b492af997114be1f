"""`make demo`: a cluster, Slurm on it, and the program that every newcomer tries first."""

import re
from functools import partial
from pathlib import Path

from rich.console import Console

from kurm.local import cluster
from kurm.local.bare import NAMESPACE, BareSlurm
from kurm.local.errors import LocalError
from kurm.local.progress import Steps

EXAMPLE = "examples/mpi-ping-pong"
WORKERS = 4
JOB_DEADLINE = 120.0
# A job is gone from slurmctld's memory 300 s after its end (MinJobAge); long before that we have looked.
OVER = ("", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


def run(name: str, repository: Path, console: Console) -> None:
    """Bring everything up, run the MPI job, print its output and how to look around. Raises LocalError."""
    steps = Steps(console)
    running = cluster.up(name, WORKERS, steps)
    slurm = BareSlurm(running, repository)
    slurm.deploy(steps)
    output = mpi_job(slurm, steps)
    console.print(f"\n{output}", highlight=False)
    if "Exit code = 0" not in output.splitlines():
        raise LocalError("the MPI job failed: its output, above, does not end with 'Exit code = 0'")
    look_around(slurm, console)


def mpi_job(slurm: BareSlurm, steps: Steps) -> str:
    """Submit the MPI job on the login node, wait for its end, return what it wrote to the shared storage."""
    for name in ("mpi-ping-pong.py", "mpi-ping-pong.sbatch"):
        slurm.ssh(f"cat >/shared/{name}", stdin=(slurm.repository / EXAMPLE / name).read_text())
    job = slurm.ssh("sbatch --parsable /shared/mpi-ping-pong.sbatch").strip()
    with steps.step(f"MPI job {job} on three nodes"):
        cluster.wait_until(
            partial(unfinished, slurm, job),
            JOB_DEADLINE,
            f"job {job} has not ended after {JOB_DEADLINE:.0f} s: it is {{reason}}",
        )
    return slurm.ssh(f"cat /shared/mpi-ping-pong-{job}.out; cat >&2 /shared/mpi-ping-pong-{job}.err")


def unfinished(slurm: BareSlurm, job: str) -> str:
    """Return the state of a job, with Slurm's reason, or nothing if it has ended."""
    if not re.fullmatch(r"\d+", job):
        raise LocalError(f"sbatch said {job!r} where the number of a job was expected")
    said = slurm.ssh(f"squeue --noheader --jobs {job} --states all --format '%T %r'").strip()
    return "" if said.split(" ")[0] in OVER else said


def look_around(slurm: BareSlurm, console: Console) -> None:
    """Print what a newcomer would want to try next."""
    found = slurm.cluster
    console.print(
        "\nEverything is left running. Look around:\n"
        f"  [bold]ssh -F {slurm.ssh_config} login[/]      # sinfo, squeue, sbatch, srun\n"
        f"  [bold]export KUBECONFIG={found.layout.kubeconfig} PATH={found.record.binaries}:$PATH[/]\n"
        f"  [bold]kubectl get pods -n {NAMESPACE} -o wide[/]\n"
        f"  [bold].venv/bin/kurm local --name {found.layout.name} status[/]\n"
        "Take it down with [bold]make down[/].",
        highlight=False,
        soft_wrap=True,
    )
