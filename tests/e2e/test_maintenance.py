"""What a platform engineer does to nodes under running jobs: drains, roll-outs, an administrator's own drains."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.demo import Demo, within
from kurm.local.charts import NAMESPACE
from kurm.local.images import reference

pytestmark = pytest.mark.usefixtures("mended")
MISSING = "localhost/kurm/slurmd:no-such-tag"
SLURMD = "app.kubernetes.io/component=slurmd"
STREAM = (
    "for number in $(seq {jobs}); do sbatch --parsable --output=/dev/null --wrap 'sleep {seconds}'; sleep {every}; done"
)


def state(demo: Demo, node: str) -> str:
    """Return the node's state and reason as an administrator sees them."""
    return demo.ssh(f"sinfo -h -n {node} -o '%T %E'").strip()


def ended(demo: Demo, since: str, *jobs: str) -> set[str]:
    """Return how these jobs have ended, each start of them: a job that was requeued has had several.

    Those that were submitted since a time of the login node's: a slurmctld that has lost its state gives numbers out a
    second time, and sacct holds the jobs that were lost for running.
    """
    said = demo.ssh(f"sacct -n -X -D -P -j {','.join(jobs)} -o Submit,JobID,State,Restarts")
    lines = [words for words in (line.split("|") for line in said.splitlines()) if words[0] >= since]
    assert {job for _, job, *_ in lines} == set(jobs)
    return {f"{state} {restarts}" for *_, state, restarts in lines}


def test_kubectl_drain_waits_for_the_job_and_uncordon_gives_the_node_back(demo: Demo) -> None:
    """The job ends by itself, then the pod goes and `kubectl drain` with exit 0; no new one comes before uncordon."""
    since = demo.ssh("date +%FT%T").strip()
    job = demo.ssh("sbatch --parsable --nodelist n2 --wrap 'sleep 20'").strip()
    within(30, lambda: demo.ssh(f"squeue -h -j {job} -o %T").strip(), "RUNNING")
    begun = time.monotonic()
    with kubectl(demo, "drain", "n2", "--ignore-daemonsets", "--timeout=120s") as drain:
        within(15, lambda: state(demo, "n2"), "draining kurm: cordoned")
        while demo.ssh(f"squeue -h -j {job} -o %T").strip() == "RUNNING":
            assert drain.poll() is None
            time.sleep(0.5)
        assert drain.wait(60) == 0
    assert time.monotonic() - begun > 15
    assert ended(demo, since, job) == {"COMPLETED 0"}
    time.sleep(5)
    assert "n2" not in {pod["spec"]["nodeName"] for pod in demo.pods("slurmd")}
    assert state(demo, "n2").startswith("drained")
    demo.kubectl("uncordon", "n2")
    took = within(60, lambda: demo.ssh("srun --immediate=1 --nodelist n2 hostname").strip(), "n2")
    sys.stdout.write(f"after uncordon n2 took a job in {took:.1f} s, and 5 s are the bar\n")
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_a_new_image_is_rolled_out_under_a_stream_of_jobs(demo: Demo) -> None:
    """All pods are replaced, no job is lost or started twice, and never more nodes than maxUnavailable are out."""
    before = {pod["metadata"]["uid"] for pod in demo.pods("slurmd")}
    since = demo.ssh("date +%FT%T").strip()
    with history(demo) as versions, jobs(demo, count=60, seconds=4, every=0.5) as numbers:
        time.sleep(3)
        demo.change("nodeset/workers", {"image": reference("slurmd")})
        within(150, lambda: {image(pod) for pod in demo.pods("slurmd")}, {reference("slurmd")})
        demo.charts.wait("nodeset/workers", "Ready", within=60)
    assert not before & {pod["metadata"]["uid"] for pod in demo.pods("slurmd")}
    assert most_out(versions) == 1
    within(60, lambda: demo.ssh("squeue -h"), "")
    assert len(numbers) == 60
    assert ended(demo, since, *numbers) == {"COMPLETED 0"}
    demo.change("nodeset/workers", {"image": None})
    within(150, lambda: demo.charts.get("nodeset/workers")["status"].get("updated"), 4)
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_a_bad_image_stops_at_the_budget_and_says_so(demo: Demo) -> None:
    """One node is out, the others take jobs; the condition names the image; set right, all is well again."""
    demo.change("nodeset/workers", {"image": MISSING})
    within(60, lambda: MISSING in demo.condition("nodeset/workers", "Stalled").get("message", ""), expected=True)
    time.sleep(10)
    assert sorted(image(pod) == MISSING for pod in demo.pods("slurmd")) == [False, False, False, True]
    assert demo.ssh("srun --nodes 3 hostname | wc -l").strip() == "3"
    demo.change("nodeset/workers", {"image": None})
    demo.charts.wait("nodeset/workers", "Ready", within=90)
    assert {image(pod) for pod in demo.pods("slurmd")} != {MISSING}


