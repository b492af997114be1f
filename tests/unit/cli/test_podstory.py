"""What `kurm explain pod` tells, line by line."""

import io
from typing import Any

import msgspec
import pytest

from kurm.cli.podstory import Gang, Nodes, Story, Wanted, show
from kurm.cli.queuedjob import QueuedJob
from kurm.cli.text import console
from kurm.domain.nodeset import Infeasible
from kurm.scheduler.objects import Pod

Json = dict[str, Any]
HEAD = "Pod tenant/web-1, of unknown age, placed by SlurmCluster slurm/demo\n"
WANTED = Wanted(1, 64, partition="services", account="lab")
JOB = {"kurm.dev/job": "12"}


def pod(condition: tuple[str, str, str, str] | None = None, *, phase: str = "Pending", **spec: Any) -> Pod:
    """Return the pod tenant/web-1; a condition is its type, status, reason and message."""
    annotations = spec.pop("annotations", {})
    conditions = [dict(zip(("type", "status", "reason", "message"), condition, strict=True))] if condition else []
    meta = {"name": "web-1", "namespace": "tenant", "uid": "u1", "annotations": annotations}
    whole = {"metadata": meta, "spec": {"schedulerName": "kurm", **spec}}
    return msgspec.convert(whole | {"status": {"phase": phase, "conditions": conditions}}, Pod)


def told(pod: Pod, cluster: str = "slurm/demo", **more: Any) -> str:
    """Return what is printed into a pipe."""
    out = io.StringIO()
    show(console(out), Story(pod, cluster, **more))
    return out.getvalue()


def queued(message: str = "waits in Slurm's queue as job 12") -> Pod:
    """Return a pod that waits in the queue."""
    return pod(("PodScheduled", "False", "SlurmQueue", message))


def test_a_pod_in_the_queue() -> None:
    """The scheduler's words, what it asks, Slurm's reason in words, its place, and the nodes that are out."""
    job = QueuedJob("12", "PENDING", "services", "lab", reason="Priority", place=3, waiting=8)
    out = (
        Infeasible(reason="Taint/lab", nodes=2, examples=("n3", "n4")),
        Infeasible(reason="NodeSelector", nodes=9, examples=("n5",)),
    )
    assert told(queued(), wanted=WANTED, jobs=[job], nodes=Nodes(14, 3, out)) == (
        f"{HEAD}"
        "  It waits: SlurmQueue: waits in Slurm's queue as job 12\n"
        "\n"
        "Slurm\n"
        "  It asks for 1 CPU, 64 MiB in partition services, account lab.\n"
        "  Its job 12 in partition services, account lab waits: Priority (jobs of higher priority are before it). "
        "It has place 3 of 8 in partition services.\n"
        "\n"
        "Nodes\n"
        "  3 of 14 could be used, if they were free.\n"
        "  2 cannot: Taint/lab (n3, n4)\n"
        "  9 cannot: NodeSelector (n5, ...)\n"
    )


def test_a_bound_pod() -> None:
    """Where it is and by which job; nodes that it could have had are of no interest any more."""
    job = QueuedJob("12", "RUNNING", "services", start="2026-11-22T01:29:16", nodes="n2")
    found = pod(phase="Running", nodeName="n2", annotations=JOB)
    assert told(found, jobs=[job], nodes=Nodes(4, 4)) == (
        f"{HEAD}  It is bound to n2 by job 12.\n\nSlurm\n  Its job 12 in partition services is RUNNING on n2.\n"
    )


def test_a_bound_pod_without_a_job() -> None:
    """Slurm has lost its node: the pod runs on, and its job comes back with the node."""
    found = pod(phase="Running", nodeName="n2", annotations=JOB)
    assert told(found) == (
        f"{HEAD}  It is bound to n2 by job 12.\n"
        "\n"
        "Slurm\n"
        "  Slurm has no job for it.\n"
        "  It gets one as soon as Slurm starts jobs on n2. How that node is:\n"
        "    kurm explain node n2\n"
    )


def test_an_incomplete_gang() -> None:
    """Which pods are there, and which are missing."""
    waiting = pod(("PodScheduled", "False", "GangIncomplete", "1 of 3 pods are there"))
    gang = Gang("gang tenant/train", 3, ("web-1",), "2 more with the annotation slurm.kurm.dev/gang: train")
    assert told(waiting, gang=gang).endswith(
        "Gang\n"
        "  It is one of 3 of gang tenant/train, which are bound all or none; 1 of its pods are there.\n"
        "  There: web-1\n"
        "  Missing: 2 more with the annotation slurm.kurm.dev/gang: train\n"
    )


@pytest.mark.parametrize(
    ("found", "cluster", "words"),
    [
        (
            pod(phase="Succeeded", nodeName="n1", annotations=JOB),
            "slurm/demo",
            "It has ended (Succeeded); it was bound to n1 by job 12.",
        ),
        (
            pod(phase="Running", nodeName="n1", annotations=JOB | {"kurm.dev/slot": "2"}),
            "slurm/demo",
            "It is bound to n1 by job 12, slot 2.",
        ),
        (
            pod(("DisruptionTarget", "True", "SlurmJobEnded", "job 12 was CANCELLED"), phase="Running", nodeName="n1"),
            "slurm/demo",
            "It was told to end: job 12 was CANCELLED",
        ),
        (
            pod(),
            "slurm/demo",
            "kubectl -n slurm get pods -l app.kubernetes.io/component=scheduler,app.kubernetes.io/instance=demo",
        ),
        (pod(), "", "Its spec.schedulerName is kurm; SlurmClusters place those of other (slurm/other)."),
        (pod(schedulingGates=[{"name": "quota"}]), "slurm/demo", "It waits for its scheduling gates: quota."),
    ],
)
def test_every_state_has_its_sentence(found: Pod, cluster: str, words: str) -> None:
    """Ended, bound with a slot, told to end, not heard of, another scheduler's, gated."""
    assert words in told(found, cluster, schedulers={"other": "slurm/other"})


def test_a_pod_that_cannot_be_placed_as_it_is() -> None:
    """The sentence is the one by which the scheduler has refused it; Slurm has no job for it."""
    said = told(queued(), refused="slurm.kurm.dev/time-limit: 'soon' is no time")
    assert "It cannot be placed as it is: slurm.kurm.dev/time-limit: 'soon' is no time\n" in said
    assert "Slurm has no job for it." in said


def test_what_is_not_known_is_said() -> None:
    """Without Slurm's answer nothing is said of jobs."""
    said = told(queued(), unknown=["Slurm could not be asked: no pod of slurmctld is ready"])
    assert "Slurm has no job" not in said
    assert said.endswith("\nSlurm could not be asked: no pod of slurmctld is ready\n")
