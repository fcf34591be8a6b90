"""The fastest of all assignments of a small model: what annealing is judged by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from autoturbo.heterogeneous.annealing import Decisions
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.profiles import Profiles


def points(profiles: Profiles) -> int:
    """Settings in the space: units of layers times cuts of all layers but the first."""
    units = math.prod(len(may) for may in profiles.units)
    return int(units * 2 ** max(len(profiles.layers) - 1, 0))


def every_assignment(profiles: Profiles, most: int) -> MachineMeasurement | None:
    """The fastest of all assignments, measured one by one; None where none fits.

    Args:
        profiles: of the model on the machine.
        most: settings beyond which it is refused.

    Raises:
        ValueError: there are more settings than that.
    """
    if points(profiles) > most:
        raise ValueError(f"{points(profiles)} settings are more than {most}")
    best: MachineMeasurement | None = None
    seen = set[object]()
    for setting in _settings(profiles):
        assignment = setting.assignment(profiles)
        if assignment in seen:
            continue
        seen.add(assignment)
        outcome = measure_assignment(profiles, assignment)
        if isinstance(outcome, MachineMeasurement) and (
            best is None or outcome.latency < best.latency
        ):
            best = outcome
    return best


def _settings(profiles: Profiles) -> Iterator[Decisions]:
    layers = range(1, len(profiles.layers))
    for units in itertools.product(*profiles.units):
        for count in range(len(layers) + 1):
            for cuts in itertools.combinations(layers, count):
                yield Decisions(units, frozenset(cuts))
