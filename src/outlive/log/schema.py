"""Turns an annotation into a validator and a serializer whose JSON comes back as the same value.

pydantic's own JSON loses some values: bytes that are not UTF-8, members of a union that look alike, keys that are not
text. The core schema is rewritten for those three and used as it is for all else. Text is data only: no module path.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol, cast

from pydantic import BaseModel, TypeAdapter
from pydantic_core import CoreConfig, CoreSchema, SchemaSerializer, SchemaValidator, to_json

Schema = dict[str, object]

_CONFIG: Schema = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_timedelta": "iso8601",
    "ser_json_inf_nan": "null",
}
_HAS_CONFIG = {"model", "dataclass", "typed-dict"}
_OPAQUE = {
    "metadata",
    "cls",
    "default",
    "default_factory",
    "function",
    "expected",
    "members",
    "config",
    "discriminator",
}
_BY_NAME = {"fields", "choices"}
_TEXT_KEYS = {"str", "int", "bool", "date", "datetime", "timedelta", "decimal", "uuid", "bytes"}
_KINDS = {
    "none": "null",
    "bool": "bool",
    "int": "int",
    "float": "float",
    "model": "object",
    "dataclass": "object",
    "typed-dict": "object",
    "dict": "object",
} | dict.fromkeys(("list", "tuple", "set", "frozenset"), "array")
_KINDS |= dict.fromkeys(("str", "bytes", "date", "datetime", "time", "timedelta", "decimal", "uuid"), "string")
_VALUE_KINDS = {str: "string", int: "int", bool: "bool", type(None): "null", float: "float"}


class Handler(Protocol):
    """pydantic's serializer of the schema below."""

    def __call__(self, value: object, /) -> object: ...


class Compiled:
    """Validator and serializer of one annotation, and the classes that stand beside look-alikes in a union."""

    def __init__(self, schema: Schema) -> None:
        rewrite = _Rewrite()
        data = rewrite.schema(schema)
        self.validator, self.serializer = rewrite.validator(data), rewrite.serializer(data)
        self.named = frozenset(rewrite.named)


def core_schema(annotation: object) -> Schema:
    """The schema that pydantic makes of an annotation; raises pydantic's errors for what it does not know."""
    adapter = TypeAdapter(cast(type[object], annotation))
    return cast(Schema, adapter.core_schema)


