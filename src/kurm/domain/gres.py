"""Generic resources of a node: from Kubernetes' extended resources and labels to Slurm's GRES. Pure.

Which GRES a node has is settled as it is claimed, and written on it (the annotation GRES): Slurm keeps a record's GRES
for the record's life, slurmd sets a node aside whose gres.conf says less than its record, and gres.conf is made by the
operator, who does not see records. So a label that comes later, a NodeSet that asks for something else, or a device
plugin that is restarted (the node has no device for a minute) changes neither of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kurm.domain import names
from kurm.domain.nodeset import GresSource
from kurm.domain.spec import GROUP

GRES = f"{GROUP}/gres"
"""Annotation of a claimed Node: its GRES by extended resource, as JSON: {"nvidia.com/gpu":"gpu:h100:8"}."""

GPU_TYPES: Mapping[str, str] = {
    "nvidia.com/gpu": "nvidia.com/gpu.product",
    "amd.com/gpu": "amd.com/gpu.product-name",
    "gpu.intel.com/i915": "gpu.intel.com/product",
    "gpu.intel.com/xe": "gpu.intel.com/product",
}
"""Extended resources that are GPUs, and the label that says which: GPU Feature Discovery's, AMD's node labeller's and
Node Feature Discovery's own words."""

# A GPU's device files, by the extended resource that counts them: the vendors' own names, from the first device on.
_FILES = {
    "nvidia.com": ("/dev/nvidia", 0),
    "amd.com": ("/dev/dri/renderD", 128),
    "gpu.intel.com": ("/dev/dri/renderD", 128),
}
_DEFAULT_FILES = _FILES["nvidia.com"]
_WRITTEN = re.compile(r"([a-z][a-z0-9_]*)(?::([A-Za-z0-9][A-Za-z0-9_.-]*))?:([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, order=True)
class Gres:
    """Generic resources of one kind on a node."""

    name: str
    type: str
    count: int
    files: str = ""
    """Their device files as gres.conf's File= has them; empty for a kind that is only counted."""

    def __str__(self) -> str:
        """Return it as slurm.conf's Gres= has it: `gpu:h100:8`, `fpga:2`."""
        return ":".join(filter(None, (self.name, self.type, str(self.count))))


def name_of(resource: str, source: GresSource) -> str:
    """Return a GRES' name: the given one, `gpu` for a known GPU, else the resource's own without its domain."""
    if source.name or resource in GPU_TYPES:
        return source.name or "gpu"
    own = re.sub(r"[^a-z0-9_]+", "_", resource.rpartition("/")[2].lower())
    return own if own[:1].isalpha() else f"x{own}"


def gres(resource: str, source: GresSource, count: int, labels: Mapping[str, str]) -> Gres:
    """Return the GRES of a node that has so many of an extended resource.

    Its type is the given one, or what the label says, in lower case, as people type it: two products whose names differ
    in nothing but case are one type. Without the label, or with an empty one, there is no type.
    """
    name, kind = name_of(resource, source), source.type
    label = GPU_TYPES.get(resource, "") if source.type_label is None else source.type_label
    if not kind and label and labels.get(label):
        kind = names.name(labels[label].lower())
    return Gres(name, kind, count, _files(resource, count) if name == "gpu" else "")


def written(found: Mapping[str, Gres]) -> str:
    """Return the annotation for the GRES of a node, by extended resource."""
    return msgspec.json.encode({resource: str(one) for resource, one in sorted(found.items())}).decode()


def read(text: str) -> dict[str, Gres] | None:
    """Return what the annotation says; None for what we have not written."""
    try:
        told = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None
    found = {resource: _WRITTEN.fullmatch(one) for resource, one in told.items()}
    if not all(found.values()):
        return None
    return {resource: _of(resource, *one.groups()) for resource, one in found.items() if one}


def _of(resource: str, name: str, kind: str | None, count: str) -> Gres:
    return Gres(name, kind or "", int(count), _files(resource, int(count)) if name == "gpu" else "")


def _files(resource: str, count: int) -> str:
    path, first = _FILES.get(resource.partition("/")[0], _DEFAULT_FILES)
    return f"{path}{first}" if count == 1 else f"{path}[{first}-{first + count - 1}]"
