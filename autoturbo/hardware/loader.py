"""From a name or a file to a :class:`~autoturbo.hardware.target.Target`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import Location, TargetError, did_you_mean, nearest
from autoturbo.hardware.document import Document, parse_document, read_document
from autoturbo.hardware.presets import is_builtin, plugin, preset_names, preset_text
from autoturbo.hardware.target import Target
from autoturbo.hardware.target_file import ENGINES, build_target, check, require_valid

_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")
_STEP: Final = re.compile(r"(\w+)(?:\[(\w+)\])?")


def load_target(name_or_path: str | os.PathLike[str]) -> Target:
    """The target of a preset, of a plug-in or of a YAML file.

    A text that looks like a path (it has a separator, or ends in .yaml, .yml or .json) is one;
    any other is looked up among the built-in presets, then among the plug-ins, then as a file.

    Raises:
        TargetError: nothing has that name, or what has it is not a valid target.
    """
    name = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or _looks_like_path(name):
        return _load_file(Path(name), name)
    if is_builtin(name):
        return _from_text(preset_text(name), f"{name}.yaml")
    provided = plugin(name)
    if isinstance(provided, Target):
        return from_document(provided.as_dict())
    if provided is not None:
        return _load_file(provided, str(provided))
    if name and Path(name).exists():
        return _load_file(Path(name), name)
    raise _unknown_target(name)


def validate_target_file(path: str | os.PathLike[str]) -> list[TargetError]:
    """Everything that is wrong with a target file, in the order of the file; empty if valid."""
    shown = os.fspath(path)
    try:
        return check(read_document(Path(path), shown))
    except TargetError as error:
        return [error]


def target_of(document: Document) -> Target:
    """The target that a document describes.

    Raises:
        TargetError: it is not a valid target.
    """
    require_valid(document)
    return build_target(document.value)


def from_document(document: Mapping[str, Any]) -> Target:
    """The target that a document in the layout of a target file describes.

    Raises:
        TargetError: the document is not a valid target.
    """
    return target_of(Document(dict(document)))


def with_field(target: Target, path: str, value: Any) -> Target:
    """The target with one field changed, named and measured as in a target file.

    Engines are found by kind or by position, in the order matrix, vector, transfer, dma.

    >>> with_field(target, "lb.capacity_kib", 512)
    >>> with_field(target, "engines[matrix].rows", 128)

    Raises:
        TargetError: there is no such field, or the target would not be valid.
    """
    document = target.as_dict()
    *parents, last = _steps(path)
    owner: Any = document
    for step in parents:
        owner = _child(owner, step, path)
    if isinstance(owner, list):
        owner[_index(owner, last, path)] = value
    elif isinstance(owner, dict):
        owner[last] = value
    else:
        raise _no_field(path)
    return from_document(document)


def _looks_like_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep, "/"}
    return name.endswith(_FILE_SUFFIXES) or any(mark in name for mark in separators)


def _load_file(path: Path, shown: str) -> Target:
    return target_of(read_document(path, shown))


def _from_text(text: str, shown: str) -> Target:
    return target_of(parse_document(text, shown))


def _unknown_target(name: str) -> TargetError:
    hint = did_you_mean(name, preset_names(), kind="targets")
    file = "" if nearest(name, preset_names()) else ", or a file"
    return TargetError(f"unknown target {name!r}", hint=f"{hint}{file}")


def _steps(path: str) -> list[str]:
    """``engines[0].rows`` as ``["engines", "0", "rows"]``."""
    steps: list[str] = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise _no_field(path)
        steps += [step for step in match.groups() if step is not None]
    return steps


def _child(owner: Any, step: str, path: str) -> Any:
    if isinstance(owner, list):
        return owner[_index(owner, step, path)]
    if isinstance(owner, dict):
        return owner.setdefault(step, {})
    raise _no_field(path)


def _index(engines: list[dict[str, Any]], step: str, path: str) -> int:
    kinds = list(ENGINES)
    index = kinds.index(step) if step in kinds else int(step) if step.isdecimal() else -1
    if not 0 <= index < len(engines):
        hint = f"engines are {', '.join(kinds)}, or 0 to {len(kinds) - 1}"
        raise TargetError(f"no engine {step!r}", Location(field=path), hint)
    return index


def _no_field(path: str) -> TargetError:
    hint = "write it like 'lb.capacity_kib' or 'engines[matrix].rows'"
    return TargetError("not a field of a target", Location(field=path), hint)
