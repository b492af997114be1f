"""What the scheduler's bench measures, each of it by a function: a scheduler and a size in, figures out.

Every function leaves the world as it found it: no pods, no scheduler.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from common import Steal, percentile
from podload import EndedError, Load, Shape
from podworld import Contender, PodWorld, grown
from process import Daemon

SETTLE = 300.0
"""Longest wait, in seconds, for what is measured."""
START = 60.0
"""Longest wait for a scheduler's first pod."""
QUIET = 30.0
"""Seconds for which nothing changes, and it is measured what is spent all the same."""
BATCH = {"slurm.kurm.dev/partition": "batch"}
LARGE = Shape(cpus=48, annotations=BATCH)
"""One of them to a node, with room beside it for small ones."""
RECEIVED = re.compile(r'slurm_bytes_total\{.*way="received".*\}$')
CALLS = re.compile(r'slurm_calls_total\{.*route="(.*?)".*\}$')
UNCOUNTED = ("leases", "nodes", "slurmclusters", "nodesets")
"""Resources whose writes are not for a pod."""
KEY_FIGURES = ("p50_ms", "p99_ms", "rate", "steal_percent")
"""Those that are kept of each round."""
Figures = dict[str, Any]


@dataclass
class Bench:
    """What is measured with, and what came out."""

    world: PodWorld
    load: Load
    samples: int
    drained: int
    figures: list[Figures] = field(default_factory=list)
    _steal: Steal = field(default_factory=Steal)

    def note(self, what: str, contender: Contender, figures: Figures) -> None:
        """Keep figures, and show that they have come."""
        entry = {"what": what, "nodes": len(self.world.names), "scheduler": contender.title, **figures}
        entry["steal_percent"] = self._steal.percent()
        self.figures.append(entry)
        print(" ".join(f"{key}={value}" for key, value in entry.items()), flush=True)

    def settle(self) -> None:
        """Of what was measured in rounds keep the round in which the host took least from us, and say how all were."""
        found: dict[tuple[Any, ...], list[Figures]] = {}
        for one in self.figures:
            found.setdefault((one["what"], one["nodes"], one["scheduler"]), []).append(one)
        self.figures = [calmest(rounds) if len(rounds) > 1 else rounds[0] for rounds in found.values()]


def calmest(rounds: list[Figures]) -> Figures:
    """Return the round with the least steal, with the key figures of all rounds."""
    kept = {key: [one[key] for one in rounds] for key in KEY_FIGURES if key in rounds[0]}
    return {**min(rounds, key=lambda one: float(one["steal_percent"])), "rounds": kept}


def spread(seconds: list[float]) -> Figures:
    """Return how samples are spread, in milliseconds."""
    parts = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
    found = {part: round(percentile(seconds, share) * 1e3, 1) for part, share in parts.items()}
    return {"samples": len(seconds), **found, "max_ms": round(max(seconds) * 1e3, 1)}


