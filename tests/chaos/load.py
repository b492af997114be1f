"""What people do meanwhile, by the dice of a seed: pods and gangs come and go, batch jobs run, nodes are cordoned."""

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from chaos.history import Deed
from chaos.kubelet import Kubelet
from chaos.recorder import GANG, GANG_SIZE, MEMBERS, SCHEDULER, Pod
from chaos.world import CPUS, NODES_, PODS, POOL, World
from integration.slurm.lab import LabError
from kurm.domain.gangs import COMPLETION_INDEX
from kurm.kube import resources
from kurm.kube.errors import KubeError, NotFound
from kurm.kube.resources import Key, Object, OwnerReference
from kurm.scheduler.objects import JOBS
from kurm.slurm.errors import SlurmError
from kurm.slurm.session import Session as SlurmSession
from kurm.slurm.token import Tokens
from kurm.slurm.wire import Answer, number

FULL, CALM = 1.15, 0.8
"""Share of all CPUs that pods may ask for together: while there is chaos, and when all is to come to rest."""
OF_GANG = (GANG, GANG_SIZE, MEMBERS, COMPLETION_INDEX)
FITS, INFEASIBLE, REFUSED = "fits", "infeasible", "refused"
BAD: tuple[Mapping[str, str], ...] = (
    {"slurm.kurm.dev/partition": "nowhere"},
    {"slurm.kurm.dev/time-limit": "soon"},
    {"slurm.kurm.dev/gang-size": "many", "slurm.kurm.dev/gang": "odd"},
)
BATCH: dict[str, object] = {
    "partition": "batch",
    "flags": ["EXTERNAL_JOB"],
    "current_working_directory": "/",
    "environment": ["A=b"],
}


