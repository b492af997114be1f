"""The companion database: one pod of a StatefulSet with MariaDB, its volume, its Service. `keys` has its password."""

from kurm.domain.slurmcluster import CompanionDatabase
from kurm.domain.spec import Json
from kurm.operator.render import names
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    MYSQL,
    RESTRICTED,
    Cluster,
    claim,
    keys_volume,
    main_container,
    service,
    template,
    unprivileged,
    workload,
)

PORT = 3306
NAME, USER = "slurm_acct_db", "slurm"
"""Of the database, and of whom slurmdbd logs in as: what the image makes by itself."""
START_SECONDS = 300
"""How long a start may take: an empty volume is filled, a crashed database repaired."""
_SECRETS = "/run/secrets/kurm"
_FIELD = "spec.accounting.companion"


def objects(cluster: Cluster, companion: CompanionDatabase) -> list[Json]:
    """Return the objects."""
    storage = companion.storage
    kept = storage.when_deleted == "Retain"
    return [
        claim(cluster, Part.DATABASE, storage.size, storage.storage_class_name, kept=kept),
        service(cluster, Part.DATABASE, {"mysql": PORT}),
        stateful_set(cluster, companion),
    ]


def stateful_set(cluster: Cluster, companion: CompanionDatabase) -> Json:
    """Return MariaDB's StatefulSet."""
    name = cluster.component(Part.DATABASE)
    spec: Json = {
        "securityContext": unprivileged(MYSQL),
        "containers": [main_container(_container(cluster), companion, _FIELD)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": name}},
            keys_volume("password", name, names.PASSWORD, mode=0o440),
        ],
    }
    pod = template(cluster, Part.DATABASE, companion, _FIELD, spec)
    return workload(cluster, Part.DATABASE, "StatefulSet", pod, serviceName=name, replicas=1)


def _container(cluster: Cluster) -> Json:
    connects = {"tcpSocket": {"port": "mysql"}}
    return {
        "name": "mariadb",
        "image": cluster.images.mariadb,
        "imagePullPolicy": cluster.images.pull_policy,
        "env": [{"name": "MARIADB_PASSWORD_FILE", "value": f"{_SECRETS}/{names.PASSWORD}"}],
        "ports": [{"name": "mysql", "containerPort": PORT}],
        "startupProbe": {**connects, "periodSeconds": 1, "failureThreshold": START_SECONDS},
        # Seldom: MariaDB counts a connection without a login as an error of that host's.
        "livenessProbe": {**connects, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 4},
        "readinessProbe": {**connects, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/mysql"},
            {"name": "password", "mountPath": _SECRETS, "readOnly": True},
        ],
    }
