"""What is done to the programs, by the dice of a seed: killed, paused, cut off, or their answer is lost at one step."""

import asyncio
import contextlib
import random
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from chaos.relay import Trap
from chaos.world import World

Kind: TypeAlias = tuple[int, Callable[[], Awaitable[None]]]
"""A fault and how often it comes, against the others."""
PERIOD = 3.2, 4.6
"""Seconds of a cycle: a fault and what is left of the time; between these, so 3.9 s on average."""
AWAY = 0.0, 1.2
"""Seconds until what was killed is started again."""
PAUSE = 0.4, 2.5
"""Seconds for which a program is stopped."""
DOWN = 1.0, 6.0
"""Seconds for which Slurm has a node down: also longer than a pod is left bound whose share was given to others."""
SILENT = 0.7
"""How often Kubernetes does not hear of that node, either."""
TRAP_SECONDS = 2.0
"""Until the step must have come at which a fault waits."""
ASKING = re.compile(r"^POST .*/job/(allocate|submit)")
ENDING = re.compile(r"^DELETE .*/jobs?/")
ANY = re.compile(r"^(POST|DELETE) ")
OPENING = re.compile(r"^POST .*/open")


class Faults:
    """One run's faults; `only`: the names of those that are meant."""

    def __init__(self, world: World, dice: random.Random, only: Sequence[str] = ()) -> None:
        self.world, self.dice = world, dice
        kinds: list[Kind] = [
            (5, self.kill_slurmctld),
            (4, self.forgets),
            (3, self.kill_slurmrestd),
            (4, self.kill_scheduler),
            (4, self.kill_scheduler_at_a_step),
            (3, self.kill_api_server),
            (4, self.pause),
            (2, self.cut),
            (3, self.lose),
            (3, self.both),
            (3, self.lose_node),
        ]
        self._last: set[Callable[[], Awaitable[None]]] = set()
        self._kinds = [kind for kind in kinds if not only or kind[1].__name__ in only]

    async def cycle(self) -> None:
        """Do one, and see that it is over; it lasts its period."""
        weights, kinds = zip(*self._kinds, strict=True)
        begun = asyncio.get_running_loop().time()
        period = self.dice.uniform(*PERIOD)
        kind = self.dice.choices(kinds, weights)[0]
        while kind in self._last and len(kinds) > len(self._last):
            kind = self.dice.choices(kinds, weights)[0]
        # Whoever is killed each time before it has come up proves nothing.
        killers: set[Callable[[], Awaitable[None]]] = {self.kill_scheduler, self.kill_scheduler_at_a_step, self.both}
        self._last = killers if kind in killers else set()
        await kind()
        await asyncio.sleep(max(0.0, begun + period - asyncio.get_running_loop().time()))

    async def kill_slurmctld(self) -> None:
        """It has saved its state up to some seconds ago."""
        self.world.fault("kill", "slurmctld")
        await self.world.kill_slurmctld()
        await self._away()
        await self.world.start_slurmctld()
        self.world.fault("kill", "slurmctld", over=True)

    async def forgets(self) -> None:
        """Slurmctld dies at once after it has granted something, before it has saved it; the answer may get through."""
        lost = self.dice.random() < 0.5

        async def kill() -> None:
            self.world.fault("kill", "slurmctld", "after its answer to an allocation")
            await self.world.kill_slurmctld()

        if not await self._trap(Trap(ASKING, kill, lost=lost)):
            await kill()
        await self._away()
        await self.world.start_slurmctld()
        self.world.fault("kill", "slurmctld", over=True)

    async def kill_slurmrestd(self) -> None:
        """It holds nothing."""
        self.world.fault("kill", "slurmrestd")
        await self.world.kill_slurmrestd()
        await self._away()
        await self.world.start_slurmrestd()
        self.world.fault("kill", "slurmrestd", over=True)

    async def kill_scheduler(self) -> None:
        """Wherever it is."""
        self.world.fault("kill", "scheduler")
        await self.world.kill_scheduler()
        await self._away()
        await self.world.bring_scheduler()
        self.world.fault("kill", "scheduler", over=True)

    async def kill_scheduler_at_a_step(self) -> None:
        """Before Slurm hears of a request, or before the scheduler hears the answer."""
        pattern = self.dice.choice((ASKING, ASKING, ENDING, ANY))
        before = self.dice.random() < 0.3

        async def kill() -> None:
            self.world.fault("kill", "scheduler", f"{'before' if before else 'after'} {pattern.pattern}")
            await self.world.kill_scheduler()

        # Before: the request is still sent, as if the kernel had it already.
        if not await self._trap(Trap(pattern, kill, before=before, lost=not before)):
            await kill()
        await self._away()
        await self.world.bring_scheduler()
        self.world.fault("kill", "scheduler", over=True)

    async def kill_api_server(self) -> None:
        """Etcd lives."""
        self.world.fault("kill", "kube-apiserver")
        await self.world.kill_api_server()
        await self._away()
        await self.world.start_api_server()
        self.world.fault("kill", "kube-apiserver", over=True)

    async def pause(self) -> None:
        """Stop a program for a while: what it was about to do, it does later."""
        target = self.dice.choice(("slurmctld", "slurmrestd", "scheduler", "scheduler", "kube-apiserver"))
        seconds = self.dice.uniform(*PAUSE)
        self.world.fault("pause", target, f"{seconds:.1f} s")
        self.world.send(target, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.world.send(target, signal.SIGCONT)
        self.world.fault("pause", target, over=True)

    async def cut(self) -> None:
        """Cut the scheduler's connections to one of those whom it asks."""
        match self.dice.choice(("kube-apiserver", "slurmrestd", "init")):
            case "kube-apiserver":
                self.world.fault("cut", "kube-apiserver")
                self.world.proxy.cut()
            case "slurmrestd":
                self.world.fault("cut", "slurmrestd")
                self.world.slurmrestd.cut()
            case _:
                self.world.fault("cut", "init")
                self.world.init.cut()

    async def lose(self) -> None:
        """Lose one answer of slurmrestd's: what was asked has been done."""
        pattern = self.dice.choice((ASKING, ASKING, ENDING, ANY))

        async def note() -> None:
            self.world.fault("lose", "slurmrestd", pattern.pattern)

        await self._trap(Trap(pattern, note))

    async def both(self) -> None:
        """Slurmctld dies while the scheduler is away: who comes back finds that the other has forgotten."""
        self.world.fault("kill", "scheduler")
        await self.world.kill_scheduler()
        self.world.fault("kill", "slurmctld")
        await self.world.kill_slurmctld()
        starts = [(self.world.start_slurmctld, "slurmctld"), (self.world.bring_scheduler, "scheduler")]
        self.dice.shuffle(starts)
        for start, target in starts:
            await self._away()
            await start()
            self.world.fault("kill", target, over=True)

    async def lose_node(self) -> None:
        """Slurm loses a node and ends its jobs, and their pods run on; mostly nobody hears of it, as in a partition."""
        name, silent = self.dice.choice(self.world.names), self.dice.random() < SILENT
        self.world.fault("down", "node", name)
        await self.world.lose_node(name, silent=silent)
        await asyncio.sleep(self.dice.uniform(*DOWN))
        await self.world.find_node(name)
        self.world.fault("down", "node", name, over=True)

    async def _away(self) -> None:
        await asyncio.sleep(self.dice.uniform(*AWAY))

    async def _trap(self, trap: Trap) -> bool:
        """Wait until a request has sprung it; return whether one has."""
        relay = self.world.slurmrestd
        relay.trap = trap
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TRAP_SECONDS):
                await trap.sprung.wait()
        if relay.trap is trap:
            relay.trap = None
            return False
        await trap.sprung.wait()
        return True
