"""Pods through Slurm's queue on the nodes of Slurm's own jobs, as service owners meet it and as machines fail."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.command import KURM, run
from e2e.demo import REPOSITORY, Demo, within
from e2e.tenant import JOB, NAMESPACE, PAUSE, SLOT, Json, Tenant, annotation, followed, on, pod, spec
from kurm.local.errors import LocalError

pytestmark = pytest.mark.usefixtures("mended")

NODES = ("n1", "n2", "n3", "n4")
KILL_ALL = """import os
for one in os.listdir("/proc"):
    if one.isdigit() and int(one) not in (1, os.getpid()):
        os.kill(int(one), 9)
"""
"""What ends the daemon of a container that has Python and no pkill; its init goes with it."""
STUBBORN = "sleep 3727"
IDLE_SECONDS = 30
BEFORE_CRASH = 10
"""slurmctld saves its jobs after 5 s at most, and loses those that are younger."""


def batch(demo: Demo, options: str = "--nodes 4 --ntasks-per-node 1 --mem 200") -> str:
    """Start a job of the researcher's, on one CPU of each node unless it is told otherwise, and return its number."""
    job = demo.ssh(f"sbatch --parsable {options} --wrap 'srun sleep 3600'").strip()
    within(30, lambda: state(demo, job), "RUNNING")
    return job


def state(demo: Demo, job: str) -> str:
    """Return the state of a researcher's job."""
    return demo.ssh(f"squeue -h -j {job} -o %T").strip()


def scheduler(demo: Demo) -> Json:
    """Return the scheduler's pod; empty while there is none that stays."""
    return next((one for one in demo.pods("scheduler") if not one["metadata"].get("deletionTimestamp")), {})


def ready(found: Json) -> bool:
    """Whether a pod is."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def lives(owner: Tenant) -> dict[str, tuple[str, str, int]]:
    """Return UID, node and restarts of each running pod of the tenant's, by name."""
    return {
        one["metadata"]["name"]: (
            one["metadata"]["uid"],
            one["spec"].get("nodeName", ""),
            one["status"]["containerStatuses"][0]["restartCount"],
        )
        for one in owner.pods()
        if one["status"]["phase"] == "Running"
    }


def deployment(demo: Demo, replicas: int) -> Json:
    """Return a Deployment of pods with one CPU each."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec(demo)}
    template["metadata"]["annotations"] = {"slurm.kurm.dev/partition": "services"}
    wanted = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": wanted}


def test_the_demo_shows_training_and_a_service_taking_turns(demo: Demo) -> None:
    """Training fills the nodes, the service takes some at once and answers, and training goes on where it was."""
    wanted = (
        r"training is at step \d+; inference is scaled to 3",
        r"training gives its nodes back \(\w+\)",
        r"inference-\S+ is bound to n\d, \d+ ms old",
        r"HTTP is answered: inference-\S+ on n\d is at your service",
        r"all 3 replicas are ready",
        r"inference is scaled to 0; the checkpoint of the training is at step (\d+)",
        r"training has resumed at step (\d+) on n1, n2, n3, n4",
    )
    found = [re.search(rf"^ +\d+\.\d\d s  {each}", demo.printed, re.MULTILINE) for each in wanted]
    assert [each for each, match in zip(wanted, found, strict=True) if match is None] == []
    *_, kept, resumed = (match for match in found if match)
    assert (resumed[1], int(kept[1]) >= 3) == (kept[1], True)
    assert len(set(re.findall(r"inference-\S+ is bound", demo.printed))) == 3


def test_the_example_is_what_its_readme_names(demo: Demo) -> None:
    """Its manifest can be applied as it stands, and the image is the only thing that the demo changes."""
    folder = REPOSITORY / "examples" / "inference-and-training"
    for name in ("train.py", "train.sbatch", "inference.yaml"):
        assert f"`{name}`" in (folder / "README.md").read_text()
    demo.charts.cluster.kubectl("apply", "--dry-run=server", f"--filename={folder / 'inference.yaml'}")


def test_a_gang_runs_beside_a_job_on_the_same_nodes(demo: Demo, owner: Tenant) -> None:
    """An Indexed Job of three: one job of Slurm's for all, a slot for each pod, ranks in node order."""
    job = batch(demo)
    wanted = {
        "completions": 3,
        "parallelism": 3,
        "completionMode": "Indexed",
        "template": {
            "metadata": {"annotations": {"slurm.kurm.dev/partition": "services"}, "labels": {"app": "gang"}},
            "spec": spec(demo, restartPolicy="Never"),
        },
    }
    owner.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gang"}, "spec": wanted})
    within(30, lambda: owner.running("app=gang"), 3)
    pods = owner.pods("app=gang")
    jobs = {annotation(one, JOB) for one in pods}
    assert list(owner.jobs()) == list(jobs)
    name, running, _ = owner.jobs()[jobs.pop()]
    assert (name.rpartition(".")[0], running) == (f"{NAMESPACE}/gang", "RUNNING")
    ranks = {annotation(one, "batch.kubernetes.io/job-completion-index"): annotation(one, SLOT) for one in pods}
    assert ranks == {"0": "0", "1": "1", "2": "2"}
    by_rank = [one["spec"]["nodeName"] for one in sorted(pods, key=lambda one: annotation(one, SLOT))]
    assert by_rank == sorted(by_rank)
    assert state(demo, job) == "RUNNING"
    assert set(by_rank) <= set(NODES)


