"""From a name or a file to a target: presets shipped here, plug-ins, files, and varied fields.

A plug-in is an entry point of the group ``autoturbo.targets``. Its name is the target's; its
object is a :class:`~autoturbo.hardware.target.Target`, the path of a target file, or a function
without arguments that returns either. A built-in preset cannot be replaced by a plug-in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import Location, TargetError, did_you_mean, nearest
from autoturbo.hardware.document import parse_document, read_document
from autoturbo.hardware.target import ENGINES, Target
from autoturbo.hardware.target_checks import check, from_document, target_of
from autoturbo.registry import HOST, TARGETS

_FOLDER: Final = Path(__file__).parent / "presets"


def preset_names() -> tuple[str, ...]:
    """Return the names that :func:`~autoturbo.hardware.load_target` knows, built-in ones first."""
    builtin = _builtin_names()
    return (*builtin, *(name for name in TARGETS.names() if name not in builtin))


def is_builtin(name: str) -> bool:
    """Return whether a preset of that name is built in."""
    return name in _builtin_names()


def preset_text(name: str) -> str:
    """Return the file of a built-in preset, with comments."""
    return (_FOLDER / f"{name}.yaml").read_text("utf-8")


def source_text(name_or_path: str) -> str | None:
    """Return the text of the file that :func:`load_target` reads, None for a plug-in's target."""
    if is_builtin(name_or_path):
        return preset_text(name_or_path)
    provided = plugin(name_or_path)
    path = Path(name_or_path) if provided is None else provided
    return path.read_text("utf-8-sig") if isinstance(path, Path) else None


def plugin(name: str) -> Target | Path | None:
    """Return the target or path that a plug-in of that name provides; None if there is none.

    Raises:
        TargetError: The plug-in cannot be loaded, or provides something else.
    """  # noqa: DOC501  _broken() makes the error
    if name not in TARGETS.names():
        return None
    entry = TARGETS.find(name)
    provided = _loaded(entry)
    if isinstance(provided, str | Path):
        return Path(provided)
    if isinstance(provided, Target):
        return provided
    kind = type(provided).__name__
    raise _broken(entry, f"provides a value of type {kind!r}, not a Target or a path")


def _loaded(entry: EntryPoint) -> object:
    try:
        provided = entry.load()
        return provided() if callable(provided) else provided
    except Exception as error:  # third-party code may fail in any way; the user sees which
        raise _broken(entry, f"failed: {type(error).__name__}: {error}") from error


def _broken(entry: EntryPoint, what: str) -> TargetError:
    message = f"the plug-in target {entry.name!r} {what}"
    return TargetError(message, hint=f"it is {entry.value!r} in the group {TARGETS.group!r}")


@lru_cache(maxsize=1)
def _builtin_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")
_STEP: Final = re.compile(r"(\w+)(?:\[(\w+)\])?")


def load_target(name_or_path: str | os.PathLike[str]) -> Target:
    """Return the target of a preset, of a plug-in or of a YAML file.

    A text that looks like a path (it has a separator, or ends in .yaml, .yml or .json) is one; any
    other is looked up among the built-in presets, then among the plug-ins, then as a file.

    Raises:
        TargetError: Nothing has that name, or it is not a valid target.
    """  # noqa: DOC501  _unknown_target() makes the error
    name = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or _looks_like_path(name):
        return _load_file(Path(name), name)
    # before plug-ins: published results name presets, so no plug-in may replace one
    if is_builtin(name):
        return _from_text(preset_text(name), f"{name}.yaml")
    provided = plugin(name)
    if isinstance(provided, Target):
        # a plug-in may have made its target without the checks that a file passes
        return from_document(provided.as_dict())
    if provided is not None:
        return _load_file(provided, str(provided))
    if name and Path(name).exists():
        return _load_file(Path(name), name)
    raise _unknown_target(name)


def validate_target_file(path: str | os.PathLike[str]) -> list[TargetError]:
    """Return all errors of a target file, in the order of the file; empty if it is valid."""
    shown = os.fspath(path)
    try:
        return check(read_document(Path(path), shown))
    except TargetError as error:
        return [error]


def with_field(target: Target, path: str, value: Any) -> Target:
    """Return the target with one field changed, with names and units as in a target file.

    Engines are found by kind or by position, in the order matrix, vector, transfer, dma.

    >>> with_field(target, "lb.capacity_kib", 512)
    >>> with_field(target, "engines[matrix].rows", 128)

    Raises:
        TargetError: There is no such field, or the target would not be valid.
    """  # noqa: DOC501  _no_field() makes the error
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


def numeric_fields(target: Target) -> dict[str, float]:
    """Return the fields of a target that are numbers, by name, in the units of a target file.

    Engines are named by their kind alone, ``matrix.rows``.
    """
    document = target.as_dict()
    del document["schema_version"]
    engines = {engine["kind"]: engine for engine in document.pop("engines")}
    return dict(_numbers({**document, **engines}))


def _numbers(owner: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, float]]:
    for name, value in owner.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{of}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{of}{name}", float(value)


def _looks_like_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep, "/"}
    return name.endswith(_FILE_SUFFIXES) or any(mark in name for mark in separators)


def _load_file(path: Path, shown: str) -> Target:
    return target_of(read_document(path, shown))


def _from_text(text: str, shown: str) -> Target:
    return target_of(parse_document(text, shown))


def _unknown_target(name: str) -> TargetError:
    if name == HOST:
        hint = "only 'tune' and 'bench' take it"
        return TargetError("this computer is measured, never simulated", hint=hint)
    hint = did_you_mean(name, preset_names(), kind="targets")
    file = "" if nearest(name, preset_names()) else ", or a file"
    return TargetError(f"unknown target {name!r}", hint=f"{hint}{file}")


def _steps(path: str) -> list[str]:
    """Return the steps of a path: ``["engines", "0", "rows"]`` for ``engines[0].rows``."""
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
