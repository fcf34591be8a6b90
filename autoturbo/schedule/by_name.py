"""Schedulers by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoturbo.registry import SCHEDULERS, broken
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.schedule import Schedule


def candidates(name: str, model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Return the schedules that a scheduler would choose from.

    Raises:
        UsageError: No scheduler of that name.
        PluginError: It is a plug-in's, which cannot be loaded.
    """
    schedules = SCHEDULERS.make(name, model_scheduler)
    return iter(schedules) if SCHEDULERS.is_ours(name) else _plugged(name, schedules)


def _plugged(name: str, found: Iterable[Schedule]) -> Iterator[Schedule]:
    """Yield the schedules of a plug-in, whose errors may come while they are made."""
    try:
        yield from found
    except Exception as error:  # third-party code may fail in any way; the user sees whose
        message = f"failed: {type(error).__name__}: {error}"
        raise broken(SCHEDULERS.find(name), message) from error
