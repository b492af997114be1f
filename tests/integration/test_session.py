"""The session against the real API server."""

import ssl

import pytest

from integration.apiserver import ApiServer
from kurm.kube.config import Config
from kurm.kube.credentials import Fixed
from kurm.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
)
from kurm.kube.resources import CONFIG_MAPS, NODES, PODS, Key, Object, Resource
from kurm.kube.session import Patch, Session

CONTAINER = {"name": "c", "image": "none"}
BUDGETS = Resource(Object, group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
DEPLOYMENTS = Resource(Object, group="apps", version="v1", kind="Deployment", plural="deployments")


def pod(place: str, name: str = "a", **spec: object) -> dict[str, object]:
    """Return a pod's manifest."""
    return {
        "metadata": {"name": name, "namespace": place, "labels": {"app": "x"}},
        "spec": {"containers": [CONTAINER]} | spec,
    }


async def test_a_pod_is_created_bound_and_deleted(session: Session, place: str) -> None:
    """The Binding's answer is a Status and a success; job id and node land in one write, and only on this UID."""
    made = await session.create(PODS, pod(place))
    with pytest.raises(Conflict):
        await session.bind(made.key, "n1", uid="another")
    await session.bind(made.key, "n1", uid=made.metadata.uid, annotations={"kurm.dev/job": "7"})
    bound = await session.get(PODS, made.key)
    assert (bound.spec.node_name, bound.metadata.annotations) == ("n1", {"kurm.dev/job": "7"})
    with pytest.raises(Conflict):
        await session.bind(made.key, "n1", uid=made.metadata.uid)
    with pytest.raises(Conflict):
        await session.delete(PODS, made.key, uid="another")
    await session.delete(PODS, made.key, uid=made.metadata.uid, grace=0)
    with pytest.raises(NotFound):
        await session.get(PODS, made.key)


async def test_errors_are_types(session: Session, place: str) -> None:
    """What the real server answers is told by type, and an invalid object names its fields."""
    await session.create(PODS, pod(place))
    with pytest.raises(AlreadyExists):
        await session.create(PODS, pod(place))
    with pytest.raises(Invalid) as invalid:
        await session.create(PODS, pod(place, "Not_A_Name"))
    assert [cause.field for cause in invalid.value.causes] == ["metadata.name"]
    stale = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
    with pytest.raises(Conflict):
        await session.patch(PODS, Key(place, "a"), stale)
    with pytest.raises(UnsupportedMediaType):
        await session.request("PATCH", PODS.path(Key(place, "a")), body={}, media="text/plain")
    with pytest.raises(NotFound):
        await session.list(Resource(Object, version="v1", kind="Nothing", plural="nothings"))


async def test_who_may_not_is_forbidden(api_server: ApiServer, place: str) -> None:
    """RBAC is on: a user without a role is Forbidden, a token that nobody issued is Unauthorized."""
    async with Session(api_server.config("nobody", groups=None)) as session:
        with pytest.raises(Forbidden):
            await session.list(PODS, namespace=place)
    config = api_server.config()
    async with Session(Config(config.server, credentials=Fixed("Bearer x"), tls=trusting(api_server))) as session:
        with pytest.raises(Unauthorized):
            await session.list(PODS, namespace=place)


def trusting(api_server: ApiServer) -> ssl.SSLContext:
    """Return a TLS context that trusts the server and presents nobody."""
    return ssl.create_default_context(cafile=str(api_server.folder / "ca.crt"))


async def test_a_list_is_of_one_moment(session: Session, place: str) -> None:
    """What is created between two pages is not in the list."""
    for name in "abc":
        await session.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=place)
    found = []
    async for page in session.pages(CONFIG_MAPS, namespace=place, size=2):
        found += [item.metadata.name for item in page.items or ()]
        if len(found) == 2:
            await session.create(CONFIG_MAPS, {"metadata": {"name": "cc"}}, namespace=place)
    assert found == ["a", "b", "c"]


async def test_a_page_after_a_compaction_is_gone(session: Session, api_server: ApiServer, place: str) -> None:
    """The continue token of a forgotten revision is told by type."""
    for name in "abc":
        await session.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=place)
    pages = session.pages(CONFIG_MAPS, namespace=place, size=2)
    await anext(pages)
    await session.create(CONFIG_MAPS, {"metadata": {"name": "d"}}, namespace=place)
    api_server.compact()
    with pytest.raises(Gone):
        await anext(pages)


async def test_an_eviction_against_a_budget_answers_at_once(session: Session, place: str) -> None:
    """A budget that allows none: TooManyRequests with its cause. Without a budget the pod goes."""
    made = await session.create(PODS, pod(place))
    await session.bind(made.key, "n1", uid=made.metadata.uid)
    await session.patch(PODS, made.key, {"status": {"phase": "Running"}}, subresource="status")
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    held = await session.create(BUDGETS, budget, namespace=place)
    with pytest.raises(TooManyRequests) as refused:
        await session.evict(made.key)
    assert refused.value.retry_after is not None
    await session.delete(BUDGETS, held.key)
    await session.evict(made.key, uid=made.metadata.uid, grace=0)


async def test_scale_and_patches(session: Session, place: str) -> None:
    """The scale subresource, a JSON patch and a strategic merge patch do what they say."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    made = await session.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, namespace=place)
    await session.scale(DEPLOYMENTS, made.key, 3)
    changes = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    await session.patch(DEPLOYMENTS, made.key, changes, kind=Patch.JSON)
    two = {"spec": {"template": {"spec": {"containers": [CONTAINER | {"name": "second"}]}}}}
    changed = await session.patch(DEPLOYMENTS, made.key, two, kind=Patch.STRATEGIC)
    assert (changed.metadata.labels, changed.metadata.generation) == ({"a": "b"}, 3)


async def test_a_node_is_cluster_wide(session: Session) -> None:
    """A resource without a namespace is made, read and deleted."""
    made = await session.create(NODES, {"metadata": {"name": "made-by-a-test"}})
    assert made.key == Key("", "made-by-a-test")
    await session.delete(NODES, made.key)
