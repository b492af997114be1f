"""What a person reads, line by line."""

import io
from collections.abc import Callable

from rich.console import Console

from kurm.cli import explain, status
from kurm.cli.queues import Queue, Queues
from kurm.cli.text import ago, console, plain
from kurm.cli.view import View
from unit.cli.stories import Json, cluster, node, node_set, pod, slurmd, view, waiting

BATCH = Queue("batch", True, "up", 1, 3, 0, 4, running=2, pending=1, waits_for={"Resources": 1})  # noqa: FBT003
TAINT: Json = {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}
COUNTS: Json = {"desired": 4, "ready": 4, "feasible": 4, "current": 4, "updated": 4, "allocated": 1}


def printed(show: Callable[[Console], object]) -> str:
    """Return what is printed into a pipe, without the spaces at the ends of a table's lines."""
    out = io.StringIO()
    show(console(out))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def told(seen: View, *asked: Queues) -> str:
    """Return what `kurm status` prints."""
    return printed(lambda out: status.show(out, seen, list(asked), [], status.diagnose(seen)))


def well() -> View:
    """Return a cluster with which nothing is wrong."""
    nodes = [node(f"n{number}") for number in (1, 2, 3, 4)]
    return view(
        cluster(version="26.05.5", loginAddress="10.0.0.1:30022", nodes={"total": 4, "ready": 4}),
        node_set(**COUNTS),
        *nodes,
        *(slurmd(one.metadata.name) for one in nodes),
    )


def ill() -> View:
    """Return a cluster whose login image cannot be pulled, with a dead node and a drained one."""
    return view(
        cluster(
            {"Available": "True", "Configured": "True", "Ready": ("False", "ComponentsNotReady", "login is not ready")},
            configHash="c0ffee",
            nodes={"total": 3, "ready": 1},
            components=[{"name": "controller", "desired": 1, "ready": 1}, {"name": "login", "desired": 1}],
        ),
        node_set(given={"Ready": ("False", "NodesOutOfService", "1 of 3 is in service")}, desired=3, ready=1),
        node("n0", "", **TAINT),
        node("n1"),
        node(
            "n2",
            unschedulable=True,
            taints=[{"key": "kurm.dev/pool", "value": "slurm.workers", "effect": "NoSchedule"}],
        ),
        node("n3", ready="Unknown", words="Kubelet stopped posting node status."),
        slurmd("n1"),
        slurmd("n2", "Drained", "kurm: cordoned: disk errors", drained=True),
        slurmd("n3", "Down", "Not responding"),
        pod("demo-controller-0", "controller", on="n0"),
        pod("demo-login-1", "login", status=waiting("ImagePullBackOff", "Back-off [pulling] image")),
    )


def test_status_of_a_cluster_that_is_well() -> None:
    """One line says so, and tables say the rest."""
    assert status.well(status.diagnose(well()))
    assert told(well(), Queues("slurm", "demo", (BATCH,))) == (
        "All is well: 1 cluster, 1 node set, 4 of 4 nodes in service.\n"
        "\n"
        "CLUSTER     AVAILABLE  CONFIGURED  READY  NODES  SLURM    LOGIN           AGE\n"
        "slurm/demo  True       True        True   4/4    26.05.5  10.0.0.1:30022\n"
        "\n"
        "NODE SET       CLUSTER  READY  DESIRED  FEASIBLE  ALLOCATED  DRAINING  DRAINED  UPDATED  AGE\n"
        "slurm/workers  demo     4      4        4         1          0         0        4\n"
        "\n"
        "QUEUE            CLUSTER     STATE  IN USE  IDLE  OTHER  RUNNING  PENDING  WAITING FOR\n"
        "batch (default)  slurm/demo  up     1       3     0      2        1        Resources 1\n"
    )


