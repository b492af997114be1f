"""Objects that a schema of ours accepts, for Hypothesis: read from the schema alone, as the API server does."""

import json
import re
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

_WORDS = st.text("abcz-/.%_ ", max_size=8)
_RAW = st.recursive(_WORDS | st.integers() | st.booleans(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)
FIELDS = 3
_MATCHES = re.compile(r'self\.matches\((".*")\)')


def accepted(schema: Json) -> st.SearchStrategy[Any]:
    """Return what the schema takes: bounds, enums, patterns (in CEL, as `self.matches`), keys of lists."""
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 99) | st.just("100m")
    match schema["type"]:
        case "object":
            return _object(schema)
        case "array":
            return _array(schema)
        case "string":
            return _string(schema)
        case "integer":
            return st.integers(schema.get("minimum", -(2**31)), schema.get("maximum", 2**31))
        case "boolean":
            return st.booleans()
        case other:
            raise AssertionError(other)


def _object(schema: Json) -> st.SearchStrategy[Json]:
    if "additionalProperties" in schema:
        return st.dictionaries(_WORDS, accepted(schema["additionalProperties"]), max_size=2)
    fields = {name: accepted(each) for name, each in schema.get("properties", {}).items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    # A few of many: an object with all of its fields would take a second to draw.
    some = st.sets(st.sampled_from(sorted(fields)), max_size=FIELDS) if fields else st.just(set())
    known = some.flatmap(lambda names: st.fixed_dictionaries(required | {name: fields[name] for name in sorted(names)}))
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        return known
    return st.tuples(st.dictionaries(_WORDS, _RAW, max_size=2), known).map(lambda parts: parts[0] | parts[1])


def _array(schema: Json) -> st.SearchStrategy[list[Any]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    unique = {"unique_by": lambda item: tuple(item[key] for key in keys)} if keys else {"unique_by": json.dumps}
    least = 1 if any("self.size() >= 1" in rule["rule"] for rule in schema.get("x-kubernetes-validations", ())) else 0
    return st.lists(accepted(schema["items"]), min_size=least, max_size=2, **unique)


def _string(schema: Json) -> st.SearchStrategy[str]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        return st.sampled_from(["2026-11-21T16:15:42Z", "2026-11-21T16:15:42.123456Z"])
    most = schema["maxLength"]
    rules = schema.get("x-kubernetes-validations", ())
    patterns = [match[1] for rule in rules if (match := _MATCHES.fullmatch(rule["rule"]))]
    if not patterns:
        return st.text("ab:c= \n", min_size=schema.get("minLength", 0), max_size=min(most, 12))
    # ASCII, because `\s` and `\d` are ASCII to the API server's expressions; `$` is the end, and no newline before it.
    pattern = json.loads(patterns[0]).removesuffix("$") + r"\Z"
    return st.from_regex(re.compile(pattern, re.ASCII)).filter(lambda text: len(text) <= most)
