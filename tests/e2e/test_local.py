"""`kurm local`, from the outside: what it makes, and that nothing of it stays."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import footprint
from e2e.command import KURM, Local
from kurm.local.packages import kernel_can_bridge

LIFE = Local("test-life")
THREE = dict.fromkeys(("n0", "n1", "n2", "n3"), "True")


@pytest.fixture
def before() -> Iterator[footprint.Footprint]:
    """Return a picture of the machine without our cluster; whatever happens, the cluster is gone afterwards."""
    LIFE.kurm("down")
    yield footprint.take()
    LIFE.kurm("down")


def test_up_stop_start_down_twice_leaves_nothing(before: footprint.Footprint) -> None:
    """A cluster ends without a trace and can be made again; a node that is cut off is noticed, and comes back."""
    for _ in range(2):
        LIFE.kurm("up", "--nodes", "3")
        assert LIFE.ready() == THREE
        assert footprint.take().without(before).keys() >= {"processes", "namespaces", "cgroups", "links", "files"}
        LIFE.kurm("node", "stop", "n3")
        # The control plane's grace period is 20 s, and it looks every 2 s.
        LIFE.kubectl("wait", "--for=condition=Ready=Unknown", "node/n3", "--timeout=45s")
        assert LIFE.ready() == THREE | {"n3": "Unknown"}
        LIFE.kurm("node", "start", "n3")
        assert LIFE.ready() == THREE
        LIFE.kurm("down")
        assert footprint.take().without(before) == {}


def test_a_killed_up_is_cleaned_up_by_the_next(before: footprint.Footprint) -> None:
    """`kurm` is killed as it begins each of its steps; the next `up` starts over, and the last one ends well."""
    for step in ("Network, keys", "Control plane", "4 nodes", "DNS", "Cleaning up"):
        kill_up_at(step)
    LIFE.kurm("up", "--nodes", "3")
    assert LIFE.ready() == THREE
    LIFE.kurm("down")
    assert footprint.take().without(before) == {}


def test_two_that_look_for_bridges_at_once_both_find_them() -> None:
    """As `make chaos` beside `make integration` do; what a killed one has left is no harm either."""
    subprocess.run(["ip", "link", "delete", "kurm-try"], check=False)  # of a killed run of this story
    subprocess.run(["ip", "link", "add", "kurm-try", "type", "bridge"], check=True)
    try:
        assert kernel_can_bridge()
    finally:
        subprocess.run(["ip", "link", "delete", "kurm-try"], check=True)


def kill_up_at(step: str) -> None:
    """Run `up` until it says that it begins this step, then kill it with SIGKILL."""
    argv = [str(KURM), "local", "--name", LIFE.name, "up", "--nodes", "3"]
    up = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert up.stderr is not None
    seen: list[str] = []
    for line in up.stderr:
        seen.append(line)
        if line.startswith(f"  ... {step}"):
            break
    up.kill()
    up.communicate(timeout=10)
    assert step in seen[-1], f"`up` never began {step!r}: {seen}"


def test_processes_that_were_ended_from_outside_do_not_hinder(before: footprint.Footprint) -> None:
    """When all processes of a cluster are ended, but its links and cgroups stay, `up` makes it anew."""
    LIFE.kurm("up", "--nodes", "1")
    pids = [line.split()[0] for line in footprint.take().without(before)["processes"]]
    subprocess.run(["kill", "-KILL", *pids], check=False, timeout=10)
    LIFE.kurm("up", "--nodes", "1")
    assert LIFE.ready() == {"n0": "True", "n1": "True"}


def test_two_clusters_do_not_know_of_each_other(before: footprint.Footprint) -> None:
    """A second cluster has addresses of its own; taking it down leaves the first as it was."""
    other = Local("test-other")
    LIFE.kurm("up", "--nodes", "1")
    alone = footprint.take().without(before)
    try:
        other.kurm("up", "--nodes", "1")
        assert other.ready() == {"n0": "True", "n1": "True"}
    finally:
        other.kurm("down")
    assert LIFE.ready() == {"n0": "True", "n1": "True"}
    after = footprint.take().without(before)
    assert {**alone, "processes": None} == {**after, "processes": None}


def test_the_default_storage_class_serves_one_writer_and_many(before: footprint.Footprint) -> None:
    """Claims of both modes are bound; deleting one deletes its volume."""
    LIFE.kurm("up", "--nodes", "2")
    for mode in ("ReadWriteOnce", "ReadWriteMany"):
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        apply({"kind": "PersistentVolumeClaim", "metadata": {"name": mode.lower()}, "spec": spec})
        LIFE.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", f"pvc/{mode.lower()}", "--timeout=30s")
    assert "processes" in footprint.take().without(before)
    LIFE.kubectl("delete", "pvc", "--all", "--timeout=30s")
    LIFE.kubectl("wait", "--for=delete", "pv", "--all", "--timeout=30s")


def apply(item: dict[str, object]) -> None:
    """Apply one object of the core API."""
    LIFE.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", **item}))


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["setpriv", "--reuid=65534", "--clear-groups", KURM, "local", "up"], "needs root"),
        ([KURM, "local", "--name", "No/Name", "up"], "1 to 20 characters"),
        ([KURM, "local", "--name", "test-life", "up", "--nodes", "99"], "--nodes 99: 1 to 32"),
        ([KURM, "local", "--name", "test-none", "status"], "there is no cluster 'test-none'"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(command: list[str | Path], sentence: str) -> None:
    """No traceback: what is wrong, and what to do about it."""
    assert sentence in refusal(command)


def test_an_unreachable_registry_is_told_in_a_sentence(tmp_path: Path) -> None:
    """With empty caches and no module proxy the build ends at once."""
    settings = {"GOPROXY": "http://127.0.0.1:9", "XDG_CACHE_HOME": tmp_path, "GOMODCACHE": tmp_path / "go"}
    env = ["env", *(f"{name}={value}" for name, value in settings.items()), "GOFLAGS=-modcacherw"]
    assert "no registry: " in refusal([*env, KURM, "local", "--name", "test-none", "up"])


def refusal(command: list[str | Path]) -> str:
    """Run a command that must fail; return what it said, on one line."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    return " ".join(done.stderr.split())
