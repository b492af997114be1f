"""The cache against the real API server: whatever the network and etcd do, after quiet it equals the server."""

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.apiserver import ApiServer, namespace
from integration.proxy import Proxy
from kurm.kube.backoff import Backoff
from kurm.kube.cache import Cache, Change
from kurm.kube.errors import AlreadyExists, NotFound
from kurm.kube.resources import CONFIG_MAPS, PODS, Key, Object, Pod, Resource
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection

HASTE = Pace(backoff=Backoff(first=0.02, most=0.2), silence=1.5, stream=3.0, shortest_stream=0.0)
SECONDS = 20.0


@asynccontextmanager
async def running(cache: Cache[Any]) -> AsyncIterator[Cache[Any]]:
    """Run a cache meanwhile."""
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(SECONDS)
        yield cache
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def settled(cache: Cache[Any], session: Session, place: str) -> None:
    """Write a last object, and wait until the cache has it: all before it was told."""
    marker = await session.create(cache.resource, body(cache.resource, "marker"), namespace=place)
    async with asyncio.timeout(SECONDS):
        await arrived(cache, lambda: marker.key in cache)


async def arrived(cache: Cache[Any], there: Callable[[], bool]) -> None:
    """Wait until something is so; looked at after each change."""
    changed = asyncio.Event()
    cache.on_change(lambda _: changed.set())
    while not there():
        changed.clear()
        await changed.wait()


def body(resource: Resource[Any], name: str) -> dict[str, Any]:
    """Return an object's manifest."""
    content: dict[str, Any] = {"metadata": {"name": name, "labels": {"app": "x"}}}
    if resource.plural == "pods":
        content["spec"] = {"containers": [{"name": "c", "image": "none"}]}
    return content


@asynccontextmanager
async def through(proxy: Proxy, api_server: ApiServer) -> AsyncIterator[Session]:
    """Open a session that goes through a proxy."""
    config = dataclasses.replace(api_server.config(), server=f"https://127.0.0.1:{proxy.port}")
    async with Session(config, deadline=3) as session:
        yield session


NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.sampled_from(["compact", "cut", "freeze", "refuse", "accept", "wait"]), st.just("")),
)


@pytest.mark.timeout(300)  # cut off by the usual one, Hypothesis would take it for a failure and shrink it
@pytest.mark.parametrize("resource", [CONFIG_MAPS, PODS.of(Object)], ids=str)
@given(steps=st.lists(STEPS, min_size=5, max_size=25))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_quiet_the_cache_equals_the_server(
    api_server: ApiServer, resource: Resource[Object], steps: list[tuple[str, str]]
) -> None:
    """Others write, the network cuts, freezes and refuses, etcd forgets: then quiet, then all is equal."""

    async def story() -> None:
        async with (
            Session(api_server.config()) as other,
            Proxy(api_server.port).serve() as proxy,
            through(proxy, api_server) as session,
        ):
            place = await namespace(other, f"test-{secrets.token_hex(4)}")
            cache = Cache(session, resource, Selection(namespace=place), pace=HASTE)
            replayed: dict[Key, str] = {}

            def replay(change: Change[Object]) -> None:
                if change.new is None:
                    del replayed[change.key]
                else:
                    replayed[change.key] = change.new.metadata.resource_version

            cache.on_change(replay)
            async with running(cache):
                for what, name in steps:
                    if what in {"create", "change", "delete"}:
                        await write(what, Key(place, name), resource, other)
                    else:
                        await disturb(what, proxy, api_server)
                proxy.refuses = False
                await settled(cache, other, place)
                found = await other.list(resource, namespace=place)
                assert {item.key: item for item in cache} == {item.key: item for item in found}
                assert replayed == {item.key: item.metadata.resource_version for item in found}

    # Not asyncio.run(): it forgets the loop that pytest-asyncio has set, which is then never closed.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(story())


async def write(what: str, key: Key, resource: Resource[Object], other: Session) -> None:
    """Write as somebody else."""
    with contextlib.suppress(AlreadyExists, NotFound):
        match what:
            case "create":
                await other.create(resource, body(resource, key.name), namespace=key.namespace)
            case "change":
                await other.patch(resource, key, {"metadata": {"labels": {"at": secrets.token_hex(4)}}})
            case "delete":
                await other.delete(resource, key, grace=0)


