"""What tuning asks of an evaluator besides measuring: schedules, and other schedulers' results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from autoturbo.schedule.knobs import Knobs
from autoturbo.simulate.contract import Evaluates
from autoturbo.simulate.measurement import Outcome

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph


class Scheduled(Protocol):
    """A schedule that can be kept."""

    @property
    def text(self) -> str:
        """Canonical JSON."""
        ...


class Workshop(Evaluates, Protocol):
    """What the tuner asks of an evaluator besides measuring."""

    def schedule(self, knobs: Knobs) -> Scheduled:
        """The schedule of a setting."""
        ...

    def heuristic(self) -> Knobs:
        """The published heuristic at its best: trial 0 of a search."""
        ...

    def measure_scheduler(self, name: str) -> Outcome:
        """What another scheduler's best schedule measures."""
        ...


MakeWorkshop = Callable[["Graph", Any, str], Workshop]
"""Builds an evaluator of a model on a target or a machine.

It is sent to workers, so it is a class or a function of a module.
"""
