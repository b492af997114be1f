"""`kurm explain pod` and the pods of `kurm status` on a real API server, as far as they go without Slurm."""

import json

from integration.apiserver import ApiServer
from integration.cli.story import Json, Story, kurm
from kurm.kube.resources import NODES, PODS, Key, Object

LAB: Json = {"key": "lab", "value": "only", "effect": "NoSchedule"}


async def with_scheduler(story: Story) -> None:
    """Make a cluster whose scheduler is called as the story's namespace, with three nodes, of which one is tainted."""
    partitions = [{"name": "batch", "nodeSets": ["workers"], "default": True}]
    await story.cluster(spec={"scheduler": {"name": story.place}, "partitions": partitions})
    await story.node_set(desired=3, ready=3)
    nodes = [await story.node("n1", disk="fast"), await story.node("n2"), await story.node("n3")]
    for node, taints in zip(nodes, ([], [], [LAB]), strict=True):
        # The API server taints each new node as not ready, and there is no controller that takes it off.
        await story.kube.patch(NODES.of(Object), Key("", node), {"spec": {"taints": taints}})


async def test_a_pod_that_waits(story: Story, served: ApiServer) -> None:
    """What the scheduler has said, what it asks for, which nodes are out; and why Slurm could not be asked."""
    await with_scheduler(story)
    await story.service("web", said=("SlurmQueue", "waits in Slurm's queue as job 12"), nodeSelector={"disk": "fast"})
    said = await kurm(served, "explain", "pod", "web", "-n", story.place)
    lines = [line.strip() for line in said.out.splitlines()]
    assert (said.code, said.err) == (0, "")
    assert lines[0].startswith(f"Pod {story.place}/web, ")
    assert lines[0].endswith(f"placed by SlurmCluster {story.place}/demo")
    assert lines[1].startswith("It waits for ")
    assert lines[1].endswith("SlurmQueue: waits in Slurm's queue as job 12")
    assert "It asks for 1 CPU, 64 MiB in partition batch." in lines
    assert f"2 cannot: NodeSelector ({story.prefix}n2, {story.prefix}n3)" in lines
    assert any(line.startswith("1 of ") and line.endswith(" could be used, if they were free.") for line in lines), (
        lines
    )
    assert lines[-1] == "Slurm could not be asked for its job: no pod of slurmctld is ready"


async def test_a_pod_that_asks_for_what_is_not_there(story: Story, served: ApiServer) -> None:
    """The sentence by which the scheduler refuses it."""
    await with_scheduler(story)
    await story.service("web", annotations={"partition": "nowhere"})
    said = await kurm(served, "explain", "pod", "web", "-n", story.place)
    assert "It cannot be placed as it is: " in said.out
    assert "nowhere" in said.out
    assert "batch" in said.out


async def test_a_bound_volume_rules_nodes_out(story: Story, served: ApiServer) -> None:
    """One node of three reaches it, another one has a taint."""
    await with_scheduler(story)
    await story.claim("data", disk="fast")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await story.service("web", volumes=volumes)
    said = await kurm(served, "explain", "pod", "web", "-n", story.place)
    assert f"  1 cannot: Volume ({story.prefix}n2)" in said.out.splitlines(), said.out


async def test_an_incomplete_gang_names_what_is_missing(story: Story, served: ApiServer) -> None:
    """By the annotation that others of it must have."""
    await with_scheduler(story)
    for name in ("left", "right"):
        await story.service(name, annotations={"gang": "trio", "gang-size": "3"})
    said = await kurm(served, "explain", "pod", "left", "-n", story.place)
    lines = [line.strip() for line in said.out.splitlines()]
    assert f"It is one of 3 of gang {story.place}/trio, which are bound all or none; 2 of its pods are there." in lines
    assert "There: left, right" in lines
    assert "Missing: 1 more with the annotation slurm.kurm.dev/gang: trio" in lines


async def test_a_bound_pod_was_not_refused_whatever_is_allowed_by_now(story: Story, served: ApiServer) -> None:
    """Nor does it need its Job, which has gone before it: it says for whom it was bound."""
    await with_scheduler(story)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "0000-gone", "controller": True}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    marks = {"kurm.dev/job": "12", "kurm.dev/slot": "0", "kurm.dev/allocation": "0000-gone"}
    asked = {"batch.kubernetes.io/job-completion-index": "0", "slurm.kurm.dev/partition": "of-before"}
    metadata = {"name": "train-0", "namespace": story.place, "annotations": marks | asked, "ownerReferences": [owner]}
    spec = {"schedulerName": story.place, "nodeName": f"{story.prefix}n1", "containers": [container]}
    await story.kube.create(PODS.of(Object), {"metadata": metadata, "spec": spec})
    said = await kurm(served, "explain", "pod", "train-0", "-n", story.place)
    lines = [line.strip() for line in said.out.splitlines()]
    assert (said.code, said.err) == (0, "")
    assert lines[1] == f"It is bound to {story.prefix}n1 by job 12, slot 0."
    assert "cannot be placed" not in said.out
    assert lines[-1] == "Slurm could not be asked for its job: no pod of slurmctld is ready"


async def test_a_pod_of_another_scheduler_and_one_that_is_not_there(story: Story, served: ApiServer) -> None:
    """The schedulers that there are, and one sentence with exit status 2."""
    await with_scheduler(story)
    await story.service("web", schedulerName="other")
    said = await kurm(served, "explain", "pod", "web", "-n", story.place)
    assert "Its spec.schedulerName is other; SlurmClusters place those of " in said.out
    assert f"{story.place} ({story.place}/demo)" in said.out
    lost = await kurm(served, "explain", "pod", "nobody", "-n", story.place)
    assert (lost.code, lost.err.split(": ", 1)[1].strip()) == (
        2,
        f"there is no Pod 'nobody' in namespace {story.place}",
    )


async def test_status_lists_the_pods_that_wait(story: Story, served: ApiServer) -> None:
    """For people in a table, for programs by name."""
    await with_scheduler(story)
    await story.service("web", said=("Infeasible", "0 of 3 nodes can be used"))
    said = await kurm(served, "status", "-n", story.place)
    row = next(line for line in said.out.splitlines() if line.startswith(f"{story.place}/web"))
    assert row.split()[1] == f"{story.place}/demo"
    assert row.rstrip().endswith("Infeasible  0 of 3 nodes can be used")
    told = await kurm(served, "status", "-n", story.place, "-o", "json")
    (waiting,) = json.loads(told.out)["waiting"]
    del waiting["since"]
    assert waiting == {
        "namespace": story.place,
        "name": "web",
        "cluster": f"{story.place}/demo",
        "reason": "Infeasible",
        "message": "0 of 3 nodes can be used",
    }
