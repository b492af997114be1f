"""SlurmClusters on a real API server: what is made, what is said, and what is left alone."""

import asyncio
from functools import partial

from integration.operator.stage import MISSING, Stage, until
from kurm.kube.resources import EVENTS, Key, Narrow, Object, Resource
from kurm.operator.objects import CONTENT_MAPS, SECRETS, SLURM_CLUSTERS, VOLUME_CLAIMS

ANSWERS = ("True", "Answers")
STORAGE_CLASSES = Resource(
    Object, group="storage.k8s.io", version="v1", kind="StorageClass", plural="storageclasses", namespaced=False
)


class Reference(Narrow):
    """Whom an event is about."""

    kind: str = ""


class Event(Object):
    """An event, as far as it is looked at here."""

    note: str = ""
    regarding: Reference = Reference()


WHOLE = {"Available": ANSWERS, "Ready": ("True", "Ready")}


async def test_a_cluster_comes_up_and_is_left_alone(stage: Stage) -> None:
    """With all its objects and a status; another operator writes nothing to what is as it should be."""
    await stage.cluster()
    async with stage.operator():
        await until(stage.conditions, WHOLE)
    made = await stage.made()
    assert {"StatefulSet/demo-controller", "Secret/demo-keys", "Deployment/demo-syncer"} <= set(made)
    assert f"ClusterRoleBinding/kurm-syncer.{stage.place}.demo" in made
    cluster = await stage.get_cluster()
    async with stage.operator("two") as operator:
        await until(lambda: _led(operator))
        await asyncio.sleep(1.0)
    assert made == await stage.made()
    assert cluster == await stage.get_cluster()
    assert {one.name: one.ready for one in cluster.status.components} == {"controller": 1, "login": 1, "syncer": 1}
    assert cluster.status.observed_generation == cluster.metadata.generation


async def _led(operator: object) -> bool:
    return operator.leadership.leads  # type: ignore[attr-defined, no-any-return]


async def test_an_image_that_cannot_be_pulled(stage: Stage) -> None:
    """Available turns False with the kubelet's reason; set back, the stuck pod is replaced."""
    await stage.cluster()
    async with stage.operator():
        await until(stage.conditions, WHOLE)
        await stage.cluster(controller={"image": MISSING})
        await until(lambda: _of(stage, "Available"), ("False", "ImagePullBackOff"), within=10)
        assert await _of(stage, "Stalled") == ("True", "ImagePullBackOff")
        await stage.cluster()
        await until(stage.conditions, WHOLE)
        await until(lambda: _events(stage, "Available"), ["False", "True"])


async def _events(stage: Stage, condition: str) -> list[str]:
    """Return what the events of the SlurmCluster say of a condition; what is said again is counted, and no new one."""
    found = await stage.kube.list(EVENTS.of(Event), namespace=stage.place)
    notes = [one.note.split() for one in found if one.regarding.kind == "SlurmCluster"]
    return sorted(note[2].rstrip(":") for note in notes if note[0] == condition)


async def _of(stage: Stage, kind: str) -> tuple[str, str] | None:
    return (await stage.conditions()).get(kind)


async def test_slurmctld_that_does_not_answer(stage: Stage) -> None:
    """Available is False while it lasts."""
    await stage.cluster()
    async with stage.operator():
        await until(stage.conditions, WHOLE)
        stage.crew.down.add("controller")
        await until(lambda: _of(stage, "Available"), ("False", "Starting"), within=10)
        stage.crew.down.clear()
        await until(stage.conditions, WHOLE)


async def test_what_is_missing_is_a_condition(stage: Stage) -> None:
    """A ConfigMap, a NodeSet and a Secret that a SlurmCluster names: in a sentence, and healed when they come."""
    external = {"host": "db", "user": "slurm", "password": {"name": "db", "key": "password"}}
    await stage.cluster(
        scripts={"prolog": [{"configMapName": "site"}]},
        partitions=[{"name": "batch", "nodeSets": ["workers"]}],
        accounting={"external": external},
    )
    async with stage.operator():
        await until(lambda: _of(stage, "Stalled"), ("True", "MissingNodeSet"))
        await stage.node_set(replicas=0)
        await until(lambda: _of(stage, "Stalled"), ("True", "MissingConfigMap"))
        script = {"metadata": {"name": "site", "namespace": stage.place}, "data": {"10-hello": "#!/bin/sh\n"}}
        await stage.kube.create(CONTENT_MAPS, script)
        await until(lambda: _of(stage, "Stalled"), ("True", "MissingSecret"))
        message = next(one.message for one in (await stage.get_cluster()).status.conditions if one.type == "Stalled")
        assert message == "spec.accounting.external.password: there is no Secret 'db' in this namespace"
        secret = {"metadata": {"name": "db", "namespace": stage.place}, "stringData": {"password": "p"}}
        await stage.kube.create(SECRETS, secret)
        await until(stage.conditions, WHOLE)


async def test_a_changed_script_is_in_the_configuration(stage: Stage) -> None:
    """A change of a ConfigMap that nobody has labelled is seen at once, and by no other write than its own."""
    script = {"metadata": {"name": "site", "namespace": stage.place}, "data": {"10-hello": "#!/bin/sh\necho one\n"}}
    await stage.kube.create(CONTENT_MAPS, script)
    await stage.cluster(scripts={"prolog": [{"configMapName": "site"}]})
    async with stage.operator():
        await until(stage.conditions, WHOLE)
        before = await stage.made()
        changed = {"data": {"10-hello": "#!/bin/sh\necho two\n"}}
        await stage.kube.patch(CONTENT_MAPS, Key(stage.place, "site"), changed)
        await until(lambda: _prolog(stage), "#!/bin/sh\necho two\n")
        await until(stage.conditions, WHOLE)
        after = await stage.made()
        assert [name for name in before if before[name] != after[name]] == ["ConfigMap/demo-config"]