def test_an_administrators_drain_stays_whatever_comes_and_goes(demo: Demo) -> None:
    """Through cordon, uncordon, the pod's and the syncer's restart; it ends with the administrator's own resume."""
    admin = demo.pods("controller")[0]["metadata"]["name"]

    def scontrol(*words: str) -> None:
        demo.kubectl("exec", admin, "-c", "slurmctld", "--", "scontrol", "update", "nodename=n4", *words)

    scontrol("state=drain", "reason=bad DIMM")
    within(10, lambda: state(demo, "n4"), "drained bad DIMM")
    within(20, lambda: annotation(demo, "n4", "kurm.dev/slurm-reason"), "bad DIMM")
    demo.kubectl("cordon", "n4")
    time.sleep(5)
    assert state(demo, "n4") == "drained bad DIMM"
    demo.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=syncer")
    demo.kubectl("uncordon", "n4")
    before = next(pod["metadata"]["uid"] for pod in demo.pods("slurmd") if pod["spec"]["nodeName"] == "n4")
    demo.kubectl("delete", "pod", "workers-n4")
    within(60, lambda: before not in {pod["metadata"]["uid"] for pod in demo.pods("slurmd")}, expected=True)
    within(60, lambda: annotation(demo, "n4", "kurm.dev/slurm-reason"), "bad DIMM")
    within(30, lambda: state(demo, "n4").replace("*", ""), "drained bad DIMM")  # slurmd comes back first
    scontrol("state=resume")
    within(15, lambda: state(demo, "n4"), "idle none")
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_our_drain_goes_with_its_cause_also_if_the_syncer_was_away(demo: Demo) -> None:
    """The node is uncordoned while nobody looks; whoever comes back lifts the drain, and tells the Kubernetes node."""
    demo.kubectl("annotate", "node", "n3", "kurm.dev/reason=disk errors")
    demo.kubectl("cordon", "n3")
    within(10, lambda: state(demo, "n3"), "drained kurm: cordoned: disk errors")
    within(10, lambda: slurm_drain(demo, "n3"), ("True", "kurm: cordoned: disk errors"))
    demo.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=syncer")
    demo.kubectl("uncordon", "n3")
    demo.kubectl("annotate", "node", "n3", "kurm.dev/reason-")
    within(60, lambda: state(demo, "n3"), "idle none")
    within(10, lambda: slurm_drain(demo, "n3")[0], "False")
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_scaling_in_requeues_what_will_not_end_if_it_is_told_to(demo: Demo) -> None:
    """`whenBusy: requeue`: after the deadline the jobs queue again, and the nodes go; none is lost."""
    demo.change("nodeset/workers", {"whenBusy": "requeue", "busyDeadline": "15s"})
    numbers = [
        demo.ssh(f"sbatch --parsable --requeue --nodelist n{node} --wrap 'sleep 600'").strip() for node in (3, 4)
    ]
    within(30, lambda: demo.ssh("squeue -h -o %T").split(), ["RUNNING"] * 2)
    demo.kubectl("scale", "nodeset", "workers", "--replicas=2")
    within(60, lambda: len(demo.nodes()), 2)
    assert set(demo.ssh("squeue -h -o %i").split()) == set(numbers)
    demo.end_jobs()
    demo.change("nodeset/workers", {"whenBusy": None, "busyDeadline": None})
    demo.kubectl("scale", "nodeset", "workers", "--replicas=4")
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def image(pod: dict[str, Any]) -> str:
    """Return the image of a slurmd pod, as it was asked for."""
    found: str = pod["spec"]["containers"][0]["image"]
    return found


def annotation(demo: Demo, node: str, name: str) -> str:
    """Return an annotation of the slurmd pod on a node; empty if there is none."""
    pods = [pod for pod in demo.pods("slurmd") if pod["spec"]["nodeName"] == node]
    return next((str(pod["metadata"]["annotations"].get(name, "")) for pod in pods), "")


def slurm_drain(demo: Demo, node: str) -> tuple[str, str]:
    """Return status and message of the condition SlurmDrain of a Kubernetes node."""
    found = json.loads(demo.kubectl("get", "node", node, "-o", "json"))["status"]["conditions"]
    said: dict[str, str] = next((one for one in found if one["type"] == "kurm.dev/SlurmDrain"), {})
    return said.get("status", ""), said.get("message", "")


@contextmanager
def kubectl(demo: Demo, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run kubectl beside the test."""
    cluster = demo.charts.cluster
    program = Path(cluster.record.binaries) / "kubectl"
    argv = [str(program), f"--kubeconfig={cluster.layout.kubeconfig}", f"--namespace={NAMESPACE}", *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def history(demo: Demo) -> Iterator[list[dict[str, Any]]]:
    """Record every version of each slurmd pod, as the API server tells of them."""
    versions: list[dict[str, Any]] = []

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        versions.extend(json.loads(line) for line in process.stdout)  # kubectl prints an event on a line

    with kubectl(demo, "get", "pods", "-l", SLURMD, "--watch", "--output-watch-events", "-o", "json") as process:
        reader = threading.Thread(target=read, args=(process,))
        reader.start()
        within(10, lambda: len(versions) >= len(demo.pods("slurmd")), expected=True)
        yield versions
        time.sleep(1)
    reader.join()


def most_out(versions: list[dict[str, Any]]) -> int:
    """Return how many nodes were out of service at the same moment, at most."""
    serving: dict[str, bool] = {}
    most = 0
    for event in versions:
        pod = event["object"]
        said = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        gone = event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]
        serving[pod["spec"]["nodeName"]] = not gone and said.get("kurm.dev/SlurmReady") == "True"
        most = max(most, sum(not one for one in serving.values()))
    return most


@contextmanager
def jobs(demo: Demo, *, count: int, seconds: int, every: float) -> Iterator[list[str]]:
    """Submit jobs one after another, beside the test; their numbers are all there when it ends."""
    numbers: list[str] = []
    script = STREAM.format(jobs=count, seconds=seconds, every=every)
    thread = threading.Thread(target=lambda: numbers.extend(demo.ssh(script, deadline=300).split()))
    thread.start()
    yield numbers
    thread.join()
