"""What all pods and all objects of a cluster share: labels, owner, the fields of a component, security contexts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from kurm.domain.slurmcluster import SlurmClusterSpec
from kurm.domain.spec import GROUP, VERSION, Component, Json
from kurm.operator.render import names
from kurm.operator.render.errors import SpecError
from kurm.operator.render.names import Part

SLURM, MYSQL, SLURMRESTD, KURM = 401, 402, 403, 404
"""User and group ids in the images (docs/images.md)."""

Containers = Sequence[Json]


class Images(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What runs where a component names no image of its own, and when the kubelet asks a registry for it.

    `kurm operator --images` reads a file of it.
    """

    controller: str
    slurmd: str
    login: str
    slurmrestd: str
    dbd: str
    mariadb: str
    kurm: str
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True)
class Cluster:
    """A SlurmCluster as it is to be rendered."""

    namespace: str
    name: str
    uid: str
    spec: SlurmClusterSpec
    images: Images

    @property
    def slurm_name(self) -> str:
        """Slurm's own name of it."""
        return self.spec.cluster_name or self.name

    def component(self, part: Part) -> str:
        """Return the name of a component's objects."""
        return names.component(self.name, part)

    @property
    def controller_address(self) -> str:
        """Where slurmctld is found, for --conf-server."""
        return f"{self.component(Part.CONTROLLER)}:6817"


RESTRICTED: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""The security context of a container; its pod says who it runs as."""

EXCEPTIONS: Mapping[tuple[Part, str], str] = {
    (Part.SLURMD, "slurmd"): (
        "root and privileged: it starts jobs as their users, and makes cgroups, namespaces and mounts for them"
    ),
    (Part.LOGIN, "sshd"): (
        "root with AUDIT_WRITE, CHOWN, KILL, SETGID, SETUID and SYS_CHROOT: sshd becomes the user who logs in, tells "
        "the kernel of each session, or ends it, and confines its own network-facing half"
    ),
}
"""The containers that are privileged, run as root or have a capability, by component and name, and why. No other is."""


def unprivileged(user: int, *, group: bool = True) -> Json:
    """Return the security context of a pod all of whose containers run as one user; its volumes are for the group."""
    owner = {"fsGroup": user} if group else {}
    return {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, **owner, **SECCOMP}


SECCOMP: Json = {"seccompProfile": {"type": "RuntimeDefault"}}


def selector(cluster: str, part: Part) -> dict[str, str]:
    """Return the labels by which a component's pods are found."""
    return {"app.kubernetes.io/name": "slurm", "app.kubernetes.io/instance": cluster, _COMPONENT: part.value}


_COMPONENT = "app.kubernetes.io/component"


def labels(cluster: str, part: Part) -> dict[str, str]:
    """Return the labels of everything that belongs to a component."""
    ours = {"app.kubernetes.io/part-of": "kurm", "app.kubernetes.io/managed-by": "kurm"}
    return selector(cluster, part) | ours


