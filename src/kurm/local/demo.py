"""`make demo`: a cluster, Slurm on it, the program that every newcomer tries first, and a service beside training."""

import re
from functools import partial
from pathlib import Path

from rich.console import Console

from kurm.local import bare, charts, cluster, twoway
from kurm.local.bare import BareSlurm
from kurm.local.charts import Charts
from kurm.local.errors import LocalError
from kurm.local.login import Login
from kurm.local.progress import Steps

EXAMPLE = "examples/mpi-ping-pong"
WORKERS = 4
JOB_DEADLINE = 120.0
# A job is gone from slurmctld's memory 300 s after its end (MinJobAge); long before that we have looked.
OVER = ("", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


def run(name: str, repository: Path, console: Console) -> None:
    """Bring all up by the charts, run the MPI job and the two-way example, say how to look around. LocalError."""
    steps = Steps(console)
    slurm = Charts(cluster.up(name, WORKERS, steps), repository)
    images = slurm.deploy(steps)
    show_mpi_job(slurm.login, repository, "~", steps, console)
    twoway.show(slurm, images, repository, steps, console)
    look_around(
        slurm.cluster,
        console,
        f"ssh -F {slurm.login.config} login      [/]# sinfo, squeue, sbatch, srun, sacct",
        f"kubectl get slurmclusters,nodesets,pods -n {charts.NAMESPACE} -o wide",
        f".venv/bin/kurm status -n {charts.NAMESPACE}",
    )


def run_bare(name: str, repository: Path, console: Console) -> None:
    """Do the same with plain manifests instead of the charts. Raises LocalError."""
    steps = Steps(console)
    slurm = BareSlurm(cluster.up(name, WORKERS, steps), repository)
    slurm.deploy(steps)
    show_mpi_job(slurm.login, repository, bare.SHARED, steps, console)
    look_around(
        slurm.cluster,
        console,
        f"ssh -F {slurm.login.config} login      [/]# sinfo, squeue, sbatch, srun",
        f"kubectl get pods -n {bare.NAMESPACE} -o wide",
    )


def show_mpi_job(login: Login, repository: Path, folder: str, steps: Steps, console: Console) -> None:
    """Run the MPI job in a folder that all nodes share, and print what it wrote. LocalError if that is no success."""
    output = mpi_job(login, repository, folder, steps)
    console.print(f"\n{output}", highlight=False)
    if "Exit code = 0" not in output.splitlines():
        raise LocalError("the MPI job failed: its output, above, does not end with 'Exit code = 0'")


def mpi_job(login: Login, repository: Path, folder: str, steps: Steps) -> str:
    """Submit the MPI job on the login node, wait for its end, return what it wrote to the shared storage."""
    for name in ("mpi-ping-pong.py", "mpi-ping-pong.sbatch"):
        login.ssh(f"cat >{folder}/{name}", stdin=(repository / EXAMPLE / name).read_text())
    job = login.ssh(f"cd {folder} && sbatch --parsable mpi-ping-pong.sbatch").strip()
    with steps.step(f"MPI job {job} on three nodes"):
        cluster.wait_until(
            partial(unfinished, login, job),
            JOB_DEADLINE,
            f"job {job} has not ended after {JOB_DEADLINE:.0f} s: it is {{reason}}",
        )
    return login.ssh(f"cd {folder} && cat mpi-ping-pong-{job}.out && cat >&2 mpi-ping-pong-{job}.err")


def unfinished(login: Login, job: str) -> str:
    """Return the state of a job, with Slurm's reason, or nothing if it has ended."""
    if not re.fullmatch(r"\d+", job):
        raise LocalError(f"sbatch said {job!r} where the number of a job was expected")
    said = login.ssh(f"squeue --noheader --jobs {job} --states all --format '%T %r'").strip()
    return "" if said.split(" ")[0] in OVER else said


def look_around(found: cluster.Cluster, console: Console, login: str, *commands: str) -> None:
    """Print what a newcomer would want to try next."""
    lines = [
        f"[bold]{login}",
        f"[bold]export KUBECONFIG={found.layout.kubeconfig} PATH={found.record.binaries}:$PATH[/]",
        *(f"[bold]{command}[/]" for command in commands),
        f"[bold].venv/bin/kurm local --name {found.layout.name} status[/]",
    ]
    console.print(
        "\nEverything is left running. Look around:\n  " + "\n  ".join(lines) + "\n"
        "Take it down with [bold]make down[/].",
        highlight=False,
        soft_wrap=True,
    )
