"""The cache: whatever the server and the network do, after quiet it equals the server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kurm.kube.cache import Cache, Change
from kurm.kube.errors import NotSynced
from kurm.kube.resources import PODS, Key, Object, ObjectMeta, Pod, PodSpec
from kurm.kube.session import Session
from kurm.kube.watch import Apply, Delete, Init, InitApply, InitDone, Selection
from unit.kube.fake_api import FakeApi, Fault
from unit.kube.virtual import run_virtually

INDEXES = {"node": lambda pod: [pod.spec.node_name] if pod.spec.node_name else []}


def pod(name: str, node: str = "", *, version: str = "1", uid: str = "") -> Pod:
    """Return a pod."""
    return Pod(ObjectMeta(name=name, namespace="x", uid=uid or name, resource_version=version), PodSpec(node_name=node))


@asynccontextmanager
async def running(cache: Cache[Any]) -> AsyncIterator[Cache[Any]]:
    """Run a cache meanwhile."""
    task = asyncio.create_task(cache.run())
    try:
        yield cache
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(cache: Cache[Pod]) -> set[str]:
    """Return the names that a cache holds."""
    return {key.name for key in cache.keys()}  # noqa: SIM118 - iterating a cache gives objects


async def unfed(session: Session) -> Cache[Pod]:
    """Return a cache that is fed by hand."""
    return Cache(session, PODS, indexes=INDEXES)


class TestFeeding:
    """What each event does."""

    async def test_a_list_is_swapped_in_whole(self, session: Session) -> None:
        """Until InitDone the old content is served; what the new list lacks is gone after it."""
        cache = await unfed(session)
        for event in (Init(), InitApply(pod("a")), InitApply(pod("b")), InitDone()):
            cache.feed(event)
        assert cache.synced
        cache.feed(Init())
        cache.feed(InitApply(pod("b")))
        assert names(cache) == {"a", "b"}
        cache.feed(InitDone())
        assert names(cache) == {"b"}

    async def test_a_list_that_breaks_off_changes_nothing(self, session: Session) -> None:
        """Init after half a list forgets the half: an object of it that was deleted meanwhile leaves no ghost."""
        cache = await unfed(session)
        for event in (Init(), InitApply(pod("ghost")), Init(), InitApply(pod("b")), InitDone()):
            cache.feed(event)
        assert names(cache) == {"b"}

    async def test_indexes_follow(self, session: Session) -> None:
        """An object is filed under its present values only, and empty values vanish."""
        cache = await unfed(session)
        cache.feed(Apply(pod("a", "n1")))
        cache.feed(Apply(pod("b", "n1")))
        cache.feed(Apply(pod("a", "n2", version="2")))
        assert [p.metadata.name for p in cache.by("node", "n1")] == ["b"]
        assert [p.metadata.name for p in cache.by("node", "n2")] == ["a"]
        cache.feed(Delete(pod("b", "n1", version="3")))
        assert cache.by("node", "n1") == ()
        assert cache.values("node") == ("n2",)

    async def test_handlers_are_told_what_changed_and_nothing_else(self, session: Session) -> None:
        """A relist of the same is no change; each real change is told once, with old and new."""
        cache = await unfed(session)
        changes: list[Change[Pod]] = []
        cache.feed(Apply(pod("a")))
        cache.on_change(changes.append)
        for event in (Init(), InitApply(pod("a")), InitApply(pod("b")), InitDone()):
            cache.feed(event)
        cache.feed(Apply(pod("b", version="2")))
        cache.feed(Delete(pod("b", version="3")))
        a, b = Key("x", "a"), Key("x", "b")
        assert changes == [
            Change(a, None, pod("a")),
            Change(b, None, pod("b")),
            Change(b, pod("b"), pod("b", version="2")),
            Change(b, pod("b", version="2"), None),
        ]

    async def test_a_name_used_again_is_two_changes(self, session: Session) -> None:
        """A deletion that the watch missed is told all the same: the UID is the identity, not the name."""
        cache = await unfed(session)
        cache.feed(Apply(pod("a", uid="1")))
        changes: list[Change[Pod]] = []
        cache.on_change(changes.append)
        cache.feed(Apply(pod("a", uid="2", version="5")))
        told = [(c.old and c.old.metadata.uid, c.new and c.new.metadata.uid) for c in changes]
        assert told == [(None, "1"), ("1", None), (None, "2")]

    async def test_a_failing_handler_does_not_stop_the_others(self, session: Session) -> None:
        """One reader's mistake is logged, and the next reader is told."""
        cache = await unfed(session)
        told: list[Key] = []

        def fail(change: Change[Pod]) -> None:
            raise RuntimeError(str(change.key))

        cache.on_change(fail)
        cache.on_change(lambda change: told.append(change.key))
        cache.feed(Apply(pod("a")))
        assert told == [Key("x", "a")]

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.sampled_from("abc"), st.sampled_from(["", "n1", "n2"])),
                st.just(("a", None)),
                st.just(("b", None)),
                st.just("snapshot"),
            )
        )
    )
    def test_a_snapshot_never_changes(self, steps: list[Any]) -> None:
        """Whatever is fed later, a snapshot and its indexes stay what they were, and the cache stays right."""
        cache: Cache[Pod] = Cache(Session.__new__(Session), PODS, indexes=INDEXES)
        model: dict[str, Pod] = {}
        kept = []
        for number, one in enumerate(steps):
            if one == "snapshot":
                kept.append((cache.snapshot(), dict(model)))
                continue
            name, node = one
            if node is not None:
                model[name] = pod(name, node, version=str(number + 1))
                cache.feed(Apply(model[name]))
            elif gone := model.pop(name, None):
                cache.feed(Delete(gone))
        for view, expected in [*kept, (cache, model)]:
            assert {p.metadata.name: p for p in view} == expected
            for node in ("n1", "n2"):
                there = {p.metadata.name for p in view.by("node", node)}
                assert there == {name for name, p in expected.items() if p.spec.node_name == node}


