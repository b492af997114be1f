"""The CRDs are what the types say: the committed files, the descriptions, the bounds, the defaults."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kurm.domain.spec import PLAINLY, Spec
from kurm.operator import crds, reference
from kurm.operator.crds import KINDS, Kind, object_schema, owned_rules
from kurm.operator.schema import RULES, schema
from kurm.slurm.owned import OWNED, REFUSED
from unit.operator.schema_strategy import Json, accepted

ROOT = Path(__file__).parents[3]
TYPES = [part for kind in KINDS for part in (kind.spec, kind.status)]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
each_type = pytest.mark.parametrize("spec", TYPES, ids=lambda spec: spec.__name__)


@each_kind
def test_committed_crds_are_those_of_the_types(kind: Kind) -> None:
    """Whoever changes a type writes the files anew."""
    committed = (ROOT / "charts/kurm/files/crds" / f"{kind.plural}.yaml").read_text()
    assert committed == crds.rendered(kind), f"out of date: run {crds.COMMAND}"


@each_kind
def test_committed_reference_is_that_of_the_types(kind: Kind) -> None:
    """The same for the pages that people read."""
    committed = (ROOT / "docs/reference" / f"{kind.kind.lower()}.md").read_text()
    assert committed == reference.rendered(kind), f"out of date: run {reference.COMMAND}"


def _fields(path: str, content: Json) -> Iterator[tuple[str, Json]]:
    for name, each in content.get("properties", {}).items():
        yield f"{path}.{name}", each
        yield from _fields(f"{path}.{name}", each)
    for inner in ("items", "additionalProperties"):
        if inner in content:
            yield f"{path}[]", content[inner]
            yield from _fields(f"{path}[]", content[inner])


@each_type
def test_every_field_says_what_it_is(spec: type[Spec]) -> None:
    """`kubectl explain` has a sentence for each; those of Kubernetes' own shapes are Kubernetes' to explain."""
    dumb = [
        path
        for path, content in _fields("", schema(spec))
        if not path.endswith("[]") and not content.get("description", "").endswith(".") and "[]." not in path
    ]
    assert dumb == []


@each_type
def test_everything_is_bounded(spec: type[Spec]) -> None:
    """No string, list or map is of any length: the API server refuses CEL rules whose cost it cannot estimate."""
    bounds = {"string": "maxLength", "array": "maxItems"}
    unbounded = [
        path
        for path, content in _fields("", schema(spec))
        if (bound := bounds.get(content.get("type", ""))) and bound not in content and not _is_bounded(content)
    ]
    assert unbounded == []


def _is_bounded(content: Json) -> bool:
    # Claims of devices are checked where they end up, in a pod, and no rule of ours reads them.
    return "enum" in content or "format" in content or content.get("description", "").startswith("Devices")


@each_type
def test_nothing_of_ours_is_left_for_the_server_to_puzzle_over(spec: type[Spec]) -> None:
    """Plain words have become rules; nulls and references are written out."""
    text = msgspec.json.encode(schema(spec)).decode()
    assert [word for word in (PLAINLY, "anyOf", "$ref", "null") if word in text] == []


def _with_defaults(content: Json, value: Any) -> Any:
    """Fill in defaults as the API server does: from the outside to the inside."""
    if isinstance(value, list) and "items" in content:
        return [_with_defaults(content["items"], item) for item in value]
    if not isinstance(value, dict) or "properties" not in content:
        return value
    filled = {name: each["default"] for name, each in content["properties"].items() if "default" in each} | value
    return {name: _with_defaults(content["properties"].get(name, {}), inner) for name, inner in filled.items()}


SCHEMAS = {spec: schema(spec) for spec in TYPES}
OBJECTS = {spec: accepted(content) for spec, content in SCHEMAS.items()}


@each_type
@settings(max_examples=60, phases=[Phase.generate, Phase.shrink])
@given(data=st.data())
def test_what_the_schema_takes_the_type_reads_with_the_same_defaults(spec: type[Spec], data: st.DataObject) -> None:
    """Nothing that passed admission breaks the operator, and the server's defaults make no difference to it."""
    made = data.draw(OBJECTS[spec])
    read = msgspec.convert(made, spec)
    assert msgspec.convert(_with_defaults(SCHEMAS[spec], made), spec) == read
    assert msgspec.convert(msgspec.to_builtins(read), spec) == read


def test_a_default_is_written_with_all_that_it_stands_for() -> None:
    """CEL rules are held against a default as it is written: `{}` would lack the size that they ask for."""
    storage = object_schema(KINDS[0])["properties"]["spec"]["properties"]["controller"]["properties"]["storage"]
    assert storage["default"] == {"size": "1Gi", "whenDeleted": "Retain"}


def test_owned_keys_are_refused_each_in_its_own_words() -> None:
    """As many sentences as there are keys and parts of lists; where they are tried is the integration test."""
    first, *others = owned_rules()
    assert [key for key, why in OWNED.items() if f"{key} cannot be set here: {why}" not in first.says] == []
    said = [f"{key}={part} cannot be set here: {why}" for key, parts in REFUSED.items() for part, why in parts.items()]
    assert [rule.message for rule in others] == said


def test_a_type_without_a_place_in_a_schema_is_refused() -> None:
    """A union of two shapes cannot be structural; the error comes when the CRD is generated, not in a cluster."""

    class Either(Spec):
        either: int | tuple[int, ...] = 0

    with pytest.raises(TypeError, match="structural"):
        schema(Either)


def test_rules_are_kept_side_by_side() -> None:
    """A field with a pattern in plain words and a rule of its own has both."""
    users = object_schema(KINDS[0])["properties"]["spec"]["properties"]["login"]["properties"]["users"]
    messages = [rule["message"] for rule in users["items"]["properties"]["name"][RULES]]
    assert messages == [
        "must be a-z, 0-9, _ and -, with a letter or _ first",
        "must be another name: this is a system user of the images",
    ]
