"""A Slurm cluster by the charts, as a platform team and its researchers meet it."""

import json
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest

from e2e.command import KURM, run
from e2e.demo import RENDERED, REPOSITORY, TEST, Demo, within
from kurm.local.charts import NAMESPACE
from kurm.local.login import Login

MISSING = "localhost/kurm/controller:no-such-tag"

pytestmark = pytest.mark.usefixtures("mended")


def test_the_demo_shows_three_nodes_and_success(demo: Demo) -> None:
    """What `make demo` prints has a line for each of three different nodes, and the exit code of mpirun."""
    nodes = {line.split("on node ")[1].split(":")[0] for line in demo.printed.splitlines() if line.startswith("rank ")}
    assert (len(nodes), nodes < {"n1", "n2", "n3", "n4"}) == (3, True)
    assert "Exit code = 0" in demo.printed.splitlines()


def test_the_command_shows_it_explains_it_and_logs_in(demo: Demo) -> None:
    """`kurm status` has nothing to complain of, `kurm explain` knows each node, `kurm ssh` needs no open port."""
    about = ("--kubeconfig", demo.charts.cluster.layout.kubeconfig, "-n", NAMESPACE)
    assert run(KURM, "status", *about).startswith("All is well: 1 cluster, 1 node set, 4 of 4 nodes in service.")
    said = run(KURM, "explain", "nodeset", "workers", *about)
    rows = [line.split() for line in said.splitlines()]
    states = {row[0]: row[1] for row in rows if row and row[0] in {"n0", "n1"}}
    assert states == {"n0": "NodeSelector", "n1": "InService"}
    key = demo.charts.login.folder / "id_ed25519"
    words = ("researcher@", *about, "-i", key, "--", "sh", "-c", 'echo "$USER $0"; sinfo -h -o %D')
    assert run(KURM, "ssh", *words).split() == ["researcher", "sh", "4"]


def test_the_same_charts_once_more_change_nothing(demo: Demo) -> None:
    """No write, no new generation, no restart: Helm's record of the release apart, all objects stay what they were."""
    before, begun = demo.picture(), time.monotonic()
    run(KURM, "local", "--name", TEST.name, "demo", "--repository", REPOSITORY, deadline=600)
    sys.stdout.write(f"the demo once more took {time.monotonic() - begun:.0f} s\n")
    assert before == demo.picture()


def test_available_follows_slurmctld_and_no_job_is_harmed(demo: Demo) -> None:
    """An image that cannot be pulled: Available is False with the reason; set back, it is True; a job runs on."""
    job = demo.ssh("sbatch --parsable --wrap 'sleep 600'").strip()
    within(30, lambda: demo.ssh(f"squeue -h -j {job} -o %T").strip(), "RUNNING")
    before = demo.pods("controller")[0]["metadata"]["uid"]
    demo.change("slurmcluster/demo", {"controller": {"image": MISSING}})

    def ended() -> bool:
        pods = demo.pods("controller")
        return all(pod["metadata"]["uid"] != before for pod in pods)

    within(60, ended, expected=True)
    within(10, lambda: demo.condition("slurmcluster/demo", "Available")["status"], "False")
    within(30, lambda: MISSING in demo.condition("slurmcluster/demo", "Available")["message"], expected=True)
    demo.change("slurmcluster/demo", {"controller": {"image": None}})
    within(60, lambda: demo.condition("slurmcluster/demo", "Available")["status"], "True")
    assert demo.ssh(f"squeue -h -j {job} -o '%T %r'").split()[0] == "RUNNING"
    demo.end_jobs()


