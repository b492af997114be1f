"""slurmdbd: a Deployment that is never twice there, and its configuration, which is a Secret for the password in it."""

import base64

from kurm.domain.slurmcluster import ExternalDatabase
from kurm.domain.spec import Json
from kurm.operator.render import database, names, scripts
from kurm.operator.render.errors import SpecError
from kurm.operator.render.names import Part
from kurm.operator.render.pods import (
    RESTRICTED,
    SLURM,
    Cluster,
    digest,
    main_container,
    metadata,
    service,
    template,
    unprivileged,
    workload,
)
from kurm.slurm.conf import ConfError, Setting, parse, render

PORT = 6819
CONFIGURATION = "slurmdbd.conf"
START_SECONDS = 300
"""How long a start may take: it waits for its database, and makes or converts its tables."""


def objects(cluster: Cluster, password: str) -> list[Json]:
    """Return the objects; `password` is that of the database's user, the external one's or the companion's.

    Raises SpecError if slurmdbd.conf cannot hold it.
    """
    text = slurmdbd_conf(cluster, password)
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(cluster, Part.ACCOUNTING),
            "type": "Opaque",
            "data": {CONFIGURATION: base64.b64encode(text.encode()).decode()},
        },
        # slurmctld and sacctmgr try again by themselves, as slurmctld's own clients do.
        service(cluster, Part.ACCOUNTING, {"slurmdbd": PORT}, unready=True),
        deployment(cluster, digest(text)),
    ]


def slurmdbd_conf(cluster: Cluster, password: str) -> str:
    """Return slurmdbd.conf. Raises SpecError for a password that Slurm's files cannot hold."""
    settings = {
        # It compares this with its own host name and takes "localhost" for itself, whatever the pod is called.
        "DbdHost": "localhost",
        "DbdPort": str(PORT),
        "SlurmUser": "slurm",
        "AuthType": "auth/slurm",
        "AuthInfo": "use_client_ids",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": f"jwt_key={scripts.FOLDER}/{names.JWT_KEY},use_jwt_client_ids",
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        **_place(cluster),
        "StoragePass": password,
    }
    if not _holds(password):
        # Without the parser's own words: they would quote the password.
        raise SpecError(
            "spec.accounting.external.password",
            "slurmdbd.conf cannot hold it: it must be one line, not empty, with no white space beside a double quote",
        )
    return render(Setting(key, value) for key, value in settings.items())


def _place(cluster: Cluster) -> dict[str, str]:
    """Return where the database is."""
    place = cluster.spec.accounting.database
    if isinstance(place, ExternalDatabase):
        found = (place.host, str(place.port), place.name, place.user)
    else:
        found = (cluster.component(Part.DATABASE), str(database.PORT), database.NAME, database.USER)
    return dict(zip(("StorageHost", "StoragePort", "StorageLoc", "StorageUser"), found, strict=True))


def _holds(password: str) -> bool:
    try:
        return bool(password) and parse(render([Setting("StoragePass", password)])).get("StoragePass") == password
    except ConfError:
        return False


def deployment(cluster: Cluster, configuration_hash: str) -> Json:
    """Return slurmdbd's Deployment. The old one ends before the new one starts: both would write into one database."""
    spec: Json = {
        "securityContext": unprivileged(SLURM),
        "containers": [main_container(_container(cluster), cluster.spec.accounting, "spec.accounting")],
        "volumes": [_etc_slurm(cluster)],
    }
    pod = template(
        cluster,
        Part.ACCOUNTING,
        cluster.spec.accounting,
        "spec.accounting",
        spec,
        **{names.RESTART_HASH: configuration_hash},
    )
    return workload(cluster, Part.ACCOUNTING, "Deployment", pod, replicas=1, strategy={"type": "Recreate"})


def _etc_slurm(cluster: Cluster) -> Json:
    keys = [names.SLURM_KEY, names.JWT_KEY]
    return {
        "name": "etc-slurm",
        "projected": {
            # For group slurm (fsGroup); Slurm refuses a key that others can read.
            "defaultMode": 0o440,
            "sources": [
                {"secret": {"name": cluster.component(Part.ACCOUNTING)}},
                {"secret": {"name": names.keys(cluster.name), "items": [{"key": key, "path": key} for key in keys]}},
            ],
        },
    }


def _container(cluster: Cluster) -> Json:
    connects = {"tcpSocket": {"port": "slurmdbd"}}
    return {
        "name": "slurmdbd",
        "image": cluster.images.dbd,
        "imagePullPolicy": cluster.images.pull_policy,
        "ports": [{"name": "slurmdbd", "containerPort": PORT}],
        "startupProbe": {**connects, "periodSeconds": 1, "failureThreshold": START_SECONDS},
        "livenessProbe": {**connects, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**connects, "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "etc-slurm", "mountPath": scripts.FOLDER, "readOnly": True}],
    }
