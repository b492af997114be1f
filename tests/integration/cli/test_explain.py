"""`kurm explain` and `kurm ssh` on a real API server, as far as they go without kubelets."""

from integration.apiserver import ApiServer
from integration.cli.story import Story, kurm

UNMOUNTED = 'demo-login-1: is being started: FailedMount: secret "demo-ssh-host-keys" not found'
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


async def test_a_node_set_tells_of_every_node(story: Story, served: ApiServer) -> None:
    """Live: what a node is is read at this moment, not taken from a status that somebody wrote before."""
    n0 = await story.node("n0", "", spec={"taints": [CONTROL_PLANE]})
    n1, n2, n3 = await story.node("n1"), await story.node("n2"), await story.node("n3", "other")
    await story.cluster()
    await story.node_set(desired=2, ready=2)
    await story.slurmd(n1)
    await story.slurmd(n2, "Draining", "disk errors")
    said = await kurm(served, "explain", "nodeset", "workers", "-n", story.place)
    rows = [line.split(maxsplit=2) for line in said.out.splitlines() if line.startswith(story.prefix)]
    assert said.code == 0
    assert [[part.strip() for part in row] for row in rows] == [
        [n2, "Draining", "drained in Slurm, jobs are left: disk errors"],
        [n1, "InService"],
        [n3, "Claimed", f"NodeSet {story.place}/other has it"],
        [
            n0,
            "Taint/node-role.kubernetes.io/control-plane",
            "it has the taint node-role.kubernetes.io/control-plane:NoSchedule, which is not tolerated",
        ],
    ]


async def test_a_node_tells_who_has_it(story: Story, served: ApiServer) -> None:
    """NodeSets of all namespaces are asked, without naming one."""
    node = await story.node("n1", spec={"unschedulable": True})
    await story.cluster()
    await story.node_set(desired=1)
    await story.slurmd(node, "Drained", "kurm: cordoned: disk errors", drained=True)
    said = await kurm(served, "explain", "node", node)
    lines = [line.rstrip() for line in said.out.splitlines()]
    assert lines[0] == f"Node {node}, claimed by NodeSet {story.place}/workers"
    assert "  Cordoned: no new pod is sent there (kubectl uncordon lifts it)." in lines
    assert "  Slurm: Drained: kurm: cordoned: disk errors" in lines
    assert "  It takes no jobs, and none is left on it." in lines
    mine = next(line for line in lines if line.startswith(f"  {story.place}/workers"))
    assert mine.split(maxsplit=2)[1:] == [
        "Drained",
        "drained in Slurm, no job is left: kurm: cordoned: disk errors  CPUs=4 RealMemory=3584",
    ]


async def test_a_cluster_quotes_slurm(story: Story, served: ApiServer) -> None:
    """A refused configuration is told with Slurm's words and both hashes."""
    await story.cluster(
        {"Available": "True", "Configured": ("False", "Refused", "Slurm refused bad: Parse error in line 7")},
        configHash="good",
        configRefused={"hash": "bad", "message": "Parse error in line 7"},
    )
    said = await kurm(served, "explain", "slurmcluster", "demo", "-n", story.place)
    lines = said.out.splitlines()
    assert said.code == 0
    assert "  in force: good" in lines
    assert "  refused:  bad; the one in force stays. Slurm says: Parse error in line 7" in lines


async def test_what_is_not_there(story: Story, served: ApiServer) -> None:
    """The sentence names what there is; a name that could be none is refused before anybody is asked."""
    await story.cluster()
    said = await kurm(served, "explain", "node", "nowhere")
    assert (said.code, said.err.startswith("error: there is no Node 'nowhere'")) == (2, True)
    said = await kurm(served, "explain", "node", "../pods")
    assert (said.code, "is no name in Kubernetes" in said.err) == (2, True)


async def test_ssh_without_a_login_pod(story: Story, served: ApiServer) -> None:
    """Why there is none, in a sentence; ssh is not started, and the exit status is ssh's own for such a case."""
    await story.cluster()
    await story.pod("demo-login-1", "login", status={"phase": "Pending"})
    await story.warn("demo-login-1", "FailedMount", 'secret "demo-ssh-host-keys" not found')
    said = await kurm(served, "ssh", "-n", story.place, "--", "hostname")
    assert (said.code, said.err) == (
        255,
        f"error: no login pod of SlurmCluster {story.place}/demo is ready: {UNMOUNTED}\n",
    )
