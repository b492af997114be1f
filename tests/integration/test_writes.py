"""Lease, apply, finalizers and events against the real API server."""

import asyncio
import contextlib
import time

import pytest

from kurm.kube.apply import Applier, add_finalizer, remove_finalizer
from kurm.kube.errors import Conflict, NotFound
from kurm.kube.events import Recorder
from kurm.kube.lease import Leadership, Terms
from kurm.kube.resources import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS, Dynamic, Key, Object, Resource
from kurm.kube.session import Session

SERVICES = Resource(Dynamic, version="v1", kind="Service", plural="services")
TERMS = Terms(duration=12.0, renew_within=10.0, retry=0.5)


async def test_two_candidates_on_a_real_lease(session: Session, place: str) -> None:
    """One leads; it gives back and the other leads at once; the Lease is as client-go and kubectl expect it."""
    key = Key(place, "lease")
    first, second = (Leadership(session, key, name, TERMS) for name in ("first", "second"))
    forever = asyncio.Event().wait
    one = asyncio.create_task(first.run(forever))  # type: ignore[arg-type]
    await _leads(first)
    two = asyncio.create_task(second.run(forever))  # type: ignore[arg-type]
    await asyncio.sleep(2.5)
    assert (first.leads, second.leads) == (True, False)
    one.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await one
    await _leads(second)
    assert not first.leads
    lease = await session.get(LEASES, key)
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("second", 1)
    assert lease.spec.renew_time is not None
    assert abs(lease.spec.renew_time.timestamp() - time.time()) < 20
    two.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await two


async def _leads(candidate: Leadership) -> None:
    """Wait until it leads, for less than it takes a Lease that was not given back to run out."""
    async with asyncio.timeout(TERMS.duration / 2):
        while not candidate.leads:  # noqa: ASYNC110 - it is computed from the clock, and tells nobody
            await asyncio.sleep(0.05)


async def test_apply_on_the_real_server(session: Session, place: str) -> None:
    """Ours is changed and removed, theirs is kept, a conflict is forced, and a repeated apply changes no version."""
    applier = Applier(session, "kurm-operator")

    def manifest(**ports: int) -> dict[str, object]:
        listed = [{"name": name, "port": port} for name, port in ports.items()]
        return {"metadata": {"name": "a", "namespace": place}, "spec": {"ports": listed, "selector": {"app": "x"}}}

    made = await applier.apply(SERVICES, manifest(http=80, ssh=22))
    assert await applier.apply(SERVICES, manifest(http=80, ssh=22), seen=made) is made
    again = await applier.apply(SERVICES, manifest(http=80, ssh=22))
    assert again.metadata.resource_version == made.metadata.resource_version
    await session.patch(SERVICES, made.key, {"metadata": {"labels": {"theirs": "1"}}})
    changed = await applier.apply(SERVICES, manifest(http=8080))
    assert [port["port"] for port in changed.spec["ports"]] == [8080]
    assert changed.metadata.labels == {"theirs": "1"}
    other = Applier(session, "somebody-else")
    with pytest.raises(Conflict):
        await other.apply(
            SERVICES, {"metadata": {"name": "a", "namespace": place}, "spec": {"selector": {"app": "y"}}}, force=False
        )


async def test_a_status_on_the_real_server(session: Session) -> None:
    """Status goes to the object that was seen, and to none that took its name."""
    applier = Applier(session, "kurm-operator")
    node = NODES.of(Object)
    made = await session.create(node, {"metadata": {"name": "status-test"}})
    condition = {"type": "Kurm", "status": "True", "reason": "Test", "message": "m"}
    await applier.apply_status(node, made, {"conditions": [condition]})
    read = await session.get(NODES, made.key)
    assert [(one.type, one.status) for one in read.status.conditions] == [("Kurm", "True")]
    await session.delete(node, made.key)
    with pytest.raises((Conflict, NotFound)):
        await applier.apply_status(node, made, {"conditions": [condition | {"status": "False"}]})
    await session.create(node, {"metadata": {"name": "status-test"}})
    with pytest.raises(Conflict):
        await applier.apply_status(node, made, {"conditions": [condition | {"status": "False"}]})
    await session.delete(node, made.key)


async def test_a_finalizer_on_the_real_server(session: Session, place: str) -> None:
    """An object waits for our finalizer, and goes when it is removed."""
    made = await session.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace=place)
    held = await add_finalizer(session, CONFIG_MAPS, made, "kurm.dev/test")
    await session.delete(CONFIG_MAPS, made.key, uid=made.metadata.uid)
    assert (await session.get(CONFIG_MAPS, made.key)).metadata.deletion_timestamp is not None
    await remove_finalizer(session, CONFIG_MAPS, held, "kurm.dev/test")
    with pytest.raises(NotFound):
        await session.get(CONFIG_MAPS, made.key)
    await remove_finalizer(session, CONFIG_MAPS, held, "kurm.dev/test")


async def test_an_event_on_the_real_server(session: Session, place: str) -> None:
    """The server takes the event and its series."""
    spec = {"containers": [{"name": "c", "image": "none"}]}
    pod = await session.create(PODS, {"metadata": {"name": "a"}, "spec": spec}, namespace=place)
    recorder = Recorder(session, "kurm.dev/test", "test-0")
    for _ in range(3):
        recorder.record(PODS, pod, "Waiting", "no node is free", action="Schedule")
    task = asyncio.create_task(recorder.run())
    async with asyncio.timeout(10):
        event = b""
        while b"series" not in event:
            await asyncio.sleep(0.05)
            event = await session.request("GET", EVENTS.path(namespace=place))
    assert b'"count":3' in event
    task.cancel()
