"""How fast and how cheaply the scheduler binds pods, beside kube-scheduler on the same API server and the same nodes.

    PYTHONPATH=tests python bench/pods.py [--nodes 100,1000,10000] [--only latency,drain,...] [--quick]

Real API server, slurmctld under its init, slurmrestd, and both schedulers as processes of their own, one at a time;
nodes are objects on both sides (`podworld.py`), pods have no containers (`podload.py`). Latency and draining are
measured in rounds, in which the two take turns; that one counts in which the host took least of both cores away
(steal), as that has made everything ten times slower for minutes. No figure makes it fail. They are printed, and kept
in bench/results/pods.json.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import podfigures
import podrecovery
from common import machine
from podfigures import Bench
from podload import Load
from podworld import Contender, KubeScheduler, Kurm, PodWorld, pod_world
from rich.console import Console
from rich.table import Table

from integration import ram

RESULT = Path(__file__).parent / "results" / "pods.json"
PARTS = ("latency", "drain", "contended", "gangs", "memory", "recovery")
SCHEDULERS = ("kube-scheduler", "kurm")
MIDDLE = 1000
"""Nodes at which all is measured; at other sizes latency and draining are, and memory at the largest."""


async def measure(bench: Bench, given: argparse.Namespace) -> None:
    """Let the world grow, and measure what is to be measured at each size."""
    contenders: list[Contender] = [KubeScheduler(bench.world), Kurm(bench.world)]
    contenders = [one for one in contenders if one.title in given.schedulers]
    for nodes in given.nodes:
        await bench.world.grow(nodes)
        print(f"{nodes} nodes", flush=True)
        all_of_it = nodes == MIDDLE or len(given.nodes) == 1
        for _ in range(given.rounds):
            for contender in contenders:
                if "latency" in given.only:
                    await podfigures.latency(bench, contender, (5, 20) if all_of_it else (20,))
                if "drain" in given.only and (all_of_it or nodes > MIDDLE):
                    await podfigures.drain(bench, contender)
        bench.settle()
        for contender in contenders:
            await measure_once(bench, contender, given, all_of_it=all_of_it)


async def measure_once(bench: Bench, contender: Contender, given: argparse.Namespace, *, all_of_it: bool) -> None:
    """Measure what needs no rounds at the size that there is."""
    if "contended" in given.only and all_of_it:
        await podfigures.contended(bench, contender, given.waiting, given.released)
    if "gangs" in given.only and all_of_it:
        await podfigures.gangs(bench, contender, given.gangs)
    if contender.title != "kurm":
        return
    if "memory" in given.only and len(bench.world.names) == given.nodes[-1]:
        await podfigures.known(bench, contender, given.pods)
    if "recovery" in given.only and all_of_it:
        await podrecovery.scheduler(bench, contender)
        await podrecovery.controller(bench, contender, given.acknowledged)


async def main(given: argparse.Namespace) -> int:
    """Make the world, measure, print and keep; return the exit status."""
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kurm-bench-", dir=given.folder or ram.folder()) as folder:
        async with (
            pod_world(Path(folder), max(given.nodes)) as made,
            Load(made.kube, kubelet=given.kubelet).run() as load,
        ):
            await made.begin()
            bench = Bench(made, load, given.samples, given.drained)
            await measure(bench, given)
            versions = {"slurm": made.slurm.release, "kubernetes": await version(made)}
    result = {
        "machine": machine() | versions | {"load_before": round(load_before, 1)},
        "options": {name: value for name, value in vars(given).items() if name not in {"folder", "keep"}},
        "figures": bench.figures,
    }
    if given.keep:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(bench.figures)
    print(f"machine: {result['machine']}")
    return 0


async def version(made: PodWorld) -> str:
    """Return Kubernetes' release."""
    return str(json.loads(await made.kube.request("GET", "/version"))["gitVersion"])


def show(figures: list[dict[str, Any]]) -> None:
    """Print a line for each thing measured, with a column for each scheduler."""
    rows: dict[tuple[int, str], dict[str, str]] = {}
    for one in figures:
        rows.setdefault((one["nodes"], one["what"]), {})[one["scheduler"]] = line(one)
    table = Table("nodes", "", *SCHEDULERS)
    for (nodes, what), found in rows.items():
        table.add_row(str(nodes), what, *(found.get(name, "") for name in SCHEDULERS))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def line(one: dict[str, Any]) -> str:
    """Return what was found, in short."""
    left = {key: value for key, value in one.items() if key not in UNSHOWN}
    words = [f"{key} {value}" for key, value in left.items()]
    if per_pod := one.get("per_pod"):
        words.append(f"its CPU {per_pod['cpu_ms'].get('scheduler', 0):g} ms a pod")
        words += [f"{per_pod[key]:g} {name} a pod" for key, name in KINDS.items() if key in per_pod]
    return ", ".join(words)


UNSHOWN = ("what", "nodes", "scheduler", "per_pod", "samples", "rounds")
KINDS = {"writes": "writes", "slurm_kb": "KB of slurmrestd"}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=numbers, default=(100, 1000, 10000), help="sizes, ascending, as 100,1000")
    parser.add_argument("--only", type=words(PARTS), default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--schedulers", type=words(SCHEDULERS), default=SCHEDULERS, help=f"of {','.join(SCHEDULERS)}")
    parser.add_argument("--rounds", type=int, default=3, help="of latency and draining; the calmest counts")
    parser.add_argument("--samples", type=int, default=300, help="pods for a latency at 20/s; a quarter at 5/s")
    parser.add_argument("--drained", type=int, default=2000, help="pods created before the scheduler starts")
    parser.add_argument("--waiting", type=int, default=1000, help="pods of the batch tier that wait")
    parser.add_argument("--released", type=int, default=50, help="pods that are deleted one after another")
    parser.add_argument("--gangs", type=numbers, default=(8, 64, 512), help="sizes of gangs")
    parser.add_argument("--pods", type=int, default=10000, help="pods known when memory is measured")
    parser.add_argument("--acknowledged", type=int, default=300, help="pods bound before slurmctld is killed")
    parser.add_argument("--kubelet", action="store_true", help="bound pods are told Running, at 4 ms of CPU each")
    parser.add_argument("--folder", help="where files are kept while it runs; default: in memory")
    parser.add_argument("--quick", action="store_true", help="100 nodes, few of everything; not kept; 2 minutes")
    given = parser.parse_args()
    given.keep = not given.quick and given.only == PARTS
    if given.quick:
        given.nodes, given.rounds, given.samples, given.drained = (100,), 1, 100, 300
        given.waiting, given.released = 100, 10
        given.gangs, given.pods, given.acknowledged = (8, 64), 500, 50
    return given


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers that commas divide."""
    return tuple(int(word) for word in text.split(","))


def words(known: tuple[str, ...]) -> Any:
    """Return a reader of words of which all are known."""

    def read(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if unknown := [word for word in found if word not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found

    return read


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
