"""Values of declared types, and the JSON schemas that the types publish."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from autoturbo.errors import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

# What is wrong with a value, where, and how to mend it.

Steps = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value in it."""

_LONGEST_SHOWN: Final = 40  # characters of an offending value in a message


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One thing that is wrong with a document.

    Attributes:
        path: What it is about.
        message: What is wrong.
        hint: How to mend it.
        at: Whose position counts: the "value" at the path, the "key" that leads there, or the
            "parent" mapping where the path itself does not exist.
        position: Line and column where ``at`` cannot say.
        suggests: The path that was probably meant.
    """

    path: Steps
    message: str
    hint: str | None = None
    at: str = "value"
    position: tuple[int, int] | None = None
    suggests: Steps | None = None

    def under(self, path: Steps) -> ValidationIssue:
        """Return the same issue, seen from a document that holds this one at a path."""
        suggests = None if self.suggests is None else (*path, *self.suggests)
        return replace(self, path=(*path, *self.path), suggests=suggests)


class InvalidError(Exception):
    """A value that its declaration does not allow.

    Args:
        issues: All that is wrong, without a missing field that is there under a misspelt name.
    """

    def __init__(self, *issues: ValidationIssue) -> None:
        super().__init__(issues[0].message)
        suggested = {issue.suggests for issue in issues}
        kept = (i for i in issues if i.at != "parent" or i.path not in suggested)
        self.issues = tuple({(issue.path, issue.message): issue for issue in kept}.values())

    @property
    def first(self) -> ValidationIssue:
        """Return what is told where only one thing is."""
        return self.issues[0]


def fault(message: str, hint: str | None = None, **more: Any) -> Exception:
    """Return what a check of a field raises."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError("said", "{message}", {"message": message, "hint": hint, **more})


def dotted(path: Steps) -> str:
    """Return a path as messages show it: ``("engines", 0, "rows")`` is ``engines[0].rows``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def _key(name: str) -> str:
    """Return a field's name from a file, fit for a terminal."""
    return _short(name if name.isprintable() else ascii(name))