class TestSyncing:
    """Readiness, reasons and age."""

    @pytest.mark.looptime
    async def test_a_cache_that_cannot_sync_says_why(self, session: Session, api: FakeApi) -> None:
        """Who waits for a cache is told the server's own words when the wait is over."""
        api.down = True
        async with running(Cache(session, PODS)) as cache:
            with pytest.raises(NotSynced, match=f"pods: no whole list after 20 s: no answer from .*{api.url}"):
                await cache.wait_synced(20)
            assert cache.age == float("inf")

    @pytest.mark.looptime
    async def test_the_age_tells_when_the_server_was_last_heard(self, session: Session, api: FakeApi) -> None:
        """Bookmarks keep a quiet view young; a server that is away lets it grow old, and coming back makes it young."""
        async with running(Cache(session, PODS)) as cache:
            await cache.wait_synced(5)
            await asyncio.sleep(1000)
            assert cache.age <= 60.1
            api.down = True
            api.inject(Fault.SILENT)
            api.objects.create("/v1/pods", "x", {"metadata": {"name": "a"}})
            api.changed()
            await asyncio.sleep(300)
            assert cache.age > 200
            assert "no answer" in (cache.problem or "")
            api.down = False
            async with asyncio.timeout(120):  # the clock is virtual, and the bytes of a real socket may come late by it
                while names(cache) != {"a"}:  # noqa: ASYNC110 - it is the cache that is watched
                    await asyncio.sleep(1)
            assert cache.age <= 60.1
            assert cache.problem is None

    @pytest.mark.looptime
    async def test_a_selection_is_followed(self, session: Session) -> None:
        """With a selector only what fits is held; what ceases to fit goes, what begins to fit comes."""
        selection = Selection(namespace="x", labels="app=kurm", fields="spec.nodeName=n1")
        async with running(Cache(session, PODS, selection)) as cache:
            await cache.wait_synced(5)
            for name, namespace, node in (("a", "x", "n1"), ("b", "x", "n2"), ("c", "y", "n1")):
                body = {"metadata": {"name": name, "labels": {"app": "kurm"}}, "spec": {"nodeName": node}}
                await session.create(PODS, body, namespace=namespace)
            await asyncio.sleep(1)
            assert names(cache) == {"a"}
            await session.patch(PODS, Key("x", "b"), {"spec": {"nodeName": "n1"}})
            await session.patch(PODS, Key("x", "a"), {"metadata": {"labels": {"app": "other"}}})
            await asyncio.sleep(1)
            assert names(cache) == {"b"}

    @pytest.mark.looptime
    async def test_a_line_of_three_megabytes(self, session: Session) -> None:
        """An object as large as Kubernetes allows comes through the watch like any other."""
        async with running(Cache(session, PODS)) as cache:
            await cache.wait_synced(5)
            await session.create(
                PODS, {"metadata": {"name": "big", "annotations": {"x": "y" * 3_000_000}}}, namespace="x"
            )
            await asyncio.sleep(1)
            assert len(cache.get(Key("x", "big")).metadata.annotations["x"]) == 3_000_000  # type: ignore[union-attr]

    @pytest.mark.looptime
    async def test_a_server_that_repeats_itself_changes_nothing(self, session: Session, api: FakeApi) -> None:
        """Old events that come once more, the oldest last, neither take an object back nor bring a deleted one."""
        async with running(Cache(session, PODS)) as cache:
            await cache.wait_synced(5)
            await session.create(PODS, {"metadata": {"name": "a"}}, namespace="x")
            await session.create(PODS, {"metadata": {"name": "gone"}}, namespace="x")
            await session.delete(PODS, Key("x", "gone"))
            api.inject(Fault.REPEAT)
            last = await session.patch(PODS, Key("x", "a"), {"spec": {"nodeName": "n2"}})
            await asyncio.sleep(1)
            assert list(cache) == [last]

    @pytest.mark.looptime
    async def test_a_server_that_ends_each_stream_at_once_is_not_hammered(self, session: Session, api: FakeApi) -> None:
        """A stream that ends in good order right after it opened counts as a failure, and is waited for."""
        api.inject(*[Fault.END] * 1000)
        async with running(Cache(session, PODS)) as cache:
            await cache.wait_synced(5)
            for number in range(300):
                api.objects.create("/v1/pods", "x", {"metadata": {"name": f"p{number}"}})
                api.changed()
                await asyncio.sleep(1)
            assert api.streams < 120

    @pytest.mark.looptime
    @pytest.mark.parametrize("away", [[600.0], [3.0] * 8], ids=["once and long", "again and again"])
    async def test_a_server_that_is_back_is_heard_at_once(
        self, session: Session, api: FakeApi, away: list[float]
    ) -> None:
        """Its news come within 5 s of its return, however long it was away, and however often a moment before."""
        async with running(Cache(session, PODS)) as cache:
            await cache.wait_synced(5)
            for number, seconds in enumerate(away):
                api.go_away()
                await asyncio.sleep(seconds)
                api.down = False
                api.objects.create("/v1/pods", "x", {"metadata": {"name": f"p{number}"}})
                api.changed()
                async with asyncio.timeout(6):  # the clock is virtual, and the bytes of a real socket come late by it
                    while len(cache) <= number:  # noqa: ASYNC110 - it is the cache that is watched
                        await asyncio.sleep(0.1)
                await asyncio.sleep(20)


