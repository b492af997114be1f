"""Sharing: equal parts are one, and no object changes by it."""

import copy

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kurm.kube.resources import Container, Dynamic, Object, ObjectMeta, OwnerReference, Pod, PodSpec, Resources
from kurm.kube.sharing import Parts


def pod(name: str, app: str) -> Pod:
    """Return a pod whose parts are its own."""
    resources = Resources(requests={"cpu": "1"}, limits={"memory": app})
    return Pod(ObjectMeta(name=name, labels={"app": app}), PodSpec(containers=(Container(app, resources),)))


def test_equal_parts_become_one() -> None:
    """Labels and containers of two pods of one app are the same objects afterwards; another app's are not."""
    first, second, other = pod("a", "x"), pod("b", "x"), pod("c", "y")
    parts = Parts()
    for one in (first, second, other):
        parts.share(one)
    assert first.metadata.labels is second.metadata.labels
    assert first.spec.containers is second.spec.containers
    assert other == pod("c", "y")


def test_parts_of_different_types_are_never_confused() -> None:
    """Parts that are written in the same bytes but are of other types stay what they are."""

    class Strange(Object):
        owners: tuple[OwnerReference, ...]
        mappings: list[dict[str, str]]

    strange = Strange(ObjectMeta(), (OwnerReference(name="x"),), [{"name": "x"}])
    Parts().share(strange)
    assert (strange.owners, strange.mappings) == ((OwnerReference(name="x"),), [{"name": "x"}])


def test_what_is_remembered_is_bounded() -> None:
    """Labels that differ in every object do not pile up, and what comes often is kept all the same."""
    parts = Parts(generation=10)
    often = pod("often", "often")
    parts.share(often)
    for number in range(1000):
        parts.share(pod("a", str(number)))
        again = pod("b", "often")
        parts.share(again)
        assert again.metadata.labels is often.metadata.labels
    assert len(parts) <= 20


TEXT = st.text(max_size=3)
LEAVES = st.none() | st.booleans() | st.integers() | TEXT
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=4)


@given(st.lists(st.builds(lambda spec, status: Dynamic(ObjectMeta(), spec, status), JSON, JSON), max_size=6))
def test_no_object_changes(objects: list[Dynamic]) -> None:
    """Whatever is shared with whatever, each object says the same as before, to the byte."""
    before = [msgspec.json.encode(one) for one in copy.deepcopy(objects)]
    parts = Parts(generation=3)
    for one in objects:
        parts.share(one)
    assert [msgspec.json.encode(one) for one in objects] == before
