"""The real slurmctld under its init: what is projected comes into force, or Slurm says why not and runs on."""

import pytest

from integration.images.machine import Machine
from integration.slurm.lab import LabError

GRES = "GresTypes=gpu"
UNRECOGNIZED = "unrecognized key: Nonsense"
REFUSED = {
    "unknown key": (
        {"slurm.conf": "Nonsense=1"},
        f"error: _parse_next_key: Parsing error at {UNRECOGNIZED}; fatal: Unable to process configuration file",
    ),
    "partition over nothing": (
        {"slurm.conf": "PartitionName=odd Nodes=nosuch[1-2]"},
        'lookup failure for node "nosuch2"; fatal: Invalid node names in partition odd',
    ),
    "cgroup.conf": (
        {"cgroup.conf": "Nonsense=1"},
        "key: Nonsense; fatal: Could not open/read/parse cgroup.conf file cgroup.conf",
    ),
    "gres.conf": (
        {"slurm.conf": GRES, "gres.conf": "Name=gpu Nonsense=1"},
        'error: Parse error in file gres.conf line 1: " Nonsense=1"; fatal: error opening/reading gres.conf',
    ),
    "topology.yaml": (
        {"topology.yaml": "- topology: [unclosed"},
        "error: Failed to load topology.yaml: Unable to convert Data type; fatal: Failed to initialize topology plugin",
    ),
    "plugin": (
        {"slurm.conf": "SchedulerType=sched/nosuch"},
        "fatal: Failed to initialize the various schedulers",
    ),
}


def memory(machine: Machine) -> str:
    """Return slurmctld's DefMemPerCPU, by which configurations are told apart here."""
    lines = machine.slurm("scontrol", "show", "config").splitlines()
    return next(line.split("=")[1].strip() for line in lines if line.startswith("DefMemPer"))


def test_a_change_is_in_force_within_seconds_of_its_projection(machine: Machine) -> None:
    """It is asked for by polling once a second and tried before, which takes a fraction of one."""
    machine.start_slurmctld()
    machine.until({"hash": "h1", "refused": "", "words": ""}, machine.told)
    machine.project("h2", machine.extended("DefMemPerCPU=123"))
    machine.until({"hash": "h2", "refused": "", "words": ""}, machine.told, seconds=10)
    assert memory(machine) == "123"


def test_the_init_tells_which_nodes_the_log_speaks_of(machine: Machine) -> None:
    """What an administrator does to a node is a line of the real slurmctld's, and what follows from a job is none."""
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    line = "NodeName=x[1-3] NodeAddr=127.0.0.1 NodeHostName=localhost CPUs=2 RealMemory=1000 State=EXTERNAL"
    machine.slurm("scontrol", "create", *line.split())
    after = machine.told("hints?after=0")["next"]
    machine.slurm("scontrol", "update", "NodeName=x[1-2]", "State=DRAIN", "Reason=fan is loud")
    found: set[str] = set()

    def heard() -> set[str]:
        nonlocal after
        told = machine.told(f"hints?after={after}")
        assert not told["lost"]
        after = told["next"]
        found.update(told["nodes"])
        return found

    machine.until({"x1", "x2"}, heard)


def test_what_slurm_does_not_take_leaves_all_as_it_was(machine: Machine) -> None:
    """Of each file it says what is wrong, in its own words; slurmctld is not even asked to reconfigure."""
    machine.start_slurmctld()
    machine.project("h2", machine.extended("DefMemPerCPU=123"))
    machine.until("h2", lambda: machine.told()["hash"])
    before = machine.pids("slurmctld")
    for number, (files, words) in enumerate(REFUSED.values()):
        whole = {name: text + "\n" for name, text in files.items() if name != "slurm.conf"}
        machine.project(f"bad{number}", machine.extended("DefMemPerCPU=4", files.get("slurm.conf", "")) | whole)
        machine.until(f"bad{number}", lambda: machine.told()["refused"], seconds=10)
        told = machine.told()
        assert told["hash"] == "h2"
        assert words in told["words"]
    assert machine.pids("slurmctld") == before
    assert memory(machine) == "123"
    machine.project("h3", machine.extended("DefMemPerCPU=5"))
    machine.until({"hash": "h3", "refused": "", "words": ""}, machine.told, seconds=10)


def test_what_slurms_state_is_against_is_tried_again(machine: Machine) -> None:
    """A node's record is in a block that the new topology has not: it comes into force when the record has left it."""
    blocks = "- topology: default\n  cluster_default: true\n  block:\n    block_sizes: [1]\n    blocks:\n"
    plugin = machine.extended("TopologyPlugin=topology/block")
    machine.start_slurmctld()
    machine.project("h2", plugin | {"topology.yaml": f"{blocks}    - block: old\n    - block: new\n"})
    machine.until("h2", lambda: machine.told()["hash"])
    machine.slurm("scontrol", "create", "NodeName=c1", "State=CLOUD", "CPUs=1", "RealMemory=9", "Topology=default:old")
    machine.project("h3", plugin | {"topology.yaml": f"{blocks}    - block: new\n"})
    machine.until("h3", lambda: machine.told()["refused"], seconds=10)
    assert "Invalid node topology specified default:old for c1" in machine.told()["words"]
    assert machine.told()["hash"] == "h2"
    machine.slurm("scontrol", "update", "NodeName=c1", "Topology=default:new")
    machine.until({"hash": "h3", "refused": "", "words": ""}, machine.told, seconds=45)
    machine.slurm("scontrol", "delete", "NodeName=c1")


