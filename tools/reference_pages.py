"""The generated parts of the reference: commands, options, schemas and public names, as Markdown.

::

    python tools/reference_pages.py            # write them into their pages
    python tools/reference_pages.py --check    # say which are not current

A part stands in its page of ``docs`` between a line ``<!-- generated: NAME -->`` and a line
``<!-- end -->``. A list of links after ``<!-- menu: CAPTION -->`` becomes a menu of the site too.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import autoturbo
from autoturbo.commands.registry import build_parser
from autoturbo.commands.upkeep.db import published_schemas
from autoturbo.commands.upkeep.output_schemas import output_schema, schema_names
from autoturbo.config import (
    ExecutionConfig,
    Group,
    Option,
    ResumeConfig,
    TuneConfig,
    flag_of,
    option_of,
    options_of,
)
from autoturbo.simulator.measurement import VERSION

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_COLUMNS = "88"
"""The width that help texts are wrapped to."""

_LONG_DEFAULT = 40
"""Characters beyond which the default of an argument is not shown."""

LABELS = {
    "target": "Targets",
    "schedule": "Schedule files",
    "kernels": "Kernels files",
    "record": "Records of the database",
    "config": "The configuration that a run keeps",
    "machine-schedule": "Schedule files of machines of several units",
}
"""What the published schemas are about; one that is not here is shown under its name."""


_PART = re.compile(r"^(<!-- generated: (\w+) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def filled(page: str) -> str:
    """Return the text of a page with its generated parts as they are now."""
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]().strip()}\n\n{found[3]}", page)


def with_menus(page: str) -> str:
    """Return the text of a page with a menu of the site after each list that is marked as one."""
    return re.sub(r"^<!-- menu: (.+) -->\n((?:- .+\n)+)", _menu, page, flags=re.MULTILINE)


def _menu(found: re.Match[str]) -> str:
    """Return a list of links, and the same pages for the site's menu."""
    pages = re.findall(r"^- \[.+?\]\((.+?)\.md\)", found[2], re.MULTILINE)
    options = f":caption: {found[1]}\n:hidden:\n:maxdepth: 1"
    return f"{found[2]}\n```{{toctree}}\n{options}\n\n" + "\n".join(pages) + "\n```\n"


def decisions() -> str:
    """Return a menu of all pages of the folder."""
    pages = sorted((DOCS / "decisions").glob("*.md"))
    links = (f"- [{_title(page)}]({page.name})\n" for page in pages if page.stem != "index")
    return f"<!-- menu: Decisions -->\n{''.join(links)}"


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].lstrip("# ")


