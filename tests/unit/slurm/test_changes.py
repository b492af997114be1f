"""What a change of configuration needs."""

import pytest

from kurm.slurm.changes import Change, Step, changes, needed
from kurm.slurm.conf import ConfError

BASE = """\
ClusterName=demo
SlurmctldPort=6817
SchedulerParameters=bf_interval=1
Prolog=/a
NodeName=n[1-3] CPUs=4
PartitionName=main Nodes=ALL
"""


def found(old: str, new: str, file: str = "slurm.conf") -> tuple[Change, ...]:
    """Return the changes of one file."""
    return changes({file: old}, {file: new})


@pytest.mark.parametrize(
    ("was", "becomes", "what", "step"),
    [
        ("bf_interval=1", "bf_interval=2", "SchedulerParameters", Step.RECONFIGURE),
        ("SlurmctldPort=6817", "SlurmctldPort=7000", "SlurmctldPort", Step.RESTART_SLURMCTLD),
        ("SlurmctldPort=6817\n", "", "SlurmctldPort", Step.RESTART_SLURMCTLD),
        ("Prolog=/a", "Prolog=/a\nProlog=/b", "Prolog", Step.RECONFIGURE),
        ("ClusterName=demo", "ClusterName=demo\nAuthType=auth/slurm", "AuthType", Step.RESTART_IDLE),
        ("ClusterName=demo", "ClusterName=demo\nslurmdport=1", "slurmdport", Step.RESTART_ALL),
        ("CPUs=4", "CPUs=8", "NodeName", Step.RECONFIGURE),
        ("PartitionName=main Nodes=ALL\n", "", "PartitionName", Step.RECONFIGURE),
    ],
)
def test_each_change_has_its_step(was: str, becomes: str, what: str, step: Step) -> None:
    """By the key that is touched; the sections of the manual are in the table."""
    (change,) = found(BASE, BASE.replace(was, becomes))
    assert (change.key, change.step) == (what, step)
    assert (change.step == Step.RECONFIGURE) == (not change.why)


def test_what_is_no_change() -> None:
    """Comments, the case of keys, the order of settings, and an earlier line that a later one overrules."""
    other = "# hello\nPartitionName=main Nodes=ALL\nnodename=n[1-3] CPUs=4\nCLUSTERNAME=other\nclustername=demo\n"
    other += "Prolog=/a\nSchedulerParameters = bf_interval=1\nslurmctldport=6817\n"
    assert found(BASE, other) == ()
    assert needed(()) is None


def test_the_largest_step_covers_all() -> None:
    """A restart includes a reconfigure."""
    both = found(BASE, BASE.replace("6817", "7000").replace("interval=1", "interval=2"))
    assert [change.key for change in both] == ["SchedulerParameters", "SlurmctldPort"]
    assert needed(both) == Step.RESTART_SLURMCTLD


def test_a_change_tells_what_it_is() -> None:
    """For a condition's message."""
    (port,) = found(BASE, BASE.replace("6817", "7000"))
    assert str(port).startswith("slurm.conf: SlurmctldPort changed (listening settings need a daemon's restart")
    (partition,) = found(BASE, BASE + "PartitionName=debug Nodes=n1\n")
    assert (str(partition), partition.old) == ("slurm.conf: PartitionName=debug added", None)


@pytest.mark.parametrize(
    ("was", "becomes", "step"),
    [
        ("Type=h100", "Type=a100", Step.RESTART_ALL),
        ("File=/dev/nvidia0", "File=/dev/nvidia1", Step.RECONFIGURE),
        ("Cores=0-1", "Cores=2-3", Step.RESTART_SLURMCTLD),
        ("AutoDetect=off", "AutoDetect=nvml", Step.RECONFIGURE),
    ],
)
def test_gres_conf_is_told_by_its_fields(was: str, becomes: str, step: Step) -> None:
    """Several lines may describe the same GRES; the field that differs decides."""
    text = "AutoDetect=off\nName=gpu Type=h100 File=/dev/nvidia0 Cores=0-1\nName=gpu Type=l4 File=/dev/nvidia7\n"
    assert needed(found(text, text.replace(was, becomes), "gres.conf")) == step


def test_fields_that_change_places_are_a_change() -> None:
    """The same pairs on other lines are another configuration."""
    text = "Name=gpu Type=a File=/dev/0\nName=gpu Type=b File=/dev/1\n"
    swapped = "Name=gpu Type=b File=/dev/0\nName=gpu Type=a File=/dev/1\n"
    (change,) = found(text, swapped, "gres.conf")
    assert change.step == Step.RESTART_ALL
    assert found(text, "".join(reversed(text.splitlines(keepends=True))), "gres.conf") == ()


def test_yaml_is_compared_by_its_meaning() -> None:
    """Style is no difference; what is no YAML is told with its line."""
    assert found("- a: 1\n", "[{a: 1}]", "topology.yaml") == ()
    (change,) = found("- a: 1\n", "- a: 2\n", "topology.yaml")
    assert (change.file, change.step) == ("topology.yaml", Step.RECONFIGURE)
    with pytest.raises(ConfError, match=r"^line 2, topology\.yaml: this is no YAML: "):
        found("", "a: 1\nb: }\n", "topology.yaml")


def test_a_file_may_come_and_go() -> None:
    """A missing file is an empty one."""
    (change,) = changes({}, {"cgroup.conf": "ConstrainCores=yes"})
    assert (change.old, change.new, change.step) == (None, "yes", Step.RECONFIGURE)
    (change,) = changes({"cgroup.conf": "ConstrainCores=yes"}, {})
    assert (change.old, change.new) == ("yes", None)
