"""A SlurmCluster's scheduler on a real API server: what comes and goes with it, whose its name is, and its policies."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from integration.apiserver import ApiServer, namespace
from integration.operator.admission import (
    BAD,
    GOOD,
    PARTITIONS,
    RULED_BAD,
    RULED_GOOD,
    RULES,
    STRANGER,
    Json,
    pod,
)
from integration.operator.stage import DYNAMIC_PODS, Stage, furnish, on_stage, until
from kurm.domain.asks import RefusedError, Rules
from kurm.domain.gangs import owner_of
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.partition import Partition
from kurm.domain.podspec import PodSpec
from kurm.domain.schedulerspec import Scheduler
from kurm.kube.errors import ApiError, NotFound
from kurm.kube.resources import NAMESPACES, Dynamic, Key, Object, Resource
from kurm.kube.session import Patch, Session
from kurm.operator.objects import SLURM_CLUSTERS, VOLUME_CLAIMS

WHOLE = {"Available": ("True", "Answers"), "Ready": ("True", "Ready")}
WIDE = (
    "ClusterRoleBinding/kurm-scheduler",
    "MutatingAdmissionPolicyBinding/kurm-scheduler-namespaces",
    "ValidatingAdmissionPolicyBinding/kurm-scheduler-claims",
    "ValidatingAdmissionPolicyBinding/kurm-scheduler-pods",
)


async def _scheduler(stage: Stage, cluster: str = "demo") -> list[str]:
    """Return what of a scheduler is there, without the rights that an account without pods keeps."""
    suffix = f".{stage.place}.{cluster}"
    found = [name.removesuffix(suffix) for name in await stage.made()]
    return sorted(name for name in found if name in {*WIDE, f"Deployment/{cluster}-scheduler"})


async def test_a_scheduler_comes_and_goes_with_its_field(stage: Stage) -> None:
    """So do its cluster-wide bindings; the cluster's own goes on, and at its end nothing of either is left."""
    everything = sorted([*WIDE, "Deployment/demo-scheduler"])
    await stage.cluster(scheduler={"name": stage.place})
    async with stage.operator():
        await until(stage.conditions, WHOLE)
        assert everything == await _scheduler(stage)
        status = (await stage.get_cluster()).status
        assert {one.name: one.ready for one in status.components}["scheduler"] == 1
        await stage.cluster()
        await until(lambda: _scheduler(stage), [])
        await until(stage.conditions, WHOLE)
        assert f"ClusterRoleBinding/kurm-syncer.{stage.place}.demo" in await stage.made()
        await stage.cluster(scheduler={"name": stage.place})
        await until(lambda: _scheduler(stage), everything)
        await stage.kube.delete(SLURM_CLUSTERS, Key(stage.place, "demo"))
        await until(lambda: _left(stage), {"PersistentVolumeClaim/demo-controller"})


async def _left(stage: Stage) -> set[str]:
    return set(await stage.made())


async def _of(stage: Stage, cluster: str, kind: str) -> tuple[str, str] | None:
    return (await stage.conditions(cluster)).get(kind)


async def test_a_schedulers_name_is_the_older_clusters(stage: Stage) -> None:
    """The younger one says whose it is, and does without a scheduler until the older one has gone."""
    await stage.cluster("the-older", scheduler={"name": stage.place})
    async with stage.operator():
        await until(lambda: stage.conditions("the-older"), WHOLE)
        older = await stage.get_cluster("the-older")
        await asyncio.sleep(1.1)  # of two of the same second Kubernetes does not say which is older
        await stage.cluster("a-younger", scheduler={"name": stage.place})
        await until(lambda: _of(stage, "a-younger", "Stalled"), ("True", "SchedulerNameTaken"))
        await until(lambda: _of(stage, "a-younger", "Available"), WHOLE["Available"])
        status = (await stage.get_cluster("a-younger")).status
        (said,) = (one.message for one in status.conditions if one.type == "Stalled")
        assert said == (
            f"spec.scheduler.name: '{stage.place}' is the scheduler of SlurmCluster {stage.place}/the-older, which is "
            "older: take another name. Until then this cluster has no scheduler"
        )
        assert await _scheduler(stage, "a-younger") == []
        assert await stage.conditions("the-older") == WHOLE
        await stage.kube.delete(SLURM_CLUSTERS, older.key)
        await until(lambda: stage.conditions("a-younger"), WHOLE)
        assert sorted([*WIDE, "Deployment/a-younger-scheduler"]) == await _scheduler(stage, "a-younger")


