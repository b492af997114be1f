"""Events: one per transition, a count instead of repeats, and never in the way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kurm.kube.events import Recorder, Severity
from kurm.kube.resources import NODES, PODS, Node, ObjectMeta, Pod
from kurm.kube.session import Session
from unit.kube.fake_api import FakeApi, Fault
from unit.kube.fake_objects import Json

pytestmark = pytest.mark.looptime
EVENTS = "events.k8s.io/v1/events"
POD = Pod(ObjectMeta(name="a", namespace="x", uid="1", resource_version="7"))


@pytest.fixture
async def recorder(session: Session) -> AsyncIterator[Recorder]:
    """Run a recorder."""
    made = Recorder(session, "kurm.dev/operator", "operator-0")
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()


def written(api: FakeApi) -> list[Json]:
    """Return the events that the server has."""
    return list(api.objects.collection(EVENTS).values())


async def test_an_event_says_what_kubernetes_asks_of_it(recorder: Recorder, api: FakeApi) -> None:
    """All fields that `events.k8s.io/v1` requires are there, beside the object that it is about."""
    recorder.record(PODS, POD, "Waiting", "no node is free", action="Schedule", severity=Severity.WARNING)
    await asyncio.sleep(1)
    (event,) = written(api)
    assert event["metadata"]["namespace"] == "x"
    regarding = {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "x", "uid": "1", "resourceVersion": "7"}
    expected = {
        "type": "Warning",
        "reason": "Waiting",
        "action": "Schedule",
        "note": "no node is free",
        "regarding": regarding,
        "reportingController": "kurm.dev/operator",
        "reportingInstance": "operator-0",
    }
    assert {name: event[name] for name in expected} == expected
    assert event["eventTime"].endswith("Z")


async def test_repeats_are_counted(recorder: Recorder, api: FakeApi) -> None:
    """A thousand times the same is one event with a count, written once a minute at most."""
    for _ in range(1000):
        recorder.record(PODS, POD, "Waiting", "no node is free", action="Schedule")
        await asyncio.sleep(0.1)
    await asyncio.sleep(60)
    (event,) = written(api)
    assert event["series"]["count"] == 1000
    assert len(api.requests) <= 5


async def test_after_long_the_same_is_a_new_event(recorder: Recorder, api: FakeApi) -> None:
    """What comes again after ten minutes of quiet is told anew."""
    recorder.record(PODS, POD, "Waiting", "no node is free", action="Schedule")
    await asyncio.sleep(700)
    recorder.record(PODS, POD, "Waiting", "no node is free", action="Schedule")
    await asyncio.sleep(1)
    assert len(written(api)) == 2


async def test_a_server_in_trouble_is_tried_again_and_then_given_up(recorder: Recorder, api: FakeApi) -> None:
    """One failure costs a moment; a server that stays away costs the event, never memory or the caller."""
    api.inject(Fault.BROKEN)
    recorder.record(PODS, POD, "First", "note", action="Schedule")
    await asyncio.sleep(2)
    assert [event["reason"] for event in written(api)] == ["First"]
    api.down = True
    recorder.record(PODS, POD, "Second", "note", action="Schedule")
    await asyncio.sleep(300)
    api.down = False
    await asyncio.sleep(300)
    assert [event["reason"] for event in written(api)] == ["First"]


async def test_an_event_of_a_cluster_wide_object_goes_to_default(recorder: Recorder, api: FakeApi) -> None:
    """A node has no namespace; its events are where `kubectl describe node` looks for them. Long notes are cut."""
    recorder.record(NODES, Node(ObjectMeta(name="n1", uid="2")), "Drained", "x" * 5000, action="Drain")
    await asyncio.sleep(1)
    (event,) = written(api)
    assert (event["metadata"]["namespace"], len(event["note"])) == ("default", 1024)
