"""How a node stands with a NodeSet: the word, and the sentence behind it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.report import Said
from kurm.domain.selection import Candidate, Taint
from kurm.domain.standing import Node, Slurmd, Standing, standings

MINE = "slurm.workers"
ROOM = {"cpu": "4", "memory": "4Gi"}
GPU = {"nodeSelector": {"gpu": "h100"}}
IN_SERVICE = Said(ready=True, drained=False, reason="InService", message="")
OVERRIDDEN = Said(ready=True, drained=False, reason="Overridden", message="it was resumed in Slurm although: cordoned")
OWN = Node(Candidate("n1", claim=MINE, allocatable=ROOM), slurmd=Slurmd("workers-n1", ready=True, said=IN_SERVICE))
FREE = Node(Candidate("n1", allocatable=ROOM))


def spec(**given: Any) -> NodeSetSpec:
    """Return a NodeSet's spec."""
    return msgspec.convert({"clusterRef": {"name": "demo"}} | given, NodeSetSpec)


def said(reason: str, message: str = "", *, drained: bool = False) -> Said:
    """Return what the syncer says of a node that takes no jobs."""
    return Said(ready=False, drained=drained, reason=reason, message=message)


def with_slurmd(**given: Any) -> Node:
    """Return our node with another slurmd pod."""
    whole: dict[str, Any] = {"ready": True, "said": IN_SERVICE} | given
    return replace(OWN, slurmd=Slurmd("workers-n1", **whole))


def cut_off(node: Node) -> Node:
    """Return a node whose kubelet is silent."""
    return replace(node, candidate=replace(node.candidate, ready=False), not_ready="its kubelet is silent")


def having(node: Node, **given: Any) -> Node:
    """Return a node with other properties."""
    return replace(node, candidate=replace(node.candidate, **given))


OWN_NODES = [
    (OWN, "InService", ""),
    (cut_off(OWN), "NotReady", "Kubernetes holds it for not Ready: its kubelet is silent"),
    (replace(OWN, slurmd=None), "NoPod", "it is claimed, and has no slurmd pod"),
    (
        having(replace(OWN, slurmd=None), unschedulable=True),
        "Cordoned",
        "cordoned in Kubernetes; its slurmd pod is made anew when it is uncordoned",
    ),
    (having(OWN, unschedulable=True), "Cordoned", "cordoned in Kubernetes"),
    (having(with_slurmd(said=OVERRIDDEN), unschedulable=True), "InService", OVERRIDDEN.message),
    (with_slurmd(said=said("Down", "Not responding")), "Down", "Slurm holds it for down: Not responding"),
    (
        with_slurmd(ready=False, trouble="image x cannot be pulled", stuck=True, said=None),
        "Stuck",
        "pod workers-n1: image x cannot be pulled",
    ),
    (with_slurmd(ready=False, said=None), "Starting", "pod workers-n1: is not ready"),
    (with_slurmd(said=None), "NotRegistered", "the syncer has not said yet that slurmd is registered"),
    (with_slurmd(said=said("NoRecord", "Slurm has no record of it")), "NoRecord", "Slurm has no record of it"),
    (with_slurmd(said=said("Draining", "disk errors")), "Draining", "drained in Slurm, jobs are left: disk errors"),
    (
        with_slurmd(said=said("Drained", "disk errors", drained=True)),
        "Drained",
        "drained in Slurm, no job is left: disk errors",
    ),
    (having(OWN, unschedulable=True), "Cordoned", "cordoned in Kubernetes"),
    (with_slurmd(release="scaling in"), "Leaving", "scaling in; it is kept until its jobs have ended"),
    (
        with_slurmd(release="scaling in", said=said("Drained", "scaling in", drained=True)),
        "Leaving",
        "scaling in; no job is left on it",
    ),
]


@pytest.mark.parametrize(
    ("node", "state", "why"), OWN_NODES, ids=[f"{state}-{why[:30]}" for _, state, why in OWN_NODES]
)
def test_a_node_that_is_claimed_says_what_keeps_it_from_service(node: Node, state: str, why: str) -> None:
    """The cause comes before what follows from it: a dead kubelet before the pod's silence, a drain before a cordon."""
    assert standings("workers", spec(), MINE, [node]) == [Standing("n1", state, why, own=True)]


OTHERS: list[tuple[dict[str, Any], Node, str, str]] = [
    ({}, FREE, "Fits", "it fits, and the operator is about to claim it"),
    ({"replicas": 0}, FREE, "Spare", "it fits, and is not needed: replicas is 0"),
    ({}, having(FREE, claim="hpc.gpu"), "Claimed", "NodeSet hpc/gpu has it"),
    (GPU, FREE, "NodeSelector", "it has no label gpu=h100"),
    (GPU, having(FREE, labels={"gpu": "a100"}), "NodeSelector", "its label gpu is 'a100', not 'h100'"),
    ({}, having(FREE, unschedulable=True), "Unschedulable", "it is cordoned"),
    ({}, cut_off(FREE), "NotReady", "Kubernetes holds it for not Ready: its kubelet is silent"),
    (
        {},
        having(FREE, taints=(Taint("gpu", "NoSchedule", "no"),)),
        "Taint/gpu",
        "it has the taint gpu=no:NoSchedule, which is not tolerated",
    ),
    (
        {"reserve": {"cpu": 4}},
        FREE,
        "TooFew/cpu",
        "it has too little of cpu: nothing is left of it beyond the reserve",
    ),
    (
        {"slurm": {"gres": {"nvidia.com/gpu": "gpu:h100"}}},
        FREE,
        "TooFew/nvidia.com/gpu",
        "it has too little of nvidia.com/gpu: the node has none, and gpu:h100 is made of it",
    ),
]


@pytest.mark.parametrize(("given", "node", "state", "why"), OTHERS, ids=[state for _, _, state, _ in OTHERS])
def test_any_other_node_says_why_it_is_not_used(given: dict[str, Any], node: Node, state: str, why: str) -> None:
    """The word is the one in NodeSet's status; the sentence says what of this node it is."""
    found = standings("workers", spec(**given), MINE, [node])
    assert found == [Standing("n1", state, why, own=False)]


def test_a_node_that_has_become_another_kind_leaves() -> None:
    """A label that was changed under a claimed node is named, and its jobs may end."""
    found = standings("workers", spec(**GPU), MINE, [OWN])
    assert found == [
        Standing("n1", "Leaving", "it has no label gpu=h100; it is kept until its jobs have ended", own=True)
    ]


def test_of_two_nodes_and_one_replica_one_is_kept() -> None:
    """Which one stays is the operator's own choice, asked of all nodes at once."""
    second = Node(replace(OWN.candidate, name="n2"), slurmd=replace(OWN.slurmd or Slurmd(""), name="workers-n2"))
    found = standings("workers", spec(replicas=1), MINE, [second, OWN])
    assert [(one.node, one.state) for one in found] == [("n1", "InService"), ("n2", "Leaving")]


def test_what_somebody_has_set_aside_is_not_wrong() -> None:
    """A drain, a cordon and scaling in are wanted; everything else that keeps a claimed node out is not."""
    wrong = {state for node, state, _ in OWN_NODES for one in standings("workers", spec(), MINE, [node]) if one.wrong}
    assert wrong == {"NotReady", "NoPod", "Down", "Stuck", "Starting", "NotRegistered", "NoRecord"}
