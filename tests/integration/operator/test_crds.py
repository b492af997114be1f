"""The CRDs on a real API server: accepted, explained, and refusing what is wrong with the sentence that was meant."""

import asyncio
import contextlib
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from integration.apiserver import ApiServer, binaries
from integration.operator.refusals import BAD_CLUSTERS, BAD_NODE_SETS, BATCH, EXTERNAL
from kurm.domain.nodeset import Infeasible, NodeSetCondition, NodeSetSpec, NodeSetStatus
from kurm.domain.slurmcluster import (
    ConfigRefused,
    NodeCounts,
    SlurmClusterCondition,
    SlurmClusterSpec,
    SlurmClusterStatus,
)
from kurm.domain.spec import GROUP, VERSION, Condition, Spec
from kurm.kube.apply import Applier
from kurm.kube.errors import ApiError, BadRequest, NotFound
from kurm.kube.resources import Dynamic, Key, Resource
from kurm.kube.session import Session
from kurm.slurm.owned import OWNED

Json = dict[str, Any]

CRDS = Resource(
    Dynamic,
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
CLUSTERS = Resource(Dynamic, group=GROUP, version=VERSION, kind="SlurmCluster", plural="slurmclusters")
NODE_SETS = Resource(Dynamic, group=GROUP, version=VERSION, kind="NodeSet", plural="nodesets")
FILES = Path(__file__).parents[3] / "charts/kurm/files/crds"
STRICT = {"fieldValidation": "Strict"}
SINCE = "2026-11-21T16:15:42Z"

DEMO = yaml.safe_load("""
clusterName: demo
controller:
  resources: {requests: {cpu: 100m, memory: 256Mi}, limits: {memory: 2Gi}}
  nodeSelector: {kubernetes.io/hostname: n0}
  tolerations: [{key: kurm.dev/pool, operator: Exists}]
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
  storage: {size: 2Gi, storageClassName: fast, whenDeleted: Delete}
  volumes: [{name: extra, configMap: {name: extra}}]
  volumeMounts: [{name: extra, mountPath: /extra, readOnly: true}]
  env: [{name: TZ, value: UTC}]
  annotations: {example.org/team: hpc}
accounting: {companion: {storage: {size: 3Gi}}}
login:
  replicas: 2
  users:
  - {name: researcher, uid: 10001, sshKeys: [ssh-ed25519 AAAAC3Nza me@home]}
  - {name: other, uid: 10002, gid: 100, sshKeys: ['from="10.0.0.0/8" ecdsa-sha2-nistp256 AAAAE2 you@home']}
  service: {type: LoadBalancer, nodePort: 30022, loadBalancerSourceRanges: [10.0.0.0/8]}
rest: {enabled: true}
sharedVolumes: [{claimName: home, mountPath: /home}, {claimName: data, mountPath: /data, subPath: a/b, readOnly: true}]
scripts: {prolog: [{configMapName: first}, {configMapName: second}], epilogSlurmctld: [{configMapName: last}]}
config:
  extra: |
    # SlurmctldPort=1 is a comment, and what follows only sounds like what is Kurm's.
    SlurmctldPortRange=1
    MessageTimeout=20
    PreemptMode=REQUEUE
    SchedulerParameters=bf_interval=1,suspend
  cgroupExtra: AllowedSwapSpace=0
partitions:
- {name: batch, nodeSets: [workers], default: true, preemptMode: REQUEUE, graceTime: 30s, maxNodes: 3}
- {name: Services_1.x, nodeSets: [workers, gpu], tier: 10, maxTime: UNLIMITED, extra: LLN=YES MaxMemPerCPU=4000}
topology: {type: block, nodeLabels: [topology.kubernetes.io/zone, example.com/rack], blockSizes: [4, 8, 32]}
scheduler:
  name: hpc.one
  partition: Services_1.x
  namespaces:
  - {name: ml, account: ml, partitions: [batch, Services_1.x], qos: [normal]}
  - {name: web}
  priorityClasses: [{name: urgent, partition: Services_1.x, qos: high}, {name: idle}]
  pinWithin: 30s
  terminatingForever: delete
  nodeSelector: {kubernetes.io/hostname: n0}
deadAfter: 60s
""")
WORKERS = yaml.safe_load("""
clusterRef: {name: demo}
replicas: 4
nodeSelector: {pool: compute}
reserve: {cpu: 1, memory: 1Gi}
slurm:
  features: [ib, "rack:1"]
  featureLabels: {topology.kubernetes.io/zone: zone}
  weight: 5
  gres: {nvidia.com/gpu: {type: h100}, amd.com/gpu: {}}
""")


@pytest.fixture(scope="session")
def served(api_server: ApiServer) -> ApiServer:
    """An API server that serves both resources, as the committed files have them."""
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(api_server.kubeconfig())]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", str(FILES)], check=True, timeout=60)
    return api_server


