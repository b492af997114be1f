"""Claims that wait for their first consumer: the test is the volume controller, which no API server has in it."""

import asyncio
from collections.abc import Callable, Iterable

import pytest
from structlog.testing import capture_logs

from integration.scheduler.stage import Stage, names, until
from kurm.domain import making
from kurm.kube.resources import EVENTS, Key, Object
from kurm.scheduler import placer
from kurm.scheduler.objects import Pod
from kurm.scheduler.volumes import CLAIMS, CLASSES, NO_PROVISIONER, SELECTED_NODE, VOLUMES, Needs, Volumes

pytestmark = pytest.mark.timeout(180)

SIZE = {"storage": "1Gi"}
ONCE = ["ReadWriteOnce"]


async def claim(stage: Stage, *names: str, provisioner: str = "example.org/none") -> None:
    """Make claims of a class of which a volume is made where its pod will be."""
    metadata = {"name": stage.place}
    manifest = {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    await stage.kube.create(CLASSES.of(Object), manifest)
    spec = {"storageClassName": stage.place, "accessModes": ONCE, "resources": {"requests": SIZE}}
    for name in names:
        await stage.kube.create(CLAIMS, {"metadata": {"name": name, "namespace": stage.place}, "spec": spec})


async def selected(stage: Stage, name: str) -> str:
    """Return the node at which a claim's volume is to be made."""
    return (await stage.kube.get(CLAIMS, Key(stage.place, name))).metadata.annotations.get(SELECTED_NODE, "")


async def chosen(stage: Stage, name: str) -> str:
    """Wait until the node for a claim is chosen, and return it."""
    while not (node := await selected(stage, name)):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)
    return node


async def provision(stage: Stage, name: str, where: Callable[[str], str]) -> None:
    """Wait until the node for a claim is chosen, and make its volume `where` that says; nowhere for an empty word."""
    chosen: set[str] = set()
    while True:
        node = await selected(stage, name)
        if node and node not in chosen:
            chosen.add(node)
            if place := where(node):
                return await provide(stage, name, place)
        await asyncio.sleep(0.1)


async def provide(stage: Stage, name: str, node: str) -> None:
    """Make a volume that can be reached from one node only, and bind the claim to it."""
    only = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    spec = {
        "storageClassName": stage.place,
        "accessModes": ONCE,
        "capacity": SIZE,
        "hostPath": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": only}},
    }
    volume, key = f"{stage.place}-{name}", Key(stage.place, name)
    await stage.kube.create(VOLUMES, {"metadata": {"name": volume}, "spec": spec})
    await stage.kube.patch(CLAIMS, key, {"spec": {"volumeName": volume}})
    await stage.kube.patch(CLAIMS, key, {"status": {"phase": "Bound"}}, subresource="status")


async def test_a_volume_is_made_where_slurm_has_granted_room(stage: Stage) -> None:
    """The only node with room for the pod: its claim is told of it before the pod is bound."""
    async with stage.scheduler():
        for number in range(2):
            await stage.pod(f"filler-{number}", cpu="4")
        await until(lambda: stage.bound("filler-0", "filler-1"), 2)
        taken = {await stage.node_of(f"filler-{number}") for number in range(2)}
        (free,) = set(stage.nodes) - taken
        await claim(stage, "data")
        await stage.pod("web", cpu="4", claim="data")
        await provision(stage, "data", lambda node: node)
        await until(lambda: stage.node_of("web"), free)
        assert await selected(stage, "data") == free


async def test_a_pod_goes_where_its_volume_has_come_to_be(stage: Stage) -> None:
    """A provisioner may make it on another node than it was told: that of the first grant is given up."""
    async with stage.scheduler():
        await claim(stage, "data")
        await stage.pod("web", claim="data")
        elsewhere: list[str] = []

        def another(node: str) -> str:
            elsewhere.append(next(one for one in stage.nodes if one != node))
            return elsewhere[0]

        await provision(stage, "data", another)
        await until(lambda: stage.node_of("web"), elsewhere[0])
        await until(stage.jobs, {"web": ("RUNNING", "services", elsewhere[0])})


async def test_a_node_on_which_no_volume_comes_to_be_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """In time, with an event that says so; the pod has another one then."""
    monkeypatch.setattr(making, "VOLUMES_WITHIN", 3.0)
    async with stage.scheduler():
        await claim(stage, "data")
        await stage.pod("web", claim="data")
        seen: list[str] = []

        def second(node: str) -> str:
            seen.append(node)
            return node if len(seen) > 1 else ""

        await provision(stage, "data", second)
        await until(lambda: stage.node_of("web"), seen[1])
        await until(stage.jobs, {"web": ("RUNNING", "services", seen[1])})
        events = await stage.kube.request("GET", EVENTS.path(namespace=stage.place))
        assert events is not None
        assert f"claim data has got no volume that node {seen[0]} can reach".encode() in events


async def test_a_node_that_the_provisioner_refuses_is_given_up_at_once(stage: Stage) -> None:
    """It says so by taking the chosen node off the claim."""
    async with stage.scheduler():
        await claim(stage, "data")
        await stage.pod("web", claim="data")
        first = await asyncio.wait_for(chosen(stage, "data"), 30)
        nothing = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        await stage.kube.patch(CLAIMS, Key(stage.place, "data"), nothing)
        await provision(stage, "data", lambda node: node)
        await until(lambda: stage.bound("web"), 1, within=25)
        assert await stage.node_of("web") != first


