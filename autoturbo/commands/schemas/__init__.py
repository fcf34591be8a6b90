"""JSON schemas of what commands print under ``--json``: one file here for each command.

``targets-list.yaml`` is of ``autoturbo targets list``. The files are written short and strict; a
value is one of

======================  ============================================================================
``text``, ``count`` ..  a name of ``_common.yaml``; ``text or null`` where there may be none
``{fields: ...}``       an object of exactly these fields; ``name?`` may be left out; ``also`` names
                        objects of ``_common.yaml`` whose fields it has besides
``{list: value}``       an array
``{map: value}``        an object whose names are free
``{any: [value, ..]}``  one of several
``{published: name}``   a schema that has a command of its own: target, machine, record, ...
anything else           JSON schema as it stands
======================  ============================================================================

and becomes JSON schema (draft 2020-12) in which nothing is unknown and nothing but ``name?`` may be
missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoturbo.errors import UsageError, did_you_mean

ERROR = "error"
"""Name of the schema of errors, which every command may print."""

_FOLDER = Path(__file__).parent
_COMMON = "_common"
_URL = "https://json-schema.org/draft/2020-12/schema"


def schema_names() -> tuple[str, ...]:
    """Commands that have a schema, actions after a blank; :data:`ERROR` comes last."""
    files = (path.stem for path in _FOLDER.glob("*.yaml"))
    names = sorted(_name(stem) for stem in files if not stem.startswith("_"))
    return (*(name for name in names if name != ERROR), ERROR)


def output_schema(name: str) -> dict[str, Any]:
    """The schema of one line that a command prints; an error is a line of its own.

    Args:
        name: of a command, ``"targets list"`` where it has actions, or :data:`ERROR`.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in schema_names():
        known = did_you_mean(name, schema_names())
        raise UsageError(f"no schema of {name!r}", hint=known)
    source = _read(name.replace(" ", "-"))
    what = f"A line of 'autoturbo {name} --json'" if name != ERROR else "An error under --json"
    said = {"title": what, "description": source["about"]}
    body = _expanded(source["line"])
    definitions = dict(_definitions(body, {}))
    found = {"$schema": _URL, **said, **body}
    return {**found, "$defs": definitions} if definitions else found


def _name(stem: str) -> str:
    """``targets-list`` as it is typed; ``cost-model-list`` has a dash of its own."""
    for command in ("cost-model",):
        if stem.startswith(f"{command}-"):
            return f"{command} {stem[len(command) + 1 :]}"
    return stem.replace("-", " ")


@lru_cache(maxsize=64)
def _read(stem: str) -> dict[str, Any]:
    import yaml

    text = (_FOLDER / f"{stem}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _expanded(value: Any) -> dict[str, Any]:
    """A value of a file as JSON schema."""
    if isinstance(value, str):
        return _named(value)
    kinds = {
        "fields": _object, "list": _array, "map": _mapping, "any": _any, "published": _published,
    }  # fmt: skip
    for kind, expand in kinds.items():
        if kind in value:
            return expand(value)
    return dict(value)


def _named(name: str) -> dict[str, Any]:
    name, _, null = name.partition(" or ")
    common = _read(_COMMON)
    found = dict(common["values"][name]) if name in common["values"] else _reference(name)
    return {"anyOf": [found, {"type": "null"}]} if null else found


def _reference(name: str) -> dict[str, Any]:
    if name not in _read(_COMMON)["objects"]:
        raise KeyError(f"{name!r} is not in {_COMMON}.yaml")
    return {"$ref": f"#/$defs/{name}"}


def _object(value: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(_fields(value))
    return {
        "type": "object",
        "properties": {name.rstrip("?"): _expanded(inner) for name, inner in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
        "additionalProperties": False,
    }


def _fields(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Its own, and those of the objects that it has besides."""
    for name in value.get("also", ()):
        yield from _fields(_read(_COMMON)["objects"][name])
    yield from value["fields"].items()


def _array(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _expanded(value["list"])}


def _mapping(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": _expanded(value["map"])}


def _any(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [_expanded(inner) for inner in value["any"]]}


def _published(value: Mapping[str, Any]) -> dict[str, Any]:
    from autoturbo.commands.db import published_schemas
    from autoturbo.hardware import target_schema
    from autoturbo.hardware.machine_file import machine_schema

    ours = {"target": target_schema(), "machine": machine_schema()}
    found = {**ours, **published_schemas()}[value["published"]]
    return {key: inner for key, inner in found.items() if key != "$schema"}


def _definitions(schema: Any, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a schema refers to, and what that refers to."""
    if isinstance(schema, list):
        for inner in schema:
            yield from _definitions(inner, known)
    if not isinstance(schema, dict):
        return
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if "$ref" in schema and name not in known and not name.startswith("http"):
        known[name] = _expanded(_read(_COMMON)["objects"][name])
        yield name, known[name]
        yield from _definitions(known[name], known)
    for inner in schema.values():
        yield from _definitions(inner, known)
