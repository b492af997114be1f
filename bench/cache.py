"""What the cache costs: memory for many pods, CPU for the first list and for events, against a real API server.

    PYTHONPATH=tests python bench/cache.py [--pods 20000] [--events 5000]

A fresh process watches (`--child`): its memory is compared with its own, taken after its imports. Must hold: 130 MB for
20,000 pods, 1 CPU second for 5,000 events. The result is printed, and kept in bench/results/cache.json.
"""

import argparse
import asyncio
import gc
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from common import each, machine, percentile
from rich.console import Console
from rich.table import Table

from integration import ram
from kurm.kube.cache import Cache, Change
from kurm.kube.config import Config
from kurm.kube.resources import NAMESPACES, PODS, Key, Pod
from kurm.kube.session import Session
from kurm.kube.watch import Bookmarked, Changed, Event, Init, InitApply, InitDone, Lines, read

HERE = Path(__file__).parent
RESULT = HERE / "results" / "cache.json"
NAMESPACE = "bench"
NODES = 1000
MEMORY_LIMIT_MB, CPU_LIMIT = 130.0, 1.0
INDEXES: dict[str, Callable[[Pod], Iterable[str]]] = {
    "node": lambda pod: [pod.spec.node_name],
    "phase": lambda pod: [pod.status.phase],
}


def pod(number: int) -> dict[str, Any]:
    """Return a pod as a web service's Deployment makes it."""
    app = f"service-{number % 300}"
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
    container = {
        "name": "main",
        "image": f"registry.example.org/team-{number % 40}/{app}@sha256:{number % 300:064x}",
        "ports": [{"containerPort": 8080, "name": "http"}],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "SERVICE", "value": app},
        ],
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-6d5f7", "uid": f"{number % 300:036d}"}
    return {
        "metadata": {
            "name": f"{app}-6d5f7-{number:05d}",
            "labels": {
                "app.kubernetes.io/name": app,
                "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "6d5f7",
            },
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": f"{number % 300:064x}"},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "nodeName": f"node-{number % NODES:04d}",
            "schedulerName": "kurm",
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": app}}],
            "tolerations": [{"key": "kurm.dev/pool", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def running(number: int) -> dict[str, Any]:
    """Return the status that a kubelet gives such a pod."""
    then = "2026-01-01T00:00:00Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": then} for kind in kinds]
    container = {
        "name": "main",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "service",
        "imageID": "sha",
    }
    container |= {"containerID": f"containerd://{number:064x}", "state": {"running": {"startedAt": then}}}
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "192.0.2.1",
        "startTime": then,
    }
    return {"status": status | {"conditions": conditions, "containerStatuses": [container], "qosClass": "Burstable"}}


def resident() -> float:
    """Return this process's resident memory in MB (10**6 bytes)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak() -> float:
    """Return the most that this process ever held in memory, in MB. Not getrusage: it remembers the parent's."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024 / 1e6


# The watching process.


async def child(kubeconfig: Path, pods: int, events: int, how: str) -> None:
    """Watch, and say as JSON lines what it cost."""
    gc.collect()
    bare = resident()
    config = Config.load(kubeconfig)
    async with Session(config) as session:
        cache: Cache[Pod] = Cache(session, PODS, indexes=INDEXES)
        cpu, clock = time.process_time(), time.monotonic()
        watching = asyncio.create_task(stream_list(session, cache.feed) if how == "stream" else cache.run())
        await cache.wait_synced(300)
        cpu, clock = time.process_time() - cpu, time.monotonic() - clock
        assert len(cache) == pods, f"{len(cache)} pods, expected {pods}"  # noqa: S101 - or the figures mean nothing
        gc.collect()
        high = peak()
        took = {
            "bare_mb": bare,
            "memory_mb": resident() - bare,
            "peak_mb": high - bare,
            "list_cpu_s": cpu,
            "list_s": clock,
        }
        begun = time.perf_counter()
        gc.collect()
        say(took | {"collection_ms": (time.perf_counter() - begun) * 1e3})
        if how == "stream":
            return
        for _ in range(2):  # as they are made, then all at once
            say(await follow(cache, events))
        say({"memory_mb": resident() - bare})
        watching.cancel()


async def stream_list(session: Session, feed: Callable[[Event[Pod]], None]) -> None:
    """Read the first list as a stream (`sendInitialEvents`), for comparison with pages."""
    query = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    query |= {"allowWatchBookmarks": "true"}
    feed(Init())
    async with session.stream(PODS.path(), query=query, silence=60) as chunks:
        cut = Lines()
        async for chunk in chunks:
            for line in cut.feed(chunk):
                match read(PODS, line):
                    case Changed(seen):
                        feed(InitApply(seen))
                    case Bookmarked():
                        feed(InitDone())
                        return


async def follow(cache: Cache[Pod], events: int) -> dict[str, Any]:
    """Count events, and the seconds from each being sent to its being readable here."""
    late: list[float] = []
    everything = asyncio.Event()
    begun = time.monotonic()

    def seen(change: Change[Pod]) -> None:
        sent = float(change.new.metadata.annotations.get("sent", "0")) if change.new is not None else 0.0
        if sent > begun:
            late.append(time.monotonic() - sent)
            if len(late) == events:
                everything.set()

    cache.on_change(seen)
    say({"ready": True})
    cpu = time.process_time()
    await everything.wait()
    cpu = time.process_time() - cpu
    cache._handlers.remove(seen)  # noqa: SLF001 - only a bench counts twice
    return {"cpu_s": cpu, "p50_ms": percentile(late, 0.5) * 1e3, "p99_ms": percentile(late, 0.99) * 1e3}


def say(what: dict[str, Any]) -> None:
    """Tell the parent."""
    print(json.dumps(what), flush=True)


# The process that makes the world.


async def make(session: Session, pods: int) -> dict[str, Any]:
    """Create the pods and give them a status."""
    await session.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    async def create(number: int) -> None:
        made = await session.create(PODS, pod(number), namespace=NAMESPACE)
        await session.patch(PODS, made.key, running(number), subresource="status")

    took = await each(range(pods), create)
    page = await session.request("GET", PODS.path(), query={"limit": "500"})
    return {"seconds": took, "writes_per_s": 2 * pods / took, "bytes_per_pod": len(page) / min(pods, 500)}


async def watch(session: Session, kubeconfig: Path, pods: int, events: int) -> dict[str, Any]:
    """Run a watching process and feed it events: as they are made, then while it is stopped, so all at once."""
    process = await start(kubeconfig, pods, events)
    result: dict[str, Any] = {"list": await hear(process)}

    async def touch(number: int) -> None:
        sent = {"metadata": {"annotations": {"sent": repr(time.monotonic())}}}
        name = pod(number % pods)["metadata"]["name"]
        await session.patch(PODS, Key(NAMESPACE, name), sent)

    await hear(process)
    result["events_as_made"] = {"seconds": await each(range(events), touch)}
    result["events_as_made"] |= await hear(process)
    await hear(process)
    process.send_signal(signal.SIGSTOP)
    await each(range(events, 2 * events), touch)
    process.send_signal(signal.SIGCONT)
    result["events_at_once"] = {"cpu_s": (await hear(process))["cpu_s"]}
    result["after_events"] = await hear(process)
    await process.wait()
    return result


async def start(kubeconfig: Path, pods: int, events: int, how: str = "pages") -> asyncio.subprocess.Process:
    """Start a watching process."""
    arguments = ["--child", str(kubeconfig), "--pods", str(pods), "--events", str(events), "--how", how]
    return await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments, stdout=subprocess.PIPE)


