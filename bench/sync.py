"""How fast and how cheaply the syncer keeps Kubernetes and Slurm in agreement.

    PYTHONPATH=tests python bench/sync.py [--nodes 5000] [--rows-at 1000] [--samples 200] [--steady 300] [--quick]

Real API server, slurmctld, slurmrestd, and the syncer as a process of its own; simulated nodes and slurmd pods, and
one real slurmd with a stream of jobs (`world.py`). Times of drains are those of slurmctld's log, times of conditions
those at which a watch of the bench saw them (`watching.py`). Each figure stands beside its target; the bench ends with
status 1 if one is missed by more than twice. The result is printed, and kept in bench/results/sync.json.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common import machine, percentile
from pool import NAMESPACE
from process import Daemon
from rich.console import Console
from rich.table import Table
from watching import ControllerLog, Kubernetes, until
from world import World, world

from integration import ram

RESULT = Path(__file__).parent / "results" / "sync.json"
SMALL = 50
"""Nodes of the cluster with which the cost of one change is compared."""
RATE = 20.0
"""Starts of jobs a second in the steady state."""
FULL_LIST_SECONDS = 300.0
"""One full list is allowed in so many seconds."""
DIFFERENT = 50
"""Nodes on which the sides differ when the syncer is started again."""
SETTLE = 300.0
"""Longest wait, in seconds, for what has no target of its own."""
LISTS = "GET nodes/"
RECEIVED = 'kurm_syncer_slurm_bytes_total{way="received"}'
CALLS = "kurm_syncer_slurm_calls_total"
POD_WRITES = "kurm_syncer_pod_writes_total"
T = TypeVar("T")


@dataclass
class Row:
    """One figure and the most that it may be."""

    name: str
    measured: float
    target: float
    unit: str

    @property
    def missed(self) -> bool:
        """Whether the bench fails by it."""
        return self.measured > 2 * self.target

    @property
    def verdict(self) -> str:
        """In a word."""
        return "missed by 2x" if self.missed else "over" if self.measured > self.target else "holds"


@dataclass
class Bench:
    """What is measured with, and what came out."""

    world: World
    kubernetes: Kubernetes
    log: ControllerLog
    samples: int
    steady: float
    rows: list[Row] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def row(self, name: str, measured: float, target: float, unit: str) -> None:
        """Note a figure, and show that it has come."""
        self.rows.append(Row(name, round(measured, 3), target, unit))
        print(f"{name}: {measured:.3f} {unit} (target {target:g}; {self.rows[-1].verdict})", flush=True)

    def spread(self, name: str, seconds: list[float]) -> None:
        """Note how samples are spread, in milliseconds."""
        parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        found = {part: round(percentile(seconds, share) * 1e3, 1) for part, share in parts.items()}
        self.details[name] = {"samples": len(seconds), **found, "max": round(max(seconds) * 1e3, 1)}

    async def settled(self) -> None:
        """Wait until all nodes are in service on both sides."""
        await self.kubernetes.all_told("InService", within=SETTLE)


async def one_at_a_time(bench: Bench) -> None:
    """Cordon node after node: from the request to the API server until slurmctld has drained it."""
    late = []
    names = bench.world.names[: bench.samples]
    for name in names:
        bench.log.seek_end()
        sent = time.time()
        await bench.world.cordon(name)
        late.append((await bench.log.drained({name}, within=30))[name] - sent)
    bench.spread("cordon_to_drain_ms", late)
    nodes = len(bench.world.everybody)
    bench.row(f"cordon to DRAIN, {nodes} nodes, p99 of {len(late)}", percentile(late, 0.99) * 1e3, 200, "ms")
    await bench.kubernetes.all_told("Drained", nodes=set(names), within=SETTLE)
    await bench.world.cordon_all(names, cordoned=False)
    await bench.settled()


async def all_at_once(bench: Bench) -> None:
    """Cordon all simulated nodes: from the last watch event until the last one is drained."""
    names = set(bench.world.names)
    bench.log.seek_end()
    waiting = asyncio.create_task(bench.log.drained(names, within=SETTLE))
    await bench.world.cordon_all(names)
    drained = await waiting
    cordoned = bench.kubernetes.cordoned
    await until(lambda: names <= cordoned.keys(), lambda: "not all cordons were seen", within=60)
    seen = [cordoned[name] for name in names]
    bench.row(f"{len(names)} cordoned at once, last event to last DRAIN", max(drained.values()) - max(seen), 1.0, "s")
    told = await bench.kubernetes.all_told("Drained", nodes=names, within=SETTLE)
    bench.details["all_at_once"] = {
        "events_s": round(max(seen) - min(seen), 2),
        "last_event_to_last_condition_s": round(told - max(seen), 2),
    }
    await bench.world.cordon_all(names, cordoned=False)
    await bench.settled()


async def by_an_administrator(bench: Bench, rate: float = 5.0) -> None:
    """Drain nodes in Slurm, some a second: from the request until the pod's condition is seen."""
    names = bench.world.names[: bench.samples]
    sent: dict[str, float] = {}
    for name in names:
        sent[name] = time.time()
        await bench.world.drain([name])
        await asyncio.sleep(max(0.0, sent[name] + 1 / rate - time.time()))
    await bench.kubernetes.all_told("Drained", nodes=set(names), within=SETTLE)
    late = [bench.kubernetes.told[name][1] - sent[name] for name in names]
    bench.spread("drain_to_condition_ms", late)
    nodes = len(bench.world.everybody)
    bench.row(f"drain in Slurm to condition, {nodes} nodes, p99 of {len(late)}", percentile(late, 0.99), 1.2, "s")
    await bench.world.resume(names)
    await bench.settled()


