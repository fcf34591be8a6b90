"""The space of a machine's candidates: a unit for every layer that has a choice, and cuts.

Side by side or in turn is not searched: units with work at the same time are never slower than one
after the other (:mod:`autoturbo.heterogeneous.timetable`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.errors import KnobsError, Location
from autoturbo.heterogeneous.annealing import Annealing, Decisions, decisions_of, first_settings
from autoturbo.heterogeneous.evaluator import MachineEvaluator, scheduler_names
from autoturbo.heterogeneous.parts import Assignment, layer_producers
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.unit_knobs import SIDE_BY_SIDE, UnitKnobs
from autoturbo.search.evolution import fresh_points
from autoturbo.search.objectives import OF_KERNELS, Objective
from autoturbo.search.points import Dimension
from autoturbo.search.space import Space
from autoturbo.simulator.measurement import Measurement, Outcome

_UNIT, _CUT = "unit of ", "cut before "


@dataclass(frozen=True)
class UnitSpace(Space):
    """The space of a machine: units of layers and cuts as dimensions.

    Attributes:
        names: Names of the layers.
        units: Names of the machine's units.
        published: The candidate that ``Knobs()`` stands for.
    """

    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    published: UnitKnobs = field(default_factory=UnitKnobs)

    @staticmethod
    def on(evaluator: MachineEvaluator) -> UnitSpace:
        """Return the space of a model on a machine."""
        profiles = evaluator.profiles
        units = tuple(unit.name for unit in profiles.machine.units)
        producers = layer_producers(profiles.graph, profiles.layers)
        choices = [
            Dimension(_UNIT + name, tuple(units[u] for u in may))
            for name, may in zip(evaluator.names, profiles.units, strict=True)
            if len(may) > 1
        ]
        choices += [
            Dimension(_CUT + name, (False, True))
            for name, read in zip(evaluator.names, producers, strict=True)
            if read
        ]
        published = decisions_of(profiles, evaluator.published)
        # the published candidate is told in the names of a space, which has to be there first
        space = UnitSpace(tuple(choices), names=evaluator.names, units=units)
        return UnitSpace(
            space.dimensions, names=space.names, units=units, published=space.said(published)
        )

    def said(self, decisions: Decisions) -> UnitKnobs:
        """Return decisions as knobs."""
        layers = {self.names[i]: self.units[unit] for i, unit in enumerate(decisions.units) if unit}
        cuts = tuple(self.names[layer] for layer in decisions.cuts)
        return UnitKnobs(tuple(layers.items()), cuts)

    def decided(self, knobs: Knobs) -> Decisions:
        """Return knobs as decisions."""
        unit_knobs = knobs.units or self.published
        units, place = dict(unit_knobs.layers), {name: i for i, name in enumerate(self.names)}
        indices = tuple(self.units.index(units.get(name, self.units[0])) for name in self.names)
        return Decisions(indices, frozenset(place[name] for name in unit_knobs.cuts))

    def knobs(self, said: UnitKnobs) -> Knobs:
        """Return the canonical form of a candidate."""
        return Knobs() if said == self.published else Knobs(units=said)

    # What a space of knobs says of its points

    def canonical(self, knobs: Knobs) -> Knobs:
        """Return the canonical form of a candidate."""
        return self.knobs(knobs.units or self.published)

    def to_knobs(self, params: Mapping[str, Any]) -> Knobs:
        """Return the candidate of some parameters; by default the first unit, and no cut."""
        units = ((n.removeprefix(_UNIT), v) for n, v in params.items() if n.startswith(_UNIT))
        cuts = (n.removeprefix(_CUT) for n, v in params.items() if n.startswith(_CUT) and v)
        layers = tuple((name, unit) for name, unit in units if unit != self.units[0])
        return self.knobs(UnitKnobs(layers, tuple(cuts)))

    def knobs_of(self, genes: Iterable[int]) -> Knobs:
        """Return the candidate of an encoding."""
        return self.to_knobs(self.params_of(genes))

    def from_knobs(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate, every dimension named.

        Raises:
            KnobsError: The candidate is outside the space.
        """
        unit_knobs = knobs.units or self.published
        units, cuts = dict(unit_knobs.layers), {_CUT + name for name in unit_knobs.cuts}
        params: dict[str, Any] = {
            d.name: d.name in cuts
            if d.name.startswith(_CUT)
            else units.pop(d.name.removeprefix(_UNIT), self.units[0])
            for d in self.dimensions
        }
        known = {d.name: d.choices for d in self.dimensions}
        away = [name for name, unit in params.items() if unit not in known[name]]
        unknown = {*away, *units, *cuts.difference(known)}
        if unknown or unit_knobs.branches != SIDE_BY_SIDE or knobs != Knobs(units=knobs.units):
            what = f" ({min(unknown)})" if unknown else ""
            message = f"a setting that is not in the search space{what}"
            raise KnobsError(message, Location(field="units"))
        return params

    def sparse(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters: each means something."""
        return dict(params)

    def describe(self) -> list[dict[str, Any]]:
        """Return one row per dimension: name, meaning, choices, PartitionTuner's choice."""
        published = self.from_knobs(Knobs())
        return [
            {
                "knob": d.name,
                "help": "unit that runs the layer" if d.name.startswith(_UNIT) else
                "the layer opens a part",
                "choices": list(d.choices),
                "published": str(published[d.name]),
            }
            for d in self.dimensions
        ]  # fmt: skip


class AnnealingProposer:
    """Proposes candidates of a machine and learns from outcomes.

    Args:
        evaluator: Measures candidates of the model on the machine.
        space: The space that candidates are drawn from.
        objective: The objective that is sought.
        seed: Seed of all random draws.
    """

    def __init__(
        self, evaluator: MachineEvaluator, space: UnitSpace, objective: Objective, seed: int
    ) -> None:
        self._space, self._objective, self._seed = space, objective, seed
        self._search = Annealing(evaluator.profiles, seed, starts_of(evaluator))

    def ask(self, count: int) -> list[Knobs]:
        """Return new candidates, fewer than asked for only where the space has no more."""
        known = self._search.known
        count = min(count, self._space.size - len(known))
        asked = self._search.ask(count)
        proposed = dict.fromkeys(
            self._space.knobs(self._space.said(decisions)) for decisions in asked
        )
        if len(proposed) == count:
            return list(proposed)
        taken = {
            self._space.point_of(self._space.knobs(self._space.said(decisions)))
            for decisions in known
        }
        taken |= {self._space.point_of(knobs) for knobs in proposed}
        rng = np.random.default_rng([self._seed, len(known), 1])
        more = fresh_points(self._space, rng, taken, count - len(proposed))
        return [*proposed, *(self._space.knobs_of(genes) for genes in more)]

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take the outcome of a candidate, asked for or not."""
        self._search.tell(self._space.decided(knobs), self._figure(outcome))

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate that was told, every dimension named."""
        return self._space.params_of(self._space.point_of(knobs))

    def _figure(self, outcome: Outcome) -> float:
        """Return the figure, above zero and lower is better; infinite where it does not fit."""
        if not isinstance(outcome, Measurement):
            return math.inf
        if self._objective.name in OF_KERNELS:
            return outcome.latency
        value = self._objective.value(outcome)
        return math.inf if value is None else value


def initial_settings(evaluator: MachineEvaluator, space: UnitSpace) -> tuple[Knobs, ...]:
    """Return the first candidates of annealing, for other samplers."""
    settings = first_settings(evaluator.profiles, starts_of(evaluator))
    return tuple(dict.fromkeys(space.knobs(space.said(decisions)) for decisions in settings))


def starts_of(evaluator: MachineEvaluator) -> Sequence[Assignment]:
    """Return the warm starts of the search: all published assignments."""
    return [evaluator.named(name) for name in scheduler_names(evaluator.profiles.machine)]
