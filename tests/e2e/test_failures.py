"""A node that loses its power, and a slurmctld that is away or has forgotten everything: all comes back by itself."""

import json
import re
import time
from typing import Any

import pytest

from e2e.demo import TEST, Demo, within
from e2e.tenant import Tenant, on, pod

pytestmark = pytest.mark.usefixtures("mended")

NODES = ("n1", "n2", "n3", "n4")
SLURMCTLD = ("exec", "demo-controller-0", "-c", "slurmctld", "--")
IN_VAIN = "sleep 600"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
"""Of a pod that Kubernetes leaves on a node that nobody hears of."""
LOST = "Slurm has lost the records of 4 of 4 nodes"
FORGET = "pkill -STOP -x slurmctld; rm -rf /var/spool/slurmctld/state; pkill -KILL -x slurmctld"


def show(what: str, seconds: float) -> None:
    """Print a time that was measured; `pytest -rP` shows it."""
    print(f"{what}: {seconds:.1f} s")  # noqa: T201 - the point


def started(demo: Demo, node: str) -> str:
    """Start a job on a node that runs until it is ended, and return its number when it runs."""
    job = demo.ssh(f"sbatch --parsable --requeue --nodelist {node} --wrap '{IN_VAIN}'").strip()
    within(30, lambda: state(demo, job), "RUNNING")
    return job


def state(demo: Demo, job: str) -> str:
    """Return the state of a job."""
    return demo.ssh(f"squeue -h -j {job} -o %T").strip()


def restarts(demo: Demo, job: str) -> int:
    """Return how often Slurm has requeued a job."""
    found = re.search(r" Restarts=(\d+)", demo.ssh(f"scontrol --oneliner show job {job}"))
    assert found
    return int(found[1])


def in_service(demo: Demo) -> set[str]:
    """Return the nodes that take jobs, by what their pods are told, if Slurm says the same."""
    pods = {pod["spec"]["nodeName"] for pod in demo.pods("slurmd") if _told_ready(pod)}
    lines = demo.ssh("sinfo -h -N -o '%N %T'").splitlines()
    return pods & {name for name, word in map(str.split, lines) if word in {"idle", "mixed", "allocated"}}


def _told_ready(pod: dict[str, Any]) -> bool:
    found: list[dict[str, str]] = pod["status"].get("conditions", [])
    return {one["type"]: one["status"] for one in found}.get("kurm.dev/SlurmReady") == "True"