async def _prolog(stage: Stage) -> str:
    found = await stage.kube.get(CONTENT_MAPS, Key(stage.place, "demo-config"))
    return found.data["prolog-00-10-hello"]


async def test_accounting_switched_off_and_on(stage: Stage) -> None:
    """Slurmdbd and its database go; the data, the password and all keys stay as they were."""
    await stage.cluster(accounting={"enabled": True})
    async with stage.operator():
        await until(stage.conditions, WHOLE)
        kept = await _kept(stage)
        await stage.cluster()
        await until(lambda: _has(stage, "StatefulSet/demo-database", "Deployment/demo-accounting"), [])
        await stage.cluster(accounting={"enabled": True})
        await until(stage.conditions, WHOLE)
        assert kept == await _kept(stage)


async def _kept(stage: Stage) -> dict[str, str]:
    names = ("Secret/demo-keys", "Secret/demo-ssh-host-keys", "Secret/demo-database", "PersistentVolumeClaim")
    return {name: version for name, version in (await stage.made()).items() if name.startswith(names)}


async def _has(stage: Stage, *names: str) -> list[str]:
    made = await stage.made()
    return [name for name in names if name in made]


async def test_a_secret_of_somebody_elses_is_not_taken(stage: Stage) -> None:
    """The condition says what to do."""
    secret = {"metadata": {"name": "demo-keys", "namespace": stage.place}}
    await stage.kube.create(SECRETS, secret)
    await stage.cluster()
    async with stage.operator():
        await until(lambda: _of(stage, "Stalled"), ("True", "NotOurs"))


async def test_a_volume_grows_and_never_shrinks(stage: Stage) -> None:
    """A claim that outlived an earlier cluster and is larger than what is asked for stays, and a note says so."""
    name = f"fast-{stage.place}"
    fast = {"metadata": {"name": name}, "provisioner": "x/y", "allowVolumeExpansion": True}
    await stage.kube.create(STORAGE_CLASSES, fast)
    await stage.cluster(controller={"storage": {"size": "2Gi", "storageClassName": name}})
    key = Key(stage.place, "demo-controller")

    async def size() -> str:
        return (await stage.kube.get(VOLUME_CLAIMS, key)).spec.resources.requests["storage"]

    async with stage.operator():
        await until(size, "2Gi")
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
        await stage.kube.patch(VOLUME_CLAIMS, key, bound, subresource="status")
        await stage.kube.patch(VOLUME_CLAIMS, key, {"spec": {"volumeName": "v"}})
        await stage.cluster(controller={"storage": {"size": "3Gi", "storageClassName": name}})
        await until(size, "3Gi")
        await until(stage.conditions, WHOLE)
        await stage.kube.delete(SLURM_CLUSTERS, Key(stage.place, "demo"))
        await until(lambda: _has(stage, "StatefulSet/demo-controller"), [])
        await stage.cluster(controller={"storage": {"size": "1Gi", "storageClassName": name}})
        await until(stage.conditions, WHOLE)
        ready = next(one for one in (await stage.get_cluster()).status.conditions if one.type == "Ready")
        assert (
            ready.message == "PersistentVolumeClaim demo-controller has 3Gi and cannot shrink to 1Gi: it stays as it is"
        )
        assert await size() == "3Gi"


async def test_one_of_two_clusters_is_deleted(stage: Stage) -> None:
    """Nothing of it is left but its data, and the other one is not touched."""
    await stage.add_nodes(4)
    for name in ("demo", "other"):
        await stage.cluster(name, controller={"storage": {"whenDeleted": "Retain" if name == "demo" else "Delete"}})
        await stage.node_set(f"{name}s", name, replicas=2)
    async with stage.operator():
        for name in ("demo", "other"):
            await until(partial(stage.conditions, name), WHOLE)
            await until(partial(stage.node_set_conditions, f"{name}s"), {"Ready": ("True", "Ready")})
        made, pods = await stage.made(), await stage.pods()
        claimed = await stage.claimed()
        stage.crew.busy.update(stage.nodes)  # a cluster that is deleted does not wait for its jobs
        await stage.kube.delete(SLURM_CLUSTERS, Key(stage.place, "demo"))
        others = {name: version for name, version in made.items() if _of_cluster(name, "other")}
        kept = {"PersistentVolumeClaim/demo-controller": made["PersistentVolumeClaim/demo-controller"]}
        await until(stage.made, others | kept)
        await until(stage.claimed, {node: name for node, name in claimed.items() if name == "others"})
        assert {uid.metadata.uid for uid in (await stage.pods()).values()} == {
            pod.metadata.uid for node, pod in pods.items() if claimed[node] == "others"
        }
        await until(lambda: _of_node_set(stage, "demos", "Stalled"), ("True", "MissingSlurmCluster"))


def _of_cluster(name: str, cluster: str) -> bool:
    return name.partition("/")[2].startswith(cluster) or name.endswith(f".{cluster}")


async def _of_node_set(stage: Stage, name: str, kind: str) -> tuple[str, str] | None:
    return (await stage.node_set_conditions(name)).get(kind)