def owner(kind: str, name: str, uid: str) -> Json:
    """Return the reference to the resource of ours that an object goes with."""
    api = f"{GROUP}/{VERSION}"
    return {
        "apiVersion": api,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(cluster: Cluster, part: Part, name: str = "", *, owned: bool = True, **more: Any) -> Json:
    """Return the metadata of an object of a component, which is named after it unless it is given a name.

    What is not `owned` outlives the SlurmCluster.
    """
    found: Json = {
        "name": name or cluster.component(part),
        "namespace": cluster.namespace,
        "labels": labels(cluster.name, part),
        **{key: value for key, value in more.items() if value},
    }
    return found | ({"ownerReferences": [owner("SlurmCluster", cluster.name, cluster.uid)]} if owned else {})


def main_container(container: Json, settings: Component, field: str) -> Json:
    """Return a component's main container with what the resource says of it: image, resources, mounts, environment.

    Resources of the resource's replace ours as a whole: a limit below our request would make no pod.
    """
    resources = settings.resources or container.get("resources", {})
    return container | {
        "image": settings.image or container["image"],
        "resources": resources,
        "volumeMounts": joined(
            f"{field}.volumeMounts", "mountPath", container.get("volumeMounts", []), settings.volume_mounts
        ),
        **given(env=joined(f"{field}.env", "name", container.get("env", []), settings.env)),
    }


def template(cluster: Cluster, part: Part, settings: Component, field: str, spec: Json, **annotations: str) -> Json:
    """Return a pod template: `spec` holds containers, volumes and security context, the resource's fields are added.

    `annotations` are ours, by key; the resource's come first and cannot take their place.
    """
    return {
        "metadata": {
            "labels": labels(cluster.name, part),
            **given(annotations=dict(settings.annotations) | annotations),
        },
        "spec": {
            # Nothing in these pods but the syncer speaks to Kubernetes, and Services in the environment are thousands.
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **spec,
            **given(
                volumes=joined(f"{field}.volumes", "name", spec.get("volumes", []), settings.volumes),
                nodeSelector=dict(settings.node_selector),
                affinity=settings.affinity,
                tolerations=list(settings.tolerations),
                priorityClassName=settings.priority_class_name,
            ),
        },
    }


def joined(field: str, key: str, ours: Iterable[Json], theirs: Iterable[Json]) -> list[Json]:
    """Return our items and the resource's. Raises SpecError for one of theirs that would take the place of ours."""
    own = list(ours)
    taken = {item[key] for item in own}
    for item in theirs:
        if item[key] in taken:
            raise SpecError(field, f"{key} {item[key]!r} is Kurm's own here: take another")
    return [*own, *theirs]


def shared(cluster: Cluster) -> tuple[list[Json], list[Json]]:
    """Return the volumes and mounts of what login and compute nodes share; a claim is one volume, mounted or often."""
    claims = sorted({volume.claim_name for volume in cluster.spec.shared_volumes})
    called = {claim: f"shared-{number}" for number, claim in enumerate(claims)}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in called.items()]
    mounts = [
        {
            "name": called[volume.claim_name],
            "mountPath": volume.mount_path,
            **given(subPath=volume.sub_path, readOnly=volume.read_only),
        }
        for volume in cluster.spec.shared_volumes
    ]
    return volumes, mounts


def keys_volume(name: str, secret: str, *keys: str, mode: int) -> Json:
    """Return a volume with some keys of a Secret as files of the same name."""
    items = [{"key": key, "path": key} for key in keys]
    return {"name": name, "secret": {"secretName": secret, "defaultMode": mode, "items": items}}


def claim(cluster: Cluster, part: Part, size: str, storage_class: str, *, kept: bool) -> Json:
    """Return the claim for a component's volume; what is `kept` outlives the SlurmCluster.

    An object of its own and no volumeClaimTemplate: those cannot be changed, so the volume could not grow.
    """
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(cluster, part, owned=not kept),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **given(storageClassName=storage_class),
        },
    }


def service(
    cluster: Cluster, part: Part, ports: Mapping[str, int], *, headless: bool = False, unready: bool = False
) -> Json:
    """Return a component's Service, by the names of its pods' ports; `unready`: those not ready are in it, too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, part),
        "spec": {
            **({"clusterIP": "None"} if headless else {}),
            "selector": selector(cluster.name, part),
            "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()],
            **given(publishNotReadyAddresses=unready),
        },
    }


def workload(cluster: Cluster, part: Part, kind: str, pod: Json, **spec: Any) -> Json:
    """Return a Deployment or StatefulSet of a component."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata(cluster, part),
        "spec": {"selector": {"matchLabels": selector(cluster.name, part)}, "template": pod, **spec},
    }


def digest(value: object) -> str:
    """Return 16 hexadecimal digits that tell one value from another: JSON, or what msgspec makes JSON of."""
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()


def given(**fields: Any) -> Json:
    """Return the fields that say something: an empty one would be ours in the object, and need not be."""
    return {name: value for name, value in fields.items() if value}
