"""What Kurm's resources are made of: a base, what is said of fields beyond their types, and the shapes they share.

A resource is read from the API server, which has already checked it against the schema that `kurm.operator.crds`
generates from these types. A field's `Meta` holds its bounds and the sentence that `kubectl explain` shows. What a
schema alone cannot say is a `Rule` in CEL: in a struct's RULES, or beside a field's `Meta` by `rules`.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self, dataclass_transform

from msgspec import Meta, Struct, StructMeta, field

GROUP = "kurm.dev"
VERSION = "v1alpha1"
NAME_LENGTH = 40
"""Longest name of a resource of ours: names of pods, Services and labels (63 letters) are made from it. Slurm's own
limit for the name of a cluster is the same (slurm.conf(5), ClusterName)."""

Json = dict[str, Any]


class Rule(Struct, frozen=True):
    """What must hold of `self`, in CEL, and what is said when it does not.

    The API server says `message` behind the field's name and its value, if it is no list or object; `says` is CEL for a
    sentence that tells more. `path` is the field below `self` that is to blame (`.clusterName`).
    """

    rule: str
    message: str
    says: str = ""
    path: str = ""

    def schema(self) -> Json:
        """Return the rule as an entry of `x-kubernetes-validations`."""
        parts = {"rule": self.rule, "message": self.message, "messageExpression": self.says, "fieldPath": self.path}
        return {name: value for name, value in parts.items() if value}


def unchanged(name: str) -> str:
    """Return CEL for: the field is what it was, absent or not. `self.?name` would cost more than the server lets."""
    now, before = f"self.{name}", f"oldSelf.{name}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


def rules(*of_field: Rule) -> Meta:
    """Return the rules of a field."""
    return Meta(extra_json_schema={"x-kubernetes-validations": [rule.schema() for rule in of_field]})


def plainly(sentence: str) -> Meta:
    """Say what the field must be: the sentence takes the place of its pattern or least length, which nobody reads."""
    return Meta(extra_json_schema={PLAINLY: sentence})


def keyed(*keys: str) -> Meta:
    """Know items of a list by these fields: two with the same are refused, and each can be applied by itself."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def raw(**properties: Json) -> Meta:
    """Pass Kubernetes' own shape on to the pod, where the API server checks it; a few of its fields are known here."""
    schema: Json = {"x-kubernetes-preserve-unknown-fields": True}
    if properties:
        schema |= {"properties": properties, "required": list(properties)}
    return Meta(extra_json_schema=schema)


PLAINLY = "x-kurm-plainly"
DISTINCT = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})
"""The list is a set: what stands twice is refused."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class SpecMeta(StructMeta):
    """Tells type checkers that whatever derives from Spec is frozen too."""


class Spec(Struct, metaclass=SpecMeta, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part of a resource, with what its absence means. Unknown fields are skipped: a newer version may have them."""

    RULES: ClassVar[tuple[Rule, ...]] = ()


DURATION = r"^([1-9][0-9]{0,5}[dhms])+$"
"""What a Duration looks like."""
_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}

Image = Annotated[
    str, Meta(description="Image; absent for the one that this version of Kurm was released with.", max_length=512)
]
Quantity = Annotated[
    str,
    Meta(description="A quantity of bytes, as 10Gi.", max_length=24),
    Meta(pattern=r"^[0-9]{1,15}([.][0-9]{1,9})?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"),
    plainly("must be a number of bytes, as 512Mi, 10Gi or 1Ti"),
]
Port = Annotated[int, Meta(ge=1, le=65535)]
Duration = Annotated[
    str,
    Meta(description="A duration above zero, as 90s, 10m, 1h30m or 7d.", max_length=32),
    Meta(pattern=DURATION),
    plainly("must be a duration above zero, as 90s, 10m, 1h30m or 7d"),
]
Wait = Annotated[
    str,
    Meta(description="A duration, as 90s, 10m, 1h30m or 7d; 0s for none.", max_length=32),
    Meta(pattern=r"^(0s|([1-9][0-9]{0,5}[dhms])+)$"),
    plainly("must be a duration, as 0s, 90s, 10m, 1h30m or 7d"),
]
TimeLimit = Annotated[
    str,
    Meta(description="A duration above zero, as 90s, 10m, 1h30m or 7d, or UNLIMITED.", max_length=32),
    Meta(pattern=r"^(UNLIMITED|([1-9][0-9]{0,5}[dhms])+)$"),
    plainly("must be a duration above zero, as 90s, 10m, 1h30m or 7d, or UNLIMITED"),
]
Name = Annotated[str, Meta(description="Name of an object in the same namespace.", min_length=1, max_length=253)]
OurName = Annotated[str, Meta(description="Name of a resource of Kurm's.", min_length=1, max_length=NAME_LENGTH)]
SlurmName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60),
    plainly("must be letters, digits, _, . and -, with a letter or digit first"),
]
Path = Annotated[
    str,
    # Named letters, because what `\s` is differs between Python and the API server.
    Meta(pattern=r"^/[A-Za-z0-9_.@%+=~/-]+$", max_length=255),
    plainly("must be a path below /, of letters, digits, _, ., @, %, +, =, ~ and -"),
]
Labels = Annotated[
    Mapping[Annotated[str, Meta(max_length=317)], Annotated[str, Meta(max_length=63)]], Meta(max_length=64)
]
Annotations = Annotated[
    Mapping[Annotated[str, Meta(max_length=317)], Annotated[str, Meta(max_length=65536)]], Meta(max_length=64)
]

