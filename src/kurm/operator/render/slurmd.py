"""slurmd: one pod for each node of a NodeSet, pinned to it, and the Service that gives all of them names.

These pods are made by nobody but the operator, and the scheduler never sees them.
"""

from dataclasses import dataclass

from kurm.domain import signals
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.selection import tolerations
from kurm.domain.signals import NODE_SET
from kurm.domain.spec import Component, Json
from kurm.operator.render import names, users
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    Cluster,
    digest,
    keys_volume,
    labels,
    main_container,
    metadata,
    owner,
    service,
    shared,
    template,
)
from kurm.operator.render.pods import selector as pod_selector
from kurm.operator.render.scripts import GATE_FOLDER

PORT = 6818
START_SECONDS = 900
"""How long slurmd may wait for its record, which is made when slurmctld is there."""
PROTECTION = {signals.PROTECTED: "true"}
"""The label of a pod that the eviction API refuses."""
NEVER_REACHED = 1_000_000
"""Pods; more than any cluster has (slurm.conf(5), MaxNodeCount: 65533)."""
LIVENESS_SECONDS = 240
"""How long slurmd may be silent before the kubelet ends it, and all its jobs: longer than PrologTimeout, because it
answers nobody while a reconfigure waits for a prolog."""
_KEY_FOLDER = "/etc/slurm"
_CGROUPS = "/run/kurm/cgroup"
"""Where the start gate sees the node's cgroups (images/slurm/start_gate.py)."""
_ANNOTATIONS: Json = {"apiVersion": "v1", "fieldPath": "metadata.annotations"}


@dataclass(frozen=True)
class NodeSet:
    """A NodeSet of a cluster as it is to be rendered; it lives in the cluster's namespace."""

    name: str
    uid: str
    spec: NodeSetSpec


def names_service(cluster: Cluster) -> Json:
    """Return the Service without an address: pods get names by it, and their addresses answers to reverse look-ups.

    Without such an answer each call of Slurm's waits for a name server that has none (5 s).
    """
    return service(cluster, Part.SLURMD, {"slurmd": PORT}, headless=True, unready=True)


def budget(cluster: Cluster) -> Json:
    """Return the PodDisruptionBudget that lets the eviction API refuse every slurmd pod that bears our label.

    The operator takes the label off when Slurm has no job there and the node is cordoned: so `kubectl drain` waits for
    jobs. A number, because for a share Kubernetes would ask NodeSets how many pods there are to be.
    """
    chosen = pod_selector(cluster.name, Part.SLURMD) | PROTECTION
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, Part.SLURMD),
        "spec": {"minAvailable": NEVER_REACHED, "selector": {"matchLabels": chosen}},
    }


def selector(node_set: str) -> str:
    """Return the label selector of a NodeSet's pods, for the scale subresource."""
    return f"app.kubernetes.io/component={Part.SLURMD},{NODE_SET}={node_set}"


def pod(cluster: Cluster, node_set: NodeSet, node: str, slurmd_hash: str) -> Json:
    """Return the pod on a node; `slurmd_hash` is the configuration's."""
    whole = _template(cluster, node_set, slurmd_hash)
    made, spec = whole["metadata"], whole["spec"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.slurmd_pod(node_set.name, node),
            "namespace": cluster.namespace,
            # Beside the template: it comes and goes, and makes no pod an outdated one.
            "labels": made["labels"] | PROTECTION,
            "annotations": made["annotations"] | {names.TEMPLATE_HASH: digest(whole)},
            "ownerReferences": [owner("NodeSet", node_set.name, node_set.uid)],
        },
        "spec": {"nodeName": node, "hostname": names.host_name(node), **spec},
    }


def template_hash(cluster: Cluster, node_set: NodeSet, slurmd_hash: str) -> str:
    """Return what the annotation `kurm.dev/template-hash` of an up-to-date pod says, on whichever node it is."""
    return digest(_template(cluster, node_set, slurmd_hash))


def _template(cluster: Cluster, node_set: NodeSet, slurmd_hash: str) -> Json:
    volumes, mounts = shared(cluster)
    users_volume, users_mount = users.volume(cluster)
    container = _container(cluster)
    container["volumeMounts"] += [users_mount, *mounts]
    spec: Json = {
        "subdomain": cluster.component(Part.SLURMD),
        "containers": [main_container(container, node_set.spec, "spec")],
        # No emptyDir: `kubectl drain` refuses pods that have one.
        "volumes": [
            keys_volume("slurm-key", names.keys(cluster.name), names.SLURM_KEY, mode=0o400),
            users_volume,
            # The start gate's. Always there: a scheduler that comes later must not replace every slurmd.
            {"name": "gate", "downwardAPI": {"items": [{"path": "annotations", "fieldRef": _ANNOTATIONS}]}},
            {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}},
            *volumes,
        ],
    }
    # A cluster that was deleted and made again has other keys: its predecessor's slurmds cannot speak to it.
    ours = {names.RESTART_HASH: slurmd_hash, names.OWNER_UID: cluster.uid}
    made = template(cluster, Part.SLURMD, _pinned(node_set.spec), "spec", spec, **ours)
    made["metadata"]["labels"] = labels(cluster.name, Part.SLURMD) | {NODE_SET: node_set.name}
    return made


def _pinned(spec: NodeSetSpec) -> Component:
    """Return the component's fields without those that choose a node: that has been done.

    With them in the pod a kubelet that is restarted would end the pod and its jobs because a label has changed
    meanwhile.
    """
    return Component(
        tolerations=tuple(tolerations(spec)),
        priority_class_name=spec.priority_class_name,
        volumes=spec.volumes,
        annotations=spec.annotations,
    )


def _container(cluster: Cluster) -> Json:
    return {
        "name": "slurmd",
        "image": cluster.images.slurmd,
        "imagePullPolicy": cluster.images.pull_policy,
        # -Z takes the record that the syncer has made of this node, -b reports a boot, without which it would stay
        # POWERING_UP for ever.
        "args": ["-b", "-Z", "-N", "$(NODE)", "--conf-server", cluster.controller_address],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
            # Configuration comes from slurmctld, the key does not: it is looked for beside the configuration otherwise.
            {"name": "SLURM_SACK_KEY", "value": f"{_KEY_FOLDER}/{names.SLURM_KEY}"},
        ],
        "ports": [{"name": "slurmd", "containerPort": PORT}],
        "startupProbe": {
            "httpGet": {"path": "/livez", "port": "slurmd"},
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
        },
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "slurmd"},
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": LIVENESS_SECONDS // 10,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "slurmd"}, "periodSeconds": 2, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "slurm-key", "mountPath": _KEY_FOLDER, "readOnly": True},
            {"name": "gate", "mountPath": GATE_FOLDER, "readOnly": True},
            {"name": "cgroup", "mountPath": _CGROUPS, "readOnly": True},
        ],
    }
