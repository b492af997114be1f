"""How fast a pool comes to be: an operator and a syncer, from nothing to a record and a slurmd pod for each node.

    PYTHONPATH=tests python bench/pool.py [--nodes 1000]

Real API server, slurmctld and slurmrestd; the Kubernetes nodes are objects without kubelets. Must hold: 1,000 nodes
within 90 s, with at most 4 writes for each over both APIs. The result is printed, and kept in bench/results/pool.json.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import each, machine
from rich.console import Console
from rich.table import Table

from integration import ram
from integration.apiserver import ApiServer, binaries, free_ports
from integration.slurm.lab import Lab
from kurm.kube.config import Config
from kurm.kube.resources import NAMESPACES, NODES, PODS, Object
from kurm.kube.session import Session
from kurm.operator.objects import NODE_SETS, SLURM_CLUSTERS
from kurm.slurm.nodes import list_nodes
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens

HERE = Path(__file__).parent
RESULT = HERE / "results" / "pool.json"
CRDS = HERE.parent / "charts/kurm/files/crds"
NAMESPACE = "bench"
IMAGES = ("controller", "slurmd", "login", "slurmrestd", "dbd", "mariadb", "kurm")
LIMIT_SECONDS, LIMIT_WRITES = 90.0, 4.0
DEADLINE = 300.0
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
WRITING = ("APPLY", "DELETE", "PATCH", "POST", "PUT")


def node(number: int) -> dict[str, Any]:
    """Return a Kubernetes node."""
    return {"metadata": {"name": f"node-{number:04d}", "labels": {"kubernetes.io/os": "linux"}}}


def status(number: int) -> dict[str, Any]:
    """Return what a kubelet says of it."""
    size = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    address = {"type": "InternalIP", "address": f"10.{number >> 8}.{number & 255}.1"}
    return {"status": {"capacity": size, "allocatable": size, "addresses": [address], "conditions": [READY]}}


async def make(session: Session, nodes: int) -> None:
    """Make the namespace and the nodes."""
    await session.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    async def create(number: int) -> None:
        made = await session.create(NODES.of(Object), node(number))
        await session.patch(NODES.of(Object), made.key, status(number), subresource="status")
        # The API server begins each node with the taint "not ready"; nobody is there to take it away.
        await session.patch(NODES.of(Object), made.key, {"spec": {"taints": None}})

    await each(range(nodes), create)


@contextmanager
def daemon(*words: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run one of Kurm's daemons; the kernel ends it with us."""
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "kurm.cli", *words]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def define(kubeconfig: Path) -> None:
    """Teach the API server our resources."""
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(kubeconfig)]
    for words in (("apply", "--server-side", "-f", str(CRDS)), ("wait", "--for=condition=Established", "crd", "--all")):
        subprocess.run([*kubectl, *words], check=True, timeout=60)


