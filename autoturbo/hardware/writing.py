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


def with_section(text: str, key: str, target: Target) -> str:
    """Return a target's file with one section as a target has it; all else stays as it is.

    Comments in the section are lost, but for the one behind its key.

    Args:
        text: The file, in block style.
        key: Key of the section, which goes to the end if the file lacks it.
        target: The target that has the section.
    """
    section = "".join(f"{line}\n" for line in _lines(target.as_dict()[key], key, "  ", {}))
    old = re.compile(rf"^({re.escape(key)}:[^\n]*\n)(?:[ \t]+[^\n]*(?:\n|\Z))*", re.MULTILINE)
    if old.search(text):
        return old.sub(lambda found: found[1] + section, text, count=1)
    return f"{text.rstrip()}\n\n{key}:\n{section}"


def _lines(
    values: Mapping[str, Any], path: str, indent: str, notes: Mapping[str, str]
) -> Iterator[str]:
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, place, f"{indent}  ", notes)
        elif isinstance(value, list) and isinstance(value[0], Mapping):
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
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    is_word = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)