def test_an_incomplete_gang_holds_nothing_and_says_what_it_waits_for(demo: Demo, owner: Tenant) -> None:
    """One pod of two waits without a job; with the second both are bound by one."""
    gang = {"slurm.kurm.dev/gang": "pair", "slurm.kurm.dev/gang-size": "2"}
    owner.apply(pod(demo, "left", annotations=gang))
    within(15, lambda: owner.waits("left"), "GangIncomplete")
    assert "1 of 2" in owner.condition("left")["message"]
    assert owner.jobs() == {}
    owner.apply(pod(demo, "right", annotations=gang))
    within(30, owner.running, 2)
    assert len({annotation(one, JOB) for one in owner.pods()}) == 1


def test_no_pod_is_sent_where_its_kubelet_would_refuse_it(demo: Demo, owner: Tenant) -> None:
    """To Slurm a node has two CPUs, to its kubelet a little less beside slurmd: each pod of a whole CPU has its own."""
    owner.apply(*(pod(demo, name, cpu="1") for name in ("one", "two", "three")))
    within(40, owner.running, 3)
    assert len({one["spec"]["nodeName"] for one in owner.pods()}) == 3
    assert [one["status"]["phase"] for one in owner.pods()] == ["Running"] * 3


def test_no_gang_is_sent_where_a_kubelet_would_refuse_one_of_it(demo: Demo, owner: Tenant) -> None:
    """The same for the pods of a gang, which come to their nodes together."""
    gang = {"slurm.kurm.dev/gang": "wide", "slurm.kurm.dev/gang-size": "3"}
    owner.apply(*(pod(demo, name, annotations=gang, cpu="1") for name in ("one", "two", "three")))
    within(40, owner.running, 3)
    assert len({one["spec"]["nodeName"] for one in owner.pods()}) == 3


def test_selectors_affinity_and_taints_are_honoured(demo: Demo, owner: Tenant) -> None:
    """A pod is on the node that it asks for, or says why it can be on none, without a job of Slurm's."""
    demo.kubectl("label", "node", "n2", "tenant/disk=fast")
    demo.kubectl("taint", "node", "n3", "tenant/lab=only:NoSchedule")
    tolerated = [{"key": "tenant/lab", "operator": "Exists", "effect": "NoSchedule"}]
    try:
        owner.apply(
            pod(demo, "selected", nodeSelector={"tenant/disk": "fast"}),
            pod(demo, "elsewhere", affinity=on(["n1", "n2", "n3"], "NotIn")),
            pod(demo, "tolerant", affinity=on(["n3"]), tolerations=tolerated),
            pod(demo, "kept-out", affinity=on(["n3"])),
        )
        within(30, owner.running, 3)
        assert {name: owner.node(name) for name in ("selected", "elsewhere", "tolerant")} == {
            "selected": "n2",
            "elsewhere": "n4",
            "tolerant": "n3",
        }
        within(15, lambda: owner.waits("kept-out"), "Infeasible")
        assert "tenant/lab" in owner.condition("kept-out")["message"]
        assert len(owner.jobs()) == 3
        owner.delete("tolerant")
    finally:
        demo.kubectl("taint", "node", "n3", "tenant/lab-")
        demo.kubectl("label", "node", "n2", "tenant/disk-")
    within(15, lambda: owner.node("kept-out"), "n3")


def test_scancel_of_a_pods_job_ends_the_pod_cleanly(demo: Demo, owner: Tenant) -> None:
    """Its trap runs, a condition says who ended it, and nothing of it is left on either side."""
    owner.apply(pod(demo, "cancelled", PAUSE.replace("sleep 2;", "sleep 8;")))
    within(30, owner.running, 1)
    job = annotation(owner.pod("cancelled"), JOB)
    with followed(owner, "cancelled") as said:
        owner.slurm("scancel", job)
        why: list[str] = []

        def told() -> bool:
            why.append(owner.condition("cancelled", "DisruptionTarget").get("message", ""))
            return bool(why[-1])

        within(10, told, expected=True)
        within(30, lambda: owner.pod("cancelled"), {})
    assert said == ["told to end", "has ended"]
    assert "CANCELLED" in why[-1]
    within(10, owner.jobs, {})


