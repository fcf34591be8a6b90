"""The best way of a grid to compute every set of layers that can be a sub-graph.

A set is worth having only if it is cheaper than what smaller sets give that cover the same
layers. So sets are costed from the smallest on, and a way to compute one is simulated only if a
bound of its cost is below the cheapest such cover (which the dynamic programme can take
instead).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import SubGraphKnobs
from autoturbo.schedule.partition.split import SplitRules, best_split, sink, split_axes
from autoturbo.search.warm_starts.costs import Costs, Variant
from autoturbo.search.warm_starts.groups import GroupLimits, IsomorphismKeys, Layers

Place = tuple[int, int]
"""A set of layers: its end, and a bit for each of its layers that says how far it is before that.

Counted from the model's first layer instead, every set would take memory that grows with the model.
"""


def place_of(layers: Layers) -> Place:
    """Return the place of a set of layers in tables."""
    end = layers[-1]
    return end, sum(1 << (end - layer) for layer in layers)


@dataclass(frozen=True, slots=True)
class Grid:
    """The variants that are tried for every sub-graph.

    Attributes:
        factors: Instances, 1 among them; those above a dimension's extent are passed over.
        dims: Output dimensions that may be cut, counted from the outermost loop; None for all.
        own: Further knobs, ``cores`` and ``core_parallel_dim`` and those that kernels'
            instructions depend on; the layer named there means nothing.
        limits: Sets of layers that may be one sub-graph.
        near: If given, sets of several layers are cut along the dimension that Algorithm 1 picks
            under these rules only, into the next factors below and from its own on: a fifth of
            the ways or so, and rarely without the best.
    """

    factors: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dims: tuple[int, ...] | None = None
    own: tuple[SubGraphKnobs, ...] = (
        SubGraphKnobs(""), SubGraphKnobs("", tile_subdivision=2),
        SubGraphKnobs("", prefetch_depth=2),
    )  # fmt: skip
    limits: GroupLimits = field(default_factory=GroupLimits)
    near: SplitRules | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The best variant of a set of layers, and its seconds in one pass of a cluster."""

    variant: Variant
    seconds: float


def variants_of(context: SchedulingContext, layers: Layers, grid: Grid) -> Iterator[Variant]:
    """Yield every variant of a grid that computes a set of layers."""
    for depth, axis, parts in _splits(context, layers, grid):
        for knobs in grid.own:
            yield Variant(layers, depth, axis, parts, knobs)


def _splits(
    context: SchedulingContext, layers: Layers, grid: Grid
) -> Iterator[tuple[int, int, int]]:
    if grid.near is None or len(layers) == 1:
        yield from _every_split(context, layers, grid)
    else:
        yield from _near_splits(context, layers, grid, grid.near)


def _near_splits(
    context: SchedulingContext, layers: Layers, grid: Grid, rules: SplitRules
) -> Iterator[tuple[int, int, int]]:
    """Yield splits into about as many parts as Algorithm 1 gives; one and two without a result.

    Args:
        context: The model on the target.
        layers: Of the sub-graph.
        grid: Numbers of parts.
        rules: Of Algorithm 1.
    """
    split = best_split(context, layers, rules)
    if split.axis < 0:
        yield 0, -1, 1
        return
    extent, parts = sink(context, layers).axes[split.axis].extent, split.instances
    fewer = max((n for n in grid.factors if n < parts), default=1)
    yield (split.depth, split.axis, fewer) if fewer > 1 else (0, -1, 1)
    enough = [n for n in grid.factors if max(parts, 2) <= n <= extent]
    yield from ((split.depth, split.axis, n) for n in sorted(enough)[:1])


def _every_split(
    context: SchedulingContext, layers: Layers, grid: Grid
) -> Iterator[tuple[int, int, int]]:
    yield 0, -1, 1
    for depth, axis in split_axes(context, layers):
        extent = sink(context, layers).axes[axis].extent
        if grid.dims is None or depth in grid.dims:
            yield from ((depth, axis, n) for n in grid.factors if 1 < n <= extent)


@dataclass(eq=False)
class Table:
    """The sets of layers and their costs.

    Attributes:
        costs: Of ways to compute them.
        grid: The ways.
        prune: Whether to leave out what bounds rule out.
        ways: How many were looked at, alike ones once.
        simulated: How many of them were simulated.
        progress: Is given the share of the sets that is costed, as it grows.
    """

    costs: Costs
    grid: Grid
    prune: bool = True
    progress: Callable[[float], None] | None = None
    ways: int = 0
    simulated: int = 0
    _best: dict[bytes, Best | None] = field(default_factory=dict)
    _upper: dict[Place, float] = field(default_factory=dict)

    def of(
        self, sets: list[list[Layers]], likeness: IsomorphismKeys | None = None
    ) -> list[list[Best]]:
        """Return, per layer, the best variants of the sets that end in it."""
        likeness = likeness or IsomorphismKeys(self.costs.context)
        ending = [[place_of(s)[1] for s in row] for row in sets]
        levels: dict[int, list[Layers]] = {}
        for row in sets:
            for layers in row:
                levels.setdefault(len(layers), []).append(layers)
        done, total = 0, sum(map(len, sets))
        for _, level in sorted(levels.items()):
            kinds = [likeness.of(s) for s in level]
            self._limit(level, ending)
            self._cost(level, kinds)
            done += len(level)
            if self.progress is not None:
                self.progress(done / total)
            for layers, kind in zip(level, kinds, strict=True):
                best = self._best[kind]
                if best is not None:
                    place = place_of(layers)
                    self._upper[place] = min(self._upper.get(place, np.inf), best.seconds)
        return [[b for s in row if (b := self._own(likeness.of(s), s)) is not None] for row in sets]

    def _own(self, kind: bytes, layers: Layers) -> Best | None:
        """Return the best known variant of a set's kind, applied to the set."""
        best = self._best[kind]
        if best is None:
            return None
        return Best(dataclasses.replace(best.variant, layers=layers), best.seconds)

    def _limit(self, level: list[Layers], ending: list[list[int]]) -> None:
        """Record the cheapest split of each set into two smaller ones."""
        for layers in level:
            (end, mask), least = place_of(layers), np.inf
            for part in ending[end]:
                if part & mask == part != mask:
                    rest = mask ^ part
                    back = (rest & -rest).bit_length() - 1
                    rest_s = self._upper.get((end - back, rest >> back), np.inf)
                    least = min(least, self._upper.get((end, part), np.inf) + rest_s)
            self._upper[end, mask] = least

    def _cost(self, level: list[Layers], kinds: list[bytes]) -> None:
        """Cost the sets of a level whose kind is new."""
        new: dict[bytes, Layers] = {}
        for layers, kind in zip(level, kinds, strict=True):
            if kind not in self._best:
                new.setdefault(kind, layers)
        variants = [
            (kind, variant, self._upper[place_of(layers)] if self.prune else np.inf)
            for kind, layers in new.items()
            for variant in variants_of(self.costs.context, layers, self.grid)
        ]
        self.ways += len(variants)
        variants = [f for f in variants if self.costs.least(f[1]) < f[2]]
        limits = np.asarray([limit for _, _, limit in variants])
        seconds = self.costs.seconds([v for _, v, _ in variants], limits)
        self.simulated += int(np.isfinite(seconds).sum())
        self._best.update(dict.fromkeys(new))
        for (kind, variant, limit), cost_s in zip(variants, seconds.tolist(), strict=True):
            best = self._best[kind]
            if cost_s < limit and (best is None or cost_s < best.seconds):
                self._best[kind] = Best(variant, cost_s)
