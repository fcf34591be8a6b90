"""Where targets that have a name come from: files shipped here, and plug-ins.

A plug-in is an entry point of the group ``autoturbo.targets``. Its name is the target's; its
object is a :class:`~autoturbo.hardware.target.Target`, the path of a target file, or a function
without arguments that returns either. A built-in preset cannot be replaced by a plug-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

from autoturbo import plugins
from autoturbo.errors import TargetError
from autoturbo.hardware.target import Target

GROUP: Final = plugins.TARGETS
"""Entry-point group of plug-ins."""

_FOLDER: Final = Path(__file__).parent / "presets"


def preset_names() -> tuple[str, ...]:
    """Names that :func:`~autoturbo.hardware.load_target` knows: built-in ones, then plug-ins."""
    builtin = _builtin_names()
    return builtin + tuple(sorted(set(_entry_points()) - set(builtin)))


def is_builtin(name: str) -> bool:
    """Whether a preset of that name is shipped here."""
    return name in _builtin_names()


def preset_text(name: str) -> str:
    """The file of a built-in preset, comments and all."""
    return (_FOLDER / f"{name}.yaml").read_text("utf-8")


def plugin(name: str) -> Target | Path | None:
    """What the plug-in of that name provides; None if there is none.

    Raises:
        TargetError: the plug-in cannot be loaded, or provides something else.
    """
    entry = _entry_points().get(name)
    if entry is None:
        return None
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
    return TargetError(message, hint=f"it is {entry.value!r} in the group {GROUP!r}")


@lru_cache(maxsize=1)
def _builtin_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def _entry_points() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}
