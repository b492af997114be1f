"""The CustomResourceDefinitions of SlurmCluster and NodeSet, generated from their types.

    python -m kurm.operator.crds charts/kurm/files/crds

writes them, one file for each. What is refused at admission is refused here, by the schema and its CEL rules.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kurm.domain.nodeset import NodeSetSpec, NodeSetStatus
from kurm.domain.slurmcluster import SlurmClusterSpec, SlurmClusterStatus
from kurm.domain.spec import GROUP, NAME_LENGTH, VERSION, Json, Rule, Spec
from kurm.operator.schema import RULES, cel, schema
from kurm.slurm.owned import OWNED, REFUSED

COMMAND = "python -m kurm.operator.crds charts/kurm/files/crds"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; one that is `wide` is shown with -o wide only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    about: str = ""

    def schema(self) -> Json:
        """Return the column as an entry of `additionalPrinterColumns`."""
        parts: Json = {"name": self.name, "type": self.type, "jsonPath": self.path}
        parts |= {"description": self.about} if self.about else {}
        return parts | ({"priority": 1} if self.wide else {})


def condition(kind: str, part: str) -> str:
    """Return the path of a part of a condition."""
    return f'.status.conditions[?(@.type=="{kind}")].{part}'


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class Kind:
    """A resource: its names, its types, and what kubectl and other clients of the API are told of it."""

    kind: str
    short: str
    about: str
    spec: type[Spec]
    status: type[Spec]
    columns: tuple[Column, ...]
    scale: Mapping[str, str] = field(default_factory=dict)
    selectable: tuple[str, ...] = ()

    @property
    def plural(self) -> str:
        """Its name in URLs."""
        return f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """The name of its CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


SLURM_CLUSTER = Kind(
    "SlurmCluster",
    "slc",
    "A Slurm cluster: controller, accounting, login, configuration and partitions.",
    SlurmClusterSpec,
    SlurmClusterStatus,
    (
        Column("Available", condition("Available", "status"), about="Whether Slurm takes jobs."),
        Column("Configured", condition("Configured", "reason"), about="What became of the newest configuration."),
        Column("Ready", ".status.nodes.ready", "integer", about="Compute nodes in service."),
        Column("Nodes", ".status.nodes.total", "integer", about="Compute nodes of all NodeSets."),
        Column("Version", ".status.version", about="Slurm's version."),
        AGE,
        Column("Login", ".status.loginAddress", wide=True, about="Where ssh finds the login nodes."),
        Column("Config", ".status.configHash", wide=True, about="Hash of the configuration in force."),
        Column("Reason", condition("Available", "reason"), wide=True, about="Why it is available, or not."),
        Column("Message", condition("Ready", "message"), wide=True, about="What is missing, if anything is."),
    ),
)
NODE_SET = Kind(
    "NodeSet",
    "nset",
    "Compute nodes of a SlurmCluster: a slurmd pod on each Kubernetes node that fits.",
    NodeSetSpec,
    NodeSetStatus,
    (
        Column("Cluster", ".spec.clusterRef.name", about="The SlurmCluster that the nodes belong to."),
        Column("Desired", ".status.desired", "integer", about="Nodes that there should be."),
        Column("Ready", ".status.ready", "integer", about="Nodes in service."),
        Column("Feasible", ".status.feasible", "integer", about="Nodes that could be used."),
        Column("Draining", ".status.draining", "integer", about="Nodes that take no more jobs and still have some."),
        Column("Reason", condition("Ready", "reason"), about="Why it is ready, or not."),
        AGE,
        Column("Current", ".status.current", "integer", wide=True, about="Nodes with a pod."),
        Column(
            "Updated", ".status.updated", "integer", wide=True, about="Nodes whose pod is of the newest generation."
        ),
        Column("Allocated", ".status.allocated", "integer", wide=True, about="Nodes with jobs or pods on them."),
        Column("Drained", ".status.drained", "integer", wide=True, about="Nodes that take no jobs and have none."),
        Column("Misscheduled", ".status.misscheduled", "integer", wide=True, about="Nodes with a pod that do not fit."),
        Column("Unavailable", ".status.unavailable", "integer", wide=True, about="Nodes desired and not ready."),
        Column("Infeasible", ".status.infeasible[*].reason", wide=True, about="Why other nodes cannot be used."),
        Column("Message", condition("Ready", "message"), wide=True, about="What is missing, if anything is."),
    ),
    scale={
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.current",
        "labelSelectorPath": ".status.selector",
    },
    selectable=(".spec.clusterRef.name",),
)
KINDS = (SLURM_CLUSTER, NODE_SET)

NAME = Rule(
    f"self.metadata.name.size() <= {NAME_LENGTH} && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
    f"metadata.name must be at most {NAME_LENGTH} of a-z, 0-9 and -, with a letter first and no - at the end: "
    "pods, Services and labels are named after it",
)


def owned_rules() -> list[Rule]:
    """Return the rules of `config.extra`: one for the keys that are Kurm's own, one for each part of a list that is.

    They read lines as they stand. What hides from them behind a backslash at a line's end is found when the
    configuration is rendered, by `kurm.slurm.owned.check`.
    """
    keys = "|".join(sorted(key for key in OWNED if key != "Include"))
    line = cel(f"(?im)^[ \\t\\r\\v\\f]*((?:{keys})[ \\t]*=|include[ \\t])")
    said = {key.lower(): f"{key} cannot be set here: {why}" for key, why in OWNED.items()}
    word = cel("[A-Za-z]+")
    owned = Rule(
        f"!self.matches({line})",
        "a line sets what Kurm must set itself",
        says=f"{cel(said)}[self.find({line}).find({word}).lowerAscii()]",
    )
    return [owned, *(_refused(key, part, why) for key, parts in REFUSED.items() for part, why in parts.items())]


def _refused(key: str, part: str, why: str) -> Rule:
    part_of_line = rf"(?im)^[ \t\r\v\f]*{key}[ \t]*=[ \t]*\"?([^#\n]*,)?[ \t]*{re.escape(part)}[ \t]*([,=\"#\s]|$)"
    return Rule(f"!self.matches({cel(part_of_line)})", f"{key}={part} cannot be set here: {why}")


def crd(kind: Kind) -> Json:
    """Return the CustomResourceDefinition of a resource."""
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": [kind.short],
        "categories": ["kurm"],
    }
    version: Json = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.schema() for column in kind.columns],
        "subresources": {"status": {}} | ({"scale": dict(kind.scale)} if kind.scale else {}),
        "schema": {"openAPIV3Schema": object_schema(kind)},
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name, "labels": {"app.kubernetes.io/part-of": "kurm"}},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def object_schema(kind: Kind) -> Json:
    """Return the schema of a whole object."""
    spec = schema(kind.spec)
    if kind is SLURM_CLUSTER:
        extra = spec["properties"]["config"]["properties"]["extra"]
        extra[RULES] = [rule.schema() for rule in owned_rules()]
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": schema(kind.status),
    }
    return {
        "description": kind.about,
        "type": "object",
        "required": ["spec"],
        "properties": properties,
        RULES: [NAME.schema()],
    }


class _Plain(yaml.SafeDumper):
    """YAML without anchors, which nobody would read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def rendered(kind: Kind) -> str:
    """Return the file of a resource's CustomResourceDefinition."""
    # Through JSON, because a tuple or an enum would become a YAML tag.
    plain = json.loads(json.dumps(crd(kind)))
    body = yaml.dump(plain, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
    return f"# Generated from the types in src/kurm/domain by: {COMMAND}\n{body}"


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (folder / f"{kind.plural}.yaml").write_text(rendered(kind))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