@pytest.fixture
async def api(served: ApiServer, session: Session) -> Session:
    """A session with it, once the paths of both resources are open."""
    assert served.port
    async with asyncio.timeout(30):
        for resource in (CLUSTERS, NODE_SETS):
            await _opened(session, resource)
    return session


async def _opened(session: Session, resource: Resource[Dynamic]) -> None:
    while True:
        with contextlib.suppress(NotFound):
            await session.list(resource)
            return
        await asyncio.sleep(0.1)


async def create(api: Session, resource: Resource[Dynamic], place: str, spec: Json, *, name: str = "demo") -> Dynamic:
    """Create an object, with unknown fields refused."""
    body = resource.manifest({"metadata": {"name": name, "namespace": place}, "spec": spec})
    answer = await api.request("POST", resource.path(namespace=place), body=body, query=STRICT)
    return resource.decoder.decode(answer)


async def refusal(api: Session, resource: Resource[Dynamic], place: str, spec: Json, *, name: str = "demo") -> str:
    """Create what must be refused, and return the sentence."""
    with pytest.raises(ApiError) as caught:
        await create(api, resource, place, spec, name=name)
    return caught.value.message.removeprefix(f'{resource.kind}.{GROUP} "{name}" is invalid: ')


async def kubectl(server: ApiServer, *arguments: str) -> str:
    """Return what kubectl prints, errors included."""
    process = await asyncio.create_subprocess_exec(
        binaries() / "kubectl",
        "--kubeconfig",
        server.kubeconfig(),
        f"--cache-dir={server.folder / 'kubectl'}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.parametrize("resource", [CLUSTERS, NODE_SETS], ids=str)
async def test_the_server_has_no_complaint(api: Session, resource: Resource[Dynamic]) -> None:
    """The names are accepted, the resource is established, and its schema is structural."""
    crd = await api.get(CRDS, Key("", str(resource)))
    found = {each["type"]: each["status"] for each in crd.status["conditions"]}
    assert {name: found.get(name) for name in ("NamesAccepted", "Established", "NonStructuralSchema")} == {
        "NamesAccepted": "True",
        "Established": "True",
        "NonStructuralSchema": None,
    }


@pytest.mark.parametrize(
    ("resource", "spec", "struct"),
    [
        (CLUSTERS, DEMO, SlurmClusterSpec),
        (CLUSTERS, {}, SlurmClusterSpec),
        (NODE_SETS, WORKERS, NodeSetSpec),
        (NODE_SETS, {"clusterRef": {"name": "demo"}}, NodeSetSpec),
    ],
    ids=["cluster", "least cluster", "node set", "least node set"],
)
async def test_what_is_right_is_taken(
    api: Session, place: str, resource: Resource[Dynamic], spec: Json, struct: type[Spec]
) -> None:
    """Nothing is lost on the way, and the server's defaults are those of the types."""
    made = await create(api, resource, place, spec)
    assert msgspec.convert(made.spec, struct) == msgspec.convert(spec, struct)


async def test_the_servers_defaults_are_seen(api: Session, place: str) -> None:
    """A cluster of which nothing was said tells all that it is, to whoever reads it."""
    made = await create(api, CLUSTERS, place, {"accounting": {"companion": {}}, "partitions": [BATCH]})
    assert made.spec == {
        "accounting": {"enabled": True, "companion": {"storage": {"size": "5Gi", "whenDeleted": "Retain"}}},
        "controller": {"storage": {"size": "1Gi", "whenDeleted": "Retain"}},
        "deadAfter": "5m",
        "login": {"replicas": 1, "service": {"type": "ClusterIP", "port": 22}},
        "partitions": [
            BATCH
            | {"default": False, "tier": 1, "graceTime": "0s", "maxTime": "7d", "defaultTime": "1h"}
            | {"preemptMode": "OFF", "minNodes": 0, "state": "UP"}
        ],
        "rest": {"enabled": False},
    }


@pytest.mark.parametrize(("spec", "sentence"), BAD_CLUSTERS, ids=[str(spec)[:60] for spec, _ in BAD_CLUSTERS])
async def test_a_wrong_cluster_is_refused_with_a_sentence(api: Session, place: str, spec: Json, sentence: str) -> None:
    """The sentence names the field, what it was given and what it may be."""
    assert await refusal(api, CLUSTERS, place, spec) == sentence


@pytest.mark.parametrize(("spec", "sentence"), BAD_NODE_SETS, ids=[str(spec)[:60] for spec, _ in BAD_NODE_SETS])
async def test_a_wrong_node_set_is_refused_with_a_sentence(api: Session, place: str, spec: Json, sentence: str) -> None:
    """The same for NodeSets."""
    assert await refusal(api, NODE_SETS, place, {"clusterRef": {"name": "demo"}} | spec) == sentence


@pytest.mark.parametrize(("key", "why"), OWNED.items())
async def test_a_line_of_kurms_own_is_refused(api: Session, place: str, key: str, why: str) -> None:
    """Wherever it stands and however it is spelt; the sentence says which key it is, and why."""
    line = "include other.conf" if key == "Include" else f" \t{key.upper()} ="
    extra = f"MessageTimeout=20\n{line} x # why not\n"
    sentence = await refusal(api, CLUSTERS, place, {"config": {"extra": extra}})
    assert sentence.rpartition('": ')[2] == f"{key} cannot be set here: {why}"
    assert sentence.startswith('spec.config.extra: Invalid value: "MessageTimeout')


@pytest.mark.parametrize("name", ["a.b", "1st", "a" * 41])
async def test_a_name_that_nothing_could_be_named_after_is_refused(api: Session, place: str, name: str) -> None:
    """Services and labels are made from it."""
    sentence = await refusal(api, CLUSTERS, place, {}, name=name)
    assert sentence == (
        "<nil>: Invalid value: metadata.name must be at most 40 of a-z, 0-9 and -, "
        "with a letter first and no - at the end: pods, Services and labels are named after it"
    )


async def test_what_cannot_be_changed_says_so(api: Session, place: str) -> None:
    """Names that data go by, the class of a volume, its size but upwards, a NodeSet's cluster."""
    cluster = await create(api, CLUSTERS, place, {"clusterName": "x", "accounting": {"companion": {}}})
    workers = await create(api, NODE_SETS, place, WORKERS, name="workers")
    storage = {"size": "500Mi", "storageClassName": "fast"}
    changes: list[tuple[Resource[Dynamic], Key, Json, list[str]]] = [
        (CLUSTERS, cluster.key, {"clusterName": "y"}, ["spec.clusterName: Invalid value: the name of a cluster"]),
        (CLUSTERS, cluster.key, {"clusterName": None}, ["spec.clusterName: Invalid value: the name of a cluster"]),
        (
            CLUSTERS,
            cluster.key,
            {"controller": {"storage": storage}},
            ["a volume cannot shrink: 500Mi is less than 1Gi", "spec.controller.storage.storageClassName: Invalid"],
        ),
        (
            CLUSTERS,
            cluster.key,
            {"accounting": {"companion": {"storage": {"storageClassName": "fast"}}}},
            ["spec.accounting.companion.storage.storageClassName: Invalid value: the storage class of a volume"],
        ),
        (NODE_SETS, workers.key, {"clusterRef": {"name": "z"}}, ["spec.clusterRef.name: Invalid value: nodes cannot"]),
    ]
    for resource, key, change, expected in changes:
        with pytest.raises(ApiError) as caught:
            await api.patch(resource, key, {"spec": change})
        assert [words for words in expected if words not in caught.value.message] == []
    grown = await api.patch(CLUSTERS, cluster.key, {"spec": {"controller": {"storage": {"size": "1.5Gi"}}}})
    assert grown.spec["controller"]["storage"]["size"] == "1.5Gi"
    moved = await api.patch(CLUSTERS, cluster.key, {"spec": {"accounting": {"companion": None, "external": EXTERNAL}}})
    assert moved.spec["accounting"]["external"]["port"] == 3306


async def test_the_class_of_the_companion_cannot_be_slipped_in(api: Session, place: str) -> None:
    """A companion that is named for the first time has been there before, with the default class."""
    cluster = await create(api, CLUSTERS, place, {})
    change = {"accounting": {"companion": {"storage": {"storageClassName": "fast"}}}}
    with pytest.raises(ApiError, match=r"spec\.accounting\.companion: Invalid value: the storage class of a volume"):
        await api.patch(CLUSTERS, cluster.key, {"spec": change})
    await api.patch(CLUSTERS, cluster.key, {"spec": {"accounting": {"companion": {"storage": {"size": "6Gi"}}}}})


async def test_an_unknown_field_is_refused_however_it_comes(api: Session, api_server: ApiServer, place: str) -> None:
    """By kubectl apply, by a strict create and by our own server-side apply; none of them drops it silently."""
    spec = {"controller": {"replica": 2}}
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec\.controller\.replica"'):
        await create(api, CLUSTERS, place, spec)
    manifest = CLUSTERS.manifest({"metadata": {"name": "demo", "namespace": place}, "spec": spec})
    with pytest.raises(ApiError, match=r"\.spec\.controller\.replica: field not declared in schema"):
        await Applier(api, "tests").apply(CLUSTERS, manifest)
    file = api_server.folder / f"{place}.yaml"
    file.write_text(yaml.safe_dump(manifest))
    said = await kubectl(api_server, "apply", "-f", str(file))
    assert 'strict decoding error: unknown field "spec.controller.replica"' in said
    said = await kubectl(api_server, "apply", "--server-side", "-f", str(file))
    assert "spec.controller.replica: field not declared in schema" in said
    with pytest.raises(NotFound):
        await api.get(CLUSTERS, Key(place, "demo"))


async def test_the_largest_objects_are_within_the_servers_budget(api: Session, place: str) -> None:
    """The rules' cost is bounded when they run, too: all that the schema takes can be checked."""
    line = "SchedulerParameters=bf_interval=1,suspend # SlurmctldPort=1\n"
    key = f"ssh-rsa {'A' * 1300} me@home"
    users = [
        {"name": f"user{number}", "uid": 1000 + number, "sshKeys": [f"{key[:-3]}{each:03}" for each in range(8)]}
        for number in range(128)
    ]
    names = [f"workers-{number}" for number in range(64)]
    partitions = [
        {"name": f"{'p' * 57}{number:03}", "nodeSets": names, "allowAccounts": names, "extra": "LLN=YES " * 128}
        for number in range(64)
    ]
    extra = (line * 1000)[:32768]
    rules = [
        {"name": f"{'n' * 60}{number:03}", "partitions": [one["name"] for one in partitions[-16:]]}
        for number in range(256)
    ]
    classes = [{"name": f"class-{number}", "partition": partitions[-1]["name"]} for number in range(64)]
    scheduler = {"partition": partitions[-1]["name"], "namespaces": rules, "priorityClasses": classes}
    spec = {"config": {"extra": extra}, "partitions": partitions, "scheduler": scheduler}
    await create(api, CLUSTERS, place, spec, name="many")
    await create(api, CLUSTERS, place, {"login": {"users": users}}, name="crowd")
    sentence = await refusal(api, CLUSTERS, place, {"config": {"extra": extra[:-20] + "\nSlurmdPort=1"}}, name="long")
    assert sentence.endswith("SlurmdPort cannot be set here: the Services and probes of the pods name it")


def _conditions(*types: tuple[str, str, str, str]) -> tuple[Condition, ...]:
    return tuple(
        msgspec.convert(
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE},
            Condition,
        )
        for kind, status, reason, message in types
    )