CLASSES = Resource(
    Dynamic, group="scheduling.k8s.io", version="v1", kind="PriorityClass", plural="priorityclasses", namespaced=False
)
CLAIMS = VOLUME_CLAIMS.of(Dynamic)
CRDS = Resource(
    Object,
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
STORAGE_CLASSES = Resource(
    Object, group="storage.k8s.io", version="v1", kind="StorageClass", plural="storageclasses", namespaced=False
)
IN_FORCE = "is unknown: allowed are"


async def _try(stage: Stage, manifest: Json, place: str = "") -> str:
    """Have the API server admit a pod without making it; return the sentence with which it is refused, else nothing."""
    path = DYNAMIC_PODS.path(namespace=place or stage.place)
    try:
        await stage.kube.request("POST", path, body=DYNAMIC_PODS.manifest(manifest), query={"dryRun": "All"})
    except ApiError as error:
        return error.message
    return ""


@asynccontextmanager
async def _scheduled(stage: Stage, **scheduler: Any) -> AsyncIterator[None]:
    """Have a cluster with a scheduler that is called as the stage, and wait until its policies are in force."""
    await stage.cluster(partitions=PARTITIONS, scheduler={"name": stage.place, "partition": "services"} | scheduler)
    await stage.node_set(replicas=0)
    async with stage.operator():

        async def refused() -> bool:
            return IN_FORCE in await _try(stage, pod({"no-such": "thing"}, stage.place))

        await until(refused)
        yield


async def test_bad_pods_are_refused_with_what_is_allowed(stage: Stage) -> None:
    """A sentence with the field, the value and what there is; what is right is taken."""
    async with _scheduled(stage):
        for annotations, spec in GOOD:
            assert await _try(stage, pod(annotations, stage.place, **spec)) == ""
        for annotations, spec, sentence in BAD:
            said = await _try(stage, pod(annotations, stage.place, **spec))
            assert said.endswith(sentence), said
            assert f"with binding 'kurm-scheduler-pods.{stage.place}.demo' denied request: " in said


async def test_nobody_elses_pod_is_looked_at(stage: Stage) -> None:
    """Of another scheduler, or of none: they may bear whatever they like."""
    async with _scheduled(stage):
        for scheduler in ("default-scheduler", f"{stage.place}-other"):
            for annotations, spec, sentence in BAD:
                # What Kubernetes itself would not take is not the point here.
                assert not (await _try(stage, pod(annotations, scheduler, **spec))).endswith(sentence)


def _named(stage: Stage, what: Any) -> Any:
    """Return a text or JSON with the names that only the test knows."""
    if isinstance(what, str):
        known = {"NAMESPACE": stage.place, "PRIORITY": stage.place, "SCHEDULER": stage.place}
        for word, name in known.items():
            what = what.replace(word, name)
        return what
    if isinstance(what, dict):
        return {key: _named(stage, value) for key, value in what.items()}
    return [_named(stage, each) for each in what] if isinstance(what, list) else what


async def test_a_namespace_asks_for_what_it_may(stage: Stage) -> None:
    """Neither annotations nor a PriorityClass go beyond its rule; one without a rule is told who has one."""
    for name in ("urgent", "cheap"):
        await stage.kube.create(CLASSES, {"metadata": {"name": f"{stage.place}-{name}"}, "value": 5})
    stranger = await namespace(stage.kube, f"{stage.place}-stranger")
    async with _scheduled(stage, **_named(stage, RULES)):
        for annotations, spec in RULED_GOOD:
            assert await _try(stage, pod(annotations, stage.place, **_named(stage, spec))) == ""
        for annotations, spec, sentence in RULED_BAD:
            said = await _try(stage, pod(annotations, stage.place, **_named(stage, spec)))
            assert said.endswith(_named(stage, sentence)), said
        said = await _try(stage, pod({}, stage.place), stranger)
        assert said.endswith(_named(stage, STRANGER.replace("STRANGER", stranger))), said
    for name in ("urgent", "cheap"):
        await stage.kube.delete(CLASSES, Key("", f"{stage.place}-{name}"))


async def test_a_pod_keeps_what_slurm_has_given_it(stage: Stage) -> None:
    """Kubernetes could change its requests while it runs; Slurm has sold the rest of the node."""
    async with _scheduled(stage):
        for scheduler, sentence in ((stage.place, "requests cannot be changed while the pod runs"), ("mine", "")):
            manifest = pod({}, scheduler, containers=[_sized("1", "4")])
            manifest["metadata"] |= {"namespace": stage.place}
            made = await stage.kube.create(DYNAMIC_PODS, manifest)
            assert await _resize(stage, made.key, "1", "3") == ""
            said = await _resize(stage, made.key, "2", "3")
            assert sentence in said
            assert bool(said) == bool(sentence)


def _sized(cpu: str, limit: str) -> Json:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}
    return {"name": "main", "image": "registry.example/main:1", "resources": resources}


