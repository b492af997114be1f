"""How often what start gates must know is written, on virtual time."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kurm.kube.cache import Change
from kurm.kube.resources import Key
from kurm.scheduler import ahead as ahead_module
from kurm.scheduler.ahead import ARRIVES, Ahead
from kurm.scheduler.objects import Pod

pytestmark = pytest.mark.looptime(noop_cycles=8)


def pod(uid: str, annotations: Mapping[str, str] | None = None) -> Pod:
    """Return one that is bound to n1."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"name": uid, "uid": uid, "annotations": dict(annotations or {})}
    spec = {"nodeName": "n1", "schedulerName": "kurm", "containers": [container]}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


class Kube:
    """Takes patches; `writes` are the times, and how many records came with each, `said` is what they came to."""

    def __init__(self) -> None:
        self.writes: list[tuple[float, int]] = []
        self.said: dict[str, str | None] = {}

    async def patch(self, _resource: object, _key: Key, body: Mapping[str, Any]) -> None:
        """Take one in 20 ms."""
        self.writes.append((round(asyncio.get_running_loop().time(), 2), len(body["metadata"]["annotations"])))
        self.said |= body["metadata"]["annotations"]
        await asyncio.sleep(0.02)


class House:
    """A node n1 with a slurmd, and what a scheduler knows of the pods on it: `bound`, each by job `job`."""

    def __init__(self, *records: str) -> None:
        """`records`: UIDs of pods that are recorded already, by job 5."""
        self.kube, self.bound, self.job = Kube(), list[Pod](), 7
        self.slurmds = [pod("slurmd", {f"gate.kurm.dev/{uid}": "5,1,1024" for uid in records})]
        self.heard: list[Callable[[Change[Pod]], None]] = []
        caches = SimpleNamespace(on_change=self.heard.append, values=lambda _: ["n1"], by=lambda *_: ())
        pool = SimpleNamespace(
            pods=caches,
            foreign=caches,
            own_node_sets={},
            slurmd=lambda _: self.slurmds,
            owns=lambda _: True,
            is_slurmd=lambda one: one.metadata.uid == "slurmd",
            scheduler="kurm",
        )
        binding = SimpleNamespace(on=lambda _: self.bound, where=lambda _: SimpleNamespace(job=self.job))
        others = SimpleNamespace(of=lambda _: "", jobs=lambda _: ())
        known = {"owners": others, "ledger": others, "pool": pool, "binding": binding}
        self.ahead = Ahead(cast("Any", self.kube), **cast("Any", known), leads=lambda: True)

    def vanish(self, uid: str) -> None:
        """Have a pod gone without its kubelet's word."""
        gone = pod(uid)
        self.bound = [one for one in self.bound if one.metadata.uid != uid]
        self.heard[0](Change(gone.key, gone, None))

    async def written(self) -> dict[str, str]:
        """Return what is recorded when all is written."""
        work = asyncio.create_task(self.ahead.run())
        await asyncio.sleep(1)
        work.cancel()
        said = dict(self.slurmds[0].metadata.annotations) if self.slurmds else {}
        return {key.removeprefix("gate.kurm.dev/"): value for key, value in (said | self.kube.said).items() if value}


async def test_a_node_that_fills_is_written_every_tenth_of_a_second() -> None:
    """The first pod at once, and none is left out: a record has 0.3 s until its pod's first container runs."""
    house = House()
    work = asyncio.create_task(house.ahead.run())
    for number in range(25):
        house.bound.append(pod(f"pod-{number}"))
        house.ahead.look_at("n1")
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    work.cancel()
    assert [at for at, _ in house.kube.writes] == [0.0, 0.1, 0.2, 0.3]
    assert (house.kube.writes[0][1], sum(records for _, records in house.kube.writes)) == (1, 25)


async def test_what_is_known_of_a_pods_job_is_not_unlearnt() -> None:
    """Of a foreign pod only Slurm knows it, and may not have been asked yet. One that has none is not recorded."""
    house = House("guest")
    house.job = 0
    house.bound = [pod("guest"), pod("stranger")]
    assert await house.written() == {"guest": "5,1,1024"}
    house.vanish("guest")
    house.vanish("stranger")
    assert await house.written() == {"guest": "5,1,1024"}


async def test_a_record_that_nobody_has_acknowledged_is_waited_for() -> None:
    """Its job is not to end before the node knows of it; with one that was written long ago nobody waits."""
    house = House("old")
    assert house.ahead.arriving(pod("old")) == 0.0
    assert house.ahead.arriving(pod("new")) == ARRIVES
    house.slurmds = []
    assert house.ahead.arriving(pod("new")) == 0.0


async def test_a_pod_that_vanishes_while_slurmd_is_replaced_is_recorded_for_the_next() -> None:
    """No job starts on the node meanwhile; its container may outlive that."""
    house = House()
    slurmds, house.slurmds = house.slurmds, []
    house.bound = [pod("web")]
    house.vanish("web")
    house.slurmds = slurmds
    assert await house.written() == {"web": "7,1,1024"}


async def test_as_many_vanished_pods_are_recorded_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest: a slurmd pod whose annotations are full could not be told of any pod any more."""
    monkeypatch.setattr(ahead_module, "GHOSTS", 3)
    house = House(*(f"before-{number}" for number in range(5)))
    for number in range(2):
        house.vanish(f"web-{number}")
    found = await house.written()
    assert len(found) == 3
    assert {"web-0", "web-1"} < found.keys()
