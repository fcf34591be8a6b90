"""The JSON schema of target files, made from the table of their fields."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, Final

from autoturbo.hardware.fields import ENGINES, PARTS, SCHEMA_VERSION, TOP, Field, Section
from autoturbo.hardware.target import DATAFLOWS, DTYPES

SCHEMA_URL: Final = "https://json-schema.org/draft/2020-12/schema"

# The look-ahead keeps Python's "$" from accepting a newline at the end.
_NAME: Final = r"^[a-z0-9][a-z0-9._-]*$(?!\n)"


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    required = ["schema_version", *_required(TOP), "engines"]
    return {
        "$schema": SCHEMA_URL,
        "title": "AutoTurbo target",
        "description": "An accelerator that networks are scheduled on",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION, "description": "version of this layout: 1"},
            **{f.name: _field_schema(f) for f in TOP},
            "engines": _engines_schema(),
            **{part.key: _section_schema(part) for part in PARTS},
        },
        "required": required + [part.key for part in PARTS if not part.optional],
        "additionalProperties": False,
    }


def target_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of target files, as a value of the caller's own."""
    return copy.deepcopy(_schema())


def _required(fields: tuple[Field, ...]) -> list[str]:
    return [f.name for f in fields if f.default is None]


def _section_schema(section: Section) -> dict[str, Any]:
    return {
        "description": section.doc,
        "type": "object",
        "properties": {f.name: _field_schema(f) for f in section.fields},
        "required": _required(section.fields),
        "additionalProperties": False,
    }


def _engines_schema() -> dict[str, Any]:
    kinds = [section.key for section in ENGINES]
    return {
        "description": "one engine of each kind",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"kind": {"enum": kinds, "description": f"one of {', '.join(kinds)}"}},
            "required": ["kind"],
            "allOf": [
                {"if": _of_kind(section.key), "then": _engine_schema(section)}
                for section in ENGINES
            ],
        },
        "allOf": [
            {"contains": _of_kind(kind), "minContains": 1, "maxContains": 1} for kind in kinds
        ],
    }


def _of_kind(kind: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]}


def _engine_schema(section: Section) -> dict[str, Any]:
    schema = _section_schema(section)
    schema["properties"] = {"kind": True, **schema["properties"]}
    return schema


def _field_schema(field: Field) -> dict[str, Any]:
    return {"description": field.doc, **_value_schema(field), "examples": [field.example]}


def _value_schema(field: Field) -> dict[str, Any]:
    number = {"type": "number", "minimum": field.low, "maximum": field.high}
    if field.kind == "per_dtype":
        properties = dict.fromkeys(DTYPES, number)
        closed = {"additionalProperties": False, "minProperties": 1}
        return {"type": "object", "properties": properties, **closed}
    schemas: dict[str, dict[str, Any]] = {
        "integer": {**number, "type": "integer"},
        "number": number,
        "bytes": number,
        "boolean": {"type": "boolean"},
        "choice": {"enum": list(DATAFLOWS)},
        "name": {"type": "string", "pattern": _NAME, "maxLength": 64},
        "text": {"type": "string", "maxLength": 200},
    }
    return schemas[field.kind]
