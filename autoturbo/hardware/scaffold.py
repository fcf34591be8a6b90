"""A commented template of a target file, made from the annotations of its fields."""

from __future__ import annotations

from collections.abc import Iterator

from autoturbo.hardware.fields import Section, file_fields
from autoturbo.hardware.target import Target
from autoturbo.hardware.target_file import ENGINES, PARTS, SCHEMA_VERSION

_HEADER = f"""\
# A target: the accelerator that networks are scheduled on.
# Check it with 'autoturbo targets validate FILE', use it with 'autoturbo tune MODEL --target FILE'.
# Say in a comment on each line where the figure comes from, or that it is an estimate and why.

schema_version: {SCHEMA_VERSION}  # version of this layout
"""


def scaffold() -> str:
    """A template that loads as it stands and explains every field."""
    top = "\n".join(_lines(Target, ""))
    engines = "\n\n".join("\n".join(_engine(key, *of)) for key, of in ENGINES.items())
    parts = "\n\n".join("\n".join(_part(key, *of)) for key, of in PARTS.items())
    return f"{_HEADER}{top}\n\nengines:  # one of each kind\n{engines}\n\n{parts}\n"


def _engine(key: str, kind: type, section: Section) -> Iterator[str]:
    yield f"  - kind: {key}  # {section.about}"
    yield from _lines(kind, "    ")


def _part(key: str, kind: type, section: Section) -> Iterator[str]:
    yield f"{key}:  # {section.about}"
    yield from _lines(kind, "  ")


def _lines(kind: type, indent: str) -> Iterator[str]:
    for field in file_fields(kind):
        yield f"{indent}{field.name}: {_value(field.rule.example)}  # {field.rule.about}"


def _value(example: object) -> str:
    if isinstance(example, dict):
        return "{" + ", ".join(f"{key}: {value}" for key, value in example.items()) + "}"
    if isinstance(example, bool):
        return str(example).lower()
    return str(example) if example != "" else '""'