async def _resize(stage: Stage, key: Key, cpu: str, limit: str) -> str:
    """Change what a pod requests; return the sentence with which it is refused, else nothing."""
    change = {"spec": {"containers": [_sized(cpu, limit)]}}
    try:
        await stage.kube.patch(DYNAMIC_PODS, key, change, kind=Patch.STRATEGIC, subresource="resize")
    except ApiError as error:
        return error.message
    return ""


async def test_what_a_pod_says_of_its_job_is_the_schedulers_to_write(stage: Stage) -> None:
    """Without it a pod whose job is cancelled would look like a forgotten one, and live on with a new job."""
    marks = {"kurm.dev/job": "7", "kurm.dev/slot": "0", "kurm.dev/allocation": "a", "kurm.dev/epoch": "e"}
    manifest = pod({}, stage.place)
    manifest["metadata"] |= {"namespace": stage.place}
    made = await stage.kube.create(DYNAMIC_PODS, manifest)
    written = {"metadata": {"annotations": marks}}
    await stage.kube.patch(DYNAMIC_PODS, made.key, written, subresource="status")

    async def refused(annotations: Mapping[str, str | None]) -> bool:
        try:
            await stage.kube.patch(DYNAMIC_PODS, made.key, {"metadata": {"annotations": annotations}})
        except ApiError as error:
            return "cannot be changed: the scheduler writes them" in error.message
        return False

    await until(lambda: refused({"kurm.dev/job": "8"}))
    assert [await refused({mark: value}) for mark in marks for value in (None, "other")] == [True] * 8
    assert await refused({"example.org/mine": "yes"}) is False
    found = (await stage.kube.get(DYNAMIC_PODS, made.key)).metadata.annotations
    assert found == marks | {"example.org/mine": "yes"}


