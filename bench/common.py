"""What the benches share: many things at a time, and where and with what something was measured."""

import asyncio
import importlib.metadata
import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any


async def each(numbers: Iterable[int], work: Callable[[int], Awaitable[Any]], *, workers: int = 32) -> float:
    """Do work for each number, some at a time, and return the seconds."""
    begun, left = time.monotonic(), iter(numbers)

    async def one() -> None:
        for number in left:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(one())
    return time.monotonic() - begun


def percentile(values: list[float], part: float) -> float:
    """Return a percentile; `part` is 0 to 1."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def machine() -> dict[str, Any]:
    """Return where and with what this was measured."""
    model = next(
        (row.split(":")[1].strip() for row in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in row), ""
    )
    packages = {name: importlib.metadata.version(name) for name in ("aiohttp", "msgspec", "kurm")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {"cpu": model, "cores": os.cpu_count(), "memory_gb": round(memory), "kernel": platform.release()} | {
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "packages": packages,
    }


class Steal:
    """What the host has taken of our cores, for others or for our own disk (proc(5), /proc/stat), since last asked."""

    def __init__(self) -> None:
        self._before = self._ticks()

    def percent(self) -> float:
        """Return the share of all cores, in percent; 0 where no host tells."""
        before, self._before = self._before, self._ticks()
        stolen, whole = (now - then for now, then in zip(self._before, before, strict=True))
        return round(100 * stolen / max(whole, 1), 2)

    @staticmethod
    def _ticks() -> tuple[int, int]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return ticks[7], sum(ticks)