async def test_a_cluster_tells_its_state_in_a_line(api: Session, api_server: ApiServer, place: str) -> None:
    """What one asks at 3 a.m.; and a status that was written is read back as it was."""
    cluster = await create(api, CLUSTERS, place, DEMO)
    status = SlurmClusterStatus(
        observed_generation=cluster.metadata.generation,
        conditions=_conditions(
            (SlurmClusterCondition.AVAILABLE, "True", "Answers", ""),
            (SlurmClusterCondition.CONFIGURED, "False", "Refused", "slurmctld: error: no"),
            (SlurmClusterCondition.READY, "False", "ConfigRefused", "slurmctld refuses the configuration"),
        ),
        config_hash="0123abcd",
        config_refused=ConfigRefused(hash="4567", message="slurmctld: error: no"),
        nodes=NodeCounts(total=4, ready=0),
        login_address="10.0.0.1:22",
        version="26.05.5",
    )
    written = await Applier(api, "tests").apply_status(CLUSTERS, cluster, msgspec.to_builtins(status))
    assert msgspec.convert(written.status, SlurmClusterStatus) == status
    table = await kubectl(api_server, "-n", place, "get", "slc", "-o", "wide")
    header, row = (line.split() for line in table.splitlines())
    assert header[:-4] == ["NAME", "AVAILABLE", "CONFIGURED", "READY", "NODES", "VERSION", "AGE"]
    assert header[-4:] == ["LOGIN", "CONFIG", "REASON", "MESSAGE"]
    assert row[:6] == ["demo", "True", "Refused", "0", "4", "26.05.5"]
    assert row[7:] == ["10.0.0.1:22", "0123abcd", "Answers", "slurmctld", "refuses", "the", "configuration"]
    waited = await kubectl(api_server, "-n", place, "wait", "slurmcluster/demo", "--for=condition=Available")
    assert waited == "slurmcluster.kurm.dev/demo condition met\n"