# What others do, and what goes wrong: (what, argument).
NAMES = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("reuse"), NAMES),
    st.tuples(st.just("compact"), st.integers(0, 3)),
    st.tuples(st.just("fault"), st.sampled_from([fault for fault in Fault if fault is not Fault.ANSWER_LOST])),
    st.tuples(st.just("fault"), st.sampled_from([Fault.CUT, Fault.REPEAT, Fault.GONE, Fault.SILENT])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.2, 3.0, 100.0, 700.0])),
    st.tuples(st.just("away"), st.just(1.0)),
    st.tuples(st.just("back"), st.just(1.0)),
)


async def take(api: FakeApi, what: str, argument: Any) -> None:
    """Take one step of somebody else's, or of the network's."""
    objects, pods = api.objects, "/v1/pods"
    key = ("x", f"p{argument}")
    there = key in objects.collection(pods)
    match what:
        case "create" if not there:
            objects.create(pods, "x", {"metadata": {"name": key[1]}, "spec": {"nodeName": "n1"}})
        case "change" if there:
            objects.merge(pods, key, {"spec": {"nodeName": f"n{objects.revision % 5}"}})
        case "delete" if there:
            objects.delete(pods, key, {})
        case "reuse" if there:
            objects.delete(pods, key, {})
            objects.create(pods, "x", {"metadata": {"name": key[1]}})
        case "compact":
            objects.compact(keep=argument)
        case "fault":
            api.inject(argument)
        case "wait":
            await asyncio.sleep(argument)
        case "away":
            api.go_away()
            await asyncio.sleep(argument)
        case "back":
            api.down = False
            await asyncio.sleep(argument)
    api.changed()


@pytest.mark.timeout(300)  # cut off by the usual one, Hypothesis would take it for a failure and shrink it
@example([("wait", 100.0)] * 3 + [("create", 1)])  # the change of the moment in which a bookmark is due
@given(st.lists(STEPS, min_size=10, max_size=60))
@settings(max_examples=100)
def test_after_quiet_the_cache_equals_the_server(steps: list[tuple[str, Any]]) -> None:
    """Lists, changes, deletions, names used again, compactions, and every fault at any moment: then quiet, then equal.

    The changes that were told, replayed, give the same content too: no handler misses an object or keeps a ghost.
    """

    async def story() -> None:
        async with FakeApi().serve() as api, Session(api.config) as session:
            cache: Cache[Pod] = Cache(session, PODS, indexes=INDEXES)
            replayed: dict[Key, Pod] = {}
            wrong: list[Change[Pod]] = []

            def replay(change: Change[Pod]) -> None:
                if replayed.get(change.key) != change.old:
                    wrong.append(change)
                if change.new is None:
                    del replayed[change.key]
                else:
                    replayed[change.key] = change.new

            cache.on_change(replay)
            async with running(cache):
                for what, argument in steps:
                    await take(api, what, argument)
                api.down = False
                api.heal()
                await asyncio.sleep(400)
            expected = {
                Key(*key): obj["metadata"]["resourceVersion"] for key, obj in api.objects.collection("/v1/pods").items()
            }
            assert {pod.key: pod.metadata.resource_version for pod in cache} == expected
            assert wrong == []
            assert {key: pod.metadata.resource_version for key, pod in replayed.items()} == expected
            for node in {pod.spec.node_name for pod in cache} - {""}:
                filed = {pod.key for pod in cache.by("node", node)}
                assert filed == {pod.key for pod in cache if pod.spec.node_name == node}

    run_virtually(story())


async def test_unknown_kinds_can_be_cached(session: Session) -> None:
    """A kind that nobody declared is cached by its metadata alone."""
    async with running(Cache(session, PODS.of(Object))) as cache:
        await session.create(PODS, {"metadata": {"name": "a"}}, namespace="x")
        await cache.wait_synced(5)