def shown(value: Any) -> str:
    """Return an offending value as messages show it: short, on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > sys.int_info.default_max_str_digits:
        return "a number of thousands of digits"
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


SCHEMA_URL: Final = "https://json-schema.org/draft/2020-12/schema"


@functools.lru_cache(maxsize=128)
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what checks values of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def checked(kind: Any, value: Any) -> Any:
    """Return the value that a declared type allows, with nothing unknown in it.

    Raises:
        InvalidError: What is wrong with it, in the order of the declaration.
    """
    from pydantic import ValidationError

    try:
        return adapter(kind).validate_python(value, extra="forbid")
    except ValidationError as error:
        found = (_issue(kind, one) for one in error.errors(include_url=False))
    except RecursionError:
        raise InvalidError(ValidationIssue((), "nested too deeply")) from None
    raise InvalidError(*found)


def _issue(kind: Any, error: ErrorDetails) -> ValidationIssue:
    """Return a fault that pydantic found, in our words."""
    of_key = error["loc"][-1:] == ("[key]",)
    path, parent, schema = _place(kind, error["loc"][:-1] if of_key else error["loc"])
    at = "key" if of_key else "value"
    match error["type"]:
        case "missing":
            return _missing(path, schema.get("description"))
        case "extra_forbidden":
            name, known = str(path[-1]), list(parent.get("properties", ()))
            meant = nearest(name, known)
            hint = did_you_mean(name, known, kind="fields")
            suggests = (*path[:-1], meant) if meant else None
            return ValidationIssue(path, "unknown field", hint, at="key", suggests=suggests)
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_kind(path, error["input"], schema["discriminator"])
        case "said":
            said = error["ctx"]
            message = said.get("key", said["message"]) if of_key else said["message"]
            return ValidationIssue((*path, *said.get("path", ())), message, said["hint"], at=at)
        case _:
            return ValidationIssue(path, _message(error), at=at)


def _missing(path: Steps, about: str | None) -> ValidationIssue:
    hint = f"add it ({about})" if about else "add it"
    return ValidationIssue(path, "missing field", hint, at="parent")


def _wrong_kind(path: Steps, value: Any, discriminator: Mapping[str, Any]) -> ValidationIssue:
    """Return what is wrong with the field that tells which of several objects one is."""
    name, known = discriminator["propertyName"], list(discriminator["mapping"])
    path = (*path, name)
    if name not in value:
        return _missing(path, f"one of {', '.join(known)}")
    given = value[name]
    hint = did_you_mean(str(given), known, kind=f"{name}s")
    return ValidationIssue(path, f"unknown {name} {shown(given)}", hint)


_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
}


_MESSAGES: Final = {
    "greater_than_equal": "must be at least {ge}, not {what}",
    "less_than_equal": "must be at most {le}, not {what}",
    "greater_than": "must be above {gt}, not {what}",
    "finite_number": "must be a finite number, not {what}",
    "string_too_long": "must be at most {max_length} characters, not {size}",
    "too_short": "must have at least {min_length} entries, not {size}",
    "invalid_key": "the name {what} is not text",
    "too_long": "must have at most {max_length} entries, not {size}",
    "string_unicode": "must be text that can be written down, without half a character",
}


def _message(error: ErrorDetails) -> str:
    """Return what is wrong with a value, in our words."""
    given, kind = error["input"], error["type"]
    expected = _TYPES.get(kind.partition("_")[0], "a mapping of fields")
    said = _MESSAGES.get(kind, "must be {expected}, not {what}")
    size = len(given) if isinstance(given, Sized) else 0
    limits = {
        name: f"{limit:g}" if isinstance(limit, float) else limit
        for name, limit in error.get("ctx", {}).items()
    }
    return said.format(**limits, expected=expected, what=shown(given), size=size)


def _place(
    kind: Any, loc: tuple[int | str, ...]
) -> tuple[Steps, Mapping[str, Any], Mapping[str, Any]]:
    """Return the path of an error without the names of alternatives, and the schemas there."""
    top = _published(kind)
    path: list[str | int] = []
    parent: Mapping[str, Any] = {}
    schema = _resolved(top, top)
    for step in loc:
        mapping = schema.get("discriminator", {}).get("mapping", {})
        if step in mapping:
            schema = _resolved({"$ref": mapping[step]}, top)
            continue
        path.append(step)
        parent = schema
        below = schema.get("properties", {}).get(step)
        if below is None:
            below = schema.get("items") if isinstance(step, int) else None
        if below is None:
            below = schema.get("additionalProperties")
        schema = _resolved(below, top) if isinstance(below, dict) else {}
    return tuple(path), parent, schema


def _resolved(schema: Mapping[str, Any], top: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference or a value that may be null stands for."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return {**top["$defs"][name], **{k: v for k, v in schema.items() if k != "$ref"}}
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return _resolved(options[0], top) if len(options) == 1 else schema


# Published schemas


def json_schema(kind: Any, title: str, about: str = "") -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a declared type, as a value of the caller's own.

    Args:
        kind: The type.
        title: Of the schema.
        about: What it describes.
    """
    import copy

    found = copy.deepcopy(_published(kind))
    found.pop("description", None)
    described = {"title": title, **({"description": about} if about else {})}
    return {"$schema": SCHEMA_URL, **described, **{k: v for k, v in found.items() if k != "title"}}


@functools.lru_cache(maxsize=128)
def _published(kind: Any) -> dict[str, Any]:
    from pydantic.json_schema import GenerateJsonSchema

    class StrictModel(GenerateJsonSchema):
        """Nothing unknown is allowed, and fields have no titles."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            del schema
            return False

        def sort(self, value: Any, parent_key: str | None = None) -> Any:
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
