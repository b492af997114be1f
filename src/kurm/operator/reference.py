"""The reference of both resources in Markdown, generated from their types.

    python -m kurm.operator.reference docs/reference

writes it, one page for each. The tables say what `kubectl explain` says, with defaults and bounds.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kurm.domain.nodeset import NodeSetCondition
from kurm.domain.slurmcluster import SlurmClusterCondition
from kurm.domain.spec import GROUP, VERSION, Component, ConditionType, Json
from kurm.operator.crds import KINDS, SLURM_CLUSTER, Kind, object_schema
from kurm.operator.schema import RULES, schema
from kurm.slurm.owned import OWNED, REFUSED

COMMAND = "python -m kurm.operator.reference docs/reference"
_SHARED = schema(Component)["properties"]
_CONDITIONS: dict[str, type[ConditionType]] = {"SlurmCluster": SlurmClusterCondition, "NodeSet": NodeSetCondition}
_ABOUT_CONDITIONS = """\
Each condition has a `reason` (one word, for programs), a `message` (for people) and the `observedGeneration` that it
was said of. Whatever knows kstatus (Helm, Flux, Argo CD) can read them: `Reconciling` and `Stalled` are there only
while they are True. `kubectl wait` may wait for any of them.
"""


def rendered(kind: Kind) -> str:
    """Return the page of a resource."""
    return "\n".join(_page(kind)).rstrip() + "\n"


def _page(kind: Kind) -> Iterator[str]:
    whole = object_schema(kind)
    yield f"<!-- Generated from the types in src/kurm/domain by: {COMMAND} -->"
    yield f"# {kind.kind}\n"
    yield f"{kind.about} `{GROUP}/{VERSION}`, namespaced; `kubectl get {kind.short}`, or `kubectl get kurm` for all.\n"
    yield from _refused("An object", whole)
    for part in ("spec", "status"):
        yield f"## {part}\n"
        yield from _section(part, whole["properties"][part])
    yield "## Conditions\n"
    yield _ABOUT_CONDITIONS
    yield from (f"- `{condition}`: {condition.meaning}" for condition in _CONDITIONS[kind.kind])
    yield ""
    yield from _columns(kind)
    yield "## Fields of every component\n"
    yield "Where a section above speaks of pods, these fields are there too.\n"
    yield from _table(_SHARED)
    yield from _sections("", _SHARED)
    if kind is SLURM_CLUSTER:
        yield from _owned()


def _section(path: str, content: Json) -> Iterator[str]:
    shared = [name for name, each in content["properties"].items() if _SHARED.get(name) == each]
    own = {name: each for name, each in content["properties"].items() if name not in shared}
    yield f"{content['description']}\n"
    if shared:
        yield "With the [fields of every component](#fields-of-every-component).\n"
    if own:
        yield from _table(own, required=content.get("required", ()))
    yield from _refused("It", content)
    yield from _sections(path, own)


def _sections(path: str, properties: Json) -> Iterator[str]:
    for name, each in properties.items():
        inner = each.get("items", each)
        if "description" in inner and inner.get("properties"):
            below = f"{path}.{name}".lstrip(".") + ("[]" if inner is not each else "")
            yield f"### {below}\n"
            yield from _section(below, inner)


def _table(properties: Json, required: Sequence[str] = ()) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, each in properties.items():
        default = "required" if name in required else _default(each)
        yield f"| `{name}` | {_type(each)} | {default} | {_words(each)} |"
    yield ""


def _default(content: Json) -> str:
    default = content.get("default")
    if default is None or isinstance(default, dict):
        return ""  # an object's defaults stand in its own section
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(content: Json) -> str:
    if "enum" in content:
        return ", ".join(f"`{value}`" for value in content["enum"])
    if "x-kubernetes-int-or-string" in content:
        return "integer or string"
    if content["type"] == "array":
        return f"list of {_type(content['items'])}"
    if "additionalProperties" in content:
        return "map"
    return str(content.get("format") if content.get("format") == "date-time" else content["type"])


def _words(content: Json) -> str:
    words = [content.get("description", "")]
    least, most = content.get("minimum"), content.get("maximum")
    if most is not None:
        words.append(f"From {least or 0} to {most}.")
    words += [f"{rule['message'][0].upper()}{rule['message'][1:]}." for rule in _told(content)]
    return " ".join(word for word in words if word).replace("|", "\\|")


def _told(content: Json) -> list[Json]:
    """Rules of a field, but for objects, whose section tells them, and for the many of `config.extra`."""
    rules: list[Json] = content.get(RULES, [])
    return [] if content.get("type") == "object" or len(rules) > len(REFUSED) else rules


def _refused(what: str, content: Json) -> Iterator[str]:
    if rules := content.get(RULES):
        yield f"{what} is refused with one of these sentences:\n"
        yield from (f"- {_place(rule)}{rule['message']}" for rule in rules)
        yield ""


def _place(rule: Json) -> str:
    return f"`{rule['fieldPath'].lstrip('.')}`: " if "fieldPath" in rule else ""


def _columns(kind: Kind) -> Iterator[str]:
    yield "## Columns\n"
    yield "| column | shown | meaning |"
    yield "| --- | --- | --- |"
    for column in kind.columns:
        yield f"| {column.name} | {'with `-o wide`' if column.wide else 'always'} | {column.about} |"
    yield ""


def _owned() -> Iterator[str]:
    yield "## What config.extra cannot set\n"
    yield "| key | why |"
    yield "| --- | --- |"
    yield from (f"| `{key}` | {why} |" for key, why in OWNED.items())
    yield from (f"| `{key}={part}` | {why} |" for key, parts in REFUSED.items() for part, why in parts.items())


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (folder / f"{kind.kind.lower()}.md").write_text(rendered(kind))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
