"""Who writes the history: a watch of all pods and nodes, slurmctld asked again and again, and the logs at the end."""

import asyncio
import contextlib
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos import scontrol
from chaos.history import Clock, Event, History, Line, NodeSeen, PodSeen, Request, SlurmSilent, SlurmTold
from integration.images.machine import IN_FORCE, Machine
from kurm.kube.backoff import Backoff
from kurm.kube.cache import Cache, Change
from kurm.kube.resources import NODES, PODS, Condition, Container, Narrow, Node, Object
from kurm.kube.session import Session
from kurm.kube.watch import Pace, Selection
from kurm.slurm.controller import SlurmctldInit, Untold

SCHEDULER = "kurm"
GANG, GANG_SIZE = "slurm.kurm.dev/gang", "slurm.kurm.dev/gang-size"
MEMBERS = "chaos/members"
"""Annotation of an Indexed Job's pods: how many there are to be, which else their Job alone says."""
JOB, SLOT = "kurm.dev/job", "kurm.dev/slot"
EVERY = 0.25
"""Seconds between the ends and the beginnings of two questions to slurmctld."""
PATIENCE = 1.5
"""Seconds for its answer: one that comes later is none."""
ASK = f"timeout {PATIENCE} scontrol --detail --oneliner show job && timeout {PATIENCE} scontrol --oneliner show node"
PACE = Pace(backoff=Backoff(first=0.1, most=0.5), gulp=0.0)
"""Of our watches: the API server is killed often, and we want to see all of it."""
TELLS = re.compile(r"JobId=|slurmctld version|Terminate signal|update_partition|State=|update_node")
"""Lines of slurmctld's log that may explain something."""


class PodSpec(Narrow):
    """Where a pod is, and what it asks."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] = ()


class PodStatus(Narrow):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object):
    """A pod of the load."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def owner(self) -> str:
        """Whose allocation it is part of."""
        if gang := self.metadata.annotations.get(GANG):
            return f"{self.metadata.namespace}/{gang}"
        return next((one.uid for one in self.metadata.owner_references if one.kind == "Job"), self.metadata.uid)

    @property
    def members(self) -> int:
        """How many of its owner there are to be."""
        annotations = self.metadata.annotations
        size = annotations.get(GANG_SIZE, annotations.get(MEMBERS, "1"))
        return int(size) if size.isdecimal() else 1

    def total(self, resource: str) -> int:
        """Return what its containers ask for, in whole units of the load's own manifests (CPUs, Mi)."""
        amounts = (one.resources.requests.get(resource, "0") for one in self.spec.containers)
        return sum(int(amount.removesuffix("Mi")) for amount in amounts)