async def test_a_node_set_tells_its_state_and_can_be_scaled(api: Session, api_server: ApiServer, place: str) -> None:
    """Figures that are zero are shown as 0; the scale subresource sets replicas and shows how many there are."""
    made = await create(api, NODE_SETS, place, WORKERS, name="workers")
    status = NodeSetStatus(
        observed_generation=made.metadata.generation,
        conditions=_conditions((NodeSetCondition.READY, "False", "TooFewNodes", "3 of 4 nodes fit")),
        desired=4,
        feasible=3,
        current=3,
        ready=2,
        infeasible=(Infeasible(reason="Taint/example.org/x", nodes=2, examples=("n5", "n6")),),
        selector=f"kurm.dev/nodeset={place}.workers",
    )
    written = await Applier(api, "tests").apply_status(NODE_SETS, made, msgspec.to_builtins(status))
    assert msgspec.convert(written.status, NodeSetStatus) == status
    table = await kubectl(api_server, "-n", place, "get", "kurm")
    header, row = (line.split() for line in table.splitlines())
    assert header == ["NAME", "CLUSTER", "DESIRED", "READY", "FEASIBLE", "DRAINING", "REASON", "AGE"]
    assert row[:7] == ["nodeset.kurm.dev/workers", "demo", "4", "2", "3", "0", "TooFewNodes"]
    said = await kubectl(api_server, "-n", place, "scale", "nodeset", "workers", "--replicas=2")
    assert said == "nodeset.kurm.dev/workers scaled\n"
    scale = msgspec.json.decode(await api.request("GET", NODE_SETS.path(made.key, subresource="scale")))
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 2},
        {"replicas": 3, "selector": f"kurm.dev/nodeset={place}.workers"},
    )


async def test_node_sets_can_be_asked_for_by_their_cluster(api: Session, place: str) -> None:
    """So a syncer watches only what is its own."""
    await create(api, NODE_SETS, place, WORKERS, name="ours")
    await create(api, NODE_SETS, place, WORKERS | {"clusterRef": {"name": "other"}}, name="theirs")
    found = await api.list(NODE_SETS, namespace=place, fields="spec.clusterRef.name=demo")
    assert [each.metadata.name for each in found] == ["ours"]


async def test_kubectl_explains_every_field(api: Session, api_server: ApiServer) -> None:
    """With the sentences of the types."""
    await api.list(CLUSTERS)
    said = " ".join((await kubectl(api_server, "explain", "slurmcluster.spec.partitions.tier")).split())
    assert "PriorityTier: a higher one is served first, and may preempt." in said
    said = " ".join((await kubectl(api_server, "explain", "nset.status.infeasible")).split())
    assert "Why other nodes cannot be used." in said
    assert "nodes <integer> How many." in said
