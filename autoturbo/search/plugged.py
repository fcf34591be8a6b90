"""Samplers of other packages, by name.

A plug-in of the group ``autoturbo.samplers`` is a function of a seed that gives an Optuna sampler.
It may have two attributes: ``ordinal = True`` where choices are to be integers, not categories, and
``several = False`` where it works on one objective only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna.samplers import BaseSampler

from autoturbo import plugins
from autoturbo.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def plugged_sampler(name: str, seed: int) -> tuple[BaseSampler, bool]:
    """A plug-in's sampler, and whether choices are to be integers.

    Raises:
        UsageError: there is none of that name.
        PluginError: it cannot be had, or is no sampler.
    """
    entry = _entry(name)
    made = plugins.make_plugin(entry, seed)
    if not isinstance(made, BaseSampler):
        what = f"gives a value of type {type(made).__name__!r}, no Optuna sampler"
        raise plugins.broken(entry, what)
    return made, bool(getattr(plugins.load_plugin(entry), "ordinal", False))


def takes_several(name: str) -> bool:
    """Whether a plug-in's sampler works on several objectives.

    Raises:
        UsageError: there is none of that name.
        PluginError: it cannot be loaded.
    """
    return bool(getattr(plugins.load_plugin(_entry(name)), "several", True))


def _entry(name: str) -> EntryPoint:
    entry = plugins.find_plugin(plugins.SAMPLERS, name)
    if entry is None:
        raise UsageError(f"no sampler is called {name!r}")
    return entry