async def calls_of_a_change(bench: Bench, syncer: Daemon, changes: int = 7) -> float:
    """Return what one cordon and its end cost in calls, the median; the net is left out, as it is cast by the clock."""
    name, counted = bench.world.names[0], []
    for _ in range(changes):
        before = syncer.metrics()
        for cordoned, word in ((True, "Drained"), (False, "InService")):
            await bench.world.cordon(name, cordoned=cordoned)
            await bench.kubernetes.all_told(word, nodes={name}, within=SETTLE)
            await asyncio.sleep(0.5)  # the looks after the writes
        counted.append(grown(before, syncer.metrics(), CALLS, POD_WRITES))
    typical = sorted(counted, key=without_net)[changes // 2]
    bench.details[f"calls_of_a_change_at_{len(bench.world.everybody)}"] = typical
    return without_net(typical)


def grown(before: dict[str, float], after: dict[str, float], *names: str) -> dict[str, float]:
    """Return by how much counters have grown, of those whose names begin so; a call is named by its route."""
    found = {key: after[key] - before.get(key, 0) for key in after if key.startswith(names)}
    return {key.removeprefix(f'{CALLS}{{route="').removesuffix('"}'): value for key, value in found.items() if value}


def without_net(calls: dict[str, float]) -> float:
    """Return how many calls these are, without lists."""
    return sum(value for key, value in calls.items() if key != LISTS)


async def steady_state(bench: Bench, syncer: Daemon) -> None:
    """Let jobs come and go: the syncer's CPU, lists and memory."""
    async with bench.world.jobs(RATE):
        await asyncio.sleep(10)
        bench.log.seek_end()
        before, cpu, begun = syncer.metrics(), syncer.cpu, time.monotonic()
        controller = bench.world.machine.cpu("slurmctld")
        await asyncio.sleep(bench.steady)
        took = time.monotonic() - begun
        after, used = syncer.metrics(), syncer.cpu - cpu
        starts, controller = bench.log.starts(), bench.world.machine.cpu("slurmctld") - controller
    nodes = len(bench.world.everybody)
    calls = grown(before, after, CALLS)
    bench.row(f"steady state, {nodes} nodes: CPU of the syncer", used / took * 100, 5.0, "% of a core")
    allowed = max(1.0, took // FULL_LIST_SECONDS)
    bench.row(f"steady state, {nodes} nodes: full lists in {took:.0f} s", calls.get(LISTS, 0), allowed, "lists")
    bench.details["steady_state"] = {
        "seconds": round(took, 1),
        "job_starts_per_s": round(starts / took, 1),
        "megabytes_received": round((after[RECEIVED] - before[RECEIVED]) / 1e6, 2),
        "calls": calls,
        "pod_writes": after[POD_WRITES] - before[POD_WRITES],
        "cpu_of_slurmctld_percent": round(controller / took * 100, 1),
        "memory_mb": round(syncer.resident, 1),
    }
    memory(bench, syncer, "steady state")


def memory(bench: Bench, syncer: Daemon, when: str) -> None:
    """Note the most memory that a syncer has held, and what it holds now."""
    bench.details.setdefault("memory_mb", {})[when] = {
        "now": round(syncer.resident, 1),
        "peak": round(syncer.peak, 1),
    }


def lists_arrived(syncer: Daemon) -> float:
    """Return when the syncer had both sides' lists, by its log.

    Its loop begins when Kubernetes' lists are there, and says first whether Slurm's is there too, or what it waits for.
    """
    begun, stopped = syncer.said("keeps both sides in agreement"), syncer.said("stopped")
    if begun and (not stopped or begun[0][0] < stopped[0][0]):
        return begun[0][0]
    return syncer.said("slurm's nodes are known")[-1][0]


async def restarted(bench: Bench) -> None:
    """Have the sides differ on some nodes while no syncer runs: half are cordoned, half drained in Slurm."""
    half = DIFFERENT // 2
    cordoned, drained = set(bench.world.names[:half]), set(bench.world.names[half:DIFFERENT])
    await bench.world.cordon_all(cordoned)
    await bench.world.drain(drained)
    bench.log.seek_end()
    begun = time.time()
    with bench.world.syncer() as syncer:
        in_slurm = max((await bench.log.drained(cordoned, within=SETTLE)).values())
        in_kubernetes = await bench.kubernetes.all_told("Drained", nodes=cordoned | drained, within=SETTLE)
        lists = lists_arrived(syncer)
        nodes = len(bench.world.everybody)
        right = max(in_slurm, in_kubernetes) - lists
        bench.row(f"restarted, {nodes} nodes: lists to the {DIFFERENT} right", right, 5.0, "s")
        bench.details["restarted"] = {
            "start_to_lists_s": round(lists - begun, 2),
            "lists_to_drained_s": round(in_slurm - lists, 2),
            "lists_to_conditions_s": round(in_kubernetes - lists, 2),
            "cpu_s": round(syncer.cpu, 2),
        }
        memory(bench, syncer, "restarted")
        await bench.world.cordon_all(cordoned, cordoned=False)
        await bench.world.resume(drained)
        await bench.settled()


async def from_empty(bench: Bench) -> None:
    """Start a syncer before a Slurm that knows no node: until all records are made and marked, and pods told."""
    world, names = bench.world, sorted(bench.world.everybody)
    await world.forget_all_records()
    with world.syncer() as syncer:
        seen = await all_marked(world, names)
        lists = lists_arrived(syncer)
        bench.row(f"from an empty Slurm, {len(names)} nodes: lists to all records right", seen - lists, 60.0, "s")
        told = await bench.kubernetes.all_told("NotRegistered", within=SETTLE)
        bench.row(f"from an empty Slurm, {len(names)} nodes: lists to all conditions right", told - lists, 60.0, "s")
        bench.details["from_empty"] = {"cpu_s": round(syncer.cpu, 2), "pod_writes": syncer.metrics()[POD_WRITES]}
        memory(bench, syncer, "from empty")


async def all_marked(world: World, names: list[str]) -> float:
    """Wait until all of these records are there and marked; return when that was seen."""
    sample = names[:: max(1, len(names) // 20)] + names[-1:]
    async with asyncio.timeout(SETTLE):
        while True:
            await asyncio.sleep(0.5)
            # A list would cost slurmctld a second each time, so a sample says when it is time for one.
            if not await world.marked(sample):
                continue
            seen, records = time.time(), await world.records()
            if all(name in records and records[name].extra.startswith("kurm:") for name in names):
                return seen


async def measure(bench: Bench, nodes: int, rows_at: int) -> None:
    """Let the world grow, and measure what is to be measured at each size."""
    with bench.world.syncer():
        await bench.world.hears_controller()
        await bench.world.start_slurmd()
        await bench.settled()
    await bench.world.grow(SMALL - 1)
    small = await with_syncer(bench, lambda syncer: calls_of_a_change(bench, syncer))
    await bench.world.grow(rows_at - 1)

    async def latencies(_: Daemon) -> None:
        for part in (one_at_a_time, all_at_once, by_an_administrator):
            await part(bench)

    await with_syncer(bench, latencies)
    await bench.world.grow(nodes - 1)

    async def large(syncer: Daemon) -> float:
        calls = await calls_of_a_change(bench, syncer)
        await steady_state(bench, syncer)
        return calls

    big = await with_syncer(bench, large)
    name = f"calls for one changed node, {nodes} nodes against {SMALL}"
    bench.row(name, big / small, 1.0, "times")
    await restarted(bench)
    await from_empty(bench)
    held = bench.details["memory_mb"].values()
    bench.row(f"memory of the syncer, {nodes} nodes, the most ever", max(one["peak"] for one in held), 300.0, "MB")


async def with_syncer(bench: Bench, work: Callable[[Daemon], Awaitable[T]]) -> T:
    """Start a syncer, wait until all nodes are in service, and work with it."""
    begun = time.monotonic()
    with bench.world.syncer() as syncer:
        await bench.settled()
        nodes = len(bench.world.everybody)
        print(f"{nodes} nodes are in service after {time.monotonic() - begun:.1f} s", flush=True)
        return await work(syncer)


async def main(given: argparse.Namespace) -> int:
    """Make the world, measure, print and keep; return the exit status."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kurm-bench-", dir=ram.folder()) as folder:
        async with (
            world(Path(folder)) as made,
            Kubernetes(made.kube, NAMESPACE, "demo").run() as kubernetes,
        ):
            log = ControllerLog(made.machine.folder / "slurmctld.log")
            await made.begin()
            bench = Bench(made, kubernetes, log, given.samples, given.steady)
            try:
                await measure(bench, given.nodes, given.rows_at)
            except (TimeoutError, AssertionError):
                print((made.folder / "syncer.log").read_text()[-3000:])
                raise
            versions = {"slurm": made.slurm.release, "kubernetes": await version(made)}
    result = {
        "machine": machine() | versions | {"load_before": round(load, 1)},
        "options": {name: value for name, value in vars(given).items() if name not in {"quick", "markdown"}},
        "rows": [asdict(row) | {"verdict": row.verdict} for row in bench.rows],
        "details": bench.details,
    }
    if not given.quick:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(bench.rows, result)
    return int(any(row.missed for row in bench.rows))


async def version(made: World) -> str:
    """Return Kubernetes' release."""
    return str(json.loads(await made.kube.request("GET", "/version"))["gitVersion"])


def show(rows: list[Row], result: dict[str, Any]) -> None:
    """Print the table."""
    table = Table("", "measured", "target", "")
    for row in rows:
        table.add_row(row.name, f"{row.measured:g} {row.unit}", f"{row.target:g}", row.verdict)
    Console().print(table)
    for name, figures in result["details"].items():
        print(f"{name}: {figures}")
    print(f"machine: {result['machine']}")


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the rows of the README's table."""
    return "\n".join(f"| {row['name']} | {row['measured']:g} {row['unit']} | {row['target']:g} |" for row in rows)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000, help="for the restart, the steady state and the memory")
    parser.add_argument("--rows-at", type=int, default=1000, help="nodes at which latencies are measured")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--steady", type=float, default=300.0, help="seconds of steady state")
    parser.add_argument("--quick", action="store_true", help="500 nodes, latencies at 200, 40 samples, 30 s; not kept")
    parser.add_argument(
        "--markdown", action="store_true", help="print the last result as the README has it; run nothing"
    )
    given = parser.parse_args()
    if given.quick:
        given.nodes, given.rows_at, given.samples, given.steady = 500, 200, 40, 30.0
    return given


if __name__ == "__main__":
    asked = arguments()
    if asked.markdown:
        print(markdown(json.loads(RESULT.read_text())["rows"]))
    else:
        sys.exit(asyncio.run(main(asked)))