class Load:
    """One run's people; `mean`: seconds between two deeds, on average."""

    def __init__(self, world: World, kubelet: Kubelet, dice: random.Random, *, mean: float) -> None:
        self.mean = mean
        self.world, self.kubelet, self.dice = world, kubelet, dice
        self.batch: set[str] = set()
        """Names of the batch jobs that are to live."""
        self.cordoned: set[str] = set()
        self._gone: set[str] = set()
        """UIDs of pods whose deletion was sent."""
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._deeds: list[tuple[int, Callable[[], None]]] = [
            (44, self.single),
            (6, self.gang),
            (16, self.delete),
            (5, self.force),
            (8, self.end),
            (3, self.delete_gang),
            (3, self.replace_member),
            (9, self.submit_batch),
            (7, self.end_batch),
            (5, self.scancel),
            (2, self.cordon),
            (2, self.uncordon),
            (1, self.infeasible),
            (1, self.refused),
        ]

    # The rhythm.

    async def run(self) -> None:
        """Do one deed after the other; never ends, cancel it."""
        weights, deeds = zip(*self._deeds, strict=True)
        while True:
            await asyncio.sleep(self.dice.expovariate(1 / self.mean))
            self.dice.choices(deeds, weights)[0]()

    async def calm(self) -> None:
        """Have all that was begun come to an end, and leave room, so that all can come to rest."""
        for node in sorted(self.cordoned):
            self._cordon(node, cordoned=False)
        pods = [pod for pod in self._pods() if pod.members == 1]
        while pods and self._asked() > CALM * NODES_ * CPUS:
            pod = pods.pop(self.dice.randrange(len(pods)))
            self._delete(pod, "delete")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=15)

    async def sweep(self) -> None:
        """End batch jobs that should have ended, and have all nodes used, again and again; never ends.

        Slurmctld may have forgotten either: it comes back with a node down that was back.
        """
        while True:
            await asyncio.sleep(1.0)
            told = self.world.questions.told
            for job in told.jobs if told else ():
                if job.name.startswith("batch-") and job.name not in self.batch:
                    with contextlib.suppress(LabError, OSError):
                        await asyncio.to_thread(self._scancel, job.name)
            for name, node in told.nodes.items() if told else ():
                if not node.taking and name not in self.world.lost:
                    await self.world.resume(name)

    # Pods.

    def single(self) -> None:
        """Create a pod, if there are not too many."""
        if self._asked() < FULL * NODES_ * CPUS:
            self._begin(self._create(f"pod-{next(self._numbers)}", self.dice.choice((1, 1, 2, 3)), FITS))

    def gang(self) -> None:
        """Create a gang, its pods one after the other; now and then one never comes. Half of them are Indexed Jobs."""
        size, cpus = self.dice.randint(2, 6), self.dice.choice((1, 2))
        if self._asked() + size * cpus > FULL * NODES_ * CPUS:
            return
        name = f"gang-{next(self._numbers)}"
        come = size if self.dice.random() < 0.85 else size - 1
        indexed = self.dice.random() < 0.5

        async def create() -> None:
            owners = [await self._create_job(name, size)] if indexed else []
            for rank in range(come):
                ranked = {MEMBERS: str(size), COMPLETION_INDEX: str(rank)}
                annotations = ranked if indexed else {GANG: name, GANG_SIZE: str(size)}
                await self._create(f"{name}-{rank}", cpus, FITS, annotations, owners)

        self._begin(create())

    def infeasible(self) -> None:
        """Create a pod that no node could hold."""
        self._begin(self._create(f"huge-{next(self._numbers)}", CPUS * 4, INFEASIBLE))

    def refused(self) -> None:
        """Create a pod with a bad annotation."""
        annotations = dict(self.dice.choice(BAD))
        self._begin(self._create(f"bad-{next(self._numbers)}", 1, REFUSED, annotations))

    def delete(self) -> None:
        """Delete any pod in order."""
        if pod := self._any():
            self._delete(pod, "delete")

    def force(self) -> None:
        """Delete any pod by force."""
        if pod := self._any():
            self._delete(pod, "force")

    def end(self) -> None:
        """Have the containers of a running pod end by themselves; a little later somebody cleans it away."""
        if (pod := self._any(lambda pod: pod.status.phase == "Running" and pod.members == 1)) is None:
            return
        self.kubelet.ends.add(pod.metadata.uid)
        ended = pod

        async def clean() -> None:
            await asyncio.sleep(self.dice.uniform(1.0, 6.0))
            self._delete(ended, "delete")

        self._begin(clean())

    def delete_gang(self) -> None:
        """Delete all pods of a gang."""
        if pod := self._any(lambda pod: pod.members > 1):
            for member in [one for one in self._pods() if one.owner == pod.owner]:
                self._delete(member, "delete")

    def replace_member(self) -> None:
        """Delete one pod of a gang; its controller makes it again under its name when it is gone."""
        if (pod := self._any(lambda pod: pod.members > 1)) is None:
            return
        self._delete(pod, "delete")
        member = pod

        async def again() -> None:
            async with asyncio.timeout(15):
                while self.world.watch.pods.get(member.key) is not None:  # noqa: ASYNC110 - the watch tells nobody
                    await asyncio.sleep(0.1)
            if any(one.owner == member.owner for one in self._pods()):
                annotations = dict(member.metadata.annotations)
                kept = {name: annotations[name] for name in OF_GANG if name in annotations}
                await self._create(
                    member.metadata.name, member.total("cpu"), FITS, kept, member.metadata.owner_references
                )

        self._begin(again())

    async def _create_job(self, name: str, size: int) -> OwnerReference:
        """Create an Indexed Job, whose controller we are; return what its pods say of it."""
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
        spec = {"completions": size, "parallelism": size, "completionMode": "Indexed", "template": template}
        body = {"metadata": {"name": name, "namespace": PODS}, "spec": spec}
        job = await self.world.kube.create(JOBS.of(Object), body, deadline=5.0)
        return OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=job.metadata.uid, controller=True)

    async def _create(
        self,
        name: str,
        cpus: int,
        expected: str,
        annotations: Mapping[str, str] | None = None,
        owners: Sequence[OwnerReference] = (),
    ) -> None:
        requests = {"cpu": str(cpus), "memory": f"{self.dice.choice((200, 1000, 2500)) if cpus < CPUS else 100}Mi"}
        if annotations and not annotations.keys().isdisjoint(OF_GANG):
            requests["memory"] = f"{cpus * 500}Mi"  # the pods of a gang ask the same
        spec: dict[str, Any] = {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 3,
            "tolerations": [{"key": POOL, "operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        }
        metadata: dict[str, Any] = {"name": name, "namespace": PODS, "annotations": dict(annotations or {})}
        metadata["ownerReferences"] = msgspec.to_builtins(owners)
        pod = await self.world.kube.create(resources.PODS, {"metadata": metadata, "spec": spec}, deadline=5.0)
        self._note("create", pod.metadata.uid, expected)

    def _delete(self, pod: Pod, kind: str) -> None:
        """Delete a pod, again and again until that is heard: what was noted as wanted shall happen."""
        uid = pod.metadata.uid
        self._gone.add(uid)
        self._note(kind, uid)

        async def delete() -> None:
            grace = 0 if kind == "force" else None
            while True:
                try:
                    await self.world.kube.delete(resources.PODS, pod.key, uid=uid, grace=grace, deadline=3.0)
                except NotFound:
                    return
                except KubeError as error:
                    if type(error).__name__ == "Conflict":
                        return  # another pod has its name
                    await asyncio.sleep(0.3)
                    continue
                return

        self._begin(delete())

    # Slurm's own.

    def submit_batch(self) -> None:
        """Queue a batch job, which takes what pods leave, and makes room for them."""
        name, cpus = f"batch-{next(self._numbers)}", self.dice.randint(1, CPUS)
        self.batch.add(name)
        job = BATCH | {"name": name, "tasks": 1, "cpus_per_task": cpus, "memory_per_node": number(100 * cpus)}
        self._note("batch", name)

        async def submit() -> None:
            tokens = Tokens(lambda: self.world.machine.key, "slurm")
            async with SlurmSession(f"unix:{self.world.machine.socket}", tokens, deadline=3.0) as slurm:
                await slurm.request(Answer, "POST", "job/submit", body={"job": job})

        self._begin(submit())

    def end_batch(self) -> None:
        """End a batch job."""
        if self.batch:
            name = self.dice.choice(sorted(self.batch))
            self.batch.discard(name)
            self._note("unbatch", name)

    def scancel(self) -> None:
        """End the job of a bound pod, as a user of Slurm does."""
        told = self.world.questions.told
        owned = [job for job in told.jobs if job.owner and job.holding] if told else []
        if not owned:
            return
        job = self.dice.choice(owned)
        self._note("scancel", job.owner, job.name)

        async def cancel() -> None:
            await asyncio.to_thread(self._scancel, job.name)
            self._note("scancel", job.owner, job.name, done=True)

        self._begin(cancel())

    def _scancel(self, name: str) -> None:
        self.world.machine.slurm("timeout", "3", "scancel", "--name", name)

    # Nodes.

    def cordon(self) -> None:
        """Cordon a node, two at most."""
        if len(self.cordoned) < 2:
            self._cordon(self.dice.choice(self.world.names), cordoned=True)

    def uncordon(self) -> None:
        """Uncordon a node."""
        if self.cordoned:
            self._cordon(self.dice.choice(sorted(self.cordoned)), cordoned=False)

    def _cordon(self, name: str, *, cordoned: bool) -> None:
        (self.cordoned.add if cordoned else self.cordoned.discard)(name)
        self._note("cordon" if cordoned else "uncordon", name)

        async def patch() -> None:
            body = {"spec": {"unschedulable": name in self.cordoned or None}}
            while True:
                with contextlib.suppress(KubeError):
                    await self.world.kube.patch(resources.NODES.of(Object), Key("", name), body, deadline=3.0)
                    return
                await asyncio.sleep(0.3)

        self._begin(patch())

    # What all use.

    def _pods(self) -> list[Pod]:
        """Return the pods that are not to go, in an order that does not depend on the machine's speed alone."""
        pods = [pod for pod in self.world.watch.pods if pod.metadata.uid not in self._gone]
        living = [pod for pod in pods if not pod.metadata.deletion_timestamp and pod.status.phase != "Succeeded"]
        return sorted(living, key=lambda pod: pod.metadata.name)

    def _any(self, fits: Callable[[Pod], bool] = lambda _: True) -> Pod | None:
        pods = [pod for pod in self._pods() if fits(pod)]
        return self.dice.choice(pods) if pods else None

    def _asked(self) -> int:
        """Return the CPUs that pods ask for together."""
        return sum(pod.total("cpu") for pod in self._pods() if pod.total("cpu") <= CPUS)

    def _note(self, kind: str, subject: str, detail: str = "", *, done: bool = False) -> None:
        at = self.world.history.clock.of(time.monotonic())
        self.world.history.add(Deed(at=at, kind=kind, subject=subject, detail=detail, done=done))

    def _begin(self, deed: Awaitable[None]) -> None:
        async def do() -> None:
            # Whoever is away at the moment: people try again later, or do something else.
            with contextlib.suppress(KubeError, SlurmError, LabError, OSError, TimeoutError):
                await deed

        task = asyncio.create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
