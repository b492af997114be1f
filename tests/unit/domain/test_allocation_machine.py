"""The promises P1 to P4 on random histories: users, administrators, crashes and lost answers between any two steps."""

import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from kurm.domain.allocation import decide
from kurm.domain.owner import Snapshot
from kurm.domain.steps import Cancel, EndPod, Instruction, LookBack, Pin, Submit
from unit.domain.allocation_model import Decide, World
from unit.domain.allocation_promises import OWNERS, BrokenPromiseError
from unit.domain.forgetful_slurm import NODES, SLOTS

OUTCOMES = st.lists(st.sampled_from(["done", "done", "done", "failed", "lost", "crash"]), max_size=4)
NUMBER = st.integers(0, 5)
OWNER = st.sampled_from(sorted(OWNERS))
EVENT = st.one_of(
    st.tuples(st.just("look"), OWNER, OUTCOMES),
    st.tuples(st.sampled_from(["create", "place", "relive"]), OWNER),
    st.tuples(st.sampled_from(["read", "save", "crash", "crash_slurm", "open_gate"])),
    st.tuples(
        st.sampled_from(
            ["delete", "finish", "succeed", "scancel", "preempt", "lose_sight", "close", "silence", "heal", "batch"]
        ),
        NUMBER,
    ),
    st.tuples(st.just("pass_time"), st.sampled_from([0.5, 5.0, 40.0, 200.0])),
)
HISTORY = st.lists(EVENT, max_size=60)
Events = list[tuple[object, ...]]
NEW: Events = []
FULL: Events = [("batch", 0) for _ in range(SLOTS * len(NODES))]
"""Others take all there is."""
PLACED: Events = [*(("place", owner) for owner in sorted(OWNERS))]
CRASHED: Events = [*PLACED, ("crash",)]


def play(history: Events, decide: Decide) -> None:
    """Let it happen, then be quiet. Raises BrokenPromiseError."""
    world = World(decide)
    world.read()
    world.open_gate()
    for name, *words in history:
        getattr(world, str(name))(*(list(word) if isinstance(word, list) else word for word in words))
        world.check()
    world.settle()


@pytest.mark.parametrize("start", [NEW, PLACED])
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(history=HISTORY)
def test_promises_hold_on_any_history(start: Events, history: Events) -> None:
    """Whatever happens, in whatever order and cut off wherever: in the end all is as promised."""
    play(start + history, decide)


def without(*kinds: type[Instruction]) -> Decide:
    """Return a scheduler that never does one thing."""
    return lambda seen: [act for act in decide(seen) if not isinstance(act, kinds)]


def hasty(seen: Snapshot) -> list[Instruction]:
    """Take pods that are being deleted for gone."""
    return decide(replace(seen, pods=tuple(pod for pod in seen.pods if not pod.leaving)))


def bold(seen: Snapshot) -> list[Instruction]:
    """Take what is unknown for nothing."""
    return decide(replace(seen, jobs=seen.jobs or ()))


def credulous(seen: Snapshot) -> list[Instruction]:
    """Take a job for that of a pod by its number alone: another life of slurmctld has used it again."""
    return decide(replace(seen, pods=tuple(replace(pod, epoch=seen.epoch) for pod in seen.pods)))


def generous(seen: Snapshot) -> list[Instruction]:
    """Keep every job that an owner has."""
    return [act for act in decide(seen) if not (isinstance(act, Cancel) and "another job" in act.why)]


@pytest.mark.parametrize(
    ("promise", "mutant", "start"),
    [
        ("P1", without(EndPod), PLACED),
        ("P1", without(LookBack), PLACED),
        ("P[12]", generous, NEW),
        ("P2", bold, CRASHED),
        ("P3", without(Pin), PLACED),
        ("P3", hasty, NEW),
        ("P[134]", credulous, NEW),
        ("P4", without(Cancel), PLACED),
        ("P4", without(Submit), FULL),
    ],
)
def test_planted_mistakes_break_their_promise(promise: str, mutant: Decide, start: Events) -> None:
    """The model is no friend: each mistake is found by some history, sooner from where it matters."""

    def breaks(history: Events) -> bool:
        try:
            play(start + history, mutant)
        except BrokenPromiseError as error:
            return re.match(promise, str(error)) is not None
        return False

    config = settings(max_examples=3000, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    assert find(HISTORY, breaks, settings=config, random=Random(1))  # noqa: S311 - no secret
