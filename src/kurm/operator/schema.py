"""From the msgspec types of a resource to a structural OpenAPI v3 schema, as a CustomResourceDefinition wants it.

References are written out, `X | None` is a field that may be absent, and a field's default is the type's. What stands
in `Meta.extra_json_schema` is added as it is: list types, CEL rules, raw Kubernetes shapes.
"""

import json
from typing import Any

import msgspec
from msgspec import inspect

from kurm.domain.spec import PLAINLY, Json, Rule, Spec

RULES = "x-kubernetes-validations"
_NOTHING: tuple[object, ...] = (None, "", (), {})
"""Defaults that need not be written: absence says the same."""


def schema(spec: type[Spec]) -> Json:
    """Return the schema of a struct. TypeError for a type that has no place in a structural schema."""
    return _schema(inspect.type_info(spec))


def cel(value: object) -> str:
    """Return a value as CEL writes it: strings, and lists and maps of them, are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _schema(kind: inspect.Type) -> Json:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of type
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=more):
            return _plainly(_merged(_schema(inner), more or {}))
        case inspect.UnionType(types=types) if len(rest := _present(types)) == 1:
            return _schema(rest[0])
        case inspect.UnionType(types=(inspect.IntType(), inspect.StrType())):
            return {"x-kubernetes-int-or-string": True}
        case inspect.StructType():
            return _object(kind)
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            return {"type": "string"} | _known(minLength=least, maxLength=most, pattern=pattern)
        case inspect.IntType(ge=least, le=most):
            return {"type": "integer", "format": "int64"} | _known(minimum=least, maximum=most)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case inspect.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            bounds = _known(minItems=least, maxItems=most)
            return {"type": "array", "items": _schema(item), "x-kubernetes-list-type": "atomic"} | bounds
        case inspect.DictType(value_type=inspect.AnyType()):
            return {"type": "object"}  # raw(...) says the rest
        case inspect.DictType(value_type=value, min_length=least, max_length=most):
            bounds = _known(minProperties=least, maxProperties=most)
            return {"type": "object", "additionalProperties": _schema(value)} | bounds
        case _:
            raise TypeError(f"{kind} has no place in a structural schema")


def _present(types: tuple[inspect.Type, ...]) -> list[inspect.Type]:
    return [each for each in types if not isinstance(each, inspect.NoneType)]


def _object(struct: inspect.StructType) -> Json:
    properties = {field.encode_name: _property(field) for field in struct.fields}
    required = [field.encode_name for field in struct.fields if field.required]
    rules = [rule.schema() for rule in getattr(struct.cls, "RULES", ())]
    words = " ".join((struct.cls.__doc__ or "").split())
    more = _known(required=required or None, **{RULES: rules or None})
    return {"description": words, "type": "object", "properties": properties} | more


def _property(field: inspect.Field) -> Json:
    content = _schema(field.type)
    default = _filled(content, _default(field))
    return content if default in _NOTHING else content | {"default": default}


def _default(field: inspect.Field) -> Any:
    """Return a field's default as JSON; None if it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default_factory())
    return None if field.default is msgspec.NODEFAULT else msgspec.to_builtins(field.default)


def _filled(content: Json, default: Any) -> Any:
    """Return an object with the defaults of what it leaves out: CEL rules are held against a default as it is."""
    if not isinstance(default, dict):
        return default
    properties = content.get("properties", {})
    return {name: each["default"] for name, each in properties.items() if "default" in each} | {
        name: _filled(properties[name], value) for name, value in default.items()
    }


def _plainly(content: Json) -> Json:
    """Let a rule with plain words take the place of a pattern or a least length."""
    words = content.pop(PLAINLY, None)
    if words is None:
        return content
    if content["type"] == "string":
        rule = Rule(f"self.matches({cel(content.pop('pattern'))})", words)
    else:
        rule = Rule(f"self.size() >= {content.pop('minItems')}", words)
    return _merged({RULES: [rule.schema()]}, content)


def _merged(content: Json, more: Json) -> Json:
    """Return both; rules are added to one another, anything else of `more` wins."""
    rules = content.get(RULES, []) + more.get(RULES, [])
    return content | more | ({RULES: rules} if rules else {})


def _known(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}