class Meter:
    """What everybody spends while something is measured."""

    def __init__(self, bench: Bench, scheduler: Daemon) -> None:
        self._bench, self._scheduler = bench, scheduler
        self._counted = self._counters()
        self._cpu = bench.world.cpu(scheduler)  # last, as reading the counters costs the API server some

    def _counters(self) -> tuple[dict[str, int], dict[str, float], int]:
        try:
            metrics = self._scheduler.metrics()
        except OSError:  # kube-scheduler serves them by HTTPS alone
            metrics = {}
        return self._bench.world.writes(), metrics, self._bench.load.own_writes

    def in_all(self, seconds: float) -> Figures:
        """Return the share of a core of each process since the beginning, in percent, and all calls to slurmrestd."""
        cpu = grown(self._cpu, self._bench.world.cpu(self._scheduler))
        metrics = grown(self._counted[1], self._counters()[1])
        calls = {match[1]: value for name, value in metrics.items() if (match := CALLS.search(name))}
        return {"core_percent": {name: round(value / seconds * 100, 1) for name, value in cpu.items()}, "calls": calls}

    def per_pod(self, pods: int) -> Figures:
        """Return CPU, writes, calls and bytes since the beginning, for each of so many pods."""
        cpu = grown(self._cpu, self._bench.world.cpu(self._scheduler))
        (writes_before, metrics_before, own_before), (writes, metrics, own) = self._counted, self._counters()
        for_pods = [
            count for name, count in grown(writes_before, writes).items() if name.split("/")[0] not in UNCOUNTED
        ]
        metrics = grown(metrics_before, metrics)
        found: Figures = {
            "cpu_ms": {name: round(value / pods * 1e3, 2) for name, value in cpu.items()},
            "writes": round((sum(for_pods) - (own - own_before)) / pods, 2),
        }
        if received := [value for name, value in metrics.items() if RECEIVED.search(name)]:
            found["slurm_kb"] = round(sum(received) / pods / 1e3, 2)
            calls = [(match[1], value) for name, value in metrics.items() if (match := CALLS.search(name))]
            found["slurm_calls"] = {route: round(value / pods, 3) for route, value in calls}
        return {"per_pod": found}


@contextmanager
def running(bench: Bench, contender: Contender) -> Iterator[Daemon]:
    """Run a scheduler; say what it said last if something fails."""
    with contender.run() as scheduler:
        bench.load.ended = scheduler.process.poll
        try:
            yield scheduler
        except (TimeoutError, EndedError):
            print(f"{contender.title} said last:\n{scheduler.log.read_text()[-3000:]}", flush=True)
            raise
        finally:
            bench.load.ended = lambda: None


async def warm(bench: Bench, contender: Contender) -> None:
    """Wait until a scheduler that was just started binds pods, and bind a few."""
    await bench.load.all_bound(await bench.load.create(1, contender.scheduler_name), within=START)
    await bench.load.all_bound(await bench.load.create(20, contender.scheduler_name, rate=20), within=START)


async def latency(bench: Bench, contender: Contender, rates: tuple[float, ...]) -> None:
    """Create pods at a steady rate into free room: from created to bound."""
    load = bench.load
    with running(bench, contender) as scheduler:
        await warm(bench, contender)
        for rate in rates:
            meter = Meter(bench, scheduler)
            number = bench.samples if rate >= 10 else max(bench.samples // 4, 20)
            names = await load.create(number, contender.scheduler_name, rate=rate)
            await load.all_bound(names, within=SETTLE)
            await asyncio.sleep(1)  # what is written after the bind counts, too
            figures = spread(load.latencies(names)) | meter.per_pod(number)
            bench.note(f"latency at {rate:g}/s", contender, figures)
        await load.clear()


async def drain(bench: Bench, contender: Contender) -> None:
    """Create pods while no scheduler runs, and start one: how fast they are bound."""
    load, number = bench.load, bench.drained
    names = await load.create(number, contender.scheduler_name)
    begun = time.monotonic()
    with running(bench, contender) as scheduler:
        await load.until(lambda: len(load.bound) > 0, lambda: "nothing was bound", within=START)
        started, meter = scheduler.cpu, Meter(bench, scheduler)
        before = len(load.bound)
        await load.all_bound(names, within=SETTLE)
        times = sorted(load.bound[name][0] for name in names)
        await asyncio.sleep(1)
        costs = meter.per_pod(number - before)
        figures = {
            "pods": number,
            "rate": round(number / (times[-1] - times[0]), 1),
            "rate_with_start": round(number / (times[-1] - begun), 1),
            "first_s": round(times[0] - begun, 2),
            "last_s": round(times[-1] - begun, 2),
            "cpu_to_first_s": round(started, 2),
        }
        bench.note("drain", contender, figures | costs | memory(scheduler))
        await load.clear()


def memory(scheduler: Daemon) -> Figures:
    """Return what a scheduler holds now, and the most that it ever held."""
    return {"memory_mb": round(scheduler.resident, 1), "peak_mb": round(scheduler.peak, 1)}


async def contended(bench: Bench, contender: Contender, waiting: int, released: int) -> None:
    """Fill the cluster with large pods and let more of them wait; small ones of a higher tier fit beside them.

    Then delete large ones, one after another: from the deletion to the bind of one that has waited.
    """
    load, name = bench.load, contender.scheduler_name
    with running(bench, contender):
        large = await load.create(len(bench.world.names), name, LARGE)
        await load.all_bound(large, within=SETTLE)
        queued = await load.create(waiting, name, LARGE)
        await all_waiting(bench, queued)
        small = await load.create(bench.samples, name, rate=20)
        await load.all_bound(small, within=SETTLE)
        bench.note(f"latency at 20/s, {waiting} waiting", contender, spread(load.latencies(small)))
        late = [await one_released(load, victim) for victim in large[:released]]
        bench.note(f"release to bind, {waiting} waiting", contender, spread(late))
        await load.clear()


async def all_waiting(bench: Bench, names: list[str]) -> None:
    """Wait until all of these wait: their scheduler has said so, or they are in Slurm's queue."""
    load, end = bench.load, time.monotonic() + SETTLE
    while True:
        queue = await asyncio.to_thread(bench.world.queue)
        queued = {job.partition("/")[2].partition(".")[0] for job, _, state, _ in queue if state == "PENDING"}
        left = set(names) - load.waiting - queued
        if not left:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"after {SETTLE:.0f} s {len(left)} pods do not wait yet, as {min(left)}")
        await asyncio.sleep(1)