def writes(server: ApiServer) -> dict[str, int]:
    """Return how many writes the API server has answered so far, by resource; leases and events apart."""
    text = subprocess.run(
        [str(binaries() / "kubectl"), "--kubeconfig", str(server.kubeconfig()), "get", "--raw=/metrics"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    found: dict[str, int] = {}
    for labels, value in re.findall(r"^apiserver_request_total\{(.*?)\} (\S+)$", text, re.MULTILINE):
        said = dict(re.findall(r'(\w+)="(.*?)"', labels))
        if said["verb"] in WRITING and said["code"].startswith("2"):
            what = f"{said['resource']}/{said['subresource']}".rstrip("/")
            found[what] = found.get(what, 0) + int(float(value))
    return found


def slurm_writes(port: int) -> dict[str, int]:
    """Return the syncer's writes to slurmrestd so far, by route."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    calls = re.findall(r'^kurm_syncer_slurm_calls_total\{route="(\w+) (.*?)"\} (\S+)$', text, re.MULTILINE)
    return {f"{method} {route}": int(float(count)) for method, route, count in calls if method != "GET"}


async def come_to_be(kube: Session, slurm: SlurmSession, nodes: int) -> dict[str, float]:
    """Wait until there are a pod and a marked record for each node; return the seconds to each."""
    begun, done = time.monotonic(), dict[str, float]()
    while len(done) < 2:
        if time.monotonic() > begun + DEADLINE:
            raise TimeoutError(f"after {DEADLINE:.0f} s only {sorted(done)} are there")
        await asyncio.sleep(0.5)
        if "pods_s" not in done and len(await kube.list(PODS, namespace=NAMESPACE)) >= nodes:
            done["pods_s"] = time.monotonic() - begun
        if "records_s" not in done:
            answer = await list_nodes(slurm)
            marked = [one for one in (answer.nodes if answer else None) or () if one.extra.startswith("kurm:")]
            if len(marked) >= nodes:
                done["records_s"] = time.monotonic() - begun
    return {name: round(value, 1) for name, value in done.items()}


async def main(nodes: int) -> None:
    """Make the world, start both daemons, measure, print and keep."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kurm-bench-", dir=ram.folder())))
        (folder / "api").mkdir()
        server = stack.enter_context(ApiServer(folder / "api").run())
        lab = stack.enter_context(Lab(folder / "slurm").run())
        kubeconfig = server.kubeconfig()
        define(kubeconfig)
        (folder / "jwt").write_bytes(lab.key)
        (folder / "images.json").write_text(json.dumps({name: f"bench/{name}" for name in IMAGES}))
        operator_port, syncer_port = free_ports(2)
        async with (
            Session(Config.load(kubeconfig), deadline=120) as kube,
            SlurmSession(f"unix:{lab.socket}", Tokens(lambda: lab.key, "slurm")) as slurm,
        ):
            await make(kube, nodes)
            metadata = {"name": "demo", "namespace": NAMESPACE}
            await kube.create(SLURM_CLUSTERS.of(Object), {"metadata": metadata, "spec": {}})
            before = writes(server)
            common = ("--kubeconfig", str(kubeconfig))
            ours = (
                *("--cluster", "demo", "--namespace", NAMESPACE, "--slurmrestd", f"unix:{lab.socket}"),
                *("--jwt-key", str(folder / "jwt"), "--controller", "http://127.0.0.1:9/"),
            )
            with (
                daemon(
                    *("operator", "--images", str(folder / "images.json"), "--namespace", "default"),
                    *("--port", str(operator_port), *common),
                    log=folder / "operator.log",
                ) as operator,
                daemon("syncer", *ours, "--port", str(syncer_port), *common, log=folder / "syncer.log"),
            ):
                spec = {"clusterRef": {"name": "demo"}}
                metadata = {"name": "workers", "namespace": NAMESPACE}
                await kube.create(NODE_SETS.of(Object), {"metadata": metadata, "spec": spec})
                try:
                    took = await come_to_be(kube, slurm, nodes)
                except TimeoutError:
                    for name in ("operator", "syncer"):
                        print(name, (folder / f"{name}.log").read_text()[-3000:])
                    raise
                await asyncio.sleep(5)  # what is written afterwards counts, too
                after = writes(server)
                to_slurm = slurm_writes(syncer_port)
                # No slurmd will come, and after a minute the syncer says so on every pod. Then it is quiet.
                await asyncio.sleep(90)
                quiet = await quiet_minute(operator.pid)
    told = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    about_nodes = {name: count for name, count in told.items() if name.split("/")[0] in {"nodes", "pods"}}
    # One call to Slurm may write many records, and is counted as one for each: what a record costs.
    per_node = (sum(about_nodes.values()) + sum(to_slurm.values())) / nodes
    result = {
        "machine": machine(),
        "nodes": nodes,
        "took": took,
        "writes_to_kubernetes": told,
        "calls_that_write_to_slurm": to_slurm,
        "calls_per_node": round(per_node, 3),
        "operator_in_a_quiet_minute": quiet,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


async def quiet_minute(pid: int) -> dict[str, float]:
    """Return what a process uses while nothing happens: CPU as a share of one core, and resident memory."""

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    await asyncio.sleep(60)
    text = Path(f"/proc/{pid}/status").read_text()  # noqa: ASYNC240 - memory, not a disk
    memory = int(text.split("VmRSS:")[1].split()[0]) * 1024 / 1e6
    return {"cpu_percent": round((used() - before) / 60 * 100, 2), "memory_mb": round(memory, 1)}


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    table = Table("", "measured", "limit")
    table.add_row(f"{result['nodes']} pods, s", str(result["took"]["pods_s"]), f"{LIMIT_SECONDS:.0f}")
    table.add_row(f"{result['nodes']} records with their marks, s", str(result["took"]["records_s"]), "90")
    table.add_row("calls that write, per node", str(result["calls_per_node"]), f"{LIMIT_WRITES:.0f}")
    quiet = result["operator_in_a_quiet_minute"]
    table.add_row("operator in a quiet minute, % of a core", str(quiet["cpu_percent"]), "1")
    table.add_row("the operator's memory, MB", str(quiet["memory_mb"]), "100")
    Console().print(table)
    print(f"to Kubernetes: {result['writes_to_kubernetes']}\nto Slurm: {result['calls_that_write_to_slurm']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    asyncio.run(main(parser.parse_args().nodes))