class _Rewrite:
    def __init__(self) -> None:
        self.raw: dict[str, Schema] = {}
        self.definitions: dict[str, Schema] = {}
        self.named: set[type] = set()

    def validator(self, schema: Schema) -> SchemaValidator:
        return SchemaValidator(self._whole(schema), cast(CoreConfig, _CONFIG), _use_prebuilt=False)

    def serializer(self, schema: Schema) -> SchemaSerializer:
        return SchemaSerializer(self._whole(schema), cast(CoreConfig, _CONFIG), _use_prebuilt=False)

    def _whole(self, schema: Schema) -> CoreSchema:
        # pydantic's own models were compiled with their own settings: the rewritten schema must not fall back on them.
        if not self.definitions:
            return cast(CoreSchema, schema)
        return cast(
            CoreSchema, {"type": "definitions", "schema": schema, "definitions": list(self.definitions.values())}
        )

    def schema(self, schema: Schema) -> Schema:
        """Rewrites one schema; what it defines by reference is gathered in `definitions`."""
        kind = schema.get("type")
        if kind == "definitions":
            return self._hoist(schema)
        copy: Schema = {key: self._part(key, part) for key, part in schema.items()}
        if kind in _HAS_CONFIG:
            own = {k: v for k, v in cast(Schema, schema.get("config") or {}).items() if k != "ser_json_temporal"}
            copy["config"] = own | _CONFIG
        if "serialization" in schema:
            return copy
        if kind == "dict" and not self._is_text(cast(Schema, schema.get("keys_schema", {"type": "str"}))):
            return _pairs(copy)
        if kind == "union":
            return self._union(copy)
        return copy

    def _hoist(self, schema: Schema) -> Schema:
        found = {str(one["ref"]): one for one in cast(list[Schema], schema["definitions"])}
        self.raw |= found
        for ref, one in found.items():
            if ref not in self.definitions:
                self.definitions[ref] = self.schema(one)
        return self.schema(cast(Schema, schema["schema"]))

    def _part(self, key: str, part: object) -> object:
        if key in _OPAQUE:
            return part
        if key in _BY_NAME and isinstance(part, dict):
            return {name: self._part("", one) for name, one in part.items()}
        if isinstance(part, dict):
            return self.schema(part)
        if isinstance(part, list | tuple):
            return type(part)([self._part("", one) for one in part])
        return part

    def _union(self, schema: Schema) -> Schema:
        choices = [_choice(one) for one in cast(list[object], schema["choices"])]
        kinds = Counter(kind for one in choices for kind in self._kinds(one))
        if len(choices) < 2 or not (kinds["any"] or any(count > 1 for count in kinds.values())):
            return schema
        resolved = [self._resolve(one) for one in choices]
        self.named |= {cls for one in resolved if isinstance(cls := one.get("cls"), type)}
        labels = [_label(one) for one in resolved]
        tagged = {label: one for label, one in zip(labels, choices, strict=True) if labels.count(label) == 1}
        return _Union(self, schema, tagged).schema

    def _resolve(self, schema: Schema) -> Schema:
        """The schema that decides what a value is, below references and wrappers."""
        while True:
            if schema.get("type") == "definition-ref":
                ref = str(schema["schema_ref"])
                schema = self.raw.get(ref) or self.definitions[ref]
            elif (
                schema.get("type") in {"default", "function-after", "function-before"} and "serialization" not in schema
            ):
                schema = cast(Schema, schema["schema"])
            else:
                return schema

    def _kinds(self, schema: Schema) -> set[str]:
        """The kinds of JSON that a schema may write; "any" where that cannot be said."""
        schema = self._resolve(schema)
        kind = str(schema.get("type"))
        if "serialization" in schema or schema.get("root_model"):
            return {"any"}
        if kind == "nullable":
            return {"null"} | self._kinds(cast(Schema, schema["schema"]))
        if kind in {"literal", "enum"}:
            return {_VALUE_KINDS.get(type(value), "any") for value in _values(schema)}
        return {_KINDS.get(kind, "any")}

    def _is_text(self, key: Schema) -> bool:
        """Whether a key comes back from being written as text."""
        key = self._resolve(key)
        if key.get("type") in {"literal", "enum"}:
            return all(type(value) is str for value in _values(key))
        return key.get("type") in _TEXT_KEYS and "serialization" not in key


class _Union:
    """A union whose members look alike in JSON: one that would come back as another is written with its name."""

    def __init__(self, rewrite: _Rewrite, plain: Schema, tagged: dict[str, Schema]) -> None:
        self.rewrite, self.labels = rewrite, tuple(tagged)
        named = [_named(label, one) for label, one in tagged.items()]
        self.data: Schema = {"type": "union", "mode": "left_to_right", "choices": [*named, plain]}
        self.schema: Schema = {
            "type": "json-or-python",
            "json_schema": self.data,
            "python_schema": plain,
            "serialization": {
                "type": "function-wrap",
                "function": self.write,
                "schema": plain,
                "when_used": "json",
            },
        }

    @cached_property
    def validator(self) -> SchemaValidator:
        return self.rewrite.validator(self.data)

    def write(self, value: object, handler: Handler) -> object:
        plain = handler(value)
        if self._comes_back(value, plain):
            return plain
        for label in self.labels:
            named = {"$type": label, "value": plain}
            if self._comes_back(value, named):
                return named
        return plain

    def _comes_back(self, value: object, data: object) -> bool:
        try:
            back: object = self.validator.validate_json(to_json(data), by_alias=False, by_name=True)
        except ValueError:
            return False
        return type(back) is type(value) and same(back, value)