class Watch:
    """The pods of the load and the nodes of the pool, as the API server has them; the history gets each version."""

    def __init__(self, session: Session, history: History, namespace: str) -> None:
        self.history = history
        self.pods = Cache(session, PODS.of(Pod), Selection(namespace=namespace), pace=PACE)
        self.nodes = Cache(session, NODES, pace=PACE)
        self.pods.on_change(self._pod)
        self.nodes.on_change(self._node)

    def _pod(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        if pod is None:
            return
        waits = next(
            (one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"), None
        )
        seen = PodSeen(
            at=self._now(),
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            version=pod.metadata.resource_version,
            gone=change.new is None,
            ours=pod.spec.scheduler_name == SCHEDULER,
            owner=pod.owner,
            members=pod.members,
            cpus=pod.total("cpu"),
            memory=pod.total("memory"),
            node=pod.spec.node_name,
            phase=pod.status.phase,
            terminating=pod.metadata.deletion_timestamp is not None,
            job=pod.metadata.annotations.get(JOB, ""),
            slot=pod.metadata.annotations.get(SLOT, ""),
            reason=waits.reason if waits else "",
            message=waits.message if waits else "",
        )
        self.history.add(seen)

    def _node(self, change: Change[Node]) -> None:
        if change.new is None:
            self.history.add(NodeSeen(at=self._now(), name=change.key.name, gone=True))
            return
        ready = any(one.type == "Ready" and one.status == "True" for one in change.new.status.conditions)
        cordoned = change.new.spec.unschedulable
        self.history.add(NodeSeen(at=self._now(), name=change.key.name, ready=ready, cordoned=cordoned))

    def _now(self) -> float:
        return self.history.clock.of(time.monotonic())

    async def run(self) -> None:
        """Watch; never ends, cancel it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run())
            group.create_task(self.nodes.run())


class Questions:
    """slurmctld, asked for the truth several times a second. `told` is the last answer."""

    def __init__(self, machine: Machine, history: History, init: int) -> None:
        self.machine, self.history, self.init = machine, history, init
        self.told: SlurmTold | None = None

    async def run(self) -> None:
        """Ask; never ends, cancel it."""
        while True:
            begun = time.monotonic()
            await self.ask()
            await asyncio.sleep(max(EVERY - (time.monotonic() - begun), EVERY / 2))

    async def ask(self) -> None:
        """Ask once, and write down what comes."""
        clock = self.history.clock
        asked = clock.of(time.monotonic())
        gate, (status, text, words) = await asyncio.gather(self._gate(), self._scontrol())
        at = clock.of(time.monotonic())
        if status != 0 or "NodeName=" not in text:
            self.history.add(SlurmSilent(at=at, asked=asked, why=words.strip()[-200:]))
            return
        self.told = SlurmTold(
            at=at, asked=asked, jobs=scontrol.jobs(text, clock.of_wall), nodes=scontrol.nodes(text), gate=gate
        )
        self.history.add(self.told)

    async def _scontrol(self) -> tuple[int, str, str]:
        try:
            command = self.machine._inside("env", f"SLURM_CONF={IN_FORCE}", "/bin/sh", "-c", ASK)
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
            out, said = await process.communicate()
        except OSError as error:
            return 1, "", str(error)
        return process.returncode or 0, out.decode(errors="replace"), said.decode(errors="replace")

    async def _gate(self) -> str:
        with contextlib.suppress(Untold, TimeoutError):
            async with asyncio.timeout(PATIENCE), SlurmctldInit(f"http://127.0.0.1:{self.init}/") as init:
                return (await init.status()).gate
        return ""


def slurmctld_lines(log: Path, clock: Clock) -> list[Event]:
    """Return the lines of slurmctld's log that tell of jobs; its images' clock is UTC."""
    found: list[Event] = []
    for line in log.read_text(errors="replace").splitlines():
        stamp, _, text = line.removeprefix("[").partition("] ")
        if line.startswith("[") and TELLS.search(text):
            with contextlib.suppress(ValueError):
                moment = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
                found.append(Line(at=clock.of_wall(moment), who="slurmctld", text=text))
    return found


def scheduler_lines(log: Path, clock: Clock) -> list[Event]:
    """Return the lines of the scheduler's log, which are JSON objects; and those of its faults, which are not."""
    found: list[Event] = []
    last = 0.0
    for line in log.read_text(errors="replace").splitlines():
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            last = clock.of_wall(datetime.fromisoformat(fields.pop("timestamp")).timestamp())
        except (msgspec.DecodeError, KeyError, ValueError):
            found.append(Line(at=last, who="scheduler", text=line))
            continue
        text = " ".join(f"{key}={value}" for key, value in fields.items() if key not in {"component", "level"})
        found.append(Line(at=last, who="scheduler", text=text))
    return found


def kubernetes_requests(audit: Path, user: str, clock: Clock) -> list[Event]:
    """Return the requests of a user that are in the API server's audit log; watches and lists are left out."""
    found: list[Event] = []
    for line in audit.read_bytes().splitlines():
        try:
            one = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            continue  # the last line of an API server that was killed
        if (
            one["user"].get("username") != user
            or one["verb"] in {"watch", "list", "get"}
            or "/leases" in one["requestURI"]
        ):
            continue
        times = [
            clock.of_wall(datetime.fromisoformat(one[key]).timestamp())
            for key in ("requestReceivedTimestamp", "stageTimestamp")
        ]
        body = msgspec.json.encode(one.get("requestObject")).decode() if "requestObject" in one else ""
        status = int(one.get("responseStatus", {}).get("code", 0))
        found.append(
            Request(
                at=times[1],
                asked=times[0],
                to="kubernetes",
                method=one["verb"],
                path=one["requestURI"],
                body=body,
                status=status,
            )
        )
    return found