def layers() -> str:
    """Return the layers of the import contract: what each package and module is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (names,) = (one["layers"] for one in contracts if one["containers"] == ["autoturbo"])
    rooms = [[name.strip() for name in layer.split("|")] for layer in names]
    rows = (f"| `{name}` | {_purpose(name)} |" for layer in rooms for name in layer)
    return "| package or module | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"


def _purpose(name: str) -> str:
    """Return the first sentence of a module's or a package's docstring."""
    path = ROOT / "autoturbo" / name
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    line = _plain(" ".join(text.partition("\n\n")[0].split()))
    return _cell(line.partition(". ")[0].rstrip(".:"))


def version() -> str:
    """Return the version that measurements are stored under."""
    return f"The version of this release is `{VERSION}`: scheduler, simulator, knob set.\n"


def commands() -> str:
    """Return the help of every command and of every action of a command."""
    os.environ["COLUMNS"] = _COLUMNS
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
    """Return every public name with its signature and its docstring."""
    names = [name for name in autoturbo.__all__ if not name.startswith("_")]
    return "\n".join(part for name in names for part in _of_name(f"autoturbo.{name}", 2))


def _of_name(name: str, level: int) -> Iterator[str]:
    """Yield a public name and, of a module or a class, what is public in it."""
    value: Any = autoturbo
    for step in name.split(".")[1:]:
        value = inspect.getattr_static(value, step) if level > 2 else getattr(value, step)  # noqa: PLR2004
    yield f"{'#' * level} {name}\n"
    if not inspect.ismodule(value) and (shown := signature_of(name.rpartition(".")[2], value)):
        yield f"```python\n{shown}\n```\n"
    yield docstring_of(value)
    for member in _members(value):
        yield from _of_name(f"{name}.{member}", level + 1)


def _members(value: object) -> list[str]:
    """Return the public names that a module has of its own, or the methods of a class."""
    if isinstance(value, ModuleType):
        listed = getattr(value, "__all__", None)
        own = [n for n, one in vars(value).items() if _home(one) == value.__name__]
        return [n for n in listed or own if not n.startswith("_") and callable(getattr(value, n))]
    if not inspect.isclass(value):
        return []
    return [n for n, one in vars(value).items() if not n.startswith("_") and _documented(one)]


def _home(value: object) -> str:
    return getattr(value, "__module__", "") if inspect.isclass(value) or callable(value) else ""


def _documented(value: object) -> bool:
    kind = inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))
    return kind and bool(inspect.getdoc(value))


def signature_of(name: str, value: object) -> str:
    """Return how something is called, an argument a line where one line does not take it.

    Args:
        name: What it is called by.
        value: A function, a class or something else.

    Returns:
        The signature; empty where it is not called.
    """
    if isinstance(value, property):
        return ""
    try:
        found = inspect.signature(getattr(value, "__func__", value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    rest = "" if found.return_annotation is found.empty else f" -> {_type(found.return_annotation)}"
    inner = [p for n, p in found.parameters.items() if n not in {"self", "cls"}]
    shown = [_argument(p) for p in inner]
    named = next((i for i, p in enumerate(inner) if p.kind is p.KEYWORD_ONLY), None)
    if named is not None:
        shown.insert(named, "*")
    rest = rest if not inspect.isclass(value) else ""
    line = f"{name}({', '.join(shown)}){rest}"
    if len(line) <= int(_COLUMNS):
        return line
    return f"{name}(\n    {(',' + chr(10) + '    ').join(shown)},\n){rest}"


def _argument(given: inspect.Parameter) -> str:
    """Return an argument with its type and default; of a default that is long its class alone."""
    stars = "*" * (given.kind is given.VAR_POSITIONAL) + "**" * (given.kind is given.VAR_KEYWORD)
    kind = "" if given.annotation is given.empty else f": {_type(given.annotation)}"
    if given.default is given.empty:
        return f"{stars}{given.name}{kind}"
    shown = repr(given.default)
    shown = shown if len(shown) <= _LONG_DEFAULT else f"{type(given.default).__name__}()"
    return f"{stars}{given.name}{kind} = {shown}"


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples):$")


def docstring_of(value: object) -> str:
    """Return a docstring of Google's convention as Markdown.

    Args:
        value: What it describes.

    Returns:
        The text, its sections under headings in bold; a line's end where there is no docstring.
    """
    lines, section = [], ""
    for line in _plain(inspect.getdoc(value) or "").splitlines():
        if found := _SECTION.match(line):
            section = found[1]
            lines += [f"**{section}**", ""]
        elif section and re.match(r"^    [\w*]+: ", line):
            name, _, rest = line.strip().partition(": ")
            lines.append(f"- `{name}`: {rest}")
        elif section and line.startswith("    "):
            lines.append(
                ("  " if section in {"Args", "Attributes", "Raises"} else "") + line.strip()
            )
        else:
            section = section if line == "" else ""
            lines.append(line)
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return reStructuredText's inline marks as Markdown's, and its blocks as fenced ones."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda m: f"`{m[1].rpartition('.')[2]}`", text)
    text = text.replace("``", "`")

    def fenced(found: re.Match[str]) -> str:
        said = f"{found[1]}:\n\n" if found[1] else ""
        return f"{said}```\n{textwrap.dedent(found[2]).strip()}\n```\n\n"

    return re.sub(r"^(.*)::\n\n((?: +.*\n?|\n)+)", fenced, text, flags=re.MULTILINE)


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
            f"`{name}`", f"`{flag}`" if flag else "", what.group or "", what.unit, usual,
            "yes" if name in changed else "", f"{what.help}. {what.more}".strip(),
        )  # fmt: skip
        rows.append((_place(what), "| " + " | ".join(map(_cell, cells)) + " |"))
    titles = "| Python | flag | use | unit | default | on resume | what it is |"
    lines = [row for _, row in sorted(rows, key=lambda row: row[0])]
    return "\n".join((titles, "|---|---|---|---|---|---|---|", *lines)) + "\n"


def _place(what: Option) -> int:
    """Return where an option's use stands in the help."""
    return len(get_args(Group)) if what.group is None else get_args(Group).index(what.group)


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "options": options,
    "schemas": schemas,
    "api": api,
    "decisions": decisions,
    "layers": layers,
    "version": version,
}
"""Generated parts by the names that pages have for them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the parts into their pages, or with ``--check`` compare them."""
    old = []
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text("utf-8")
        if (text := filled(before)) != before:
            old.append(page)
            if "--check" not in (sys.argv[1:] if arguments is None else arguments):
                page.write_text(text, "utf-8")
    if old and "--check" in (sys.argv[1:] if arguments is None else arguments):
        names = ", ".join(str(page.relative_to(ROOT)) for page in old)
        sys.stderr.write(f"{names}: not current; run python tools/reference_pages.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
