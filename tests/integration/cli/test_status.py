"""`kurm status` on a real API server: what it reads, what it says, how it ends."""

import json
from pathlib import Path

from integration.apiserver import ApiServer
from integration.cli.story import Story, kurm
from kurm.kube.resources import Object, Resource

ROLES = Resource(Object, group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles")
BINDINGS = Resource(Object, group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings")
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
PULLS_NOT = "demo-login-1: image login:1 cannot be pulled: Back-off pulling image"
NOT_READY = "Kubernetes holds it for not Ready: kubelet stopped posting node status"


def login_that_cannot_be_pulled() -> dict[str, object]:
    """Return the status that the kubelet gives such a pod."""
    container = {"name": "sshd", "image": "login:1", "imageID": "", "ready": False, "restartCount": 0, "state": PULL}
    return {"phase": "Pending", "containerStatuses": [container]}


async def test_all_is_well(story: Story, served: ApiServer) -> None:
    """One line says so, and the exit status is 0; the queues say why they are not known."""
    node = await story.node("n1")
    await story.cluster(version="26.05.5", nodes={"total": 1, "ready": 1})
    await story.node_set(desired=1, ready=1, feasible=1, current=1, updated=1)
    await story.slurmd(node)
    said = await kurm(served, "status", "demo", "-n", story.place)
    lines = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert lines[0] == "All is well: 1 cluster, 1 node set, 1 of 1 nodes in service."
    assert lines[-1] == f"The queues of {story.place}/demo are not known: no pod of slurmctld is ready"


async def test_what_is_wrong_comes_first(story: Story, served: ApiServer) -> None:
    """A dead node and a pod without an image are told with the next command, and the exit status is 1."""
    n1, n2 = await story.node("n1"), await story.node("n2", ready="Unknown")
    await story.cluster({"Available": "True", "Ready": "False"}, components=[{"name": "login", "desired": 1}])
    await story.node_set(desired=2, ready=1)
    for node in (n1, n2):
        await story.slurmd(node)
    await story.pod("demo-controller-0", "controller", node=n1)
    await story.pod("demo-login-1", "login", status=login_that_cannot_be_pulled())
    said = await kurm(served, "status", "-n", story.place)
    place, lines = story.place, said.out.splitlines()
    assert said.code == 1
    assert lines[:5] == [
        "2 things are wrong:",
        f"  1  SlurmCluster {place}/demo lacks pods of login: {PULLS_NOT}",
        f"       kubectl -n {place} describe pod demo-login-1",
        f"  2  NodeSet {place}/workers has {n2} out of service: {NOT_READY}",
        f"       kurm explain node {n2}",
    ]
    # The API server itself refuses to open a channel here: there is no such container, and no kubelet.
    assert lines[-1] == (
        f"The queues of {place}/demo are not known: container slurmctld is not valid for pod demo-controller-0 "
        "(400 BadRequest)"
    )


async def test_programs_are_told_the_same(story: Story, served: ApiServer) -> None:
    """With -o json everything is there by its name, and nothing else is on standard output."""
    await story.cluster({"Available": ("False", "Away", "slurmctld does not answer"), "Ready": "False"})
    await story.node_set(desired=0)
    said = await kurm(served, "status", "-n", story.place, "-o", "json")
    found = json.loads(said.out)
    assert (said.code, found["well"]) == (1, False)
    assert found["problems"] == [
        {
            "severity": "outage",
            "object": f"SlurmCluster {story.place}/demo",
            "message": "takes no jobs: slurmctld does not answer",
            "next": f"kurm explain slurmcluster demo -n {story.place}",
        }
    ]
    assert [(one["name"], one["cluster"]) for one in found["nodeSets"]] == [("workers", "demo")]


async def test_the_newest_warning_explains_what_a_status_does_not(story: Story, served: ApiServer) -> None:
    """A pod that only "is being started" says no more; the kubelet's event does."""
    await story.cluster({"Available": "True", "Ready": "False"}, components=[{"name": "login", "desired": 1}])
    await story.pod("demo-login-1", "login", status={"phase": "Pending"})
    await story.warn("demo-login-1", "FailedMount", 'secret "demo-keys" not found')
    said = await kurm(served, "status", "-n", story.place)
    assert said.out.splitlines()[1] == (
        f"  1  SlurmCluster {story.place}/demo lacks pods of login: demo-login-1: is being started: "
        'FailedMount: secret "demo-keys" not found'
    )


async def test_a_cluster_that_is_not_there(story: Story, served: ApiServer) -> None:
    """Those that there are are named, and the exit status is that of a question that could not be asked."""
    await story.cluster()
    said = await kurm(served, "status", "prod", "-n", story.place)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: there is no SlurmCluster 'prod' in namespace {story.place}; there is ")
    assert f"{story.place}/demo" in said.err


async def test_without_the_right_to_see_nodes(story: Story, served: ApiServer) -> None:
    """Who may read one namespace only is told what of it can be known, and what not."""
    await story.cluster()
    await story.node_set(desired=1, ready=1)
    may = [
        {"apiGroups": ["kurm.dev"], "resources": ["slurmclusters", "nodesets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    named = {"name": "reader", "namespace": story.place}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
    await story.kube.create(ROLES, {"metadata": named, "rules": may})
    await story.kube.create(BINDINGS, {"metadata": named, "roleRef": role, "subjects": [subject]})
    said = await kurm(served, "status", "-n", story.place, user="reader", groups=None)
    assert said.code == 0
    assert (
        'Nothing is known of nodes: nodes is forbidden: User "reader" cannot list resource "nodes" in API group "" '
        "at the cluster scope"
    ) in said.out.splitlines()


async def test_an_api_server_that_is_away(tmp_path: Path, served: ApiServer) -> None:
    """One sentence, at once; the same for no kubeconfig at all."""
    text = served.kubeconfig().read_text().replace(f"127.0.0.1:{served.port}", "127.0.0.1:9")
    (tmp_path / "config").write_text(text)
    said = await kurm(served, "status", "--kubeconfig", str(tmp_path / "config"))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: no answer from the API server at https://127.0.0.1:9: ")
    said = await kurm(served, "status", "--kubeconfig", str(tmp_path / "none"))
    assert (said.code, said.err) == (
        2,
        f"error: kubeconfig: {tmp_path / 'none'} cannot be read: No such file or directory\n",
    )