def _named(label: str, schema: Schema) -> Schema:
    fields = {"$type": {"type": "literal", "expected": [label]}, "value": schema}
    return {
        "type": "function-after",
        "function": {"type": "no-info", "function": _value},
        "schema": {
            "type": "typed-dict",
            "extra_behavior": "forbid",
            "config": _CONFIG,
            "fields": {k: {"type": "typed-dict-field", "schema": v, "required": True} for k, v in fields.items()},
        },
    }


def _value(named: dict[str, object]) -> object:
    return named["value"]


def _pairs(schema: Schema) -> Schema:
    """A dict whose keys do not survive as text is written as a list of pairs."""
    pair: Schema = {
        "type": "tuple",
        "items_schema": [schema.get("keys_schema", {"type": "any"}), schema.get("values_schema", {"type": "any"})],
    }
    bounds: Schema = {key: schema[key] for key in ("min_length", "max_length") if key in schema}
    pairs: Schema = {"type": "list", "items_schema": pair, **bounds}
    return {
        "type": "json-or-python",
        "json_schema": {
            "type": "function-after",
            "function": {"type": "no-info", "function": dict},
            "schema": pairs,
        },
        "python_schema": schema,
        "serialization": {"type": "function-wrap", "function": _write_pairs, "schema": pairs, "when_used": "json"},
    }


def _write_pairs(value: object, handler: Handler) -> object:
    return handler(list(value.items()) if isinstance(value, dict) else value)


def _choice(choice: object) -> Schema:
    return cast(Schema, choice[0] if isinstance(choice, tuple) else choice)


def _label(schema: Schema) -> str:
    kind = schema.get("cls")
    return kind.__name__ if isinstance(kind, type) else str(schema.get("type"))


def _values(schema: Schema) -> list[object]:
    values = cast(list[object], schema.get("expected") or schema.get("members") or [])
    return [getattr(value, "value", value) for value in values]


def same(one: object, other: object) -> bool:
    """Whether two values are equal for what a log keeps: private attributes and a zone's name are not kept."""
    return one == other or next(differences(one, other), None) is None


def differences(one: object, other: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Where two values differ: path, the one, the other."""
    if isinstance(one, float) and math.isnan(one):
        yield path, one, other
    elif one is other or one == other:
        return
    elif type(one) is not type(other):
        yield path, one, other
    elif (parts := _parts(one)) is not None and (others := _parts(other)) is not None:
        if parts.keys() != others.keys():
            yield path, one, other
            return
        for name, part in parts.items():
            yield from differences(part, others[name], path + name)
    elif isinstance(one, datetime) and isinstance(other, datetime):
        if _instant(one) is None or _instant(one) != _instant(other):
            yield path, one, other
    elif type(one).__eq__ is not object.__eq__:
        yield path, one, other


def _parts(value: object) -> dict[str, object] | None:
    if isinstance(value, BaseModel):
        fields = {f".{name}": getattr(value, name, None) for name in type(value).model_fields}
        return fields | {f".{name}": part for name, part in (value.model_extra or {}).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f".{field.name}": getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {f"[{key!r}]": part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {f"[{index}]": part for index, part in enumerate(value)}
    return None


def parts(value: object) -> dict[str, object]:
    """What a value is made of, by the path that a reader would write; empty for a scalar."""
    if isinstance(value, set | frozenset):
        return {f"{{{index}}}": part for index, part in enumerate(value)}
    return _parts(value) or {}


def _instant(value: datetime) -> object:
    """Two readings of one instant compare unequal by `==` where a zone's clocks go back."""
    offset = value.utcoffset()
    return None if offset is None else value.replace(tzinfo=UTC, fold=0) - datetime(1970, 1, 1, tzinfo=UTC) - offset
