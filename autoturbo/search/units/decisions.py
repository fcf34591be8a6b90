"""What is decided on a machine: a unit for every layer, and where parts are cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.schedule.baselines.partition_tuner.assignments import branches_of
from autoturbo.schedule.units.parts import Assignment, assign, layer_producers
from autoturbo.simulate.units.machine import MachineMeasurement, measure_assignment
from autoturbo.simulate.units.profiles import Profiles

LONGEST_RUN = 8
"""Layers in a row that one step may move to another unit."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """A setting.

    Attributes:
        units: per layer, its unit.
        cuts: layers that open a part.
    """

    units: tuple[int, ...]
    cuts: frozenset[int]

    def assignment(self, profiles: Profiles) -> Assignment:
        """The parts that follow."""
        return assign(profiles.graph, profiles.layers, self.units, self.cuts)


def decisions_of(profiles: Profiles, assignment: Assignment) -> Decisions:
    """A setting that gives an assignment back, or one whose parts are no smaller."""
    heads = frozenset(part.layers[0] for part in assignment.parts)
    return Decisions(assignment.units, heads & may_be_cut(profiles))


def may_be_cut(profiles: Profiles) -> frozenset[int]:
    """Layers that read from others: what reads from none opens a part anyway."""
    producers = layer_producers(profiles.graph, profiles.layers)
    return frozenset(layer for layer, read in enumerate(producers) if read)


def first_settings(profiles: Profiles, starts: Sequence[Assignment]) -> Iterator[Decisions]:
    """Everything on each unit as far as it takes it, and the given starts, cut and whole."""
    for unit in range(len(profiles.machine.units)):
        units = tuple(unit if unit in may else may[0] for may in profiles.units)
        yield Decisions(units, frozenset())
    for start in starts:
        yield decisions_of(profiles, start)
        yield Decisions(start.units, frozenset())


class Moves:
    """Steps from one setting to another.

    Args:
        profiles: of the model on the machine.
        rng: where chance comes from.
    """

    def __init__(self, profiles: Profiles, rng: np.random.Generator) -> None:
        self.profiles, self.rng = profiles, rng
        producers = layer_producers(profiles.graph, profiles.layers)
        self.branches = [branch.layers for branch in branches_of(producers)]
        self.cuts = may_be_cut(profiles)

    def step(self, at: Decisions) -> Decisions:
        """A setting near another one: a cut, a layer, some in a row, a branch or a part moved."""
        kind = int(self.rng.integers(5))
        count = len(self.profiles.layers)
        layer = int(self.rng.integers(count))
        if kind == 0:
            return Decisions(at.units, at.cuts ^ (self.cuts & {layer}))
        if kind == 1:
            return self._moved(at, [layer])
        if kind == 2:  # noqa: PLR2004  kinds of steps
            end = layer + int(self.rng.integers(2, LONGEST_RUN + 1))
            return self._moved(at, range(layer, min(end, count)))
        if kind == 3:  # noqa: PLR2004  kinds of steps
            return self._moved(at, self.branches[int(self.rng.integers(len(self.branches)))])
        parts = at.assignment(self.profiles).parts
        return self._moved(at, parts[int(self.rng.integers(len(parts)))].layers)

    def _moved(self, at: Decisions, layers: Sequence[int]) -> Decisions:
        """Some layers on another unit, as far as it takes them."""
        unit = int(self.rng.integers(len(self.profiles.machine.units)))
        units = list(at.units)
        for layer in layers:
            if unit in self.profiles.units[layer]:
                units[layer] = unit
        return Decisions(tuple(units), at.cuts)


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