async def one_released(load: Load, victim: str) -> float:
    """Delete a pod and return the seconds until another one is bound."""
    before = set(load.bound)
    sent = time.monotonic()
    await load.delete(victim)
    await load.until(lambda: len(load.bound) > len(before), lambda: "nothing was bound", within=SETTLE)
    bound = min(load.bound[name][0] for name in load.bound.keys() - before)
    await asyncio.sleep(0.3)
    return bound - sent


async def gangs(bench: Bench, contender: Contender, sizes: tuple[int, ...]) -> None:
    """Create the pods of a gang: from the first that was sent, and from the last that was made, to the last bound."""
    load = bench.load
    with running(bench, contender):
        await warm(bench, contender)
        for size in sizes:
            marks = {"slurm.kurm.dev/gang": f"gang-{size}", "slurm.kurm.dev/gang-size": str(size)}
            names = await load.create(size, contender.scheduler_name, Shape(annotations=marks))
            await load.all_bound(names, within=SETTLE)
            last = max(load.bound[name][0] for name in names)
            figures = {
                "first_sent_to_last_bound_s": round(last - min(load.sent[name] for name in names), 3),
                "last_made_to_last_bound_s": round(last - max(load.made[name] for name in names), 3),
                "first_to_last_bind_s": round(last - min(load.bound[name][0] for name in names), 3),
            }
            bench.note(f"gang of {size}", contender, figures)
            await load.clear()


async def known(bench: Bench, contender: Contender, pods: int) -> None:
    """Have so many pods bound: what their scheduler holds in memory."""
    load = bench.load
    with running(bench, contender) as scheduler:
        await warm(bench, contender)
        begun = time.monotonic()
        names = await load.create(pods - len(load.bound), contender.scheduler_name)
        await load.all_bound(names, within=2 * SETTLE)
        figures = {"pods": pods, "rate": round(len(names) / (time.monotonic() - begun), 1)}
        bench.note("memory", contender, figures | memory(scheduler))
        meter = Meter(bench, scheduler)
        await asyncio.sleep(QUIET)
        bench.note("quiet", contender, {"pods": pods, "seconds": QUIET} | meter.in_all(QUIET) | memory(scheduler))
        await load.clear()
