"""Checks of values against declared types: what pydantic finds, in our words."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any, Final

from autoturbo.errors import did_you_mean, nearest
from autoturbo.schema.issues import InvalidError, Steps, ValidationIssue, shown
from autoturbo.schema.published import adapter, published_schema

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def checked(kind: Any, value: Any) -> Any:
    """Return the plain JSON value that a declared type allows, with nothing unknown in it.

    Raises:
        InvalidError: What is wrong with it, in the order of the declaration.
    """
    from pydantic import ValidationError

    issues: list[ValidationIssue] = []
    try:
        found = adapter(kind).validate_python(
            _plain(value, (), issues), strict=True, extra="forbid"
        )
    except ValidationError as error:
        told = {issue.path for issue in issues}
        more = [_issue(kind, one) for one in error.errors(include_url=False)]
        issues += [issue for issue in more if issue.path not in told]
    except RecursionError:
        raise InvalidError(ValidationIssue((), "nested too deeply")) from None
    if issues:
        raise InvalidError(*issues)
    return found


def _plain(value: Any, path: Steps, issues: list[ValidationIssue]) -> Any:
    """Return a value as JSON has it, with lists for tuples and Python's numbers for others.

    Args:
        value: The value.
        path: Where it is.
        issues: Takes what JSON cannot hold.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                place = (*path, name if isinstance(name, int) else str(name))
                issues.append(ValidationIssue(place, f"the name {shown(name)} is not text"))
        return {
            name: _plain(inner, (*path, name), issues)
            for name, inner in value.items()
            if isinstance(name, str)
        }
    if isinstance(value, list | tuple):
        return [_plain(inner, (*path, index), issues) for index, inner in enumerate(value)]
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        issues.append(ValidationIssue(path, f"must be a JSON value, not {shown(value)}"))
    elif not math.isfinite(value):
        issues.append(ValidationIssue(path, f"must be a finite number, not {shown(value)}"))
    else:
        return float(value)
    return value


def _issue(kind: Any, error: ErrorDetails) -> ValidationIssue:
    """Return a fault that pydantic found, in our words."""
    of_key = error["loc"][-1:] == ("[key]",)
    path, parent, schema = _place(kind, error["loc"][:-1] if of_key else error["loc"])
    match error["type"]:
        case "missing":
            return _missing(path, schema.get("description"))
        case "extra_forbidden":
            return _unknown_field(path, list(parent.get("properties", ())))
        case "literal_error" if of_key:
            return _unknown_field(path, parent["propertyNames"]["enum"])
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_kind(path, error["input"], schema["discriminator"])
        case "literal_error" if "enum" in schema:
            return _unknown_value(path, error["input"], schema["enum"])
        case _:
            at = "key" if of_key else "value"
            return ValidationIssue(path, _message(error, schema), _hint(error, schema), at=at)


def _unknown_field(path: Steps, known: list[str]) -> ValidationIssue:
    name = str(path[-1])
    meant = nearest(name, known)
    hint = did_you_mean(name, known, kind="fields")
    suggests = (*path[:-1], meant) if meant else None
    return ValidationIssue(path, "unknown field", hint, at="key", suggests=suggests)


def _missing(path: Steps, about: str | None) -> ValidationIssue:
    hint = f"add it ({about})" if about else "add it"
    return ValidationIssue(path, "missing field", hint, at="parent")


def _wrong_kind(path: Steps, value: Any, discriminator: Mapping[str, Any]) -> ValidationIssue:
    """Return what is wrong with the field that tells which of several objects one is."""
    name, known = discriminator["propertyName"], list(discriminator["mapping"])
    path = (*path, name)
    if name not in value:
        return _missing(path, f"one of {', '.join(known)}")
    return _unknown_value(path, value[name], known)


def _unknown_value(path: Steps, given: Any, known: list[Any]) -> ValidationIssue:
    name = path[-1] if path and isinstance(path[-1], str) else "value"
    hint = did_you_mean(str(given), map(str, known), kind=f"{name}s")
    return ValidationIssue(path, f"unknown {name} {shown(given)}", hint)


_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "is": "text",  # an instance of it
    "list": "a list",
}

_MESSAGES: Final = {
    "greater_than_equal": "must be at least {ge}, not {what}",
    "less_than_equal": "must be at most {le}, not {what}",
    "greater_than": "must be above {gt}, not {what}",
    "finite_number": "must be a finite number, not {what}",
    "string_pattern_mismatch": "not of the right form: {what}",
    "string_too_long": "must be at most {max_length} characters, not {size}",
    "string_unicode": "must be text that can be written down, without half a character",
    "empty": "must not be empty",
    "too_short": "must have at least {min_length} entries, not {size}",
    "too_long": "must have at most {max_length} entries, not {size}",
    "exactly_one": "exactly one of the fields {named} is needed",
}
"""What people read, by pydantic's names of what is wrong."""


def _message(error: ErrorDetails, schema: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, in our words."""
    given, kind = error["input"], error["type"]
    if kind == "float_type" and type(given) is int:  # one that no float can hold
        kind = "finite_number"
    if "const" in schema:
        return f"unsupported version {shown(given)}"
    if kind == "too_short" and error["ctx"]["min_length"] == 1:
        kind = "empty"
    expected = _TYPES.get(kind.partition("_")[0], "a mapping of fields")
    said = _MESSAGES.get(kind, "must be {expected}, not {what}")
    limits = {
        name: f"{limit:g}" if isinstance(limit, float) else limit
        for name, limit in error.get("ctx", {}).items()
    }
    size = len(given) if isinstance(given, Sized) else 0
    return said.format_map({**limits, "expected": expected, "what": shown(given), "size": size})


def _hint(error: ErrorDetails, schema: Mapping[str, Any]) -> str | None:
    """Return how to mend a value: what its schema has instead."""
    if "const" in schema:
        return f"this release reads version {schema['const']}"
    if error["type"] in ("string_pattern_mismatch", "too_short"):
        examples = [f"for example {one}" for one in schema.get("examples", ())]
        return "; ".join(filter(None, [schema.get("description"), *examples])) or None
    return None


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
