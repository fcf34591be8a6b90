"""Annealing as what a run asks for settings (:class:`autoturbo.search.proposer.Proposer`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.units.parts import Assignment
from autoturbo.search.evolution import fresh_points
from autoturbo.search.objectives import OF_KERNELS, Objective
from autoturbo.search.units.annealing import Annealing
from autoturbo.search.units.decisions import first_settings
from autoturbo.search.units.space import UnitSpace
from autoturbo.simulate.measurement import Measurement, Outcome
from autoturbo.simulate.units.evaluator import MachineEvaluator, scheduler_names


class AnnealingProposer:
    """Proposes settings of a machine and learns from outcomes.

    Args:
        evaluator: of the model on the machine.
        space: of its settings.
        objective: what is sought.
        seed: of all chance.
    """

    def __init__(
        self, evaluator: MachineEvaluator, space: UnitSpace, objective: Objective, seed: int
    ) -> None:
        self._space, self._objective, self._seed = space, objective, seed
        self._search = Annealing(evaluator.profiles, seed, starts_of(evaluator))

    def ask(self, count: int) -> list[Knobs]:
        """New settings, fewer than asked for only where the space has no more."""
        known = self._search.known
        count = min(count, self._space.size - len(known))
        asked = self._search.ask(count)
        found = dict.fromkeys(self._space.knobs(self._space.said(one)) for one in asked)
        if len(found) == count:
            return list(found)
        taken = {self._space.point_of(self._space.knobs(self._space.said(one))) for one in known}
        taken |= {self._space.point_of(knobs) for knobs in found}
        rng = np.random.default_rng([self._seed, len(known), 1])
        more = fresh_points(self._space, rng, taken, count - len(found))
        return [*found, *(self._space.knobs_of(genes) for genes in more)]

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """What became of a setting, asked for or not."""
        self._search.tell(self._space.decided(knobs), self._figure(outcome))

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting that was told, every dimension named."""
        return self._space.params_of(self._space.point_of(knobs))

    def _figure(self, outcome: Outcome) -> float:
        """Above zero, lower is better; infinite where the setting does not fit."""
        if not isinstance(outcome, Measurement):
            return math.inf
        if self._objective.name in OF_KERNELS:
            return outcome.latency
        value = self._objective.value(outcome)
        return math.inf if value is None else value


def initial_settings(evaluator: MachineEvaluator, space: UnitSpace) -> tuple[Knobs, ...]:
    """Return what annealing begins with as settings, for other samplers."""
    found = first_settings(evaluator.profiles, starts_of(evaluator))
    return tuple(dict.fromkeys(space.knobs(space.said(one)) for one in found))


def starts_of(evaluator: MachineEvaluator) -> Sequence[Assignment]:
    """What the search begins with: all published ways."""
    return [evaluator.named(name) for name in scheduler_names(evaluator.profiles.machine)]
