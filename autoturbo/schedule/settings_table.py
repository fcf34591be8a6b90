"""Settings as numbers: -1 for ``"auto"``, words by their position, numbers as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    Value,
    knob_specs,
    subgraph_knob_specs,
)
from autoturbo.schedule.work import Floats

MODEL_KNOBS: Final = tuple(knob_specs())
"""Columns of :func:`model_numbers`."""

KERNEL_KNOBS: Final = tuple(name for name in subgraph_knob_specs() if name != "boundary")
"""Knobs of a sub-graph that say how its kernel is cut and run: columns of
:attr:`autoturbo.schedule.plan_batch.PlanTable.kernel_knobs`."""

SAME_AS: Final = {"scope": "output_scope"}
"""The model's knob that a sub-graph's overrides, where it has another name."""

UNSAID: Final = -1.0
"""The number of ``"auto"``."""

_TWINS: Final = {SAME_AS.get(name, name): name for name in KERNEL_KNOBS}


def number_of_value(knob: str, value: Value) -> float:
    """Return the number of a value of a model's or a sub-graph's knob."""
    words = _words(knob)
    if value == AUTO:
        return UNSAID
    return float(value if words is None else words.index(str(value)))


def value_of_number(knob: str, number: float) -> Any:
    """Return the value of a knob that has a number."""
    words = _words(knob)
    if number == UNSAID:
        return AUTO
    if words is not None:
        return words[int(number)]
    return int(number) if number.is_integer() else number


@functools.cache
def _words(knob: str) -> tuple[str, ...] | None:
    """What a knob of words takes; that of a sub-graph where it overrides the model's."""
    twin = _TWINS.get(knob, knob)
    spec = subgraph_knob_specs()[twin] if twin in subgraph_knob_specs() else knob_specs()[knob]
    return spec.words if spec.low is None else None


def mapped(knob: str, numbers: Floats, make: Callable[[Any], Any]) -> NDArray[Any]:
    """Return what follows from a knob's values, ``(len(numbers), ...)``, made once of each value.

    Args:
        knob: whose values.
        numbers: of the values.
        make: from a value, what is wanted.
    """
    different, which = np.unique(numbers, return_inverse=True)
    return np.asarray([make(value_of_number(knob, n)) for n in different.tolist()])[which]


def model_numbers(settings: Sequence[Knobs]) -> Floats:
    """Return the values of :data:`MODEL_KNOBS` of settings as numbers, one row each."""
    rows = [[number_of_value(n, getattr(k, n)) for n in MODEL_KNOBS] for k in settings]
    return np.asarray(rows, np.float64).reshape(len(settings), len(MODEL_KNOBS))


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Points of a search, and the settings that they stand for.

    Attributes:
        genes: numbers of choices, ``(candidates, dimensions)``.
        knobs_of: the setting of a row.
    """

    genes: Ints
    knobs_of: Callable[[Ints], Knobs]

    def __len__(self) -> int:
        """How many points."""
        return len(self.genes)

    @property
    def settings(self) -> list[Knobs]:
        """The settings one by one."""
        return [self.knobs_of(row) for row in self.genes]
