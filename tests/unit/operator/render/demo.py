"""The cluster of the demo, as the unit tests render it: users, accounting, two partitions, scripts, a shared volume."""

import copy
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from kurm.domain.noderecord import NodeRecord, node_record
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.slurmcluster import SlurmClusterSpec
from kurm.domain.topology import Path
from kurm.operator.render import keys, slurmd
from kurm.operator.render.cluster import objects
from kurm.operator.render.configuration import Configuration, configuration
from kurm.operator.render.pods import Cluster, Images
from kurm.operator.render.slurmd import NodeSet

Json = dict[str, Any]

IMAGES = Images(
    **{name: f"registry.example/kurm/{name}:1" for name in ("controller", "slurmd", "login", "slurmrestd", "dbd")},
    mariadb="registry.example/kurm/mariadb:1",
    kurm="registry.example/kurm/kurm:1",
)
SPEC: Json = {
    "controller": {"nodeSelector": {"kurm.dev/role": "control"}},
    "login": {
        "users": [
            {"name": "alice", "uid": 10001, "sshKeys": ["ssh-ed25519 AAAA alice@home", "ssh-ed25519 BBBB alice@work"]},
            {"name": "bob", "uid": 10002, "gid": 10001, "shell": "/bin/sh"},
        ],
        "service": {"type": "NodePort"},
    },
    "rest": {"enabled": True},
    "sharedVolumes": [{"claimName": "shared", "mountPath": "/home"}],
    "scripts": {"prolog": [{"configMapName": "site"}], "prologSlurmctld": [{"configMapName": "site"}]},
    "config": {"extra": "SchedulerParameters=bf_interval=1\n"},
    "partitions": [
        {"name": "batch", "nodeSets": ["workers"], "default": True, "preemptMode": "REQUEUE", "graceTime": "30s"},
        {
            "name": "services",
            "nodeSets": ["workers"],
            "tier": 10,
            "maxTime": "UNLIMITED",
            "defaultTime": "UNLIMITED",
        },
    ],
}
SCHEDULER: Json = {"partition": "services", "pinWithin": "90s"}
"""What the demo's `spec.scheduler` is, where it has one."""
WORKERS: Json = {"clusterRef": {"name": "demo"}, "slurm": {"features": ["fast"]}}
SITE = {"10-clean": "#!/bin/sh\nrm -rf /tmp/scratch\n"}
ALLOCATABLE = {"cpu": "2", "memory": "4Gi"}
NODES = ("n1", "n2", "n3", "n4")
PASSWORD = "not a secret"  # noqa: S105 - it opens nothing


def cluster(**changes: Any) -> Cluster:
    """Return the demo's cluster, with some fields of its spec replaced."""
    spec = msgspec.convert(copy.deepcopy(SPEC) | changes, SlurmClusterSpec)
    return Cluster("slurm", "demo", "11111111-2222-3333-4444-555555555555", spec, IMAGES)


def node_set(name: str = "workers", **changes: Any) -> NodeSet:
    """Return a NodeSet of the demo's, with some fields of its spec replaced."""
    spec = msgspec.convert(copy.deepcopy(WORKERS) | changes, NodeSetSpec)
    return NodeSet(name, "66666666-7777-8888-9999-000000000000", spec)


def records_of(of: NodeSet, allocatable: Mapping[str, str] = ALLOCATABLE, *nodes: str) -> dict[str, NodeRecord]:
    """Return the records of nodes that are all alike."""
    return {node: node_record(of.name, of.spec, allocatable) for node in nodes or NODES}


def configured(
    of: Cluster,
    *node_sets: NodeSet,
    site: Mapping[str, str] = SITE,
    records: Mapping[str, NodeRecord] = MappingProxyType({}),
    places: Collection[Path] = (),
) -> Configuration:
    """Return the configuration of a cluster over these NodeSets (the demo's), in a Kubernetes of five nodes."""
    specs = {each.name: each.spec for each in node_sets or (node_set(),)}
    return configuration(of, specs, config_maps={"site": site}, records=records, places=places, nodes=5)


def everything(of: Cluster, *node_sets: NodeSet) -> list[Json]:
    """Return all that is rendered of a cluster: its objects, its keys, and a pod of each NodeSet."""
    sets = node_sets or (node_set(),)
    found = configured(of, *sets)
    return [
        *objects(of, found, database_password=PASSWORD),
        keys.keys(of, bytes(keys.SLURM_KEY_BYTES), bytes(keys.JWT_KEY_BYTES)),
        keys.host_keys(of, bytes(range(32))),
        keys.database_password(of, bytes(32)),
        *(slurmd.pod(of, each, "n1", found.slurmd_hash) for each in sets),
    ]


def pods(manifests: list[Json]) -> list[Json]:
    """Return the pods and pod templates among manifests, each with `metadata` and `spec`."""
    workloads = {"Deployment", "StatefulSet"}
    return [
        each if each["kind"] == "Pod" else each["spec"]["template"]
        for each in manifests
        if each["kind"] in workloads | {"Pod"}
    ]


def one(manifests: list[Json], kind: str, name: str) -> Json:
    """Return the one manifest of that kind and name."""
    found = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]