async def test_a_namespace_opts_its_pods_in(stage: Stage) -> None:
    """Pods that name no scheduler are ours then: but those of DaemonSets, those with a node, and Kurm's own."""
    place = await namespace(stage.kube, f"{stage.place}-opted")
    label = {"metadata": {"labels": {"kurm.dev/scheduler": stage.place}}}
    async with _scheduled(stage):
        daemon = {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "uid": "1", "controller": True}
        plain = pod({}, "default-scheduler")
        pods = {
            "plain": plain,
            "another's": pod({}, "mine"),
            "a DaemonSet's": plain | {"metadata": {"generateName": "d-", "ownerReferences": [daemon]}},
            "with a node": pod({}, "default-scheduler", nodeName="n1"),
            "Kurm's": plain | {"metadata": {"generateName": "k-", "labels": {"app.kubernetes.io/part-of": "kurm"}}},
        }
        assert await _schedulers(stage, place, pods) == dict.fromkeys(pods, "default-scheduler") | {"another's": "mine"}
        await stage.kube.patch(NAMESPACES, Key("", place), label)
        ours = dict.fromkeys(pods, "default-scheduler") | {"another's": "mine", "plain": stage.place}

        async def found() -> dict[str, str]:
            return await _schedulers(stage, place, pods)

        await until(found, ours)
        assert (await _try(stage, pod({"partition": "big"}, "default-scheduler"), place)).endswith(
            "allowed are batch, services, scavenge"
        )
        await stage.cluster(partitions=PARTITIONS)
        await until(found, ours | {"plain": "default-scheduler"})


async def _schedulers(stage: Stage, place: str, pods: dict[str, Json]) -> dict[str, str]:
    """Return which scheduler each pod has once it is admitted."""
    found = {}
    for name, manifest in pods.items():
        body = DYNAMIC_PODS.manifest(manifest)
        answer = await stage.kube.request(
            "POST", DYNAMIC_PODS.path(namespace=place), body=body, query={"dryRun": "All"}
        )
        found[name] = DYNAMIC_PODS.decoder.decode(answer).spec["schedulerName"]
    return found


