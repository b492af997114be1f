"""The lab itself: it leaves nothing behind, however its owner ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from integration.slurm.lab import Lab

OWNER = """
import sys, time
from pathlib import Path
from integration.slurm.lab import Lab
with Lab(Path(sys.argv[1])).run() as lab:
    print(*lab.pids("slurmctld", "slurmrestd", "tini"), flush=True)
    time.sleep(600)
"""


def test_a_killed_owner_takes_all_of_it_along(tmp_path: Path) -> None:
    """After a kill -9 of whoever started it no process and no mount of the lab is left."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout
        pids = owner.stdout.readline().split()
        assert len(pids) == 3
        owner.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        os.sched_yield()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_two_labs_do_not_see_one_another(slurm_lab: Lab, own_lab: Lab) -> None:
    """Same ports, same names; what is made in one is not in the other."""
    own_lab.command("scontrol", "create", "NodeName=mine", "State=EXTERNAL", "CPUs=1")
    assert "mine" in own_lab.command("sinfo", "-h", "-N", "-o", "%N")
    assert "mine" not in slurm_lab.command("sinfo", "-h", "-N", "-o", "%N").split()


def test_a_stopped_controller_keeps_its_state(own_lab: Lab) -> None:
    """Nodes that were made are there again after a restart in order."""
    own_lab.command("scontrol", "create", "NodeName=n[1-3]", "State=CLOUD", "CPUs=1")
    own_lab.stop_controller()
    own_lab.start_controller()
    assert own_lab.command("sinfo", "-h", "-N", "-o", "%N").split() == ["n1", "n2", "n3"]


def test_slurmctld_runs_as_its_image_has_it_run(slurm_lab: Lab) -> None:
    """Under its init, which gives it the allocator that placing on 10,000 nodes was measured with."""
    (pid,) = slurm_lab.pids("slurmctld")
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert [one for one in variables if one.startswith("GLIBC_")] == ["GLIBC_TUNABLES=glibc.malloc.tcache_count=65535"]
