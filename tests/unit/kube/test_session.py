"""Typed requests: what is sent, what an answer means, how long it may take."""

import pytest

from kurm.kube.errors import AlreadyExists, Conflict, DecodeError, NotFound, TooManyRequests, Unreachable
from kurm.kube.resources import CONFIG_MAPS, NODES, PODS, Key, Object, ObjectMeta, Pod, PodSpec
from kurm.kube.session import Session
from unit.kube.fake_api import FakeApi, Fault

A = Key("default", "a")
MANIFEST = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"schedulerName": "kurm"}}


async def test_get_reads_only_what_the_struct_declares(session: Session) -> None:
    """An object comes back as the declared struct; the fields that it lacks are skipped."""
    made = await session.create(PODS, MANIFEST | {"unknown": {"deep": [1, None]}})
    assert (await session.get(PODS, A)) == made
    assert made.spec.scheduler_name == "kurm"


async def test_a_struct_can_be_created(session: Session) -> None:
    """What was read can be sent: names are written as Kubernetes writes them, defaults are left out."""
    pod = Pod(ObjectMeta(name="a", namespace="default"), PodSpec(node_name="n1"))
    made = await session.create(PODS, pod)
    assert (made.key, made.spec.node_name) == (A, "n1")


async def test_errors_are_types(session: Session) -> None:
    """NotFound, AlreadyExists and Conflict are told by type, though the last two are both 409."""
    with pytest.raises(NotFound):
        await session.get(PODS, A)
    made = await session.create(PODS, MANIFEST)
    with pytest.raises(AlreadyExists):
        await session.create(PODS, MANIFEST)
    with pytest.raises(Conflict):
        await session.delete(PODS, A, uid="of-another")
    await session.delete(PODS, A, uid=made.metadata.uid, resource_version=made.metadata.resource_version)


async def test_a_binding_answered_by_a_status_is_a_success(session: Session) -> None:
    """The server answers a Binding with a Status; the bind carries annotations, and a second one is a Conflict."""
    pod = await session.create(PODS, MANIFEST)
    await session.bind(A, "n1", uid=pod.metadata.uid, annotations={"kurm.dev/job": "7"})
    bound = await session.get(PODS, A)
    assert (bound.spec.node_name, bound.metadata.annotations) == ("n1", {"kurm.dev/job": "7"})
    with pytest.raises(Conflict):
        await session.bind(A, "n1", uid=pod.metadata.uid)


async def test_an_eviction_refused_by_a_budget_answers_at_once(session: Session, api: FakeApi) -> None:
    """429 of an eviction is an answer, not a throttle: it is not repeated."""
    await session.create(PODS, MANIFEST)
    with pytest.raises(TooManyRequests) as refused:
        await session.evict(A)
    assert refused.value.caused_by("DisruptionBudget")
    assert len([request for request in api.requests if "eviction" in request]) == 1


async def test_a_list_is_read_in_pages(session: Session, api: FakeApi) -> None:
    """Five objects at two a page are three requests and one list."""
    for name in "abcde":
        await session.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace="default")
    api.requests.clear()
    pages = [page async for page in session.pages(CONFIG_MAPS, size=2)]
    assert [[item.metadata.name for item in page.items or ()] for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    assert len(api.requests) == 3
    assert [item.key for item in await session.list(CONFIG_MAPS)] == [Key("default", name) for name in "abcde"]


async def test_a_list_that_does_not_fit_names_the_object(session: Session) -> None:
    """One object with a number where a string is declared: the error says which object and which field."""
    for name, node in (("a", "n1"), ("b", 2)):
        await session.create(PODS.of(Object), {"metadata": {"name": name}, "spec": {"nodeName": node}}, namespace="x")
    with pytest.raises(DecodeError, match=r"pods x/b: Expected `str`, got `int` - at `\$.spec.nodeName`"):
        await session.list(PODS)


@pytest.mark.looptime
async def test_retry_after_is_obeyed(session: Session, api: FakeApi) -> None:
    """Two 429 that say "in 1 s" cost two to three seconds, and the caller never hears of them."""
    api.inject(Fault.BUSY, Fault.BUSY)
    await session.create(NODES, {"metadata": {"name": "n1"}})
    assert len(api.requests) == 3


@pytest.mark.looptime
async def test_retry_after_past_the_deadline_is_an_error_at_once(session: Session, api: FakeApi) -> None:
    """Who is told to come back after the deadline is told so now, with the seconds."""
    api.retry_after = 60
    api.inject(Fault.BUSY)
    with pytest.raises(TooManyRequests) as refused:
        await session.list(NODES)
    assert refused.value.retry_after == 60.0
    assert len(api.requests) == 1


@pytest.mark.looptime
async def test_no_answer_ends_at_the_deadline(session: Session, api: FakeApi, looptime: float) -> None:
    """A server that never answers costs the deadline, not more; the error names server, request and seconds."""
    api.inject(Fault.NO_ANSWER)
    with pytest.raises(Unreachable, match=rf"{api.url}: GET /api/v1/nodes/n1 took longer than 5 s; check"):
        await session.get(NODES, Key("", "n1"), deadline=5)
    assert looptime == pytest.approx(5, abs=0.1)


async def test_a_refused_connection_says_where_and_what_to_check(api: FakeApi) -> None:
    """One type for whatever keeps an answer from us, with the address and advice."""
    config = api.config.__class__(server="http://127.0.0.1:1")
    async with Session(config) as session:
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1: .*check that the API server runs"):
            await session.get(NODES, Key("", "n1"))


async def test_a_lost_connection_is_unreachable(session: Session, api: FakeApi) -> None:
    """A server that hangs up before it answers is unreachable; whether it did the work is unknown."""
    api.inject(Fault.ANSWER_LOST)
    with pytest.raises(Unreachable):
        await session.create(NODES, {"metadata": {"name": "n1"}})
    assert (await session.get(NODES, Key("", "n1"))).key == Key("", "n1")
