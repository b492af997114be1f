"""Login nodes: sshd for users, and sackd beside it, which lends them the cluster's key."""

from kurm.domain.spec import Json
from kurm.operator.render import names, users
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    RESTRICTED,
    SECCOMP,
    SLURM,
    Cluster,
    given,
    keys_volume,
    main_container,
    metadata,
    selector,
    shared,
    template,
    workload,
)

PORT = 2222
START_SECONDS = 300
"""How long sackd may wait for slurmctld, whose configuration it fetches."""


def objects(cluster: Cluster) -> list[Json]:
    """Return the objects."""
    return [users.users(cluster), users.authorized_keys(cluster), service(cluster), deployment(cluster)]


def service(cluster: Cluster) -> Json:
    """Return the Service that people's ssh finds."""
    wish = cluster.spec.login.service
    port = {"name": "ssh", "port": wish.port, "targetPort": "ssh", **given(nodePort=wish.node_port)}
    ranges = list(wish.load_balancer_source_ranges)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, Part.LOGIN, annotations=dict(wish.annotations)),
        "spec": {
            "type": wish.type,
            "selector": selector(cluster.name, Part.LOGIN),
            "ports": [port],
            **given(loadBalancerSourceRanges=ranges),
        },
    }


def deployment(cluster: Cluster) -> Json:
    """Return the Deployment of the login nodes."""
    volumes, mounts = shared(cluster)
    users_volume, users_mount = users.volume(cluster)
    sshd = _sshd(cluster)
    sshd["volumeMounts"] += [users_mount, *mounts]
    spec: Json = {
        # What a prompt shows; the pods' own names are long.
        "hostname": cluster.component(Part.LOGIN),
        "securityContext": SECCOMP,
        # A sidecar: it holds the key, and people work in the other container, which does not. They meet in /run/slurm.
        "initContainers": [_sackd(cluster, users_mount)],
        "containers": [main_container(sshd, cluster.spec.login, "spec.login")],
        "volumes": [*_volumes(cluster), users_volume, *volumes],
    }
    pod = template(cluster, Part.LOGIN, cluster.spec.login, "spec.login", spec)
    return workload(cluster, Part.LOGIN, "Deployment", pod, replicas=cluster.spec.login.replicas)


def _sackd(cluster: Cluster, users_mount: Json) -> Json:
    return {
        "name": "sackd",
        "image": cluster.spec.login.image or cluster.images.login,
        "imagePullPolicy": cluster.images.pull_policy,
        "restartPolicy": "Always",
        "args": ["/usr/local/sbin/sackd-start", "--conf-server", cluster.controller_address],
        "startupProbe": {
            "exec": {"command": ["test", "-S", "/run/slurm/sack.socket"]},
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": {"runAsNonRoot": True, "runAsUser": SLURM, "runAsGroup": SLURM, **RESTRICTED},
        "volumeMounts": [
            {"name": "run-slurm", "mountPath": "/run/slurm"},
            {"name": "run-sackd", "mountPath": "/run/sackd"},
            {"name": "slurm-key", "mountPath": "/etc/slurm", "readOnly": True},
            # It writes the user's name into the credential; a job without one is held.
            users_mount,
        ],
    }


def _sshd(cluster: Cluster) -> Json:
    connects = {"tcpSocket": {"port": "ssh"}}
    return {
        "name": "sshd",
        "image": cluster.images.login,
        "imagePullPolicy": cluster.images.pull_policy,
        "ports": [{"name": "ssh", "containerPort": PORT}],
        "readinessProbe": {**connects, "periodSeconds": 2},
        "livenessProbe": {**connects, "periodSeconds": 10, "failureThreshold": 6},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {
                "drop": ["ALL"],
                "add": ["AUDIT_WRITE", "CHOWN", "KILL", "SETGID", "SETUID", "SYS_CHROOT"],
            },
        },
        "volumeMounts": [
            {"name": "run-slurm", "mountPath": "/run/slurm"},
            {"name": "ssh-keys", "mountPath": "/etc/ssh/host-keys", "readOnly": True},
            {"name": "authorized-keys", "mountPath": "/etc/ssh/authorized-keys", "readOnly": True},
        ],
    }


def _volumes(cluster: Cluster) -> list[Json]:
    return [
        {"name": "run-slurm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "run-sackd", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        # For user slurm. An fsGroup would do the same and also take the shared volumes' roots from their owners.
        keys_volume("slurm-key", names.keys(cluster.name), names.SLURM_KEY, mode=0o444),
        keys_volume("ssh-keys", names.host_keys(cluster.name), names.HOST_KEY, mode=0o400),
        {
            "name": "authorized-keys",
            "configMap": {"name": names.authorized_keys(cluster.name), "defaultMode": 0o444},
        },
    ]
