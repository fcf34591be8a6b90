"""A commented template of a target file, made from the table of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.hardware.fields import ENGINES, PARTS, SCHEMA_VERSION, TOP, Field, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = f"""\
# A target: the accelerator that networks are scheduled on.
# Check it with 'autoturbo targets validate FILE', use it with 'autoturbo tune MODEL --target FILE'.
# Say in a comment on each line where the figure comes from, or that it is an estimate and why.

schema_version: {SCHEMA_VERSION}  # version of this layout
"""


def scaffold() -> str:
    """A template that loads as it stands and explains every field."""
    top = "\n".join(_lines(TOP, ""))
    engines = "\n\n".join("\n".join(_engine(section)) for section in ENGINES)
    parts = "\n\n".join("\n".join(_part(section)) for section in PARTS)
    return f"{_HEADER}{top}\n\nengines:  # one of each kind\n{engines}\n\n{parts}\n"


def _engine(section: Section) -> Iterator[str]:
    yield f"  - kind: {section.key}  # {section.doc}"
    yield from _lines(section.fields, "    ")


def _part(section: Section) -> Iterator[str]:
    yield f"{section.key}:  # {section.doc}"
    yield from _lines(section.fields, "  ")


def _lines(fields: tuple[Field, ...], indent: str) -> Iterator[str]:
    return (f"{indent}{field.name}: {_value(field.example)}  # {field.doc}" for field in fields)


def _value(example: object) -> str:
    if isinstance(example, dict):
        return "{" + ", ".join(f"{key}: {value}" for key, value in example.items()) + "}"
    if isinstance(example, bool):
        return str(example).lower()
    return str(example) if example != "" else '""'
