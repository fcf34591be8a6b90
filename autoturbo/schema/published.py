"""JSON schemas that declared types publish."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import TypeAdapter


SCHEMA_URL: Final = "https://json-schema.org/draft/2020-12/schema"


@functools.lru_cache(maxsize=128)
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a type, which checks values and makes schemas."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def json_schema(kind: Any, title: str, about: str = "") -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a declared type, as a value of the caller's own.

    Args:
        kind: The type.
        title: Title of the schema.
        about: What the schema describes.
    """
    import copy

    found = copy.deepcopy(published_schema(kind))
    found.pop("description", None)
    described = {"title": title, **({"description": about} if about else {})}
    return {"$schema": SCHEMA_URL, **described, **{k: v for k, v in found.items() if k != "title"}}


@functools.lru_cache(maxsize=128)
def published_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a declared type, the same object each time: it is not changed."""
    from pydantic.json_schema import GenerateJsonSchema

    class StrictModel(GenerateJsonSchema):
        """Nothing unknown is allowed, and fields have no titles."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            del schema
            return False

        def sort(self, value: Any, parent_key: str | None = None) -> Any:
            # fields stay in the order of their declaration
            del parent_key
            return value

        def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
            return {**super().typed_dict_schema(schema), "additionalProperties": False}

        def dataclass_schema(self, schema: Any) -> dict[str, Any]:
            found = {**super().dataclass_schema(schema), "additionalProperties": False}
            if "description" in found:  # what a docstring says of attributes is for readers of code
                found["description"] = found["description"].partition("\n\n")[0]
            return found

        def model_schema(self, schema: Any) -> dict[str, Any]:
            return {**super().model_schema(schema), "additionalProperties": False}

    found: dict[str, Any] = _plain(adapter(kind).json_schema(schema_generator=StrictModel))
    return found


def _plain(value: Any) -> Any:
    """Return a schema without the titles of its types and the defaults of its fields."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    is_schema = "title" in value and ("type" in value or "$ref" in value)
    return {k: _plain(v) for k, v in value.items() if not (is_schema and k == "title")}