async def test_a_scheduler_writes_of_a_claim_its_node_alone(stage: Stage) -> None:
    """Its rights end there: labels, sizes and finalizers of everybody's claims are none of its business."""
    kind = {"metadata": {"name": f"{stage.place}-grows"}, "provisioner": "x/y", "allowVolumeExpansion": True}
    await stage.kube.create(STORAGE_CLASSES, kind)
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"{stage.place}-grows", "volumeName": "v"}
    claim = {
        "metadata": {"name": "data", "namespace": stage.place, "annotations": {"a": "b"}},
        "spec": spec | {"resources": {"requests": {"storage": "1Gi"}}},
    }
    key = (await stage.kube.create(CLAIMS, claim)).key
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    await stage.kube.patch(CLAIMS, key, bound, subresource="status")
    account = f"system:serviceaccount:{stage.place}:demo-scheduler"
    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    others: tuple[Json, ...] = (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": None}}},
        {"metadata": {"annotations": {"b": "c"}}},
        {"metadata": {"finalizers": ["example.org/mine"]}},
        {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
    )
    async with _scheduled(stage), Session(stage.server.config(account, None)) as scheduler:

        async def refused(change: Json) -> bool:
            try:
                await scheduler.patch(CLAIMS, key, change)
            except ApiError as error:
                return "Kurm's scheduler may write nothing of a PersistentVolumeClaim but" in error.message
            return False

        await until(lambda: refused(others[0]))
        assert [await refused(change) for change in others] == [True] * len(others)
        assert await refused(selected) is False
        assert (await stage.kube.get(CLAIMS, key)).metadata.annotations == {"a": "b"} | selected["metadata"][
            "annotations"
        ]
        assert await refused(others[0])
        for change in others[:1] + others[4:]:
            await stage.kube.patch(CLAIMS, key, change)


class AskedPod(Object):
    """A pod, as a scheduler reads it."""

    spec: PodSpec = PodSpec()


def _refusal(rules: Rules, place: str, manifest: Json) -> str:
    """Return what the scheduler's own rules say of a pod that it finds in a namespace; nothing if it is taken."""
    metadata = manifest["metadata"] | {"name": "pod", "namespace": place, "uid": "1"}
    asked = msgspec.convert({"metadata": metadata, "spec": manifest["spec"]}, AskedPod)
    try:
        rules.ask(asked)
        owner_of(asked)
    except RefusedError as error:
        return str(error)
    return ""


ADMISSION_ALONE = ("spec.nodeName", "kurm.dev/job", "spec.terminationGracePeriodSeconds")
"""What is asked of a pod only when it is made: a scheduler that finds one that came by otherwise deals with it."""


def test_the_scheduler_refuses_what_admission_refuses() -> None:
    """So nothing is lost where admission was passed over, or the pod was changed after it."""
    gres = {"nvidia.com/gpu": {"type": "h100"}, "example.org/fpga": {}}
    workers = msgspec.convert({"clusterRef": {"name": "demo"}, "slurm": {"gres": gres}}, NodeSetSpec)
    partitions = msgspec.convert(PARTITIONS, list[Partition])
    for good, bad, scheduler in ((GOOD, BAD, {}), (RULED_GOOD, RULED_BAD, RULES)):
        named = msgspec.convert({"partition": "services"} | scheduler, Scheduler)
        rules = Rules(named, partitions, {"workers": workers})
        for annotations, spec in good:
            assert _refusal(rules, "NAMESPACE", pod(annotations, "kurm", **spec)) == ""
        for annotations, spec, sentence in bad:
            if not any(words in sentence for words in ADMISSION_ALONE):
                assert _refusal(rules, "NAMESPACE", pod(annotations, "kurm", **spec)), sentence
        assert bool(_refusal(rules, "stranger", pod({}, "kurm"))) == bool(scheduler)


class Older(ApiServer):
    """One that has no MutatingAdmissionPolicy, as Kubernetes before 1.36."""

    def _start(self, name: str, *arguments: str) -> None:
        off = ",".join(
            f"admissionregistration.k8s.io/v1/mutatingadmission{each}=false" for each in ("policies", "policybindings")
        )
        more = [f"--runtime-config={off}", "--disable-admission-plugins=ServiceAccount,MutatingAdmissionPolicy"]
        super()._start(name, *arguments, *(more if name == "kube-apiserver" else ()))


def _in(place: str, manifest: Json) -> Json:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": place}}


async def _served(kube: Session) -> bool:
    try:
        await kube.list(SLURM_CLUSTERS)
    except NotFound:
        return False
    return True


async def test_an_older_kubernetes_has_a_scheduler_all_the_same(tmp_path: Path) -> None:
    """Namespaces cannot opt in there, which the cluster says; all else is there.

    What is left behind where Kurm is torn out keeps no pod from being made.
    """
    with Older(tmp_path).run() as server:
        furnish(server, mutations=False)
        try:
            async with on_stage(server) as stage:
                await stage.cluster(scheduler={"name": stage.place})
                async with stage.operator():
                    await until(stage.conditions, WHOLE)
                left_out = "MutatingAdmissionPolicyBinding/kurm-scheduler-namespaces"
                assert await _scheduler(stage) == sorted({*WIDE, "Deployment/demo-scheduler"} - {left_out})
                (said,) = (one.message for one in (await stage.get_cluster()).status.conditions if one.type == "Ready")
                assert said.startswith("MutatingAdmissionPolicyBinding kurm-scheduler-namespaces.")
                assert said.endswith(".demo is left out: this Kubernetes has no such objects")
            # Now the SlurmCluster is gone, and nobody has taken its bindings away.
            async with Session(server.config()) as kube:
                place = await namespace(kube, "left-behind")
                for scheduler in ("default-scheduler", stage.place):
                    await kube.create(DYNAMIC_PODS, _in(place, pod({"no-such": "thing"}, scheduler)))
                await kube.delete(CRDS, Key("", "slurmclusters.kurm.dev"))
                await until(lambda: _served(kube), expected=False)
                for scheduler in ("default-scheduler", stage.place):
                    await kube.create(DYNAMIC_PODS, _in(place, pod({"no-such": "thing"}, scheduler)))
        finally:
            server._end("kube-controller-manager")