_TEXT: Json = {"type": "string", "minLength": 1, "maxLength": 317}
_AMOUNTS: Json = {
    "type": "object",
    "maxProperties": 32,
    "additionalProperties": {"x-kubernetes-int-or-string": True},
}
_RESOURCES: Json = {
    "properties": {
        "requests": _AMOUNTS | {"description": "What is reserved on the node, by resource."},
        "limits": _AMOUNTS | {"description": "What may be used at most, by resource."},
        "claims": {
            "description": "Devices, as a container claims them.",
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "x-kubernetes-list-type": "atomic",
        },
    }
}


def seconds(duration: str) -> int | None:
    """Return a Duration, Wait or TimeLimit in seconds; None for UNLIMITED."""
    if duration == "UNLIMITED":
        return None
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", duration))


class SecretKey(Spec):
    """One value of a Secret in the same namespace."""

    name: Annotated[Name, Meta(description="Name of the Secret.")]
    key: Annotated[str, Meta(description="Which of the Secret's keys.", min_length=1, max_length=253)]


class Storage(Spec):
    """A claim for a volume."""

    RULES: ClassVar = (
        Rule(
            "!isQuantity(self.size) || quantity(self.size).isGreaterThan(quantity('0'))",
            "must be above zero",
            path=".size",
        ),
        Rule(
            "!isQuantity(self.size) || quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "a volume cannot shrink",
            says="'a volume cannot shrink: ' + self.size + ' is less than ' + oldSelf.size",
            path=".size",
        ),
        Rule(
            unchanged("storageClassName"),
            "the storage class of a volume cannot be changed: its data would be lost",
            path=".storageClassName",
        ),
    )
    size: Annotated[Quantity, Meta(description="How large, as 10Gi. It can grow, where the class allows it.")] = "1Gi"
    storage_class_name: Annotated[
        str,
        Meta(description="Absent for the cluster's default class. It cannot be changed.", min_length=1, max_length=253),
    ] = ""
    when_deleted: Annotated[
        Literal["Retain", "Delete"], Meta(description="What becomes of the data when the SlurmCluster is deleted.")
    ] = "Retain"


class Component(Spec):
    """What can be said of the pods of every component."""

    image: Image = ""
    resources: Annotated[
        Json, Meta(description="Requests and limits, as a container has them.", extra_json_schema=_RESOURCES)
    ] = field(default_factory=dict)
    node_selector: Annotated[Labels, Meta(description="Labels that a node must have.")] = field(default_factory=dict)
    affinity: Annotated[Json, Meta(description="Affinity, as a pod has it."), raw()] = field(default_factory=dict)
    tolerations: Annotated[
        tuple[Annotated[Json, raw()], ...], Meta(description="Tolerations, as a pod has them.", max_length=64)
    ] = ()
    priority_class_name: Annotated[str, Meta(description="The pods' PriorityClass.", max_length=253)] = ""
    volumes: Annotated[
        tuple[Annotated[Json, raw(name=_TEXT)], ...],
        Meta(description="Further volumes, as a pod has them.", max_length=64),
        keyed("name"),
    ] = ()
    volume_mounts: Annotated[
        tuple[Annotated[Json, raw(name=_TEXT, mountPath=_TEXT)], ...],
        Meta(description="Where the main container sees the further volumes.", max_length=64),
        keyed("mountPath"),
    ] = ()
    env: Annotated[
        tuple[Annotated[Json, raw(name=_TEXT)], ...],
        Meta(description="Environment of the main container, as a container has it.", max_length=128),
        keyed("name"),
    ] = ()
    annotations: Annotated[Annotations, Meta(description="Annotations of the pods.")] = field(default_factory=dict)


class ConditionType(StrEnum):
    """What a condition is about: its `type`, and what it means when it is True."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Make a member of its two parts; it is equal to its type."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class Condition(Spec):
    """One fact about a resource, as Kubernetes' own resources tell theirs."""

    type: Annotated[str, Meta(description="Which fact.", min_length=1, max_length=316)]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether it is so.")]
    last_transition_time: Annotated[datetime, Meta(description="Since when the status is what it is.")]
    reason: Annotated[str, Meta(description="Why, in one word for programs.", min_length=1, max_length=1024)]
    message: Annotated[str, Meta(description="Why, in a sentence for people.", max_length=32768)] = ""
    observed_generation: Annotated[
        int | None, Meta(description="The generation of the resource that this was said of.")
    ] = None


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(description="What holds of the resource now, each with its reason.", max_length=32),
    keyed("type"),
]
ObservedGeneration = Annotated[
    int, Meta(description="The generation of the resource that this status was made for; an older one is out of date.")
]
Count = Annotated[int, Meta(ge=0)]
