"""The start gate on real nodes: no job starts over a container of a pod whose share Slurm has given away."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.demo import Demo, within

NODE = "n1"
WHOLE = 2
"""CPUs of a node of the local cluster."""
GATE = "/usr/local/sbin/start-gate"
COUNT = (
    'find /run/kurm/cgroup -path "*pod{uid}*" "(" -name cgroup.events -o -name pids.current ")" -exec cat "{{}}" + '
    '| grep -cE "^populated 1|^[1-9]"'
)
"""How many cgroups of a pod have processes, as a job sees it that runs beside it."""
SHARE = """
import asyncio, sys
from pathlib import Path
from kurm.slurm.session import Session
from kurm.slurm.token import Tokens
from kurm.slurm.wire import Answer

class Made(Answer):
    job_id: int = 0

async def main(name, node, cpus, memory):
    tokens = Tokens(Path("/run/secrets/kurm/jwt_hs256.key").read_bytes, "slurm")
    job = {
        "name": name, "flags": ["EXTERNAL_JOB"], "required_nodes": [node], "minimum_cpus": int(cpus),
        "memory_per_node": {"set": True, "number": int(memory)}, "current_working_directory": "/", "immediate": True,
    }
    async with Session("unix:/run/slurmrestd/slurmrestd.sock", tokens) as session:
        print((await session.request(Made, "POST", "job/allocate", body={"job": job})).job_id)

asyncio.run(main(*sys.argv[1:]))
"""
"""What the scheduler asks of Slurm for a pod, by hand."""

pytestmark = pytest.mark.usefixtures("mended", "clean")


@dataclass(frozen=True)
class Placed:
    """A pod that was given a share of the node."""

    uid: str
    job: str


@pytest.fixture
def clean(demo: Demo) -> Iterator[None]:
    """Leave the node as it was: no pod of ours, no record, no job, no drain, and the image's own gate."""
    yield
    demo.kubectl("delete", "pod", "stubborn", "--ignore-not-found", "--grace-period=1", "--timeout=60s")
    slurmd = next(pod for pod in demo.pods("slurmd") if pod["spec"]["nodeName"] == NODE)
    for key in slurmd["metadata"]["annotations"]:
        if key.startswith("gate.kurm.dev/"):
            demo.kubectl("annotate", "pod", slurmd["metadata"]["name"], f"{key}-")
    for job in in_slurmctld(demo, "squeue", "--me", "-h", "-o", "%i %j").splitlines():
        number, _, name = job.partition(" ")
        if name.startswith("slurm/stubborn."):
            in_slurmctld(demo, "scancel", number)
    demo.end_jobs()
    on_node(demo, "sed", "-i", "s/^WAIT = .*/WAIT = 120.0/", GATE)
    if "drain" in state(demo):
        in_slurmctld(demo, "scontrol", "update", f"NodeName={NODE}", "State=RESUME")


def on_node(demo: Demo, *argv: str) -> str:
    """Run a command beside slurmd."""
    return demo.kubectl("exec", f"workers-{NODE}", "-c", "slurmd", "--", *argv)


def in_slurmctld(demo: Demo, *argv: str) -> str:
    """Run one of Slurm's commands as its administrator."""
    return demo.kubectl("exec", "demo-controller-0", "-c", "slurmctld", "--", *argv)


def state(demo: Demo) -> str:
    """Return the node's state and the reason why it is drained, in Slurm's words."""
    return demo.ssh(f"sinfo -h -n {NODE} -o '%T %E'").strip()


def placed(demo: Demo, *, cpus: int, grace: int) -> Placed:
    """Run a pod that ignores SIGTERM, with a share of the node that is recorded there as the scheduler does it.

    The scheduler itself leaves it alone, as it does every pod that belongs to its node.
    """
    node = json.loads(demo.kubectl("get", "node", NODE, "-o", "json"))["metadata"]["uid"]
    slurmd = next(pod for pod in demo.pods("slurmd") if pod["spec"]["nodeName"] == NODE)
    container = {
        "name": "stubborn",
        "image": slurmd["spec"]["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "trap '' TERM; sleep 600"],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "stubborn",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node}],
        },
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": grace, "containers": [container]},
    }
    demo.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    demo.kubectl("wait", "--for=condition=Ready", "pod/stubborn", "--timeout=60s")
    uid = demo.charts.get("pod/stubborn")["metadata"]["uid"]
    syncer = demo.pods("syncer")[0]["metadata"]["name"]
    share = ("python", "-c", SHARE, f"slurm/stubborn.{uid[:8]}", NODE, str(cpus), "500")
    job = demo.kubectl("exec", syncer, "-c", "syncer", "--", *share).strip()
    record = f"{job},{cpus},500"
    demo.kubectl("annotate", "pod", f"workers-{NODE}", f"gate.kurm.dev/{uid}={record}")
    within(10, lambda: record in on_node(demo, "cat", "/run/kurm/gate/annotations"), expected=True)
    return Placed(uid, job)


