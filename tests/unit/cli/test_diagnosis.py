"""What is wrong first: the problems of clusters and node sets, in their order and their words."""

from typing import Any

import msgspec
import pytest

from kurm.domain.diagnosis import Cluster, NodeSet, PodTrouble, Problem, Weight, problems
from kurm.domain.nodeset import NodeSetSpec, NodeSetStatus
from kurm.domain.slurmcluster import SlurmClusterStatus
from kurm.domain.standing import Standing
from unit.cli.stories import WELL, conditions

DEMO, WORKERS = "SlurmCluster slurm/demo", "NodeSet slurm/workers"
EXPLAIN_DEMO = "kurm explain slurmcluster demo -n slurm"
EXPLAIN_WORKERS = "kurm explain nodeset workers -n slurm"
OPERATOR = "kubectl -n kurm-system get pods"
PULL = PodTrouble("demo-login-1", "image x cannot be pulled", stuck=True)


def cluster(
    told: dict[str, Any] | None = None, *, generation: int = 1, deleting: bool = False, **given: Any
) -> Cluster:
    """Return the cluster slurm/demo; `told` are conditions that are not as they should be."""
    troubles = given.pop("troubles", {})
    found = {"observedGeneration": 1, "conditions": conditions(WELL | (told or {})), **given}
    status = msgspec.convert(found, SlurmClusterStatus)
    return Cluster("slurm", "demo", generation, status, troubles, deleting=deleting)


def node_set(*standings: Standing, told: dict[str, Any] | None = None, of: str = "demo", **given: Any) -> NodeSet:
    """Return the NodeSet slurm/workers."""
    spec = msgspec.convert({"clusterRef": {"name": of}}, NodeSetSpec)
    found = {"observedGeneration": 1, "conditions": conditions({"Ready": "True"} | (told or {})), **given}
    return NodeSet("slurm", "workers", 1, spec, msgspec.convert(found, NodeSetStatus), standings)


def parts(name: str, ready: int, message: str = "") -> list[dict[str, Any]]:
    """Return the status of one component of which one pod is wanted."""
    return [{"name": name, "desired": 1, "ready": ready, "message": message}]


CLUSTERS: list[tuple[str, Cluster, list[Problem]]] = [
    ("well", cluster(components=parts("login", 1)), []),
    (
        "no operator",
        Cluster("slurm", "demo", 1, SlurmClusterStatus()),
        [Problem(Weight.OUTAGE, DEMO, "is not looked at by any operator: it has no conditions", OPERATOR)],
    ),
    (
        "away",
        cluster({"Available": ("False", "ImagePull", "slurmctld's image cannot be pulled"), "Ready": "False"}),
        [Problem(Weight.OUTAGE, DEMO, "takes no jobs: slurmctld's image cannot be pulled", EXPLAIN_DEMO)],
    ),
    (
        "one cause, told once",
        cluster(
            {
                "Available": ("False", "NoSecret", "Secret db is missing"),
                "Stalled": ("True", "NoSecret", "Secret db is missing"),
            }
        ),
        [Problem(Weight.OUTAGE, DEMO, "takes no jobs: Secret db is missing", EXPLAIN_DEMO)],
    ),
    (
        "refused",
        cluster(
            {"Configured": ("False", "Refused", "Slurm refused abc: Parse error")},
            configRefused={"hash": "abc", "message": "Parse error"},
        ),
        [
            Problem(
                Weight.STUCK,
                DEMO,
                "runs on its last good configuration: Slurm refused abc: Parse error",
                EXPLAIN_DEMO,
            )
        ],
    ),
    (
        "a pod that needs a person",
        cluster({"Ready": ("False", "NotReady", "login")}, components=parts("login", 0), troubles={"login": [PULL]}),
        [
            Problem(
                Weight.DEGRADED,
                DEMO,
                "lacks pods of login: demo-login-1: image x cannot be pulled",
                "kubectl -n slurm describe pod demo-login-1",
            )
        ],
    ),
    (
        "a pod that starts",
        cluster(components=parts("login", 0), troubles={"login": [PodTrouble("demo-login-1", "is being started")]}),
        [
            Problem(
                Weight.COMING,
                DEMO,
                "lacks pods of login: demo-login-1: is being started",
                "kubectl -n slurm describe pod demo-login-1",
            )
        ],
    ),
    (
        "a pod that a rollout ends, with enough others",
        cluster(components=parts("login", 1), troubles={"login": [PodTrouble("demo-login-1", "is ending")]}),
        [],
    ),
    (
        "no pod at all",
        cluster(components=parts("login", 0, "exceeded quota")),
        [Problem(Weight.DEGRADED, DEMO, "lacks pods of login: exceeded quota", EXPLAIN_DEMO)],
    ),
    (
        "on its way",
        cluster(
            {
                "Ready": ("False", "Starting", "slurmdbd starts"),
                "Reconciling": ("True", "Starting", "slurmdbd starts"),
            }
        ),
        [Problem(Weight.COMING, DEMO, "is not ready: slurmdbd starts", EXPLAIN_DEMO)],
    ),
    (
        "changed",
        cluster(generation=3),
        [
            Problem(
                Weight.COMING,
                DEMO,
                "has changed, and no operator has acted on it yet (generation 3, status of 1)",
                OPERATOR,
            )
        ],
    ),
    ("deleted", cluster(deleting=True), [Problem(Weight.ASIDE, DEMO, "is being deleted", EXPLAIN_DEMO)]),
]


