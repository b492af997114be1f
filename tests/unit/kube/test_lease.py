"""Leader election: never two leaders, whatever the network does. All on virtual time, over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kurm.kube.lease import Leadership, LeadershipLost, Terms
from kurm.kube.resources import LEASES, Key, OwnerReference
from kurm.kube.session import Session
from unit.kube.fake_api import FakeApi, Fault
from unit.kube.fake_objects import Objects
from unit.kube.virtual import run_virtually

LEASE = Key("kurm-system", "operator")


@dataclass
class Candidate:
    """A process that wants to lead, with its own way to the server, which alone can fail."""

    api: FakeApi
    leadership: Leadership
    working: bool = False
    winding_down: float = 0.0
    begun: Callable[[], None] = lambda: None
    ended: list[str] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None

    async def work(self) -> None:
        """Lead until cancelled; then take a moment to put things down."""
        self.working = True
        self.begun()
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(self.winding_down)
            self.working = False

    async def live(self) -> None:
        """Lead, lose, and come back as a supervisor restarts a process."""
        while True:
            try:
                await self.leadership.run(self.work)
            except LeadershipLost:
                self.ended.append("lost")
                fresh = Leadership(self.leadership.session, LEASE, self.leadership.identity)
                self.leadership = fresh
                await asyncio.sleep(1)


@asynccontextmanager
async def candidates(number: int) -> AsyncIterator[list[Candidate]]:
    """Make candidates for one Lease in one memory, each with a front of the server of its own."""
    objects = Objects()
    async with AsyncExitStack() as stack:
        made = []
        for each in range(number):
            api = await stack.enter_async_context(FakeApi(objects=objects).serve())
            session = await stack.enter_async_context(Session(api.config))
            made.append(Candidate(api, Leadership(session, LEASE, f"candidate-{each}")))
        yield made
        for one in made:
            if one.task:
                one.task.cancel()
        await asyncio.gather(*(one.task for one in made if one.task), return_exceptions=True)


def leaders(all_of_them: list[Candidate]) -> list[str]:
    """Return who believes to lead."""
    return [one.leadership.identity for one in all_of_them if one.leadership.leads]


@pytest.mark.looptime
async def test_one_leads_and_the_next_takes_over_at_once_when_it_gives_back() -> None:
    """A shutdown gives the Lease back after the work has ended: the other leads within a retry, not after 15 s."""
    async with candidates(2) as (first, second):
        first.task = asyncio.create_task(first.live())
        await asyncio.sleep(1)
        second.task = asyncio.create_task(second.live())
        await asyncio.sleep(100)
        assert leaders([first, second]) == ["candidate-0"]
        first.task.cancel()
        await asyncio.sleep(3)
        assert leaders([first, second]) == ["candidate-1"]
        assert (first.working, second.working) == (False, True)
        lease = await second.leadership.session.get(LEASES, LEASE)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("candidate-1", 1)


@pytest.mark.looptime
async def test_a_leader_that_is_cut_off_knows_before_another_can_lead() -> None:
    """Cut off from the server, the leader stops after 10 s at most; the other begins after 15 s at least."""
    async with candidates(2) as (first, second):
        loop = asyncio.get_running_loop()
        first.task = asyncio.create_task(first.live())
        await asyncio.sleep(1)
        second.task = asyncio.create_task(second.live())
        await asyncio.sleep(100)
        first.api.down = True
        cut = loop.time()
        while first.leadership.leads:  # noqa: ASYNC110 - it is a matter of the clock alone
            await asyncio.sleep(0.01)
        stopped = loop.time() - cut
        while not second.leadership.leads:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        begun = loop.time() - cut
        assert stopped <= 10.1
        assert begun >= stopped + 2.4
        assert first.ended == ["lost"]


@pytest.mark.looptime
async def test_a_blip_costs_nothing() -> None:
    """A few seconds without the server do not change the leader."""
    async with candidates(1) as (first,):
        first.task = asyncio.create_task(first.live())
        await asyncio.sleep(10)
        first.api.down = True
        await asyncio.sleep(6)
        first.api.down = False
        await asyncio.sleep(20)
        assert (first.leadership.leads, first.ended) == (True, [])


@pytest.mark.looptime
async def test_a_lease_taken_by_force_is_lost_at_once() -> None:
    """Somebody writes another holder into the Lease: the leader stops at its next renewal."""
    async with candidates(1) as (first,):
        first.task = asyncio.create_task(first.live())
        await asyncio.sleep(10)
        key = (LEASE.namespace, LEASE.name)
        first.api.objects.merge("coordination.k8s.io/v1/leases", key, {"spec": {"holderIdentity": "thief"}})
        await asyncio.sleep(3)
        assert (first.leadership.leads, first.working, first.ended) == (False, False, ["lost"])


@pytest.mark.looptime
async def test_work_that_ends_by_itself_gives_back() -> None:
    """When the work returns or raises, so does `run`, and the Lease is free."""
    async with candidates(1) as (first,):

        async def fail() -> None:
            raise RuntimeError("broken")

        with pytest.raises(RuntimeError, match="broken"):
            await first.leadership.run(fail)
        assert (await first.leadership.session.get(LEASES, LEASE)).spec.holder_identity == ""


@pytest.mark.looptime
async def test_fields_of_others_survive() -> None:
    """A renewal writes what it means, and no field that it does not know is erased."""
    async with candidates(1) as (first,):
        objects = first.api.objects
        body = {"metadata": {"name": LEASE.name, "labels": {"a": "b"}}, "spec": {"preferredHolder": "x"}}
        objects.create("coordination.k8s.io/v1/leases", LEASE.namespace, body)
        first.task = asyncio.create_task(first.live())
        await asyncio.sleep(10)
        lease = objects.read("coordination.k8s.io/v1/leases", (LEASE.namespace, LEASE.name))
        assert (lease["metadata"]["labels"], lease["spec"]["preferredHolder"]) == ({"a": "b"}, "x")
        assert lease["spec"]["holderIdentity"] == "candidate-0"


@pytest.mark.looptime
async def test_a_lease_goes_with_its_owner() -> None:
    """It is made with a reference to the object whose daemon it is for: the garbage collector does the rest."""
    owner = OwnerReference("SlurmCluster", "demo", "uid-1", "kurm.dev/v1alpha1")
    async with candidates(1) as (first,):
        first.leadership.owner = lambda: owner
        first.task = asyncio.create_task(first.live())
        await asyncio.sleep(10)
        lease = first.api.objects.read("coordination.k8s.io/v1/leases", (LEASE.namespace, LEASE.name))
        (made,) = lease["metadata"]["ownerReferences"]
        assert msgspec.convert(made, OwnerReference) == owner


@pytest.mark.parametrize("terms", [(15, 15, 2), (15, 10, 5), (10, 15, 2), (15, 10, 0)])
def test_terms_without_a_margin_are_refused(terms: tuple[float, float, float]) -> None:
    """Times with which two could lead at once are a ValueError that states the rule."""
    with pytest.raises(ValueError, match="must be duration > renew_within > 2 \\* retry > 0"):
        Terms(*terms)


FAULTS = [Fault.HANG_UP, Fault.ANSWER_LOST, Fault.BUSY, Fault.UNAVAILABLE, Fault.BROKEN, Fault.NO_ANSWER]
STEPS = st.tuples(
    st.integers(0, 2),
    st.one_of(
        st.tuples(st.just("down"), st.booleans()),
        st.tuples(st.just("latency"), st.sampled_from([0.0, 0.5, 1.9, 2.5, 9.0])),
        st.tuples(st.just("lag"), st.sampled_from([0.0, 0.5, 1.9, 2.5, 9.0])),
        st.tuples(st.just("fault"), st.sampled_from(FAULTS)),
        st.tuples(st.just("restart"), st.just(None)),
        st.tuples(st.just("touch"), st.just(None)),
    ),
    st.sampled_from([0.0, 0.3, 2.0, 4.0, 9.0, 16.0]),
)


@pytest.mark.parametrize("after", [0.5, 1.5])
def test_who_loses_can_be_ended_amid_it(after: float) -> None:
    """While its work winds down a cancellation is not lost: whoever waits for its end would wait for ever."""

    async def story() -> None:
        async with candidates(1) as (one,):
            one.winding_down = 2.0
            one.begun = lambda: None
            one.task = asyncio.create_task(one.live())
            await asyncio.sleep(1)
            one.api.down = True
            while one.leadership.leads:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
            await asyncio.sleep(after)
            one.task.cancel()
            done, _ = await asyncio.wait({one.task}, timeout=30)
            assert done == {one.task}

    run_virtually(story())


@pytest.mark.timeout(300)  # cut off by the usual one, Hypothesis would take it for a failure and shrink it
@given(st.lists(STEPS, min_size=5, max_size=25), st.sampled_from([0.0, 2.0]))
@settings(max_examples=30)
def test_never_two(steps: list[tuple[int, tuple[str, Any], float]], winding_down: float) -> None:
    """Cuts, slow requests, slow answers, lost answers, restarts: at no moment do two lead, or two work.

    Not even while the loser puts down its work, which may take up to the margin. After quiet, one leads.
    """
    two: list[str] = []

    def check(all_of_them: list[Candidate]) -> None:
        if len(leaders(all_of_them)) > 1 or sum(one.working for one in all_of_them) > 1:
            two.extend(leaders(all_of_them))

    async def watch(all_of_them: list[Candidate]) -> None:
        while True:
            check(all_of_them)
            await asyncio.sleep(1)

    async def story() -> None:
        async with candidates(3) as three:
            watching = asyncio.create_task(watch(three))
            for one in three:
                one.winding_down = winding_down
                one.begun = lambda: check(three)
                one.task = asyncio.create_task(one.live())
            for number, (what, argument), seconds in steps:
                await disturb(three[number], what, argument)
                await asyncio.sleep(seconds)
            for one in three:
                one.api.heal()
                one.api.down, one.api.latency, one.api.lag = False, 0.0, 0.0
            await asyncio.sleep(60)
            assert (two, len(leaders(three))) == ([], 1)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    run_virtually(story())


async def disturb(one: Candidate, what: str, argument: Any) -> None:
    """Do one thing to a candidate or its way to the server."""
    match what:
        case "down":
            one.api.down = argument
        case "latency":
            one.api.latency = argument
        case "lag":
            one.api.lag = argument
        case "fault":
            one.api.inject(argument)
        case "restart" if one.task:
            one.task.cancel()
            await asyncio.wait({one.task})
            one.leadership = Leadership(one.leadership.session, LEASE, one.leadership.identity)
            one.task = asyncio.create_task(one.live())
        case "touch":
            with contextlib.suppress(KeyError):
                stored = one.api.objects.collection("coordination.k8s.io/v1/leases")
                patch = {"metadata": {"labels": {"touched": str(one.api.objects.revision)}}}
                if stored:
                    one.api.objects.merge("coordination.k8s.io/v1/leases", next(iter(stored)), patch)