def submit(demo: Demo, pod: Placed, cpus: int) -> str:
    """Submit a job to the node that says how many processes the pod has when it starts; return its number."""
    script = f"{COUNT.format(uid=pod.uid.replace('-', '?'))} >gate.out"
    return demo.ssh(f"rm -f gate.out; sbatch --parsable -w {NODE} -c {cpus} --mem=500 --wrap '{script}'").strip()


def logged(demo: Demo, job: str) -> list[str]:
    """Return what the node's log has of the gate about a job."""
    lines = demo.kubectl("logs", f"workers-{NODE}", "-c", "slurmd", "--tail=200").splitlines()
    return [line.removeprefix("start-gate: ") for line in lines if line.startswith(f"start-gate: job {job} ")]


def test_a_job_waits_until_the_container_is_gone(demo: Demo) -> None:
    """The pod's job is cancelled: the next one has the node, and starts when the pod, deleted by force, is gone."""
    pod = placed(demo, cpus=WHOLE, grace=60)
    in_slurmctld(demo, "scancel", pod.job)
    job = submit(demo, pod, WHOLE)
    waits = f"job {job} waits for pod slurm/stubborn ({pod.uid}): it still runs, and its job {pod.job} has ended"
    within(10, lambda: waits in logged(demo, job), expected=True)
    assert demo.ssh(f"squeue -h -j {job} -o '%r'; cat gate.out || echo none").split() == ["Prolog", "none"]
    demo.kubectl("delete", "pod", "stubborn", "--force", "--grace-period=0")
    within(20, lambda: demo.ssh("cat gate.out").strip(), "0")
    within(10, lambda: logged(demo, job)[-1].startswith(f"job {job} goes on after "), expected=True)


def test_a_job_beside_it_starts_at_once(demo: Demo) -> None:
    """The node has room for both: the job sees the pod's processes when it starts, and has not waited."""
    pod = placed(demo, cpus=1, grace=5)
    in_slurmctld(demo, "scancel", pod.job)
    job = submit(demo, pod, 1)
    within(15, lambda: int(demo.ssh("cat gate.out").strip() or 0) > 0, expected=True)
    assert [line for line in logged(demo, job) if " and its job " in line] == []


def test_a_job_starts_beside_a_pod_that_has_its_share(demo: Demo) -> None:
    """All of the node is given out, and nobody has the share of another."""
    pod = placed(demo, cpus=1, grace=5)
    job = submit(demo, pod, 1)
    within(15, lambda: int(demo.ssh("cat gate.out").strip() or 0) > 0, expected=True)
    assert [line for line in logged(demo, job) if " and its job " in line] == []


def test_a_node_whose_pod_never_goes_is_drained(demo: Demo) -> None:
    """With a reason that names the pod and that nobody takes away; the job is in the queue again, and not held."""
    pod = placed(demo, cpus=WHOLE, grace=60)
    on_node(demo, "sed", "-i", "s/^WAIT = .*/WAIT = 3.0/", GATE)
    in_slurmctld(demo, "scancel", pod.job)
    job = submit(demo, pod, WHOLE)
    why = f"start-gate: pod slurm/stubborn ({pod.uid}): it still runs, and its job {pod.job} has ended, for 3 s"
    within(20, lambda: state(demo).partition(" ")[2], why)
    within(10, lambda: demo.ssh(f"squeue -h -j {job} -o %T").strip(), "PENDING")
    assert "Priority=0" not in demo.ssh(f"scontrol -o show job {job}").split()
    assert demo.ssh("cat gate.out || echo none").strip() == "none"
