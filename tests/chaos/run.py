"""One run: the load and the faults in their rhythm, a quiet phase after every ten, and all that was recorded."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.checker import Breach, check
from chaos.faults import Faults
from chaos.history import Event, Quiet, SlurmSilent, SlurmTold, ordered
from chaos.kubelet import Kubelet
from chaos.load import Load
from chaos.recorder import kubernetes_requests, scheduler_lines, slurmctld_lines
from chaos.world import USER, World, world

ROUND = 10
"""Cycles between two quiet phases."""
QUIET = 15.0
"""Seconds of a quiet phase."""
HEARD, BREAK, STALLED = 5.0, 2.0, 60.0
"""Seconds for which slurmctld has to have answered each question before a quiet phase ends, the longest time between
two of them, and the most that is waited for all that: where the host takes the machine away for a moment nobody can
answer, and pods are told so."""
LOOK = 0.5
"""Seconds between two looks whether that is so."""
READY = 20.0
"""Seconds, the most that a fault waits for a scheduler that is coming up. It takes about one."""


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    kills: int
    seed: int
    warm: float = 6.0
    """Seconds of load before the first fault."""
    mean: float = 0.3
    """Seconds between two deeds of the load, on average."""
    faults: Sequence[str] = ()
    """Which ones, by the names of `Faults`' methods; all if empty."""
    first_only: bool = False
    """Whether the first breach ends it."""
    scheduler: Sequence[str] = ()
    """Words that start another scheduler than ours: one with a planted fault."""


@dataclass
class Result:
    """What has come of it."""

    events: list[Event] = field(default_factory=list)
    crashes: list[int] = field(default_factory=list)
    """Exit statuses of schedulers that ended by themselves."""


async def run(folder: Path, plan: Plan) -> Result:
    """Run it, in a folder that is empty."""
    result = Result()
    async with world(folder, scheduler=plan.scheduler) as made:
        dice = [random.Random(f"{plan.seed}/{what}") for what in ("kubelet", "load", "faults")]  # noqa: S311
        kubelet = Kubelet(made.kube, made.watch, made.history, dice[0])
        load, faults = Load(made, kubelet, dice[1], mean=plan.mean), Faults(made, dice[2], plan.faults)
        async with _beside(kubelet.run(), load.sweep()):
            left = plan.kills
            async with _beside(load.run()):
                await made.ready(60.0)
                await asyncio.sleep(plan.warm)
            while True:
                async with _beside(load.run()):
                    for _ in range(min(ROUND, left)):
                        # On a busy machine all takes longer, and who is killed before it is up proves nothing.
                        await made.ready(READY)
                        await faults.cycle()
                        left -= 1
                await quiet(made, load)
                if left <= 0 or (plan.first_only and find(made)):
                    break
        result.crashes = made.crashes
        clock = made.history.clock
        for event in (
            *slurmctld_lines(made.machine.folder / "slurmctld.log", clock),
            *scheduler_lines(folder / "scheduler.log", clock),
            *kubernetes_requests(folder / "api/audit.log", USER, clock),
        ):
            made.history.add(event)
        result.events = made.history.events
    return result


async def quiet(made: World, load: Load) -> None:
    """Let all come to rest."""
    await load.calm()
    clock, history = made.history.clock, made.history
    history.add(Quiet(at=clock.of(time.monotonic())))
    await asyncio.sleep(QUIET)
    ends = time.monotonic() + STALLED
    while not heard(history.events, clock.of(time.monotonic())) and time.monotonic() < ends:  # noqa: ASYNC110
        await asyncio.sleep(LOOK)
    history.add(Quiet(at=clock.of(time.monotonic()), over=True))


def heard(events: Sequence[Event], now: float) -> bool:
    """Whether slurmctld has answered all that it was asked in the last seconds, and was asked without a break."""
    since = now
    for event in reversed(events):
        if isinstance(event, SlurmSilent):
            return False
        if isinstance(event, SlurmTold):
            if since - event.asked > BREAK:
                return False
            since = event.asked
            if now - since >= HEARD:
                return True
    return False


def find(made: World) -> list[Breach]:
    """Return the breaches so far."""
    return check(ordered(made.history.events))


@asynccontextmanager
async def _beside(*work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Have endless work go on within the block; if it fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
        yield
        for task in tasks:
            task.cancel()
