"""Settings that a search starts from, besides the published heuristic.

Where cuts lie decides most, and cuts interact: moved one at a time by chance they rarely end well.
The dynamic programme of :mod:`autoturbo.search.exact` places all of them at once, at what
sub-graphs cost with outputs in DDR; and again at what they cost with outputs in the local buffers
where they fit, if that matters. Here it works on a coarse grid, so that it takes seconds, and
nothing that it looks at depends on the clock: the same model, target and version give the same
starts. The search then frees outputs, weights and orders, and goes on.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from autoturbo.errors import AutoTurboError
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.split import SplitRules
from autoturbo.search.exact.chain import FREE, Covering, Programme
from autoturbo.search.exact.costs import Costs
from autoturbo.search.exact.groups import GroupLimits
from autoturbo.search.exact.near_costs import NearCosts
from autoturbo.search.exact.table import Grid
from autoturbo.simulate.evaluator import Evaluator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target

MOST_STARTS = 4
"""Starts besides the heuristic: each has dimensions of its own."""

LONGEST = (24, 16, 10)
"""Layers of the longest sub-graphs; every length gives other cuts from the same costs."""

MOST_SETS = 1 << 15
"""Sets of layers that are looked at, which bounds what a large model takes."""

WORTH = 2.0
"""A start that the programme expects to take so many times the best one's time is none."""

NEARER = 1.1
"""How many times as long cuts for outputs in DDR have to take with outputs in the local buffers as
the cuts made for these, for a start with the latter: elsewhere it would be one more of the same."""

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
    evaluator = Evaluator(graph, target, dtype or target.default_dtype)
    far, near = _Proposed.of(evaluator, Costs), _Proposed.of(evaluator, NearCosts)
    best = far.covers[:1]
    worth = [c for c in far.covers if c.seconds <= WORTH * best[0].seconds]
    found = [*near.cheaper(worth), *worth]
    return tuple(dict.fromkeys(start_from(cover.knobs) for cover in found))[:most]


def start_from(knobs: Knobs) -> Knobs:
    """The cuts and splits of a setting, with outputs, bindings and weights as the model's say."""
    own = tuple(
        SubGraphKnobs(o.layer, boundary=o.boundary, dim=o.dim, factor=o.factor)
        for o in knobs.overrides
    )
    return dataclasses.replace(knobs, output_scope=AUTO, overrides=own)


class _Proposed(NamedTuple):
    """Covers of a model by sub-graphs of every length, the cheapest first, at some costs.

    No programme and no covers where the target cannot hold the tiles of any kernel.
    """

    programme: Programme | None
    covers: list[Covering]

    @staticmethod
    def of(evaluator: Evaluator, costs: type[Costs]) -> _Proposed:
        """Those of the coarse grid."""
        layers = len(layers_of(evaluator.bench.model))
        limits = GroupLimits(max(LONGEST), max(min(MOST_SETS // max(layers, 1), 64), 4))
        grid = Grid(_FACTORS, None, (SubGraphKnobs(""),), limits, SplitRules.of(FREE))
        programme, covers = None, list[Covering]()
        with suppress(AutoTurboError):
            programme = Programme.over(evaluator, grid, costs=costs)
            for longest in LONGEST:
                with suppress(AutoTurboError):
                    covers.append(programme.cover(longest))
        return _Proposed(programme, sorted(covers, key=_seconds))

    def cheaper(self, others: Sequence[Covering]) -> list[Covering]:
        """The cheapest cover, if by far none of some others costs as little here."""
        if self.programme is None or not self.covers:
            return []
        best = self.covers[0]
        costs = self.programme.costs
        least = NEARER * best.seconds / costs.share.loops
        far = all(float(costs.seconds(other.variants).sum()) >= least for other in others)
        return [best] if far else []


def _seconds(cover: Covering) -> float:
    return cover.seconds