def test_deleting_a_pod_ends_its_job(demo: Demo, owner: Tenant) -> None:
    """It has its grace first; then what it held is another's."""
    owner.apply(pod(demo, "leaving", PAUSE.replace("sleep 2;", "sleep 8;")))
    within(30, owner.running, 1)
    job = annotation(owner.pod("leaving"), JOB)
    owner.kubectl("delete", "pod", "leaving", "--wait=false")
    assert owner.state(job) == "RUNNING"  # it needs eight seconds to end
    within(25, owner.jobs, {})
    assert owner.pod("leaving").get("status", {}).get("phase", "Succeeded") == "Succeeded"  # not before its end
    within(10, lambda: owner.pod("leaving"), {})


def test_no_job_starts_over_a_pod_that_was_deleted_by_force(demo: Demo, owner: Tenant) -> None:
    """The object is gone at once, its container lives on for its grace: the job that wants the node waits for that."""
    owner.apply(pod(demo, "forced", f"trap '' TERM; {STUBBORN}"))
    within(30, owner.running, 1)
    node = owner.node("forced")
    demo.ssh(f"rm -f over; sbatch --nodelist {node} --exclusive --wrap 'date >over'")
    assert container_lives()
    lived = time.time()
    owner.delete("forced", force=True)
    within(5, lambda: owner.pod("forced"), {})
    ends = time.monotonic() + 60
    while not (began := demo.ssh("stat -c %.Y over 2>/dev/null || true").strip()):
        lived = last_seen(lived)
        assert time.monotonic() < ends, demo.ssh("squeue -l")
    assert last_seen(lived) <= float(began)
    within(10, owner.jobs, {})


def last_seen(before: float) -> float:
    """Return when the stubborn container was surely alive: now, or as before."""
    now = time.time()
    return now if container_lives() else before


def container_lives() -> bool:
    """Whether the stubborn container has processes: the machine's own list has those of all local nodes."""
    commands = Path("/proc").glob("[0-9]*/cmdline")
    return any(read(command) == STUBBORN for command in commands)


def read(command: Path) -> str:
    """Return a process's command line; empty if it is gone."""
    try:
        return command.read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("partition", "nowhere", ("nowhere", "batch", "services")),
        ("time-limit", "soon", ("time-limit", "soon")),
        ("gang-size", "many", ("gang-size", "many")),
        ("colour", "red", ("colour", "partition", "time-limit")),
    ],
)
def test_a_bad_annotation_is_refused_as_it_is_applied(
    demo: Demo, owner: Tenant, key: str, value: str, words: tuple[str, ...]
) -> None:
    """The sentence names the annotation, its value, and what is known instead."""
    more = {"slurm.kurm.dev/gang": "some"} if key == "gang-size" else {}
    with pytest.raises(LocalError) as refusal:
        owner.apply(pod(demo, "wrong", annotations={f"slurm.kurm.dev/{key}": value, **more}))
    assert [word for word in words if word not in str(refusal.value)] == []


def test_a_pod_that_waits_says_why_and_the_command_explains_it(demo: Demo, owner: Tenant) -> None:
    """Its condition has Slurm's reason and its place; `kurm explain pod` and `kurm status` say it for people."""
    first = batch(demo, "--partition services --nodes 4 --exclusive")
    owner.apply(pod(demo, "patient"))
    within(15, lambda: owner.waits("patient"), "SlurmQueue")
    about = ("--kubeconfig", demo.charts.cluster.layout.kubeconfig)
    said = run(KURM, "explain", "pod", "patient", "-n", NAMESPACE, *about)
    (job,) = owner.jobs()
    assert f"Pod {NAMESPACE}/patient" in said
    assert f"job {job}" in said
    assert "partition services" in said
    assert "place 1 of 1" in said
    at_a_glance = run(KURM, "status", "-n", "slurm", *about)
    assert re.search(rf"{NAMESPACE}/patient\s.*SlurmQueue", at_a_glance)
    demo.ssh(f"scancel {first}")
    within(15, owner.running, 1)
    said = run(KURM, "explain", "pod", "patient", "-n", NAMESPACE, *about)
    assert f"bound to {owner.node('patient')} by job {job}" in said


@pytest.fixture
def control_closed(demo: Demo) -> Iterator[None]:
    """Let no pod start where control pods have to run, so that one that is deleted stays away."""
    demo.kubectl("cordon", "n0")
    yield
    demo.kubectl("uncordon", "n0")


