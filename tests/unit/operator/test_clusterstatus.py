"""What a SlurmCluster's status says, as tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kurm.domain.slurmcluster import ConfigRefused, SlurmClusterSpec, SlurmClusterStatus
from kurm.domain.spec import Condition
from kurm.operator.clusterstatus import Component, Facts, desired, differs, judge, login_address, stuck
from kurm.operator.conditions import Trouble
from kurm.operator.objects import Pod, Service, Workload
from kurm.operator.render.names import Part

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
HASH = "h1"
APPLIED = SlurmClusterStatus(config_hash=HASH)
PULLING = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}


def pod(*, ready: bool = True, revision: str = "r1", waiting: dict[str, str] | None = None, **metadata: Any) -> Pod:
    """Return a pod of slurmctld's."""
    labels = {"controller-revision-hash": revision}
    status = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "slurmctld", "state": {"waiting": waiting} if waiting else {}}],
    }
    return msgspec.convert(
        {"metadata": {"name": "demo-controller-0", "labels": labels} | metadata, "status": status}, Pod
    )


def workload(generation: int = 1, observed: int = 1, revision: str = "r1", **status: Any) -> Workload:
    """Return a StatefulSet of one pod that is rolled out."""
    found = {"observedGeneration": observed, "replicas": 1, "updatedReplicas": 1, "updateRevision": revision} | status
    return msgspec.convert(
        {"metadata": {"name": "demo-controller", "generation": generation}, "status": found}, Workload
    )


def judged(*pods: Pod, of: Workload | None = None, held: SlurmClusterStatus = APPLIED, **facts: Any) -> dict[str, Any]:
    """Return conditions by type: status, reason, message."""
    components = [Component(Part.CONTROLLER, 1, of or workload(), pods)]
    status = judge(Facts(3, held, components, HASH, **facts), NOW)
    return {one.type: (one.status, one.reason, one.message) for one in status.conditions}


def test_all_is_well() -> None:
    """Two conditions, and none of those that are there only while they are True."""
    assert judged(pod()) == {"Available": ("True", "Answers", ""), "Ready": ("True", "Ready", "")}


@pytest.mark.parametrize(
    ("pods", "reason", "stalled"),
    [
        ([], "NoPod", False),
        ([pod(ready=False)], "Starting", False),
        ([pod(ready=False, waiting=PULLING)], "ImagePullBackOff", True),
        ([pod(ready=False, waiting={"reason": "CrashLoopBackOff"})], "CrashLoopBackOff", False),
        ([pod(deletionTimestamp="2026-11-21T18:00:00Z")], "Ending", False),
    ],
)
def test_slurmctld_does_not_answer(pods: list[Pod], reason: str, stalled: bool) -> None:  # noqa: FBT001
    """Available is False with the reason; Stalled only where a person is needed."""
    found = judged(*pods)
    assert found["Available"][:2] == ("False", reason)
    assert found["Ready"][:2] == ("False", reason)
    assert ("Stalled" in found, "Reconciling" in found) == (stalled, not stalled)


def test_a_rollout_is_no_success_before_it_has_begun() -> None:
    """A StatefulSet that has not yet seen its new template says that all is well; its generation tells."""
    found = judged(pod(), of=workload(generation=2))
    assert found["Available"][0] == "True"
    assert found["Ready"] == ("False", "RollingOut", "controller is being brought up to date")


def test_a_configuration_that_is_not_yet_in_force() -> None:
    """It is on its way until slurmctld has taken it; one that it refused needs a person, and has Slurm's words."""
    assert judged(pod(), held=SlurmClusterStatus())["Reconciling"][1] == "Configuring"
    refused = SlurmClusterStatus(config_hash="h0", config_refused=ConfigRefused(HASH, "Parsing error at line 3"))
    assert judged(pod(), held=refused)["Stalled"] == ("True", "ConfigurationRefused", "Parsing error at line 3")


def test_what_needs_a_person_comes_first() -> None:
    """Before what passes by itself."""
    found = judged(pod(ready=False), troubles=[Trouble("MissingSecret", "there is none")])
    assert found["Stalled"] == ("True", "MissingSecret", "there is none")
    assert found["Available"][:2] == ("False", "Starting")


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    """So the same facts give the same status, and nothing is written."""
    facts = Facts(3, APPLIED, [Component(Part.CONTROLLER, 1, workload(), [pod()])], HASH)
    first = judge(facts, NOW)
    held = msgspec.structs.replace(first, config_hash=HASH)
    again = judge(Facts(3, held, facts.components, HASH), NOW + timedelta(hours=1))
    assert not differs(held, again)
    turned = tuple(reversed(held.conditions))
    configured = Condition("Configured", "True", NOW, "Applied")
    assert not differs(msgspec.structs.replace(held, conditions=(configured, *turned)), again)


@pytest.mark.parametrize(
    ("of", "found", "expected"),
    [
        (workload(revision="r2"), pod(ready=False), 1),
        (workload(revision="r2"), pod(), 0),
        (workload(revision="r1"), pod(ready=False), 0),
        (workload(revision="r2", generation=3, observed=2), pod(ready=False), 0),
        (workload(revision="r2"), pod(ready=False, deletionTimestamp="2026-11-21T18:00:00Z"), 0),
        (workload(revision=""), pod(ready=False), 0),
    ],
)
def test_a_stuck_pod(of: Workload, found: Pod, expected: int) -> None:
    """Not ready, of another revision than the newest one that the controller knows, and not about to end."""
    assert len(stuck(Component(Part.CONTROLLER, 1, of, [found]))) == expected


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": [{"port": 22}]}, {}, "10.0.0.9"),
        ({"type": "ClusterIP", "clusterIP": "fd00::9", "ports": [{"port": 2022}]}, {}, "[fd00::9]:2022"),
        ({"type": "NodePort", "ports": [{"port": 22, "nodePort": 30022}]}, {}, "192.0.2.7:30022"),
        ({"type": "LoadBalancer", "ports": [{"port": 22}]}, {}, ""),
        (
            {"type": "LoadBalancer", "ports": [{"port": 22}]},
            {"loadBalancer": {"ingress": [{"hostname": "login.example"}]}},
            "login.example",
        ),
    ],
)
def test_where_ssh_finds_the_login_nodes(spec: Any, status: Any, expected: str) -> None:
    """As HOST, or HOST:PORT where it is not 22."""
    service = msgspec.convert({"metadata": {"name": "demo-login"}, "spec": spec, "status": status}, Service)
    login = msgspec.structs.replace(pod(), status=msgspec.structs.replace(pod().status, host_ip="192.0.2.7"))
    assert login_address(service, [login]) == expected


def test_components_are_those_that_are_asked_for() -> None:
    """Without accounting there is no database, and REST only where it is enabled."""
    spec = msgspec.convert({"accounting": {"enabled": False}, "login": {"replicas": 2}}, SlurmClusterSpec)
    assert desired(spec) == {Part.CONTROLLER: 1, Part.LOGIN: 2, Part.SYNCER: 1}
    whole = msgspec.convert({"rest": {"enabled": True}}, SlurmClusterSpec)
    assert set(desired(whole)) == {*desired(spec), Part.ACCOUNTING, Part.DATABASE, Part.REST}
