"""Settings that a search starts from, besides the published heuristic.

Where cuts lie decides most, and cuts interact: moved one at a time by chance they rarely end well.
The dynamic programme of :mod:`autoturbo.search.exact` places all of them at once, at what its
analytical model says that sub-graphs cost with outputs in DDR. Here it works on a coarse grid, so
that it takes seconds, and nothing that it looks at depends on the clock: the same model, target and
version give the same starts. The search then frees outputs, weights and orders, and goes on.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING

from autoturbo.errors import AutoTurboError
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.split import SplitRules
from autoturbo.search.exact.chain import FREE, ChainAnswer, Programme
from autoturbo.search.exact.groups import GroupLimits
from autoturbo.search.exact.table import Grid
from autoturbo.simulate.evaluator import Evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target

MOST_STARTS = 3
"""Starts besides the heuristic: each has dimensions of its own."""

LONGEST = (24, 16, 10)
"""Layers of the longest sub-graphs; every length gives other cuts from the same costs."""

MOST_SETS = 1 << 15
"""Sets of layers that are looked at, which bounds what a large model takes."""

WORTH = 2.0
"""A start that the programme expects to take so many times the best one's time is none."""

_FACTORS = (1, 2, 4, 8, 16)


def starts_of(
    graph: Graph, target: Target, *, dtype: str | None = None, most: int = MOST_STARTS
) -> tuple[Knobs, ...]:
    """Cuts and splits worth starting from, the most promising first.

    None where the dynamic programme finds none: a model without operators, tiles that do not fit.

    Args:
        graph: the model.
        target: the accelerator.
        dtype: the compute type; the target's default if None.
        most: starts at most.
    """
    if most <= 0 or not graph.operators:
        return ()
    found = sorted(_answers(Evaluator(graph, target, dtype or target.default_dtype)), key=_seconds)
    near = [a for a in found if a.predicted <= WORTH * found[0].predicted]
    return tuple(dict.fromkeys(start_from(answer.knobs) for answer in near))[:most]


def start_from(knobs: Knobs) -> Knobs:
    """The cuts and splits of a setting, with outputs, bindings and weights as the model's say."""
    own = tuple(
        SubGraphKnobs(o.layer, boundary=o.boundary, dim=o.dim, factor=o.factor)
        for o in knobs.overrides
    )
    return dataclasses.replace(knobs, output_scope=AUTO, overrides=own)


def _answers(evaluator: Evaluator) -> Iterator[ChainAnswer]:
    """One per length; none where the target cannot hold the tiles of any kernel."""
    layers = len(layers_of(evaluator.bench.model))
    limits = GroupLimits(max(LONGEST), max(min(MOST_SETS // max(layers, 1), 64), 4))
    own, rules = (SubGraphKnobs(""),), SplitRules.of(FREE)
    with suppress(AutoTurboError):
        programme = Programme.over(evaluator, Grid(_FACTORS, None, own, limits, rules))
        for longest in LONGEST:
            with suppress(AutoTurboError):
                yield programme.answer(longest)


def _seconds(answer: ChainAnswer) -> float:
    return answer.predicted
