"""Pods as the API server sends them, cut short: for tests of where they can go."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from kurm.domain.podspec import PodSpec
from kurm.domain.spec import Spec


class Owner(Spec):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(Spec):
    """What a pod says of itself."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()


class Pod(Spec):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


def pod(name: str = "web-0", *, namespace: str = "shop", owner: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    """Return a pod whose only container asks `requests`, with the annotations below slurm.kurm.dev/ as `slurm`.

    Other fields are those of its spec, as JSON has them.
    """
    slurm, annotations = fields.pop("slurm", {}), fields.pop("annotations", {})
    requests, ports = fields.pop("requests", {"cpu": "1", "memory": "1Gi"}), fields.pop("ports", [])
    container = {"name": "main", "resources": {"requests": requests}, "ports": ports}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": fields.pop("uid", f"uid-of-{name}"),
        "annotations": annotations | {f"slurm.kurm.dev/{key}": value for key, value in slurm.items()},
        "ownerReferences": [owner] if owner else [],
    }
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container]} | fields}, Pod)


def spec(**fields: Any) -> PodSpec:
    """Return a pod's spec of JSON."""
    return msgspec.convert(fields, PodSpec)