async def test_pods_whose_volumes_are_being_made_hold_up_no_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say what they wait for. There are more of them than owners can be in work at once, and nobody makes any."""
    monkeypatch.setattr(placer, "WORKERS", 2)
    claims = names("data", range(4))
    async with stage.scheduler():
        await claim(stage, *claims)
        for name in claims:
            await stage.pod(f"with-{name}", claim=name)
        await until(lambda: stage.reason(f"with-{claims[-1]}"), "VolumeBinding")
        await stage.pod("web")
        await until(lambda: stage.bound("web"), 1, within=20)  # volumes are waited for twice as long
        assert await stage.bound(*(f"with-{name}" for name in claims)) == 0


async def test_a_pod_that_comes_while_the_claims_of_its_gang_are_read_is_not_bound_without_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only its own claim says holds for it: the one node that reaches the volume."""
    await claim(stage, "data")
    await provide(stage, "data", stage.nodes[2])
    words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "2"}
    needs, reading = Volumes._needs, asyncio.Event()

    async def slowly(self: Volumes, pod: Pod, names: Iterable[str]) -> Needs:
        reading.set()
        await asyncio.sleep(1)
        return await needs(self, pod, names)

    monkeypatch.setattr(Volumes, "_needs", slowly)
    with capture_logs() as said:
        async with stage.scheduler():
            await stage.pod("ring-0", claim="data", annotations=words)
            await asyncio.wait_for(reading.wait(), 30)
            await stage.pod("ring-1", claim="data", annotations=words)
            await until(lambda: stage.bound("ring-0", "ring-1"), 2)
            assert {stage.nodes[2]} == {await stage.node_of("ring-0"), await stage.node_of("ring-1")}
    assert [line for line in said if line["log_level"] == "error"] == []


async def test_a_claim_that_is_not_there_is_waited_for(stage: Stage) -> None:
    """And the pod says so."""
    async with stage.scheduler():
        await stage.pod("web", claim="data")
        await until(lambda: stage.reason("web"), "Infeasible")
        await claim(stage, "data")
        await provision(stage, "data", lambda node: node)
        await until(lambda: stage.bound("web"), 1)


async def test_of_volumes_made_beforehand_none_is_chosen(stage: Stage) -> None:
    """The pod is told what to do; when its claim has a volume it is placed where that is."""
    async with stage.scheduler():
        await claim(stage, "data", provisioner=NO_PROVISIONER)
        await stage.pod("web", claim="data")
        await until(lambda: stage.reason("web"), "Infeasible")
        told = (await stage.get("web")).condition("PodScheduled")
        assert told is not None
        assert told.message == (
            f"claim data waits for its pod, and its class {stage.place} has no provisioner: "
            "set the claim's spec.volumeName, or claim from a class with volumeBindingMode Immediate"
        )
        assert await selected(stage, "data") == ""
        await provide(stage, "data", stage.nodes[2])
        await until(lambda: stage.node_of("web"), stage.nodes[2])


async def test_each_pod_of_a_gang_goes_where_its_own_volume_is(stage: Stage) -> None:
    """Made where it was first bound, on one node for each; whoever comes in their place needs just these."""
    claims = names("data", range(2))
    words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "2"}
    async with stage.scheduler():
        await claim(stage, *claims)
        for number, name in enumerate(claims):
            await stage.pod(f"ring-{number}", cpu="3", annotations=words, claim=name)
        async with asyncio.TaskGroup() as providing:
            for name in claims:
                providing.create_task(provision(stage, name, lambda node: node))
        await until(lambda: stage.bound("ring-0", "ring-1"), 2)
        home = [await selected(stage, name) for name in claims]
        assert len(set(home)) == 2
        assert home == [await stage.node_of(f"ring-{number}") for number in range(2)]
        await stage.end("ring-0", "ring-1")
        await until(stage.jobs, {})
        # In the order of their names the pods would be the other way round.
        for number, name in enumerate(reversed(claims)):
            await stage.pod(f"ring-{number}", cpu="3", annotations=words, claim=name)
        await until(lambda: stage.bound("ring-0", "ring-1"), 2)
        assert home[::-1] == [await stage.node_of(f"ring-{number}") for number in range(2)]
        await stage.end("ring-0")
        await until(lambda: stage.bound("ring-1"), 1)
        await stage.pod("ring-0", cpu="3", annotations=words, claim=claims[1])
        await until(lambda: stage.node_of("ring-0"), home[1])


async def test_volumes_that_no_request_can_reach_together_are_told(stage: Stage) -> None:
    """Two on one node and one on another: Slurm is not told which slot is whose."""
    claims = names("data", range(3))
    words = {"slurm.kurm.dev/gang": "ring", "slurm.kurm.dev/gang-size": "3"}
    async with stage.scheduler():
        await claim(stage, *claims)
        for number, name in enumerate(claims):
            await provide(stage, name, stage.nodes[number // 2])
            await stage.pod(f"ring-{number}", annotations=words, claim=name)
        await until(lambda: stage.reason("ring-2"), "Infeasible")
        told = (await stage.get("ring-0")).condition("PodScheduled")
        assert told is not None
        assert "cannot reach the volumes of all pods of the gang" in told.message
        assert await stage.jobs() == {}
