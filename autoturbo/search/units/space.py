"""The space of a machine's settings: a unit for every layer that has a choice, and cuts.

Side by side or in turn is not searched: units with work at the same time are never slower than one
after the other (:mod:`autoturbo.simulate.units.timetable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.units.parts import layer_producers
from autoturbo.schedule.units.unit_knobs import SIDE_BY_SIDE, UnitKnobs
from autoturbo.search.points import Dimension
from autoturbo.search.space import Space
from autoturbo.search.units.decisions import Decisions, decisions_of
from autoturbo.simulate.units.evaluator import MachineEvaluator

_UNIT, _CUT = "unit of ", "cut before "


@dataclass(frozen=True)
class UnitSpace(Space):
    """Units of layers and cuts as dimensions.

    Attributes:
        names: of the layers.
        units: names of the machine's units.
        published: the setting that ``Knobs()`` stands for.
    """

    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    published: UnitKnobs = field(default_factory=UnitKnobs)

    @staticmethod
    def on(evaluator: MachineEvaluator) -> UnitSpace:
        """The space of a model on a machine."""
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
        space = UnitSpace(tuple(choices), names=evaluator.names, units=units)
        return UnitSpace(
            space.dimensions, names=space.names, units=units, published=space.said(published)
        )

    def said(self, decisions: Decisions) -> UnitKnobs:
        """Decisions as knobs."""
        layers = {self.names[i]: self.units[unit] for i, unit in enumerate(decisions.units) if unit}
        cuts = tuple(self.names[layer] for layer in decisions.cuts)
        return UnitKnobs(tuple(layers.items()), cuts)

    def decided(self, knobs: Knobs) -> Decisions:
        """Knobs as decisions."""
        said = knobs.units or self.published
        units, place = dict(said.layers), {name: i for i, name in enumerate(self.names)}
        found = tuple(self.units.index(units.get(name, self.units[0])) for name in self.names)
        return Decisions(found, frozenset(place[name] for name in said.cuts))

    def knobs(self, said: UnitKnobs) -> Knobs:
        """The one form of a setting."""
        return Knobs() if said == self.published else Knobs(units=said)

    # What a space of knobs says of its points

    def canonical(self, knobs: Knobs) -> Knobs:
        """The one way to write a setting."""
        return self.knobs(knobs.units or self.published)

    def to_knobs(self, params: Mapping[str, Any]) -> Knobs:
        """The setting of some parameters; what is left out is the first unit, and no cut."""
        units = ((n.removeprefix(_UNIT), v) for n, v in params.items() if n.startswith(_UNIT))
        cuts = (n.removeprefix(_CUT) for n, v in params.items() if n.startswith(_CUT) and v)
        layers = tuple((name, unit) for name, unit in units if unit != self.units[0])
        return self.knobs(UnitKnobs(layers, tuple(cuts)))

    def knobs_of(self, genes: Iterable[int]) -> Knobs:
        """The setting of a point."""
        return self.to_knobs(self.params_of(genes))

    def from_knobs(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting, every dimension named.

        Raises:
            KnobsError: the setting is not a point of the space.
        """
        said = knobs.units or self.published
        units, cuts = dict(said.layers), {_CUT + name for name in said.cuts}
        params: dict[str, Any] = {
            d.name: d.name in cuts
            if d.name.startswith(_CUT)
            else units.pop(d.name.removeprefix(_UNIT), self.units[0])
            for d in self.dimensions
        }
        known = {d.name: d.choices for d in self.dimensions}
        away = [name for name, unit in params.items() if unit not in known[name]]
        left = {*away, *units, *cuts.difference(known)}
        if left or said.branches != SIDE_BY_SIDE or knobs != Knobs(units=knobs.units):
            what = f" ({min(left)})" if left else ""
            message = f"a setting that is not in the search space{what}"
            raise KnobsError(message, Location(field="units"))
        return params

    def sparse(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """All of them: each means something."""
        return dict(params)

    def describe(self) -> list[dict[str, Any]]:
        """One row per dimension: name, what it means, choices, what PartitionTuner chooses."""
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