def test_slurmctld_comes_up_with_the_last_good_one(machine: Machine) -> None:
    """It was killed, and what is projected now has a mistake: no crash loop, and no change of what is in force."""
    machine.start_slurmctld()
    machine.project("h2", machine.extended("DefMemPerCPU=123"))
    machine.until("h2", lambda: machine.told()["hash"])
    machine.kill_controller()
    machine.project("h3", machine.extended("Nonsense=1"))
    machine.start_slurmctld()
    words = REFUSED["unknown key"][1]
    machine.until({"hash": "h2", "refused": "h3", "words": words}, machine.told)
    assert memory(machine) == "123"
    machine.project("h4", machine.extended("DefMemPerCPU=5"))
    machine.until({"hash": "h4", "refused": "", "words": ""}, machine.told, seconds=10)


def test_the_first_start_of_all_waits_for_a_good_one(machine: Machine) -> None:
    """There is none to fall back on, so slurmctld starts when the mistake is mended."""
    machine.project("bad", machine.extended("Nonsense=1"))
    machine.start_slurmctld()
    machine.until({"hash": "", "refused": "bad", "words": REFUSED["unknown key"][1]}, machine.told)
    machine.project("h2", machine.extended())
    machine.until({"hash": "h2", "refused": "", "words": ""}, machine.told, seconds=10)


def test_a_prolog_that_has_changed_runs_before_the_next_job(machine: Machine) -> None:
    """They are handed out with the configuration, changed, added or gone; slurmd is not restarted.

    slurmd is started first of all: it waits for slurmctld, then for its node's record.
    """
    machine.start_slurmd("n1")
    machine.until(1, lambda: len([line for line in machine.lines("slurmd") if "does not answer" in line]))

    def with_scripts(*names: str) -> dict[str, str]:
        scripts = {name: f"#!/bin/sh\necho {name} >>/tmp/trace/prolog\n" for name in names}
        settings = ["PrologFlags=Alloc", *(f"Prolog={name}" for name in names)]
        return machine.extended(*settings) | scripts

    machine.project("h2", with_scripts("prolog-a", "prolog-b"))
    machine.start_slurmctld()
    machine.until("slurmd-start: waiting: slurmctld does not know node n1 yet", lambda: machine.lines("slurmd")[-1])
    machine.slurm("scontrol", "create", "NodeName=n1", "State=CLOUD", "CPUs=1", "RealMemory=100")
    machine.until("idle", lambda: machine.slurm("sinfo", "-h", "-o", "%t").strip())
    assert run_job(machine) == ["prolog-a", "prolog-b"]
    slurmd = machine.shell(SLURMD)

    machine.project("h3", with_scripts("prolog-a", "prolog-c"))
    machine.until({"hash": "h3", "refused": "", "words": ""}, machine.told, seconds=10)
    assert run_job(machine) == ["prolog-a", "prolog-c"]
    assert machine.shell(SLURMD) == slurmd

    machine.project("bad", with_scripts("prolog-d") | machine.extended("Nonsense=1"))
    machine.until("bad", lambda: machine.told()["refused"], seconds=10)
    assert run_job(machine) == ["prolog-a", "prolog-c"]


def test_slurmctlds_own_scripts_come_with_their_configuration(machine: Machine) -> None:
    """They are named by the path of what is in force, where they are not yet while they are on trial."""
    machine.start_slurmctld()
    machine.until("h1", lambda: machine.told()["hash"])
    script = {"prolog-slurmctld": "#!/bin/sh\nexit 0\n"}
    machine.project("h2", machine.extended("PrologSlurmctld=/run/slurmctld/in-force/prolog-slurmctld") | script)
    machine.until({"hash": "h2", "refused": "", "words": ""}, machine.told, seconds=10)
    machine.project("h3", machine.extended("PrologSlurmctld=/run/slurmctld/in-force/nowhere"))
    machine.until("h3", lambda: machine.told()["refused"], seconds=10)
    assert "Invalid PrologSlurmctld(`nowhere`)" in machine.told()["words"]


SLURMD = "pgrep --oldest --full '^slurmd -D'"


def run_job(machine: Machine) -> list[str]:
    """Run a job and return what its prologs have left."""
    machine.shell("rm -f /tmp/trace/prolog")
    machine.slurm("sbatch", "--wait", "--chdir=/tmp", "--output=/dev/null", "--wrap=true")
    return machine.shell("cat /tmp/trace/prolog").split()


def test_a_cluster_without_an_operator_is_left_alone(machine: Machine) -> None:
    """Bare Slurm: slurmctld runs from /etc/slurm itself, takes a change when told to, and has no status port."""
    (machine.etc / "kurm-hash").unlink()
    machine.start_slurmctld()
    machine.until("", lambda: machine.slurm("sinfo", "-h", "-N"))
    machine.start_slurmd("n1", "--conf", "CPUs=1 RealMemory=100")
    machine.until("n1 idle\n", lambda: machine.slurm("sinfo", "-h", "-o", "%N %t"))
    with pytest.raises(LabError, match="Connection refused"):
        machine.told()
    (machine.etc / "slurm.conf").unlink()
    machine.write_conf(machine.conf + "DefMemPerCPU=123\n")
    machine.slurm("scontrol", "reconfigure")
    machine.until("123", lambda: memory(machine))
    assert machine.shell("ls /var/spool/slurmctld") == "state\n"
