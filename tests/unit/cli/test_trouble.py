"""Why a pod is not ready, from what the kubelet and the scheduler say."""

from typing import Any

import msgspec
import pytest

from kurm.cli.trouble import Event, Trouble, newest, trouble
from unit.cli.stories import conditions, pod, waiting

ENDED = {"exitCode": 2, "reason": "Error", "message": ""}
CASES: list[tuple[str, dict[str, Any], Trouble | None]] = [
    ("ready", {"phase": "Running", "conditions": conditions({"Ready": "True"})}, None),
    (
        "unschedulable",
        {
            "phase": "Pending",
            "conditions": conditions({"PodScheduled": ("False", "Unschedulable", "0/5 nodes are available")}),
        },
        Trouble("cannot be scheduled: 0/5 nodes are available", stuck=True),
    ),
    (
        "image",
        waiting("ImagePullBackOff", 'Back-off pulling image "login:1"'),
        Trouble('image login:1 cannot be pulled: Back-off pulling image "login:1"', stuck=True),
    ),
    (
        "crash",
        waiting("CrashLoopBackOff", "back-off 5m0s", restartCount=7, lastState={"terminated": ENDED}),
        Trouble("sshd ends again and again (7 restarts): exit status 2, Error", stuck=True),
    ),
    (
        "config",
        waiting("CreateContainerConfigError", 'secret "demo-keys" not found'),
        Trouble('sshd waits: CreateContainerConfigError: secret "demo-keys" not found', stuck=True),
    ),
    (
        "ended",
        {"phase": "Running", "containerStatuses": [{"name": "sshd", "state": {"terminated": ENDED}}]},
        Trouble("sshd has ended: exit status 2, Error"),
    ),
    (
        "evicted",
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"},
        Trouble("has ended (Failed): The node was low on memory", stuck=True),
    ),
    ("creating", waiting("ContainerCreating"), Trouble("is being started: FailedMount: no such secret")),
    ("new", {"phase": "Pending"}, Trouble("is being started: FailedMount: no such secret")),
    (
        "unready",
        {"phase": "Running", "containerStatuses": [{"name": "sshd", "state": {"running": {}}}]},
        Trouble("runs and is not ready (sshd): FailedMount: no such secret"),
    ),
]


@pytest.mark.parametrize(
    ("status", "expected"), [(case[1], case[2]) for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_keeps_a_pod_from_being_ready(status: dict[str, Any], expected: Trouble | None) -> None:
    """What needs a person is told from what comes by itself; events speak only where the status has no reason."""
    found = trouble(pod("login-1", "login", status=status), {"uid-login-1": "FailedMount: no such secret"})
    assert found == expected


def test_a_pod_that_is_deleted_is_ending() -> None:
    """Also while it still answers."""
    assert trouble(pod("login-1", "login", deletionTimestamp="2026-11-21T16:15:42Z")) == Trouble("is ending")


def test_the_newest_event_speaks() -> None:
    """Events come in any order; the old ones have been overtaken."""
    about = {"kind": "Pod", "name": "login-1", "uid": "uid-login-1"}
    events = [
        {"metadata": {}, "involvedObject": about, "reason": reason, "message": message, "lastTimestamp": moment}
        for reason, message, moment in (
            ("FailedMount", "no such secret", "2026-11-21T16:15:42Z"),
            ("FailedScheduling", "no room", "2026-11-21T16:15:12Z"),
        )
    ]
    assert newest(msgspec.convert(events, list[Event])) == {"uid-login-1": "FailedMount: no such secret"}
