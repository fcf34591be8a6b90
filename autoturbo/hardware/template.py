"""A template of a target file: every field with an example and what it means."""

from __future__ import annotations

from collections.abc import Iterator

from autoturbo.hardware.fields import Section, file_fields
from autoturbo.hardware.parts import Calibration
from autoturbo.hardware.target import ENGINES, PARTS, SCHEMA_VERSION, Target

_HEADER = f"""\
# A target: the accelerator that networks are scheduled on.
# Check it with 'autoturbo targets validate FILE', use it with 'autoturbo tune MODEL --target FILE'.
# Say in a comment on each line where the figure comes from, or that it is an estimate and why.

schema_version: {SCHEMA_VERSION}  # version of this layout
"""


def scaffold() -> str:
    """Return a valid template that explains every field but those of a calibration."""
    *top_lines, ranges = _lines(Target, "")
    top = "\n".join(top_lines)
    engines = "\n\n".join("\n".join(_engine(key, *of)) for key, of in ENGINES.items())
    parts = "\n\n".join(
        "\n".join(_part(key, *of)) for key, of in PARTS.items() if of[0] is not Calibration
    )
    return f"{_HEADER}{top}\n\nengines:  # one of each kind\n{engines}\n\n{parts}\n\n{ranges}\n"


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
        return "{" + ", ".join(f"{key}: {_value(value)}" for key, value in example.items()) + "}"
    if isinstance(example, list):
        return f"[{', '.join(map(_value, example))}]"
    if isinstance(example, bool):
        return str(example).lower()
    return str(example) if example != "" else '""'
