"""The syncer: a Deployment that is never twice there, slurmrestd beside it, and what it may do in Kubernetes."""

from kurm.domain.spec import GROUP, Json
from kurm.operator.render import names, rest
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    KURM,
    RESTRICTED,
    Cluster,
    keys_volume,
    labels,
    main_container,
    metadata,
    template,
    unprivileged,
    workload,
)

PORT = 8080
"""Of /metrics, /healthz and /readyz."""
KEY_FOLDER = "/run/secrets/kurm"
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path, and Kubernetes' own
START_SECONDS = 60
_FIELD = "spec.syncer"
_READ = ["get", "list", "watch"]
_RBAC = "rbac.authorization.k8s.io"

RULES: list[Json] = [
    {"apiGroups": [GROUP], "resources": ["slurmclusters", "nodesets"], "verbs": _READ},
    {"apiGroups": [GROUP], "resources": ["slurmclusters/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "patch"]},
]
"""What a syncer may do in its namespace. Who makes this Role must be allowed all of it: nobody can give more."""


def objects(cluster: Cluster) -> list[Json]:
    """Return the objects. The ClusterRoleBinding is cluster-wide and has no owner: whoever made it takes it away."""
    return [*access(cluster), deployment(cluster)]


def access(cluster: Cluster) -> list[Json]:
    """Return the ServiceAccount, its Role and what binds both, and the binding to the chart's ClusterRole."""
    name = cluster.component(Part.SYNCER)
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}]
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(cluster, Part.SYNCER),
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(cluster, Part.SYNCER),
            "rules": RULES,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(cluster, Part.SYNCER),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {
                "name": names.syncer_binding(cluster.namespace, cluster.name),
                "labels": labels(cluster.name, Part.SYNCER),
                "annotations": {names.OWNER_UID: cluster.uid},
            },
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": names.SYNCER_CLUSTER_ROLE},
            "subjects": subjects,
        },
    ]


def deployment(cluster: Cluster) -> Json:
    """Return the Deployment. The old one ends before the new one starts."""
    spec: Json = {
        "serviceAccountName": cluster.component(Part.SYNCER),
        "securityContext": unprivileged(KURM),
        "initContainers": [rest.sidecar(cluster)],
        "containers": [main_container(_container(cluster), cluster.spec.syncer, _FIELD)],
        "volumes": [
            *rest.volumes(cluster),
            keys_volume("jwt-key", names.keys(cluster.name), names.JWT_KEY, mode=0o440),
            _token(),
        ],
    }
    pod = template(cluster, Part.SYNCER, cluster.spec.syncer, _FIELD, spec)
    return workload(cluster, Part.SYNCER, "Deployment", pod, replicas=1, strategy={"type": "Recreate"})


def _container(cluster: Cluster) -> Json:
    return {
        "name": "syncer",
        "image": cluster.images.kurm,
        "imagePullPolicy": cluster.images.pull_policy,
        "args": [
            *("syncer", "--cluster", cluster.name, "--namespace", cluster.namespace),
            *("--slurmrestd", f"unix:{rest.SOCKET}", "--jwt-key", f"{KEY_FOLDER}/{names.JWT_KEY}"),
            *("--dead-after", cluster.spec.dead_after),
            *(f"--drain-condition={one}" for one in cluster.spec.syncer.drain_conditions),
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            rest.socket_mount(),
            {"name": "jwt-key", "mountPath": KEY_FOLDER, "readOnly": True},
            {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
        ],
    }


def _token() -> Json:
    """Return the volume that Kubernetes itself would mount into every container; slurmrestd has no use for it."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "name": "token",
        "projected": {
            "defaultMode": 0o440,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    }