def test_available_is_false_while_slurmctld_is_killed(demo: Demo) -> None:
    """The pod's init ends with it; Kubernetes starts it again, and the same job goes on."""
    job = demo.ssh("sbatch --parsable --wrap 'sleep 600'").strip()
    within(30, lambda: demo.ssh(f"squeue -h -j {job} -o %T").strip(), "RUNNING")
    time.sleep(10)  # slurmctld saves its jobs after 5 s at most, and loses what is younger
    since = demo.condition("slurmcluster/demo", "Available")["lastTransitionTime"]
    demo.kill("controller", "pkill", "-KILL", "-x", "slurmctld")

    def again() -> bool:
        now = demo.condition("slurmcluster/demo", "Available")
        return now["status"] == "True" and now["lastTransitionTime"] != since

    within(60, again, expected=True)
    assert demo.ssh(f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    demo.end_jobs()


def test_scaling_changes_what_sinfo_shows(demo: Demo) -> None:
    """To two, then to four, within 30 s each: a node that is scaled in has no record left."""
    demo.kubectl("scale", "nodeset", "workers", "--replicas=2")
    within(30, lambda: len(demo.nodes()), 2)
    demo.kubectl("scale", "nodeset", "workers", "--replicas=4")
    within(30, lambda: len(demo.nodes()), 4)
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_scaling_in_waits_for_jobs_and_says_so(demo: Demo) -> None:
    """With a job on every node none is touched; when the jobs have ended the nodes go."""
    demo.ssh("sbatch --nodes 4 --ntasks-per-node 1 --wrap 'srun sleep 600'")
    within(30, lambda: demo.ssh("squeue -h -o %T").split(), ["RUNNING"])
    pods = {pod["metadata"]["uid"] for pod in demo.pods("slurmd")}
    demo.kubectl("scale", "nodeset", "workers", "--replicas=2")
    within(30, lambda: demo.charts.get("nodeset/workers")["status"].get("draining", 0), 2)
    time.sleep(10)
    assert demo.ssh("squeue -h -o %T").split() == ["RUNNING"]
    assert {pod["metadata"]["uid"] for pod in demo.pods("slurmd")} == pods
    said = demo.condition("nodeset/workers", "Reconciling")
    assert said["status"] == "True"
    assert "job" in said["message"]
    demo.end_jobs()
    within(60, lambda: len(demo.nodes()), 2)
    demo.kubectl("scale", "nodeset", "workers", "--replicas=4")
    demo.charts.wait("nodeset/workers", "Ready", within=60)


def test_a_cordon_drains_the_slurm_node_and_an_uncordon_brings_it_back(demo: Demo) -> None:
    """Within seconds, with the reason, and the job that runs there goes on."""
    job = demo.ssh("sbatch --parsable --nodelist n1 --wrap 'sleep 600'").strip()
    within(30, lambda: demo.ssh(f"squeue -h -j {job} -o %T").strip(), "RUNNING")
    demo.kubectl("cordon", "n1")
    within(10, lambda: demo.ssh("sinfo -h -n n1 -o '%T %E'").strip(), "draining kurm: cordoned")
    assert demo.ssh(f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    demo.kubectl("uncordon", "n1")
    # A node that is undrained within a second of its job's start is "allocated" to Slurm until its next change, also
    # where half of it is free.
    within(10, lambda: demo.ssh("sinfo -h -n n1 -o %T").strip() in {"mixed", "allocated"}, expected=True)
    demo.end_jobs()


def test_a_slurmd_pod_that_is_deleted_comes_back_into_service(demo: Demo) -> None:
    """Its node takes no jobs meanwhile, and nobody has to resume it."""
    before = next(pod for pod in demo.pods("slurmd") if pod["spec"]["nodeName"] == "n2")["metadata"]["uid"]
    demo.kubectl("delete", "pod", "workers-n2")
    within(60, lambda: all(pod["metadata"]["uid"] != before for pod in demo.pods("slurmd")), expected=True)
    within(90, lambda: demo.ssh("sinfo -h -n n2 -o %T").strip(), "idle")
    demo.charts.wait("nodeset/workers", "Ready", within=60)
    assert demo.ssh("srun --nodelist n2 hostname").strip() == "n2"


def test_a_syntax_error_leaves_the_last_good_configuration_running(demo: Demo) -> None:
    """The condition quotes Slurm, jobs run; set right, all is well again, and slurmctld was never restarted."""
    pod = demo.pods("controller")[0]
    found = demo.charts.get("slurmcluster/demo")
    good, extra = found["status"]["configHash"], found["spec"]["config"]["extra"]
    demo.change("slurmcluster/demo", {"config": {"extra": f"{extra}\nNoSuchSetting=yes\n"}})
    within(90, lambda: demo.condition("slurmcluster/demo", "Configured")["status"], "False")
    status = demo.charts.get("slurmcluster/demo")["status"]
    assert "NoSuchSetting" in status["configRefused"]["message"]
    assert status["configHash"] == good
    assert demo.ssh("srun --ntasks 1 echo still here").strip() == "still here"
    demo.change("slurmcluster/demo", {"config": {"extra": extra}})
    within(90, lambda: demo.condition("slurmcluster/demo", "Configured")["status"], "True")
    now = demo.pods("controller")[0]
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert (
        now["status"]["containerStatuses"][0]["restartCount"] == pod["status"]["containerStatuses"][0]["restartCount"]
    )


def test_a_changed_prolog_and_a_new_partition_are_in_force_without_a_restart(demo: Demo) -> None:
    """Within 30 s the status shows another hash, and the next job sees both."""
    restarts = {
        pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in demo.pods("slurmd") + demo.pods("controller")
    }
    for mark in ("first", "second"):
        before = demo.charts.get("slurmcluster/demo")["status"]["configHash"]
        script = f"#!/bin/sh\necho {mark} >/tmp/prolog-was-here\nchmod 644 /tmp/prolog-was-here\n"
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours"}, "data": {"10-mark": script}}
        demo.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))
        if mark == "first":
            ours = [{"configMapName": "ours"}]
            demo.change("slurmcluster/demo", {"scripts": {"prolog": ours, "prologSlurmctld": ours}})
        within(30, partial(in_force, demo, before), expected=True)
        assert demo.ssh("srun --ntasks 1 cat /tmp/prolog-was-here").strip() == mark
        controller = demo.pods("controller")[0]["metadata"]["name"]
        said = demo.kubectl("exec", controller, "-c", "slurmctld", "--", "sh", "-c", "cat /tmp/prolog-was-here")
        assert said.strip() == mark
    found = demo.charts.get("slurmcluster/demo")
    before, partitions = found["status"]["configHash"], found["spec"]["partitions"]
    demo.change("slurmcluster/demo", {"partitions": [*partitions, {"name": "quick", "nodeSets": ["workers"]}]})
    within(30, partial(in_force, demo, before), expected=True)
    assert demo.ssh("srun --partition quick --ntasks 1 echo quick").strip() == "quick"
    now = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in demo.pods("slurmd") + demo.pods("controller")}
    assert now == restarts
    demo.change("slurmcluster/demo", {"scripts": None, "partitions": partitions})
    demo.charts.wait("slurmcluster/demo", "Ready", within=60)


