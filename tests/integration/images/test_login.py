"""A login node's sshd, with the powers of its container and no others, and users who come in mounted files."""

import pytest

from integration.images.machine import Machine
from integration.slurm.lab import LabError


def test_users_log_in_and_find_a_home_of_their_own(machine: Machine) -> None:
    """It is made at the first login, from the skeleton, for nobody else; one that is there stays as it is."""
    machine.start_sshd()
    machine.have_users(ada=5001)
    machine.until("ada 5001 ada /home/ada\n", lambda: machine.ssh("ada", "echo $(id -un) $(id -u) $(id -gn) $PWD"))
    assert machine.shell("stat -c '%a %U:%G' /home/ada /home/ada/.bashrc") == "700 ada:ada\n600 ada:ada\n"
    machine.ssh("ada", "echo mine >.bashrc")
    assert machine.ssh("ada", "cat .bashrc; umask") == "mine\n0022\n"


def test_a_user_who_is_added_needs_no_restart(machine: Machine) -> None:
    """Names and keys are asked for at each login; who is gone is gone at once."""
    machine.start_sshd()
    machine.have_users(ada=5001)
    machine.until("5001\n", lambda: machine.ssh("ada", "id -u"))
    with pytest.raises(LabError, match="Permission denied"):
        machine.ssh("grace", "true")
    machine.have_users(grace=5002)
    assert machine.ssh("grace", "id -u; echo $HOME") == "5002\n/home/grace\n"
    with pytest.raises(LabError, match="Permission denied"):
        machine.ssh("ada", "true")


def test_users_are_nobody_of_the_image(machine: Machine) -> None:
    """The image's own user is for bare clusters: here that name is somebody else. System users stay what they are."""
    assert machine.shell("getent passwd researcher | cut -d: -f3") == ""
    machine.start_sshd()
    machine.have_users(researcher=1000)
    machine.until("1000\n", lambda: machine.ssh("researcher", "id -u"))
    assert machine.shell("id -un 0; id -un 1; id -un 401; id -un 1000") == "root\ndaemon\nslurm\nresearcher\n"


def test_a_job_runs_as_its_user_whom_slurmctld_does_not_know(machine: Machine) -> None:
    """Names and groups travel with the credential, from sackd: slurmctld's container has no users."""
    machine.start_sshd()
    machine.have_users(ada=5001)
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    machine.slurm("scontrol", "create", "NodeName=n1", "State=CLOUD", "CPUs=1", "RealMemory=100")
    machine.start_slurmd("n1")
    machine.until("idle\n", lambda: machine.slurm("sinfo", "-h", "-o", "%t"))
    machine.start_sackd()
    script = "echo $(id -un) $(id -gn) $HOME $USER >out"
    machine.ssh("ada", f"env SLURM_CONF=/run/slurm/conf/slurm.conf sbatch --wait --output=/dev/null --wrap='{script}'")
    assert machine.ssh("ada", "stat -c %U out; cat out") == "ada\nada ada /home/ada ada\n"
    assert machine.slurm("squeue", "-h", "-t", "all", "-o", "%u") == "ada\n"
