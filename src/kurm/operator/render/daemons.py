"""Our daemons of a cluster: each a Deployment that is never twice there, slurmrestd beside it, and its own account."""

from collections.abc import Sequence

from kurm.domain.spec import Component, Json
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
READ = ("get", "list", "watch")
_RBAC = "rbac.authorization.k8s.io"


def access(cluster: Cluster, part: Part, rules: Sequence[Json]) -> list[Json]:
    """Return the ServiceAccount, its Role and what binds both, and the binding to the chart's ClusterRole.

    The ClusterRoleBinding is cluster-wide and has no owner: whoever made it takes it away.
    """
    name = cluster.component(part)
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}]
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(cluster, part),
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(cluster, part),
            "rules": list(rules),
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(cluster, part),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": wide(cluster, part, names.cluster_role(part)),
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": names.cluster_role(part)},
            "subjects": subjects,
        },
    ]


def wide(cluster: Cluster, part: Part, of: str) -> Json:
    """Return the metadata of a daemon's cluster-wide object that binds the chart's one of that name."""
    return {
        "name": names.wide(of, cluster.namespace, cluster.name),
        "labels": labels(cluster.name, part),
        "annotations": {names.OWNER_UID: cluster.uid},
    }


def deployment(cluster: Cluster, part: Part, settings: Component, arguments: Sequence[str], requests: Json) -> Json:
    """Return the Deployment of the daemon that is called as the component. The old one ends before the new one starts.

    `arguments` follow those that all daemons have; `requests` are the container's, if the resource says nothing.
    """
    field = f"spec.{part}"
    spec: Json = {
        "serviceAccountName": cluster.component(part),
        "securityContext": unprivileged(KURM),
        "initContainers": [rest.sidecar(cluster)],
        "containers": [main_container(_container(cluster, part, arguments, requests), settings, field)],
        "volumes": [
            *rest.volumes(cluster),
            keys_volume("jwt-key", names.keys(cluster.name), names.JWT_KEY, mode=0o440),
            _token(),
        ],
    }
    pod = template(cluster, part, settings, field, spec)
    return workload(cluster, part, "Deployment", pod, replicas=1, strategy={"type": "Recreate"})


def _container(cluster: Cluster, part: Part, arguments: Sequence[str], requests: Json) -> Json:
    return {
        "name": part.value,
        "image": cluster.images.kurm,
        "imagePullPolicy": cluster.images.pull_policy,
        "args": [
            *(part.value, "--cluster", cluster.name, "--namespace", cluster.namespace),
            *("--slurmrestd", f"unix:{rest.SOCKET}", "--jwt-key", f"{KEY_FOLDER}/{names.JWT_KEY}"),
            *arguments,
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
        "resources": {"requests": requests},
        "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
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