def lives(demo: Demo) -> dict[str, tuple[str, int]]:
    """Return UID and restarts of each slurmd pod, by node."""
    return {
        pod["spec"]["nodeName"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in demo.pods("slurmd")
    }


def answers(demo: Demo) -> bool:
    """Whether slurmctld does."""
    return "is UP" in demo.kubectl(*SLURMCTLD, "scontrol", "ping")


def killed(demo: Demo, how: str = "pkill -KILL -x slurmctld") -> None:
    """Kill slurmctld, and return when another one answers in its place."""
    demo.kill("controller", "sh", "-c", how)
    within(60, lambda: answers(demo), expected=True)


def losses(demo: Demo) -> dict[str, str]:
    """Return what events say that Slurm has lost, by their UIDs."""
    found = json.loads(demo.kubectl("get", "events", "--field-selector=reason=SlurmStateLost", "-o", "json"))
    return {event["metadata"]["uid"]: event["message"].partition(",")[0] for event in found["items"]}


def test_a_dead_node_gets_no_jobs_and_comes_back_by_itself(demo: Demo, owner: Tenant) -> None:
    """From 40 s on it is drained by the syncer; its job is requeued after `deadAfter`; switched on it is in service.

    Slurm's own SlurmdTimeout is longer than all of it, so nothing here is slurmctld's doing. A pod that waits for its
    node has no job while the node is dead, and one again when it is back.
    """
    found = re.search(r"SlurmdTimeout\s*=\s*(\d+)", demo.ssh("scontrol show config"))
    assert found
    assert int(found[1]) >= 300
    job = started(demo, "n3")
    owner.apply(pod(demo, "stays", affinity=on(["n3"]), tolerations=[UNREACHABLE]))
    within(40, owner.running, 1)
    TEST.kurm("node", "stop", "n3")
    begun = time.monotonic()
    within(40, lambda: demo.ssh("sinfo -h -n n3 -o '%T %E'")[:29], "draining kurm: node not ready")
    show("from the loss of power to the drain", time.monotonic() - begun)
    others = demo.ssh("sbatch --parsable --array=1-24 --ntasks 1 --wrap true").strip()
    within(30, lambda: state(demo, others), "")
    ran = demo.ssh(f"sacct -n -X -P -j {others} -o NodeList").split()
    assert (len(ran), "n3" in ran) == (24, False)
    unknown_since = _unknown_since(demo, "n3")
    assert (state(demo, job), restarts(demo, job), held(owner)) == ("RUNNING", 0, [("RUNNING", "n3")])
    within(120, lambda: restarts(demo, job), 1)
    assert time.time() - unknown_since >= 60
    show("from the loss of power to the requeue", time.monotonic() - begun)
    show("from Ready=Unknown to the requeue", time.time() - unknown_since)
    assert demo.ssh("sinfo -h -n n3 -o %E").startswith("kurm: ")
    within(10, lambda: held(owner), [])
    TEST.kurm("node", "start", "n3")
    took = within(60, lambda: "n3" in in_service(demo), expected=True)
    show("from the node's being Ready to its service", took)
    show("from its service to the pod's job", within(10, lambda: held(owner), [("RUNNING", "n3")]))
    assert (owner.node("stays"), owner.running()) == ("n3", 1)
    owner.delete("stays")
    assert demo.ssh("srun --nodelist n3 hostname").strip() == "n3"
    demo.end_jobs()
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def held(owner: Tenant) -> list[tuple[str, str]]:
    """Return state and nodes of each job of the tenant's pods."""
    return [(state, nodes) for _, state, nodes in owner.jobs().values()]


def _unknown_since(demo: Demo, node: str) -> float:
    found = json.loads(demo.kubectl("get", "node", node, "-o", "json"))["status"]["conditions"]
    ready = next(one for one in found if one["type"] == "Ready")
    assert ready["status"] == "Unknown"
    return time.mktime(time.strptime(ready["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone


def test_a_slurmctld_that_is_away_for_two_minutes_changes_nothing(demo: Demo) -> None:
    """No pod is touched, the job runs on, and within 30 s of its return all nodes are in service."""
    job = started(demo, "n1")
    time.sleep(10)  # slurmctld saves its jobs after 5 s at most, and loses what is younger
    before = lives(demo)
    demo.kubectl("cordon", "n0")  # where its pod has to run
    try:
        demo.kubectl("delete", "pod", "demo-controller-0")
        begun = time.monotonic()
        while time.monotonic() < begun + 120:
            assert lives(demo) == before
            time.sleep(5)
    finally:
        demo.kubectl("uncordon", "n0")
    within(60, lambda: answers(demo), expected=True)
    show("from slurmctld's return to all nodes' service", within(30, lambda: in_service(demo), set(NODES)))
    assert lives(demo) == before
    assert (state(demo, job), restarts(demo, job)) == ("RUNNING", 0)
    assert set(demo.ssh("srun --nodes 4 hostname").split()) == set(NODES)
    demo.end_jobs()


def test_a_slurmctld_that_was_killed_comes_back_to_the_same_nodes(demo: Demo) -> None:
    """Its state is there: within 30 s all nodes are in service, and the job has noticed nothing."""
    job = started(demo, "n1")
    time.sleep(10)
    before = lives(demo)
    killed(demo)
    show("from slurmctld's return to all nodes' service", within(30, lambda: in_service(demo), set(NODES)))
    assert lives(demo) == before
    assert (state(demo, job), restarts(demo, job)) == ("RUNNING", 0)
    assert set(demo.ssh("srun --nodes 4 hostname").split()) == set(NODES)
    demo.end_jobs()


def test_a_slurmctld_that_has_lost_its_state_gets_all_its_nodes_back(demo: Demo) -> None:
    """Within 30 s of its return, without a pod deleted or restarted; what it does not know to run there is ended.

    An event of the SlurmCluster says what was lost.
    """
    started(demo, "n1")
    before, earlier = lives(demo), losses(demo)
    killed(demo, FORGET)
    show("from slurmctld's return to all nodes' service", within(30, lambda: in_service(demo), set(NODES)))
    assert lives(demo) == before
    assert demo.ssh("squeue -h") == ""
    assert set(demo.ssh("srun --nodes 4 hostname").split()) == set(NODES)
    processes = ("exec", "workers-n1", "-c", "slurmd", "--", "sh", "-c", "pgrep -x slurmstepd || true")
    within(30, lambda: demo.kubectl(*processes).strip(), "")
    within(10, lambda: [words for uid, words in losses(demo).items() if uid not in earlier], [LOST])
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_a_record_that_an_administrator_deletes_is_made_anew_and_gets_its_slurmd(demo: Demo) -> None:
    """Within 30 s, with the same pod: to take a node out there are cordon and scale."""
    before = lives(demo)
    demo.kubectl(*SLURMCTLD, "scontrol", "update", "nodename=n1", "comment=before")
    demo.kubectl(*SLURMCTLD, "scontrol", "delete", "nodename=n1")

    def anew() -> bool:
        """Whether the record is another one and in service; that it is away for a moment is mostly not to be seen."""
        return "Comment=before" not in demo.ssh("scontrol show node n1") and "n1" in in_service(demo)

    show("from the deletion to service", within(30, anew, expected=True))
    assert lives(demo) == before
    assert demo.ssh("srun --nodelist n1 hostname").strip() == "n1"