def test_status_of_a_cluster_that_is_ill() -> None:
    """What is wrong comes first, each with the next command; then what somebody wanted; words in brackets stay."""
    assert not status.well(status.diagnose(ill()))
    assert told(ill(), Queues("slurm", "demo", unknown="no pod of slurmctld is ready")) == (
        "2 things are wrong:\n"
        "  1  SlurmCluster slurm/demo lacks pods of login: demo-login-1: image login:1 cannot be pulled: "
        "Back-off [pulling] image\n"
        "       kubectl -n slurm describe pod demo-login-1\n"
        "  2  NodeSet slurm/workers has n3 out of service: Kubernetes holds it for not Ready: "
        "Kubelet stopped posting node status.\n"
        "       kurm explain node n3\n"
        "\n"
        "Set aside by somebody:\n"
        "  1  NodeSet slurm/workers has n2 set aside: drained in Slurm, no job is left: kurm: cordoned: disk errors\n"
        "       kurm explain node n2\n"
        "\n"
        "CLUSTER     AVAILABLE  CONFIGURED  READY  NODES  SLURM  LOGIN  AGE\n"
        "slurm/demo  True       True        False  1/3\n"
        "\n"
        "NODE SET       CLUSTER  READY  DESIRED  FEASIBLE  ALLOCATED  DRAINING  DRAINED  UPDATED  AGE\n"
        "slurm/workers  demo     1      3        0                    0         0        0\n"
        "\n"
        "The queues of slurm/demo are not known: no pod of slurmctld is ready\n"
    )


def test_a_node_set_tells_of_every_node() -> None:
    """First those that are wrong, then those set aside, in service, and of others."""
    seen = ill()
    out = printed(lambda out: explain.show_node_set(out, seen, seen.node_sets[0]))
    table = out[out.index("NODE  STATE") :]
    assert table == (
        "NODE  STATE                                        WHY\n"
        "n3    NotReady                                     Kubernetes holds it for not Ready: "
        "Kubelet stopped posting node status.\n"
        "n2    Drained                                      drained in Slurm, no job is left: "
        "kurm: cordoned: disk errors\n"
        "n1    InService\n"
        "n0    Taint/node-role.kubernetes.io/control-plane  it has the taint "
        "node-role.kubernetes.io/control-plane:NoSchedule, which is not tolerated\n"
    )


def test_a_node_set_tells_all_its_figures() -> None:
    """What is not known is said to be; why nodes cannot be used is counted, with some of them."""
    infeasible = [{"reason": "NotReady", "nodes": 7, "examples": ["n4", "n5"]}]
    found = node_set(desired=4, ready=3, updated=2, draining=1, infeasible=infeasible)
    out = printed(lambda out: explain.show_node_set(out, view(found), found))
    assert (
        "Nodes: desired 4, feasible 0, current 0, updated 2, ready 3, allocated unknown, draining 1, drained 0, "
        "misscheduled 0, unavailable 0.\n"
        "  7 cannot be used: NotReady (n4, n5, ...)\n"
    ) in out
    known = node_set(allocated=2)
    assert "allocated 2" in printed(lambda out: explain.show_node_set(out, view(known), known))


def test_a_node_tells_all_that_is_known() -> None:
    """Both sides, and what each NodeSet says to it."""
    seen = ill()
    n2 = next(one for one in seen.nodes or () if one.metadata.name == "n2")
    out = printed(lambda out: explain.show_node(out, seen, n2))
    since = ago(n2.status.conditions[0].last_transition_time)
    assert out == (
        "Node n2, claimed by NodeSet slurm/workers\n"
        "\n"
        "Kubernetes\n"
        f"  Ready for {since}.\n"
        "  Cordoned: no new pod is sent there (kubectl uncordon lifts it).\n"
        "  Tainted kurm.dev/pool=slurm.workers:NoSchedule\n"
        "\n"
        "Slurm\n"
        f"  Pod slurm/workers-n2 is ready for {since}.\n"
        "  Slurm: Drained: kurm: cordoned: disk errors\n"
        "  It takes no jobs, and none is left on it.\n"
        "\n"
        "NodeSets\n"
        "  NODE SET       STATE    WHY                                                            RECORD\n"
        "  slurm/workers  Drained  drained in Slurm, no job is left: kurm: cordoned: disk errors  "
        "CPUs=4 RealMemory=3584\n"
    )


def test_words_of_others_move_no_cursor() -> None:
    """A message may come from whoever names an image: it stays in its line, and colours nothing."""
    assert plain("bad\x1b[2J\x07 image\n  name") == "bad [2J image name"
