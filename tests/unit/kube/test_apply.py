"""Server-side apply, what it leaves out, and finalizers."""

import pytest

from kurm.kube.apply import Applier, add_finalizer, remove_finalizer
from kurm.kube.errors import Conflict, NotFound
from kurm.kube.resources import CONFIG_MAPS, PODS, Dynamic, Key, Object
from kurm.kube.session import Session
from unit.kube.fake_api import FakeApi

A = Key("x", "a")
DYNAMIC = CONFIG_MAPS.of(Dynamic)


def manifest(**spec: object) -> dict[str, object]:
    """Return what we want of an object."""
    return {"metadata": {"name": "a", "namespace": "x"}, "spec": spec}


async def test_apply_makes_changes_and_removes(session: Session) -> None:
    """The first apply creates; a later one changes, and removes what it no longer names, but only of our own."""
    applier = Applier(session, "kurm-operator")
    await applier.apply(DYNAMIC, manifest(size=1, colour="red"))
    await session.patch(DYNAMIC, A, {"spec": {"theirs": True}})
    after = await applier.apply(DYNAMIC, manifest(size=2))
    assert after.spec == {"size": 2, "theirs": True}


async def test_an_apply_that_changes_nothing_is_left_out(session: Session, api: FakeApi) -> None:
    """The same manifest on the very version that the last apply answered: no request. Anything else: one."""
    applier = Applier(session, "kurm-operator")
    seen = await applier.apply(DYNAMIC, manifest(size=1))
    api.requests.clear()
    assert await applier.apply(DYNAMIC, manifest(size=1), seen=seen) == seen
    assert api.requests == []
    await applier.apply(DYNAMIC, manifest(size=2), seen=seen)
    assert len(api.requests) == 1


async def test_somebody_elses_write_is_always_answered_by_an_apply(session: Session) -> None:
    """Drift is undone: the version differs, so the apply is sent."""
    applier = Applier(session, "kurm-operator")
    await applier.apply(DYNAMIC, manifest(size=1))
    drifted = await session.patch(DYNAMIC, A, {"spec": {"size": 7}})
    assert (await applier.apply(DYNAMIC, manifest(size=1), seen=drifted)).spec == {"size": 1}


async def test_an_object_made_again_is_applied_again(session: Session) -> None:
    """The same name with another UID is another object, whatever was applied to the old one."""
    applier = Applier(session, "kurm-operator")
    first = await applier.apply(DYNAMIC, manifest(size=1))
    await session.delete(DYNAMIC, A)
    again = await session.create(DYNAMIC, {"metadata": {"name": "a", "namespace": "x"}})
    assert again.metadata.uid != first.metadata.uid
    assert (await applier.apply(DYNAMIC, manifest(size=1), seen=again)).spec == {"size": 1}


async def test_a_status_is_never_given_to_another_object(session: Session) -> None:
    """The status of a deleted object does not create it anew, nor land on its successor."""
    applier = Applier(session, "kurm-operator")
    seen = await session.create(DYNAMIC, manifest(size=1))
    assert (await applier.apply_status(DYNAMIC, seen, {"ready": 1})).status == {"ready": 1}
    await session.delete(DYNAMIC, A)
    await session.create(DYNAMIC, manifest(size=1))
    with pytest.raises(Conflict):
        await applier.apply_status(DYNAMIC, seen, {"ready": 2})


async def test_a_finalizer_holds_an_object_until_it_is_removed(session: Session) -> None:
    """Deletion waits for it; others' finalizers stay; both calls can be repeated."""
    made = await session.create(PODS, {"metadata": {"name": "a", "namespace": "x", "finalizers": ["other"]}})
    held = await add_finalizer(session, PODS, made, "kurm.dev/slots")
    assert held.metadata.finalizers == ("other", "kurm.dev/slots")
    assert await add_finalizer(session, PODS, held, "kurm.dev/slots") == held
    await session.delete(PODS, A)
    leaving = await session.get(PODS, A)
    assert leaving.metadata.deletion_timestamp is not None
    await remove_finalizer(session, PODS, leaving, "kurm.dev/slots")
    assert (await session.get(PODS, A)).metadata.finalizers == ("other",)
    await remove_finalizer(session, PODS, await session.get(PODS, A), "other")
    with pytest.raises(NotFound):
        await session.get(PODS, A)
    await remove_finalizer(session, PODS, leaving, "kurm.dev/slots")


async def test_finalizers_are_changed_from_an_old_view_too(session: Session) -> None:
    """A view that is behind is read again: another's finalizer that came in between is kept."""
    old = await session.create(PODS, {"metadata": {"name": "a", "namespace": "x"}})
    await session.patch(PODS, A, {"metadata": {"finalizers": ["other"]}})
    held = await add_finalizer(session, PODS, old, "kurm.dev/slots")
    assert held.metadata.finalizers == ("other", "kurm.dev/slots")


async def test_finalizers_of_a_successor_are_left_alone(session: Session) -> None:
    """An object of the same name with another UID is nothing of ours: adding is a Conflict, removing does nothing."""
    old = await session.create(PODS, {"metadata": {"name": "a", "namespace": "x", "finalizers": ["kurm.dev/slots"]}})
    await remove_finalizer(session, PODS, old, "kurm.dev/slots")
    await session.delete(PODS, A)
    await session.create(PODS, {"metadata": {"name": "a", "namespace": "x", "finalizers": ["kurm.dev/slots"]}})
    await remove_finalizer(session, PODS, old, "kurm.dev/slots")
    assert (await session.get(PODS.of(Object), A)).metadata.finalizers == ("kurm.dev/slots",)
    with pytest.raises(Conflict):
        await add_finalizer(session, PODS, old, "another")
