"""Writing a target file: YAML with a comment behind the figures that have one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from autoturbo.hardware.target import Target

FIRST_LINE: Final = "# A target calibrated with measured times."
"""How a calibrated file begins, by which it is told from other files."""

_PLAIN: Final = re.compile(r"[A-Za-z][\w.-]*")
_WORDS: Final = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def target_text(target: Target, notes: Mapping[str, str], heading: Sequence[str] = ()) -> str:
    """Return the file of a target.

    Args:
        target: The target.
        notes: Comments by the path of their field, ``engines[matrix].rate.int8``.
        heading: Lines of a comment at the top.
    """
    top = [f"# {line}".rstrip() for line in heading]
    return "\n".join([*top, "", *_lines(target.as_dict(), "", "", notes)]).lstrip("\n") + "\n"


def _lines(
    values: Mapping[str, Any], path: str, indent: str, notes: Mapping[str, str]
) -> Iterator[str]:
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, place, f"{indent}  ", notes)
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for engine in value:
                inner = f"{place}[{engine['kind']}]"
                first, *others = _lines(engine, inner, f"{indent}    ", notes)
                yield f"{indent}  - {first.lstrip()}"
                yield from others
        else:
            note = f"  # {notes[place]}" if place in notes else ""
            yield f"{indent}{key}: {_scalar(value)}{note}"


def _scalar(value: object) -> str:
    is_word = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)
