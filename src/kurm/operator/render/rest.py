"""slurmrestd: beside a daemon of ours on a UNIX socket, and as a service on a port where `spec.rest` asks for it."""

from kurm.domain.spec import Json
from kurm.operator.render import names, scripts
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    RESTRICTED,
    SLURMRESTD,
    Cluster,
    main_container,
    service,
    template,
    unprivileged,
    workload,
)
from kurm.slurm.session import PARSERS

PORT = 6820
SOCKET_FOLDER = "/run/slurmrestd"
SOCKET = f"{SOCKET_FOLDER}/slurmrestd.sock"
START_SECONDS = 60
OURS_ARGS = ("-d", f"{PARSERS[0]}+fast")
"""Of a slurmrestd that only daemons of ours ask. `fast` leaves out what helps somebody who types a request: warnings of
unknown fields, and the field's path in errors. That is two fifths of an allocation: 2.2 ms of CPU, 1.3 without it."""
OURS_ENV = {"SLURMRESTD_JSON": "compact"}
"""Answers without spaces are 38 % shorter (measured with 5,000 nodes), and as much cheaper to decode."""


def objects(cluster: Cluster) -> list[Json]:
    """Return the objects of the service on a port. Who calls it brings a token, which slurmctld checks."""
    field, settings = "spec.rest", cluster.spec.rest
    # Every path of slurmrestd's asks for a token, which the kubelet has not; it listens when it can serve.
    connects = {"tcpSocket": {"port": "rest"}}
    container = _slurmrestd(cluster, f"0.0.0.0:{PORT}") | {
        "ports": [{"name": "rest", "containerPort": PORT}],
        "startupProbe": {**connects, "periodSeconds": 1, "failureThreshold": START_SECONDS},
        "livenessProbe": {**connects, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**connects, "periodSeconds": 2},
    }
    spec: Json = {
        "securityContext": unprivileged(SLURMRESTD),
        "containers": [main_container(container, settings, field)],
        "volumes": [volume(cluster)],
    }
    pod = template(cluster, Part.REST, settings, field, spec)
    return [
        service(cluster, Part.REST, {"rest": PORT}),
        workload(cluster, Part.REST, "Deployment", pod, replicas=1),
    ]


def sidecar(cluster: Cluster) -> Json:
    """Return slurmrestd as a side container that starts before the daemon that it serves, on a socket in their pod.

    The pod has to have `volumes`. The socket is open to all in the pod; a token is asked for there, too.
    """
    container = _slurmrestd(cluster, *OURS_ARGS, f"unix:{SOCKET}")
    return container | {
        "env": [*container["env"], *({"name": name, "value": value} for name, value in OURS_ENV.items())],
        "restartPolicy": "Always",
        "securityContext": {"runAsUser": SLURMRESTD, "runAsGroup": SLURMRESTD, **RESTRICTED},
        "startupProbe": {
            "exec": {"command": ["test", "-S", SOCKET]},
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
        },
        "volumeMounts": [*container["volumeMounts"], socket_mount()],
    }


def volumes(cluster: Cluster) -> list[Json]:
    """Return what a pod with the side container needs."""
    return [volume(cluster), {"name": "slurmrestd", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]


def volume(cluster: Cluster) -> Json:
    """Return the volume with the configuration. slurmrestd holds no key."""
    return {"name": "etc-slurm", "configMap": {"name": names.configuration(cluster.name), "defaultMode": 0o444}}


def socket_mount() -> Json:
    """Return the mount of the folder with the socket."""
    return {"name": "slurmrestd", "mountPath": SOCKET_FOLDER}


def _slurmrestd(cluster: Cluster, *arguments: str) -> Json:
    interfaces = ["slurmctld", *(["slurmdbd"] if cluster.spec.accounting.enabled else [])]
    return {
        "name": "slurmrestd",
        "image": cluster.spec.rest.image or cluster.images.slurmrestd,
        "imagePullPolicy": cluster.images.pull_policy,
        "args": ["-a", "rest_auth/jwt", "-s", ",".join(interfaces), *arguments],
        "env": [{"name": "SLURM_JWT", "value": "daemon"}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "etc-slurm", "mountPath": scripts.FOLDER, "readOnly": True}],
    }
