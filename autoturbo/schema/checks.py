"""Checks of values against declared types: what pydantic finds, in our words."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any, Final

from autoturbo.errors import did_you_mean, nearest
from autoturbo.schema.issues import InvalidError, Steps, ValidationIssue, shown
from autoturbo.schema.published import adapter, published_schema

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


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
    top = published_schema(kind)
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
