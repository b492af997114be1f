"""Reading the machine's control groups."""

from pathlib import Path

import pytest

from kurm.local.cgroups import NEEDED, Cgroups, of_this_machine
from kurm.local.errors import LocalError

TEMPLATE = "33 32 0:{n} / /sys/fs/cgroup/{where} rw,nosuid shared:{n} - {kind} {kind} rw{options}"


def mountinfo(*controllers: str, unified: str | None = None) -> str:
    """Return /proc/self/mountinfo of a machine with these cgroup v1 controllers, and v2 at `unified`."""
    lines = ["21 1 8:1 / / rw,relatime - ext4 /dev/vda rw"]
    lines += [
        TEMPLATE.format(n=number, where=name, kind="cgroup", options=f",{name}")
        for number, name in enumerate(controllers)
    ]
    if unified is not None:
        lines.append(TEMPLATE.format(n=99, where=unified, kind="cgroup2", options=""))
    return "\n".join(lines)


def test_a_machine_with_cgroup_v1_has_a_hierarchy_for_each_controller() -> None:
    """Controllers that nothing of ours uses are left alone."""
    found = of_this_machine(mountinfo(*NEEDED, "net_cls", "name=systemd"))
    assert found.unified is False
    assert set(found.roots) == {*NEEDED, "systemd"}
    assert found.tracking == Path("/sys/fs/cgroup/pids")


def test_a_hybrid_machine_also_has_the_unified_hierarchy() -> None:
    """Runc makes its groups in the unified one too, so `down` has to find them there."""
    found = of_this_machine(mountinfo(*NEEDED, unified="unified"))
    assert found.unified is False
    assert set(found.roots) == {*NEEDED, "unified"}


def test_a_machine_with_cgroup_v2_alone_has_one_hierarchy() -> None:
    """Debian 12 boots like this by default."""
    assert of_this_machine(mountinfo(unified="")) == Cgroups({"": Path("/sys/fs/cgroup/")})


def test_missing_controllers_are_named() -> None:
    """The error says which controllers are missing, and what to do."""
    with pytest.raises(LocalError, match="no cgroup controller memory, pids on this machine: boot a kernel"):
        of_this_machine(mountinfo(*(name for name in NEEDED if name not in {"memory", "pids"})))


def test_two_controllers_in_one_hierarchy_are_both_found() -> None:
    """Many distributions mount cpu and cpuacct together."""
    rest = [name for name in NEEDED if name not in {"cpu", "cpuacct"}]
    both = TEMPLATE.format(n=50, where="cpu,cpuacct", kind="cgroup", options=",cpu,cpuacct")
    found = of_this_machine(mountinfo(*rest) + "\n" + both)
    assert found.roots["cpu"] == found.roots["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")


def test_a_new_group_may_use_what_the_group_above_may(tmp_path: Path) -> None:
    """With cgroup v1 a new cpuset is empty, and no process could join it."""
    root = tmp_path / "cpuset"
    root.mkdir()
    (root / "cpuset.cpus").write_text("0-1\n")
    (root / "cpuset.mems").write_text("0\n")
    Cgroups({"cpuset": root}).make("kurm/demo/n1")
    assert (root / "kurm/demo/n1/cpuset.cpus").read_text() == "0-1\n"
    assert (root / "kurm/demo/n1/cpuset.mems").read_text() == "0\n"


def test_processes_are_found_in_groups_below_and_in_any_hierarchy(tmp_path: Path) -> None:
    """A process that a pod moved within one hierarchy is still found by another."""
    for controller, pids in (("pids", "11\n12\n"), ("memory", "12\n13\n")):
        group = tmp_path / controller / "kurm/demo/n1/kubepods/pod1"
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(pids)
    groups = Cgroups({name: tmp_path / name for name in ("pids", "memory")})
    assert groups.pids("kurm/demo") == {11, 12, 13}
    assert groups.pids("kurm/other") == set()
