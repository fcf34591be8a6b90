"""The generated parts of the reference: commands, schemas and public names, as Markdown.

Made whenever the site is built, so that no copy of them can be out of date. A page of ``docs``
says where its part goes with a line ``<!-- generated: NAME -->``; read elsewhere, the page says
where else to look. A list of links after ``<!-- menu: CAPTION -->`` becomes a menu of the site too.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import autoturbo
from autoturbo.commands.registry import build_parser
from autoturbo.commands.upkeep.db import published_schemas
from autoturbo.commands.upkeep.schema import output_schema, schema_names
from autoturbo.config import (
    ExecutionConfig,
    ResumeConfig,
    TuneConfig,
    flag_of,
    option_of,
    options_of,
)

LABELS = {
    "target": "Targets",
    "schedule": "Schedule files",
    "kernels": "Kernels files",
    "record": "Records of the database",
    "config": "The configuration that a run keeps",
    "machine-schedule": "Schedule files of machines of several units",
}
"""What the published schemas are about; one that is not here is shown under its name."""


def filled(page: str, text: str) -> str:
    """Return the text of a page, such as ``reference/cli``, with generated parts and menus."""
    for name, (home, make) in PARTS.items():
        mark = f"<!-- generated: {name} -->"
        if page == home and mark in text:
            text = text.replace(mark, make())
    return re.sub(r"^<!-- menu: (.+) -->\n((?:- .+\n)+)", _menu, text, flags=re.MULTILINE)


def _menu(found: re.Match[str]) -> str:
    """Return a list of links, and the same pages for the site's menu."""
    pages = re.findall(r"^- \[.+?\]\((.+?)\.md\)", found[2], re.MULTILINE)
    options = f":caption: {found[1]}\n:hidden:\n:maxdepth: 1"
    return f"{found[2]}\n```{{toctree}}\n{options}\n\n" + "\n".join(pages) + "\n```\n"


def decisions() -> str:
    """Return a menu of all pages of the folder."""
    return "```{toctree}\n:glob:\n:maxdepth: 1\n\n*\n```\n"


def commands() -> str:
    """Return the help of every command and of every action of a command."""
    return "\n".join(_of_parser(build_parser()))


def _of_parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a parser's help and those below it; actions stand below their command."""
    yield f"{'#' * max(2, len(parser.prog.split()))} {parser.prog}\n"
    yield f"```text\n{parser.format_help().rstrip()}\n```\n"
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its parsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                yield from _of_parser(inner)


def schemas() -> str:
    """Return every published schema: its fields in a table."""
    from autoturbo.hardware import target_schema

    found = {"target": target_schema(), **published_schemas()}
    files = [_of_schema(f"## {LABELS.get(name, name)}", schema) for name, schema in found.items()]
    lines = [_of_schema(f"### {name}", output_schema(name)) for name in schema_names()]
    return "\n".join((*files, "## What commands print under --json\n", *lines))


def _of_schema(heading: str, schema: Mapping[str, Any]) -> str:
    rows = "\n".join(_rows(schema, schema, "", set()))
    about = str(schema.get("description", "")).strip()
    table = f"| field | type | what it is |\n|---|---|---|\n{rows}\n"
    return f"{heading}\n\n{about}\n\n{table}"


def _rows(
    schema: Mapping[str, Any], top: Mapping[str, Any], path: str, above: set[str]
) -> Iterator[str]:
    """Yield table rows of all fields below a part of a schema; a type within itself once."""
    if name := str(schema.get("$ref", "")):
        if name in above:
            return
        above = {*above, name}
    schema = _resolved(schema, top)
    for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ()), *schema.get("allOf", ())):
        kind = _resolved(part, top).get("properties", {}).get("kind", {})
        label = f"[{kind['const']}]" if isinstance(kind, Mapping) and "const" in kind else ""
        # of one kind of several: its name stands for the place in the list
        yield from _rows(part, top, f"{path.removesuffix('[]') if label else path}{label}", above)
    for field, inner in schema.get("properties", {}).items():
        if not isinstance(inner, Mapping):  # described elsewhere
            continue
        full = f"{path}.{field}" if path else field
        yield _row(full, inner, top, required=field in schema.get("required", ()))
        yield from _rows(inner, top, full, above)
    named = schema.get("additionalProperties")
    if isinstance(named, Mapping):  # names are free
        yield from _rows(named, top, f"{path}.*" if path else "*", above)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _rows(items, top, f"{path}[]", above)


def _resolved(schema: Mapping[str, Any], top: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of a schema, or what it points to; of another schema only where it is."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    if not str(reference).startswith("#/"):
        return {"type": "object", "description": f"see {reference}"}
    found: Any = top
    for step in str(reference).removeprefix("#/").split("/"):
        found = found[step]
    return dict(found)


def _row(path: str, given: Mapping[str, Any], top: Mapping[str, Any], *, required: bool) -> str:
    schema = _resolved(given, top)
    about = str(given.get("description") or schema.get("description") or "")
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if not all(str(value) in about for value in values):
        listed = ", ".join(f"`{json.dumps(value)}`" for value in values)
        about = "; ".join(part for part in (about, listed) if part)
    parts = [_resolved(part, top) for part in schema.get("anyOf", [schema])]
    kinds = [str(part.get("type") or _json_type(part.get("enum", values))) for part in parts]
    kind = " or ".join(dict.fromkeys(filter(None, kinds)))
    cells = (f"`{path}`{'' if required else ', optional'}", kind, about)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _json_type(values: Sequence[object]) -> str:
    """Return the type of fixed values, in JSON's words; nothing where there are none."""
    names = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
    return " or ".join(dict.fromkeys(names.get(type(value), "") for value in values))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def api() -> str:
    """Return every public name, by what its docstring says."""
    names = [name for name in autoturbo.__all__ if not name.startswith("_")]
    parts = (_of_name(name) for name in names)
    return "```{eval-rst}\n" + "\n".join(parts) + "```\n"


def _of_name(name: str) -> str:
    value = getattr(autoturbo, name)
    if inspect.ismodule(value):
        return f".. automodule:: autoturbo.{name}\n   :members:\n\n"
    if not inspect.isclass(value):
        return f".. autofunction:: autoturbo.{name}\n\n"
    return f".. autoclass:: autoturbo.{name}\n   :members:\n\n"


def options() -> str:
    """Return every option of a run: what decides the result, then how a call is carried out."""
    heads = {
        TuneConfig: "What decides the result",
        ExecutionConfig: "How a call is carried out",
    }
    return "\n".join(f"## {head}\n\n{_options(config)}" for config, head in heads.items())


def _options(config: type) -> str:
    changed = options_of(ResumeConfig).keys() | options_of(ExecutionConfig).keys()
    rows = []
    for name, declared in options_of(config).items():
        what, flag = option_of(declared), flag_of(declared)
        usual = what.usual or ("" if declared.default is None else str(declared.default))
        cells = (
            f"`{name}`", f"`{flag}`" if flag else "", what.unit, usual,
            "yes" if name in changed else "", f"{what.help}. {what.more}".strip(),
        )  # fmt: skip
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    head = (
        "| Python | flag | unit | default | on resume | what it is |\n|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


PARTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "commands": ("reference/cli", commands),
    "options": ("reference/options", options),
    "schemas": ("reference/schemas", schemas),
    "api": ("reference/python", api),
    "decisions": ("decisions/index", decisions),
}
"""Generated parts with the page that each belongs to."""
