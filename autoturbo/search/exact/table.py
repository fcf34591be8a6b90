"""The best way of a grid to compute every set of layers that can be a sub-graph.

A set is worth having only if it is cheaper than what smaller sets give that cover the same layers.
So sets are costed from the smallest on, and a way to compute one is simulated only if a bound of
its cost is below the cheapest such cover (which the dynamic programme can take instead).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from autoturbo.schedule.knobs import SubGraphKnobs
from autoturbo.schedule.partition.split import SplitRules, best_split, sink, split_axes
from autoturbo.schedule.problem import Problem
from autoturbo.search.exact.costs import Costs, Variant
from autoturbo.search.exact.groups import GroupLimits, Layers, Likeness


@dataclass(frozen=True, slots=True)
class Grid:
    """What is tried for every sub-graph.

    Attributes:
        factors: instances, 1 among them; those above a dimension's extent are passed over.
        dims: output dimensions that may be cut, counted from the outermost loop; None for all.
        own: further knobs, ``cores`` and ``core_dim`` and those that kernels' instructions depend
            on; the layer named there means nothing.
        limits: sets of layers that may be one sub-graph.
        near: if given, sets of several layers are cut along the dimension that Algorithm 1 picks
            under these rules only, into the next factors below and from its own on: a fifth of
            the ways or so, and rarely without the best.
    """

    factors: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dims: tuple[int, ...] | None = None
    own: tuple[SubGraphKnobs, ...] = (
        SubGraphKnobs(""), SubGraphKnobs("", tile_divisor=2), SubGraphKnobs("", prefetch_depth=2),
    )  # fmt: skip
    limits: GroupLimits = field(default_factory=GroupLimits)
    near: SplitRules | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The best way to compute a set of layers, and its seconds in one pass of a cluster."""

    variant: Variant
    seconds: float


def variants_of(problem: Problem, layers: Layers, grid: Grid) -> Iterator[Variant]:
    """Every way of a grid to compute a set of layers."""
    for depth, axis, parts in _splits(problem, layers, grid):
        for own in grid.own:
            yield Variant(layers, depth, axis, parts, own)


def _splits(problem: Problem, layers: Layers, grid: Grid) -> Iterator[tuple[int, int, int]]:
    if grid.near is None or len(layers) == 1:
        yield from _every_split(problem, layers, grid)
    else:
        yield from _near_splits(problem, layers, grid, grid.near)


def _near_splits(
    problem: Problem, layers: Layers, grid: Grid, rules: SplitRules
) -> Iterator[tuple[int, int, int]]:
    """Into about as many parts as Algorithm 1 says, one and two where it says nothing."""
    found = best_split(problem, layers, rules)
    if found.axis < 0:
        yield 0, -1, 1
        return
    extent, parts = sink(problem, layers).axes[found.axis].extent, found.instances
    fewer = max((n for n in grid.factors if n < parts), default=1)
    yield (found.depth, found.axis, fewer) if fewer > 1 else (0, -1, 1)
    enough = [n for n in grid.factors if max(parts, 2) <= n <= extent]
    yield from ((found.depth, found.axis, n) for n in sorted(enough)[:1])


def _every_split(problem: Problem, layers: Layers, grid: Grid) -> Iterator[tuple[int, int, int]]:
    yield 0, -1, 1
    for depth, axis in split_axes(problem, layers):
        extent = sink(problem, layers).axes[axis].extent
        if grid.dims is None or depth in grid.dims:
            yield from ((depth, axis, n) for n in grid.factors if 1 < n <= extent)


@dataclass(eq=False)
class Table:
    """Sets of layers and what they cost.

    Attributes:
        costs: of ways to compute them.
        grid: the ways.
        prune: whether to leave out what bounds rule out.
        ways: how many were looked at, alike ones once.
        simulated: how many of them were simulated.
        progress: is given the share of the sets that is costed, as it grows.
    """

    costs: Costs
    grid: Grid
    prune: bool = True
    progress: Callable[[float], None] | None = None
    ways: int = 0
    simulated: int = 0
    _best: dict[bytes, Best | None] = field(default_factory=dict)
    _upper: dict[_Place, float] = field(default_factory=dict)

    def of(self, sets: list[list[Layers]], likeness: Likeness | None = None) -> list[list[Best]]:
        """Per layer, the best of the sets that end in it; sets that no cover needs are left out."""
        likeness = likeness or Likeness(self.costs.problem)
        ending = [[_place(s)[1] for s in row] for row in sets]
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
                    place = _place(layers)
                    self._upper[place] = min(self._upper.get(place, np.inf), best.seconds)
        return [[b for s in row if (b := self._own(likeness.of(s), s)) is not None] for row in sets]

    def _own(self, kind: bytes, layers: Layers) -> Best | None:
        """What is known of its kind, for a set."""
        best = self._best[kind]
        if best is None:
            return None
        return Best(dataclasses.replace(best.variant, layers=layers), best.seconds)

    def _limit(self, level: list[Layers], ending: list[list[int]]) -> None:
        """Note the cheapest cover of each set by two that are smaller."""
        for layers in level:
            (end, mask), least = _place(layers), np.inf
            for part in ending[end]:
                if part & mask == part != mask:
                    rest = mask ^ part
                    back = (rest & -rest).bit_length() - 1
                    other = self._upper.get((end - back, rest >> back), np.inf)
                    least = min(least, self._upper.get((end, part), np.inf) + other)
            self._upper[end, mask] = least

    def _cost(self, level: list[Layers], kinds: list[bytes]) -> None:
        """Cost the sets of a level whose kind is new."""
        new: dict[bytes, Layers] = {}
        for layers, kind in zip(level, kinds, strict=True):
            if kind not in self._best:
                new.setdefault(kind, layers)
        found = [
            (kind, variant, self._upper[_place(layers)] if self.prune else np.inf)
            for kind, layers in new.items()
            for variant in variants_of(self.costs.problem, layers, self.grid)
        ]
        self.ways += len(found)
        found = [f for f in found if self.costs.least(f[1]) < f[2]]
        limits = np.asarray([limit for _, _, limit in found])
        seconds = self.costs.seconds([v for _, v, _ in found], limits)
        self.simulated += int(np.isfinite(seconds).sum())
        self._best.update(dict.fromkeys(new))
        for (kind, variant, limit), own in zip(found, seconds.tolist(), strict=True):
            best = self._best[kind]
            if own < limit and (best is None or own < best.seconds):
                self._best[kind] = Best(variant, own)


_Place = tuple[int, int]
"""A set of layers: its end, and a bit for each of its layers that says how far it is before that.

Counted from the model's first layer instead, every set would take memory that grows with the model.
"""


def _place(layers: Layers) -> _Place:
    end = layers[-1]
    return end, sum(1 << (end - layer) for layer in layers)