@pytest.mark.parametrize(("given", "expected"), [case[1:] for case in CLUSTERS], ids=[case[0] for case in CLUSTERS])
def test_what_is_wrong_with_a_cluster(given: Cluster, expected: list[Problem]) -> None:
    """Each cause is one sentence; what only follows from it is not told again."""
    assert problems([given], []) == expected


def away(name: str, why: str = "its kubelet is silent") -> Standing:
    """Return a node out of service."""
    return Standing(name, "NotReady", why, own=True)


NODE_SETS: list[tuple[str, NodeSet, list[Problem]]] = [
    ("well", node_set(Standing("n1", "InService", "", own=True), Standing("n0", "Claimed", "", own=False)), []),
    (
        "no cluster",
        node_set(of="prod"),
        [
            Problem(
                Weight.STUCK,
                WORKERS,
                "belongs to SlurmCluster 'prod', which is not in namespace slurm",
                "kubectl -n slurm get slurmclusters",
            )
        ],
    ),
    (
        "one node",
        node_set(away("n1"), told={"Ready": "False"}),
        [
            Problem(
                Weight.DEGRADED,
                WORKERS,
                "has n1 out of service: its kubelet is silent",
                "kurm explain node n1",
                ("n1",),
            )
        ],
    ),
    (
        "many nodes",
        node_set(*(away(f"n{number}") for number in range(1, 6))),
        [
            Problem(
                Weight.DEGRADED,
                WORKERS,
                "has 5 nodes out of service (n1, n2, n3 and 2 more): its kubelet is silent",
                EXPLAIN_WORKERS,
                ("n1", "n2", "n3", "n4", "n5"),
            )
        ],
    ),
    (
        "two nodes, two reasons",
        node_set(away("n1", "no network"), away("n2")),
        [
            Problem(
                Weight.DEGRADED,
                WORKERS,
                "has 2 nodes out of service (n1, n2): n1: no network",
                EXPLAIN_WORKERS,
                ("n1", "n2"),
            )
        ],
    ),
    (
        "coming and set aside",
        node_set(
            Standing("n1", "Drained", "drained in Slurm: disk errors", own=True),
            Standing("n2", "NotRegistered", "slurmd has not registered", own=True),
        ),
        [
            Problem(
                Weight.COMING,
                WORKERS,
                "has n2 on its way into service: slurmd has not registered",
                "kurm explain node n2",
                ("n2",),
            ),
            Problem(
                Weight.ASIDE,
                WORKERS,
                "has n1 set aside: drained in Slurm: disk errors",
                "kurm explain node n1",
                ("n1",),
            ),
        ],
    ),
    (
        "too few nodes",
        node_set(
            told={"Ready": ("False", "TooFew", "2 of 4 nodes fit"), "Stalled": ("True", "TooFew", "2 of 4 nodes fit")}
        ),
        [Problem(Weight.STUCK, WORKERS, "needs a person: 2 of 4 nodes fit", EXPLAIN_WORKERS)],
    ),
]


@pytest.mark.parametrize(("given", "expected"), [case[1:] for case in NODE_SETS], ids=[case[0] for case in NODE_SETS])
def test_what_is_wrong_with_a_node_set(given: NodeSet, expected: list[Problem]) -> None:
    """Nodes in the same state are one sentence, and what somebody wanted comes last."""
    assert problems([cluster()], [given]) == expected


def test_the_worst_comes_first() -> None:
    """An outage before what needs a person, and clusters before node sets where both are as bad."""
    found = problems(
        [cluster({"Available": ("False", "Away", "slurmctld does not answer")}, components=parts("login", 0, "why"))],
        [node_set(away("n1"), told={"Stalled": ("True", "NoNode", "no node fits")})],
    )
    assert [(problem.weight.name, problem.subject) for problem in found] == [
        ("OUTAGE", DEMO),
        ("STUCK", WORKERS),
        ("DEGRADED", DEMO),
        ("DEGRADED", WORKERS),
    ]