async def disturb(what: str, proxy: Proxy, api_server: ApiServer) -> None:
    """Do what a network or etcd does."""
    match what:
        case "compact":
            await asyncio.to_thread(api_server.compact)
        case "cut":
            proxy.cut()
        case "freeze":
            proxy.freeze()
        case "refuse":
            proxy.refuses = True
            proxy.cut()
        case "accept":
            proxy.refuses = False
        case "wait":
            await asyncio.sleep(0.2)


async def test_history_that_etcd_has_forgotten(api_server: ApiServer, place: str, session: Session) -> None:
    """A real 410: cut off, a deletion is missed, etcd is compacted. The list is read anew, without a ghost."""
    async with Proxy(api_server.port).serve() as proxy, through(proxy, api_server) as cut:
        cache = Cache(cut, CONFIG_MAPS, Selection(namespace=place), pace=HASTE)
        for name in ("stays", "goes"):
            await session.create(CONFIG_MAPS, body(CONFIG_MAPS, name), namespace=place)
        states: list[str] = []
        async with running(cache):
            proxy.refuses = True
            proxy.cut()
            await session.delete(CONFIG_MAPS, Key(place, "goes"))
            await session.create(CONFIG_MAPS, body(CONFIG_MAPS, "comes"), namespace=place)
            await asyncio.to_thread(api_server.compact)
            cache._watcher.session.page = noting(cache._watcher.session.page, states)  # type: ignore[method-assign]
            proxy.refuses = False
            await settled(cache, session, place)
            assert {key.name for key in cache.keys()} >= {"stays", "comes", "marker"}  # noqa: SIM118 - keys, not objects
            assert Key(place, "goes") not in cache
        assert states == ["listed"]


def noting(method: Any, states: list[str]) -> Any:
    """Note each first page that is asked for."""

    async def page(*arguments: Any, **named: Any) -> Any:
        states.append("listed")
        return await method(*arguments, **named)

    return page


async def test_a_restarted_api_server(api_server: ApiServer, place: str, session: Session) -> None:
    """The API server is killed and comes back: the cache says why it is silent, grows old, and then is right again."""
    async with Session(api_server.config(), deadline=5) as own:
        cache = Cache(own, PODS, Selection(namespace=place), pace=HASTE)
        async with running(cache):
            await session.create(PODS, body(PODS, "a"), namespace=place)
            await asyncio.to_thread(api_server.stop)
            await asyncio.sleep(1)
            assert "check that the API server runs" in (cache.problem or "")
            assert cache.age >= 0.5
            api_server.start()  # here and not in a thread: the kernel would end it with the thread
            await session.delete(PODS, Key(place, "a"), grace=0)
            await settled(cache, session, place)
            assert [key.name for key in cache.keys()] == ["marker"]  # noqa: SIM118 - keys, not objects
            assert cache.problem is None


async def test_a_line_of_more_than_a_megabyte(place: str, session: Session) -> None:
    """The largest object that the real server stores comes through the watch in one line."""
    cache = Cache(session, CONFIG_MAPS, Selection(namespace=place), pace=HASTE)
    async with running(cache):
        big = body(CONFIG_MAPS, "big") | {"data": {"x": "y" * 1_000_000}}
        await session.create(CONFIG_MAPS, big, namespace=place)
        await settled(cache, session, place)
        assert Key(place, "big") in cache


async def test_indexes_and_selectors_on_real_pods(place: str, session: Session) -> None:
    """A field selector follows a pod to its node; the index files it there."""
    by_node = {"node": lambda pod: [pod.spec.node_name]}
    cache: Cache[Pod] = Cache(
        session, PODS, Selection(place, labels="app=x", fields="spec.nodeName=n1"), indexes=by_node, pace=HASTE
    )
    async with running(cache):
        made = await session.create(PODS, body(PODS, "a"), namespace=place)
        await session.create(PODS, body(PODS, "b"), namespace=place)
        await session.bind(made.key, "n1", uid=made.metadata.uid)
        async with asyncio.timeout(SECONDS):
            await arrived(cache, lambda: bool(cache.by("node", "n1")))
        assert [pod.key for pod in cache] == [made.key]
