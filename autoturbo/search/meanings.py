"""What points of a search space mean: settings, and the way back.

A space may have several starts: complete settings, the first one the published heuristic. One
dimension chooses the start, ``"auto"`` leaves every knob as the start has it, and each start has
sub-graphs of its own with knobs that mean something where it is chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    SubGraphKnobs,
    Value,
    knob_specs,
    subgraph_knob_specs,
)
from autoturbo.search.conditions import START, Genes, dimension_name, effective
from autoturbo.search.knob_choices import canonical
from autoturbo.search.points import Points


class Meanings(Points):
    """Points, and the settings that they stand for."""

    def canonical(self, knobs: Knobs) -> Knobs:
        """The one way to write a setting: ``"auto"`` wherever a value means the same."""
        chosen: dict[str, Any] = {
            name: canonical(name, spec, getattr(knobs, name), self.share, self.layers)
            for name, spec in knob_specs().items()
        }
        plain = dataclasses.replace(knobs, **chosen)
        own = tuple(SubGraphKnobs(**effective(o, plain)) for o in plain.overrides)
        return dataclasses.replace(plain, overrides=own)

    def to_knobs(self, params: Mapping[str, Any]) -> Knobs:
        """The setting of some parameters; what is left out is ``"auto"``.

        Raises:
            KnobsError: a parameter that is no knob, or a value that it does not take.
        """
        own = {name: value for name, value in params.items() if name in self._owners}
        start = self._start_of(params)
        known = {**own, START: AUTO} if len(self.starts) > 1 else own
        model = {name: value for name, value in params.items() if name not in known}
        said = {n: getattr(start, n) for n in knob_specs() if model.get(n, AUTO) == AUTO}
        overrides = [o.as_dict() for o in self._overrides(own, start)]
        return self.canonical(Knobs.from_dict({**model, **said, "overrides": overrides}))

    def from_knobs(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting, every dimension named.

        Raises:
            KnobsError: the setting is not a point of the space.
        """
        canonical, refused = self.canonical(knobs), None
        for number in range(len(self.starts)):
            try:
                return self._from_start(canonical, number)
            except KnobsError as error:
                refused = refused or error
        raise refused or KnobsError("a space without a start")

    def sparse(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters without the sub-graphs' that are ``"auto"``: they exist where they matter."""
        return {n: v for n, v in params.items() if v != AUTO or n not in self._owners}

    def knobs_of(self, genes: Iterable[int]) -> Knobs:
        """The setting of a point of a knob space."""
        pairs = zip(self.dimensions, genes, strict=True)
        chosen = {d.name: d.choices[index] for d, index in pairs if index}  # 0 is "auto"
        own = {name: chosen.pop(name) for name in [*chosen] if name in self._owners}
        start = self._start_of(chosen)
        if len(self.starts) > 1:
            chosen.pop(START, None)
        overrides = tuple(self._overrides(own, start))
        return dataclasses.replace(start, **chosen, overrides=overrides)

    def settings(self, genes: Genes) -> list[Knobs]:
        """The settings of points of a knob space."""
        return [self.knobs_of(row) for row in genes.tolist()]

    def _start_of(self, params: Mapping[str, Any]) -> Knobs:
        chosen = params.get(START, AUTO)
        return self.starts[0 if chosen == AUTO or len(self.starts) == 1 else int(chosen)]

    def _overrides(self, params: Mapping[str, Any], start: Knobs) -> list[SubGraphKnobs]:
        """What a start says of sub-graphs, with their choices on top."""
        chosen: dict[tuple[str, ...], dict[str, Any]] = {}
        for name, value in params.items():
            block, field = self._owners[name]
            if value != AUTO:
                chosen.setdefault(block.layers, {})[field] = value
        own = {x: SubGraphKnobs(x, **own) for layers, own in chosen.items() for x in layers}
        said = {o.layer: own.pop(o.layer).over(o) if o.layer in own else o for o in start.overrides}
        return [*said.values(), *own.values()]

    def _from_start(self, canonical: Knobs, number: int) -> dict[str, Any]:
        """The parameters of a setting in its one form, seen from one start."""
        known, start = {d.name: d.choices for d in self.dimensions}, self.starts[number]
        params: dict[str, Any] = dict.fromkeys(known, AUTO)
        if number:
            params[START] = number
        values = {n: (getattr(canonical, n), getattr(start, n)) for n in knob_specs()}
        plain = {name: value for name, (value, said) in values.items() if value != said}
        if AUTO in plain.values():
            message = "a setting that no start leads to"
            raise KnobsError(message, Location(field=f"{START} {number}"))
        for name, value in {**plain, **self._own_params(canonical, number)}.items():
            if value not in known.get(name, (AUTO,)):
                raise _outside(name, value, known.get(name, (AUTO,)))
            params[name] = value
        genes = self.genes_of(params)
        if genes is not None and self.normal(np.asarray([genes]))[0].tolist() != list(genes):
            at = Location(field="overrides")
            raise KnobsError("a split that is not in the search space", at)
        return params

    def _own_params(self, knobs: Knobs, number: int) -> dict[str, Any]:
        """Parameters of the overrides, which alike sub-graphs must have in common."""
        left = {o.layer: o for o in knobs.overrides}
        said = {
            o.layer: SubGraphKnobs(**effective(o, knobs)) for o in self.starts[number].overrides
        }
        params = {}
        for block in (b for b in self.blocks if b.start == number):
            own = [left.pop(layer, SubGraphKnobs(layer)) for layer in block.layers]
            base = [said.pop(layer, SubGraphKnobs(layer)) for layer in block.layers]
            values = [_beyond(o, b) for o, b in zip(own, base, strict=True)]
            if AUTO in values[0].values():
                raise _outside("overrides", block.layers[0], ("what the start says",))
            if any(other != values[0] for other in values):
                at = Location(field="overrides")
                message = f"sub-graphs like that of {block.layers[0]!r} have one setting here"
                raise KnobsError(message, at)
            params.update({dimension_name(block, n): v for n, v in values[0].items()})
        for layer in sorted(o.layer for o in {*left.values()} ^ {*said.values()}):
            raise _outside("overrides", layer, tuple(x for b in self.blocks for x in b.layers))
        return params


def _beyond(own: SubGraphKnobs, base: SubGraphKnobs) -> dict[str, Value]:
    """What an override says beyond that of a start; ``"auto"`` takes something back.

    In one part there is no dimension to speak of.
    """
    whole = ("dim",) if own.factor == 1 else ()
    names = [name for name in subgraph_knob_specs() if name not in whole]
    return {n: v for n in names if (v := getattr(own, n)) != getattr(base, n)}


def _outside(name: str, value: object, choices: tuple[Any, ...]) -> KnobsError:
    at = Location(field=name)
    return KnobsError(
        f"{value!r} is not in the search space", at, f"one of {', '.join(map(str, choices))}"
    )