def in_force(demo: Demo, before: str) -> bool:
    """Whether slurmctld runs with another configuration than before, and none is refused or on its way."""
    status = demo.charts.get("slurmcluster/demo")["status"]
    return status["configHash"] != before and demo.condition("slurmcluster/demo", "Configured")["status"] == "True"


def test_what_is_missing_is_a_condition_and_no_crash(demo: Demo) -> None:
    """A ConfigMap, a Secret or a NodeSet that is not there is named; nothing restarts, and all passes by itself."""
    operator = json.loads(demo.kubectl("get", "pods", "--namespace=kurm-system", "-o", "json"))["items"]
    demo.change("slurmcluster/demo", {"scripts": {"epilog": [{"configMapName": "nowhere"}]}})
    within(20, lambda: "nowhere" in demo.condition("slurmcluster/demo", "Stalled").get("message", ""), expected=True)
    partitions = demo.charts.get("slurmcluster/demo")["spec"]["partitions"]
    stranger = {"name": "p", "nodeSets": ["nobody"]}
    demo.change("slurmcluster/demo", {"scripts": None, "partitions": [*partitions, stranger]})
    within(20, lambda: "nobody" in demo.condition("slurmcluster/demo", "Stalled").get("message", ""), expected=True)
    demo.change("slurmcluster/demo", {"partitions": partitions})
    within(60, lambda: demo.condition("slurmcluster/demo", "Stalled"), {})
    demo.charts.wait("slurmcluster/demo", "Ready", within=60)
    now = json.loads(demo.kubectl("get", "pods", "--namespace=kurm-system", "-o", "json"))["items"]
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in (*operator, *now)]
    assert len(set(restarts)) == 1


@pytest.fixture
def two_nodes_free(demo: Demo) -> Iterator[None]:
    """Have the demo give up two of its four nodes, and take them back however the test ends."""
    demo.kubectl("scale", "nodeset", "workers", "--replicas=2")
    within(30, lambda: len(demo.nodes()), 2)
    demo.charts.wait("nodeset/workers", "Ready", within=60)
    yield
    demo.end_jobs()
    demo.kubectl("delete", "namespace", "staging", "--ignore-not-found")
    demo.kubectl("scale", "nodeset", "workers", "--replicas=4")
    demo.charts.wait("nodeset/workers", "Ready", within=60)


@pytest.mark.usefixtures("two_nodes_free")
def test_a_second_cluster_comes_and_goes_beside_the_first(demo: Demo) -> None:
    """In a namespace of its own, by the same chart. Uninstalled, it leaves nothing, and the first notices nothing."""
    job = demo.ssh("sbatch --parsable --nodes 2 --wrap 'srun sleep 600'").strip()
    within(30, lambda: demo.ssh(f"squeue -h -j {job} -o %T").strip(), "RUNNING")
    before = demo.picture()
    login = Login(demo.charts.cluster.layout.state / "staging")
    user = demo.charts.user() | {"sshKeys": [login.public_key()]}
    values = {
        "cluster": {
            "controller": {"storage": {"whenDeleted": "Delete"}},
            "login": {"users": [user]},
            "accounting": {"enabled": False},
            "scheduler": {"name": "staging"},
        },
        "sharedVolumes": {"home": {"keep": False}},
    }
    demo.charts.install("staging", "staging", values)
    demo.charts.wait("slurmcluster/staging", "Available", "staging")
    demo.charts.wait("nodeset/workers", "Ready", "staging")
    other = demo.charts.login_of("staging", "staging", login)
    assert len(set(other.ssh("srun --nodes 2 --ntasks-per-node 1 hostname").split())) == 2
    demo.charts.helm("uninstall", "staging", "-n", "staging", "--wait")
    kinds = f"{RENDERED},slurmclusters,nodesets,pods,leases,networkpolicies"
    ours = ("get", kinds, "--namespace=staging", "-o", "name")
    nobodys = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    within(90, lambda: set(demo.kubectl(*ours).split()) - nobodys, set())
    claimed = demo.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.labels.kurm\\.dev/nodeset}").split()
    assert set(claimed) == {"slurm.workers"}
    assert demo.kubectl("get", "clusterrolebindings", "-o", "name").count("staging") == 0
    assert demo.ssh(f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    assert {key: uid for key, (uid, _) in demo.picture().items()} == {key: uid for key, (uid, _) in before.items()}