async def hear(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return what the watching process says next."""
    if process.stdout is None:
        raise RuntimeError("the watching process has no output")
    line = await asyncio.wait_for(process.stdout.readline(), 600)
    return {name: round(value, 4) for name, value in json.loads(line).items()}


async def main(pods: int, events: int, repeats: int) -> None:
    """Make the world, measure, print and keep."""
    from integration.apiserver import ApiServer  # noqa: PLC0415 - the watching process must not load it

    with (
        tempfile.TemporaryDirectory(prefix="kurm-bench-", dir=ram.folder()) as folder,
        ApiServer(Path(folder)).run() as server,
    ):
        kubeconfig = server.kubeconfig()
        async with Session(Config.load(kubeconfig), deadline=120) as session:
            version = json.loads(await session.request("GET", "/version"))["gitVersion"]
            made = await make(session, pods)
            runs = [await watch(session, kubeconfig, pods, events) for _ in range(repeats)]
            streams = []
            for _ in range(repeats):
                before = server.cpu()
                process = await start(kubeconfig, pods, events, "stream")
                streams.append(await hear(process) | {"server_cpu_s": round(server.cpu() - before, 2)})
                await process.wait()
    result = {
        "machine": machine() | {"kubernetes": version},
        "pods": pods,
        "events": events,
        "made": made,
        "runs": runs,
        "streamed": streams,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    table = Table("", *(f"run {number + 1}" for number in range(len(result["runs"]))), "limit")
    rows = [
        (f"memory of {result['pods']} pods, MB over bare", "list", "memory_mb", f"{MEMORY_LIMIT_MB:.0f}"),
        ("its peak, MB over bare", "list", "peak_mb", ""),
        ("after the events, MB over bare", "after_events", "memory_mb", f"{MEMORY_LIMIT_MB:.0f}"),
        ("first list, CPU s", "list", "list_cpu_s", ""),
        ("first list, s", "list", "list_s", ""),
        ("full garbage collection, ms", "list", "collection_ms", ""),
        (f"{result['events']} events as made, CPU s", "events_as_made", "cpu_s", f"{CPU_LIMIT:.0f}"),
        ("sent to readable, p50 ms", "events_as_made", "p50_ms", ""),
        ("sent to readable, p99 ms", "events_as_made", "p99_ms", ""),
        (f"{result['events']} events at once, CPU s", "events_at_once", "cpu_s", f"{CPU_LIMIT:.0f}"),
    ]
    for name, part, figure, limit in rows:
        table.add_row(name, *(f"{run[part][figure]:.2f}" for run in result["runs"]), limit)
    for name, figure in (("first list as a stream, CPU s", "list_cpu_s"), ("the same, peak MB", "peak_mb")):
        table.add_row(name, *(f"{run[figure]:.2f}" for run in result["streamed"]), "")
    Console().print(table)
    print(f"pods made: {result['made']}\nmachine: {result['machine']}")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--how", default="pages", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    if given.child:
        asyncio.run(child(given.child, given.pods, given.events, given.how))
    else:
        asyncio.run(main(given.pods, given.events, given.repeats))
