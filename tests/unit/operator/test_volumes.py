"""Claims grow, and nothing else of them changes."""

from typing import Any

import msgspec
import pytest

from kurm.operator.objects import VolumeClaim
from kurm.operator.volumes import fitted, satisfied

LABELS = {"app.kubernetes.io/instance": "demo"}


def manifest(size: str, storage_class: str = "", owner: str = "") -> dict[str, Any]:
    """Return a claim as it is rendered."""
    metadata: dict[str, Any] = {"name": "demo-controller", "labels": LABELS}
    metadata |= {"ownerReferences": [{"uid": owner}]} if owner else {}
    spec = {"resources": {"requests": {"storage": size}}} | (
        {"storageClassName": storage_class} if storage_class else {}
    )
    return {"metadata": metadata, "spec": spec}


def held(size: str, storage_class: str = "standard", owner: str = "") -> VolumeClaim:
    """Return one as it is there."""
    return msgspec.convert(manifest(size, storage_class, owner), VolumeClaim)


@pytest.mark.parametrize(
    ("wanted", "there", "size", "word"),
    [
        (manifest("2Gi"), held("1Gi"), "2Gi", ""),
        (manifest("1Gi"), held("2Gi"), "2Gi", "cannot shrink to 1Gi"),
        (manifest("1Gi", "fast"), held("1Gi"), "1Gi", "cannot become one of class 'fast'"),
        (manifest("1Gi", "standard"), held("1Gi"), "1Gi", ""),
    ],
)
def test_what_is_applied(wanted: dict[str, Any], there: VolumeClaim, size: str, word: str) -> None:
    """What the API server would refuse is left as it is, and said."""
    found, note = fitted(wanted, there)
    assert found["spec"]["resources"]["requests"]["storage"] == size
    assert found["spec"].get("storageClassName", "standard") == "standard"
    assert word in note
    assert bool(word) == bool(note)


@pytest.mark.parametrize(
    ("wanted", "there", "expected"),
    [
        (manifest("1Gi"), held("1024Mi"), True),
        (manifest("2Gi"), held("1Gi"), False),
        (manifest("1Gi", owner="u"), held("1Gi"), False),
        (manifest("1Gi"), held("1Gi", owner="u"), False),
    ],
)
def test_what_is_left_out(wanted: dict[str, Any], there: VolumeClaim, expected: bool) -> None:  # noqa: FBT001
    """A claim that is as it ought to be; not one whose policy has changed."""
    assert satisfied(wanted, there) == expected
