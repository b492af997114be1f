"""How often what start gates must know is written, on virtual time."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kurm.kube.resources import Key
from kurm.scheduler.ahead import Ahead
from kurm.scheduler.objects import Pod

pytestmark = pytest.mark.looptime(noop_cycles=8)


def pod(uid: str) -> Pod:
    """Return one that is bound to n1."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    manifest = {"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": "n1", "containers": [container]}}
    return msgspec.convert(manifest, Pod)


class Kube:
    """Takes patches; `writes` are the times, and how many records came with each."""

    def __init__(self) -> None:
        self.writes: list[tuple[float, int]] = []

    async def patch(self, _resource: object, _key: Key, body: Mapping[str, Any]) -> None:
        """Take one in 20 ms."""
        self.writes.append((round(asyncio.get_running_loop().time(), 2), len(body["metadata"]["annotations"])))
        await asyncio.sleep(0.02)


async def test_a_node_that_fills_is_written_every_tenth_of_a_second() -> None:
    """The first pod at once, and none is left out: a record has 0.3 s until its pod's first container runs."""
    bound: list[Pod] = []
    kube, slurmd = Kube(), pod("slurmd")
    caches = SimpleNamespace(on_change=lambda _: None, values=lambda _: ())
    pool = SimpleNamespace(pods=caches, foreign=caches, own_node_sets={}, slurmd=lambda _: [slurmd])
    binding = SimpleNamespace(on=lambda _: bound, where=lambda _: SimpleNamespace(job=7))
    others = {"owners": None, "ledger": None, "pool": pool, "binding": binding}
    ahead = Ahead(cast("Any", kube), **cast("Any", others), leads=lambda: True)
    work = asyncio.create_task(ahead.run())
    for number in range(25):
        bound.append(pod(f"pod-{number}"))
        ahead.look_at("n1")
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    work.cancel()
    assert [at for at, _ in kube.writes] == [0.0, 0.1, 0.2, 0.3]
    assert (kube.writes[0][1], sum(records for _, records in kube.writes)) == (1, 25)
