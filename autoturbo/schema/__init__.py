"""Declare what is read from files and published: annotations of fields, checks, JSON schemas.

A declaration is a frozen dataclass or a ``TypedDict`` whose fields are annotated with the types
of this package: ``latency: Seconds``, ``cores: list[Index]``. :func:`checked` gives the value that
a type allows, with every fault located; :func:`json_schema` publishes the same declaration.
pydantic does both. It is imported when the first value is checked, not when a type is declared:
most commands start without it (docs/decisions/schemas.md).
"""

from __future__ import annotations

import sys

from autoturbo.schema.checks import checked
from autoturbo.schema.issues import InvalidError, Steps, ValidationIssue, dotted
from autoturbo.schema.object_types import (
    document_type,
    fields_of,
    form_of,
    list_type,
    map_type,
    mapping_type,
)
from autoturbo.schema.published import json_schema
from autoturbo.schema.rules import (
    MOST,
    Bytes,
    Choice,
    DeferredType,
    Described,
    Duration,
    ExactlyOne,
    Index,
    JsonSchema,
    Name,
    Natural,
    Positive,
    Seconds,
    WithoutFraction,
)

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # pydantic wants this one

__all__ = [
    "MOST",
    "Bytes",
    "Choice",
    "DeferredType",
    "Described",
    "Duration",
    "ExactlyOne",
    "Index",
    "InvalidError",
    "JsonSchema",
    "Name",
    "Natural",
    "Positive",
    "Seconds",
    "Steps",
    "TypedDict",
    "ValidationIssue",
    "WithoutFraction",
    "checked",
    "document_type",
    "dotted",
    "fields_of",
    "form_of",
    "json_schema",
    "list_type",
    "map_type",
    "mapping_type",
]