@pytest.mark.usefixtures("control_closed")
def test_without_the_scheduler_all_goes_on_and_new_pods_wait(demo: Demo, owner: Tenant) -> None:
    """Pods and jobs that run are untouched, new jobs of Slurm's start and end; new pods are bound on its return."""
    owner.apply(pod(demo, "before"))
    within(30, owner.running, 1)
    job = batch(demo)
    kept = lives(owner)
    jobs = owner.jobs()
    demo.kubectl("delete", "pod", scheduler(demo)["metadata"]["name"])
    owner.apply(pod(demo, "meanwhile"))
    assert demo.ssh("srun --ntasks 1 --mem 100 hostname").strip() in NODES
    ends = time.monotonic() + 15
    while time.monotonic() < ends:
        assert (lives(owner), owner.jobs(), state(demo, job)) == (kept, jobs, "RUNNING")
        assert owner.node("meanwhile") == ""
        time.sleep(1)
    demo.kubectl("uncordon", "n0")
    within(40, owner.running, 2)
    assert lives(owner)["before"] == kept["before"]
    assert state(demo, job) == "RUNNING"


@pytest.mark.usefixtures("control_closed")
def test_without_slurm_pods_wait_with_a_condition_and_cost_nothing(demo: Demo, owner: Tenant) -> None:
    """The pod that runs is untouched; the scheduler uses less than 1 % of a core; all is bound when Slurm is back."""
    owner.apply(pod(demo, "before"))
    within(30, owner.running, 1)
    time.sleep(BEFORE_CRASH)
    kept = lives(owner)
    demo.kubectl("delete", "pod", "demo-controller-0")
    owner.apply(pod(demo, "patient"))
    within(30, lambda: owner.waits("patient"), "SlurmAway")
    begun, used = time.monotonic(), cpu_seconds(demo)
    time.sleep(IDLE_SECONDS)
    share = (cpu_seconds(demo) - used) / (time.monotonic() - begun)
    print(f"the scheduler's share of a core while Slurm is away: {share:.2%}")  # noqa: T201 - the point
    assert lives(owner) == kept
    assert share < 0.01
    demo.kubectl("uncordon", "n0")
    within(90, owner.running, 2)
    assert lives(owner)["before"] == kept["before"]
    within(20, lambda: len(owner.jobs()), 2)


def cpu_seconds(demo: Demo) -> float:
    """Return the CPU time that the scheduler's own process has used; it is counted in hundredths (proc(5))."""
    name = scheduler(demo)["metadata"]["name"]
    said = demo.kubectl("exec", name, "-c", "scheduler", "--", "sh", "-c", "cat /proc/[0-9]*/stat")
    found = re.search(r"^\d+ \(kurm\) (?:\S+ ){11}(\d+) (\d+)", said, re.MULTILINE)
    assert found
    return (int(found[1]) + int(found[2])) / 100


def test_a_scheduler_that_is_killed_amid_its_work_loses_and_doubles_nothing(demo: Demo, owner: Tenant) -> None:
    """Killed while four pods are to be bound: each is bound once, and has exactly one job."""
    owner.apply(deployment(demo, 4))
    demo.kill("scheduler", "python3", "-c", KILL_ALL)
    within(40, lambda: owner.running("app=web"), 4)
    found = {annotation(one, JOB): one["spec"]["nodeName"] for one in owner.pods("app=web")}
    within(15, lambda: {job: nodes for job, (_, _, nodes) in owner.jobs().items()}, found)
    within(60, lambda: ready(scheduler(demo)), expected=True)


def test_slurmctld_killed_just_after_pods_were_bound_gives_nothing_of_theirs_away(demo: Demo, owner: Tenant) -> None:
    """It has forgotten them, and jobs want whole nodes: the pods stay, each is held again where it is, one job runs."""
    begin = f"--begin=now+{BEFORE_CRASH + 15}"
    for _ in NODES:
        demo.ssh(f"sbatch --nodes 1 --exclusive {begin} --wrap 'sleep 3600'")
    time.sleep(BEFORE_CRASH)
    owner.apply(deployment(demo, 3))
    within(13, lambda: sum(bool(one["spec"].get("nodeName")) for one in owner.pods("app=web")), 3)
    places = {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in owner.pods("app=web")}
    demo.kill("controller", "pkill", "-KILL", "-x", "slurmctld")
    within(30, lambda: held(owner), sorted(places.values()))
    free = set(NODES) - set(places.values())
    # Which of the jobs has which of the nodes is for Slurm to choose.
    within(60, lambda: set(demo.ssh("squeue -h -t R -u researcher -o %N").split()), free)
    assert owner.running("app=web") == 3
    assert {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in owner.pods("app=web")} == places
    assert held(owner) == sorted(places.values())


def held(owner: Tenant) -> list[str]:
    """Return the nodes of the running jobs of the tenant's pods."""
    return sorted(nodes for _, now, nodes in owner.jobs().values() if now == "RUNNING")
