"""What other packages plug in by name: entry points, read when a name is asked for.

=========================  =====================================================================
``autoturbo.measurers``    a function without arguments that gives a measurer
``autoturbo.samplers``     a function of a seed that gives an Optuna sampler
``autoturbo.targets``      a target, the path of its file, or a function that gives either
``autoturbo.schedulers``   a function of a workbench that yields schedules
=========================  =====================================================================

A name of ours cannot be taken. A plug-in that does not load, or does not do as its group says, is
one line that names it. ``docs/extending.md`` shows one of each.
"""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

from autoturbo.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MEASURERS = "autoturbo.measurers"
SAMPLERS = "autoturbo.samplers"
TARGETS = "autoturbo.targets"
SCHEDULERS = "autoturbo.schedulers"


def plugin_names(group: str) -> tuple[str, ...]:
    """Names that installed packages register in a group, in order; nothing is loaded."""
    return tuple(sorted({entry.name for entry in importlib.metadata.entry_points(group=group)}))


def find_plugin(group: str, name: str) -> EntryPoint | None:
    """The plug-in of a name, not loaded; None if there is none."""
    return next(iter(importlib.metadata.entry_points(group=group, name=name)), None)


def load_plugin(entry: EntryPoint) -> Any:
    """What the plug-in registers.

    Raises:
        PluginError: it cannot be imported.
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # code of others may fail in any way: tell whose
        raise broken(entry, f"cannot be loaded: {type(error).__name__}: {error}") from error


def make_plugin(entry: EntryPoint, *arguments: Any) -> Any:
    """What the function that the plug-in registers gives for some arguments.

    Raises:
        PluginError: it cannot be imported, is no function, or raises.
    """
    factory = load_plugin(entry)
    if not callable(factory):
        raise broken(entry, f"is a value of type {type(factory).__name__!r}, not a function")
    try:
        return factory(*arguments)
    except (Exception, SystemExit) as error:  # likewise
        raise broken(entry, f"failed: {type(error).__name__}: {error}") from error


def broken(entry: EntryPoint, what: str) -> PluginError:
    """The error of a plug-in that does not do as its group says."""
    hint = f"it is {entry.value!r} in the group {entry.group!r}{_package(entry)}"
    return PluginError(f"the plug-in {entry.name!r} {what}", hint=hint)


def plugin_version(entry: EntryPoint) -> str:
    """Version of the package that brings it; empty where that is not known."""
    return str(entry.dist.version) if entry.dist is not None else ""


def _package(entry: EntryPoint) -> str:
    return f", of the package {entry.dist.name}" if entry.dist is not None else ""
