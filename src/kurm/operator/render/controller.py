"""slurmctld: one pod of a StatefulSet, so that there are never two of it, its volume and its Service."""

from kurm.domain.spec import Json
from kurm.operator.render import names, scripts
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    RESTRICTED,
    SLURM,
    Cluster,
    claim,
    main_container,
    service,
    template,
    unprivileged,
    workload,
)

PORT = 6817
STATUS_PORT = 6819
"""Of slurmctld's init, which tells what configuration is in force."""
START_SECONDS = 300
"""How long a start may take: the first one with accounting waits for a database that is just being made."""


def objects(cluster: Cluster, controller_hash: str) -> list[Json]:
    """Return the objects; `controller_hash` is the configuration's, whose change is a new pod."""
    storage = cluster.spec.controller.storage
    kept = storage.when_deleted == "Retain"
    return [
        claim(cluster, Part.CONTROLLER, storage.size, storage.storage_class_name, kept=kept),
        # Whether slurmctld answers is its clients' question: they try again, and a Service without a pod refuses them.
        service(cluster, Part.CONTROLLER, {"slurmctld": PORT, "status": STATUS_PORT}, unready=True),
        stateful_set(cluster, controller_hash),
    ]


def stateful_set(cluster: Cluster, controller_hash: str) -> Json:
    """Return slurmctld's StatefulSet."""
    name = cluster.component(Part.CONTROLLER)
    spec: Json = {
        "securityContext": unprivileged(SLURM),
        "containers": [main_container(_container(cluster), cluster.spec.controller, "spec.controller")],
        "volumes": [etc_slurm(cluster), {"name": "state", "persistentVolumeClaim": {"claimName": name}}],
    }
    pod = template(
        cluster,
        Part.CONTROLLER,
        cluster.spec.controller,
        "spec.controller",
        spec,
        **{names.RESTART_HASH: controller_hash},
    )
    return workload(cluster, Part.CONTROLLER, "StatefulSet", pod, serviceName=name, replicas=1)


def etc_slurm(cluster: Cluster) -> Json:
    """Return the volume with the configuration, the scripts and the keys. Scripts are run there, hence its mode."""
    keys = [names.SLURM_KEY, names.JWT_KEY]
    # With fsGroup the kubelet adds read for group slurm; Slurm refuses a key that others can read.
    items = [{"key": key, "path": key, "mode": 0o440} for key in keys]
    return {
        "name": "etc-slurm",
        "projected": {
            "defaultMode": 0o555,
            "sources": [
                {"configMap": {"name": names.configuration(cluster.name)}},
                {"secret": {"name": names.keys(cluster.name), "items": items}},
            ],
        },
    }


def _container(cluster: Cluster) -> Json:
    return {
        "name": "slurmctld",
        "image": cluster.images.controller,
        "imagePullPolicy": cluster.images.pull_policy,
        "args": ["-v"],
        "ports": [{"name": "slurmctld", "containerPort": PORT}, {"name": "status", "containerPort": STATUS_PORT}],
        "startupProbe": {
            "httpGet": {"path": "/livez", "port": "slurmctld"},
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
        },
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "slurmctld"},
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "slurmctld"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "etc-slurm", "mountPath": scripts.FOLDER, "readOnly": True},
            {"name": "state", "mountPath": "/var/spool/slurmctld"},
        ],
    }
