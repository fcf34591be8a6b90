"""The split of a sub-graph: the four knobs that mean something together only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from autoturbo.schedule.knobs.candidate import SubGraphKnobs, knob_names
from autoturbo.schedule.knobs.kinds import AUTO, RAGGED, Stage, Value

SPLIT: Final = knob_names("subgraph", upto=Stage.PARTITION)
"""The knobs of a sub-graph that split it: dimension and parts, then those inside every part."""

FACTOR: Final = SPLIT[1]
"""The number of parts along the dimension that is cut first."""

UPON: Final = ("batches_per_cluster", "factor_policy")
"""Knobs of the model on which it depends what a split can be."""


class Split(NamedTuple):
    """Values of :data:`SPLIT`, in their order."""

    dim: Value = AUTO
    factor: Value = AUTO
    inner_dim: Value = AUTO
    inner_factor: Value = AUTO


class Upon(NamedTuple):
    """Number of samples at once, by position, and the policy, on which a split depends."""

    samples: int
    policy: Value


@dataclass(frozen=True)
class Splitting:
    """Dimensions and parts into which alike sub-graphs can be split.

    Attributes:
        extents: By dimension that can be split, its extent at each number of samples at once; 1
            where it cannot be split then.
        depth: The dimension that ``dim="auto"`` is.
        base: What their start says of each of them, which ``"auto"`` leaves as it is.
    """

    extents: Mapping[int, tuple[int, ...]]
    depth: int
    base: SubGraphKnobs

    def possible(self, upon: Upon, split: Split) -> Split:
        """Return a split with ``"auto"`` in place of what is impossible or means nothing."""
        dim = split.dim if self._is_dim(upon, split.dim) else AUTO
        factor = split.factor if self._fits(upon, dim, split.factor) else AUTO
        # With one part there is no dimension to choose, nor anything inside it.
        if (self.base.factor if factor == AUTO else factor) == 1:
            return Split(factor=factor)
        # The factor may be the start's by now, and the dimension has to suit that as well.
        dim = dim if self._fits(upon, dim, factor) else AUTO
        inner = self._fits_inside(upon, split.inner_dim, split.inner_factor)
        if inner and self._depth(dim) != split.inner_dim:
            return Split(dim, factor, split.inner_dim, split.inner_factor)
        return Split(dim, factor)

    def _depth(self, dim: Value) -> int:
        return self.depth if dim == AUTO else int(dim)

    def _extent(self, depth: int, upon: Upon) -> int:
        """Return the extent of a dimension; 1 where it cannot be split."""
        extents = self.extents.get(depth)
        return 1 if extents is None else extents[upon.samples]

    def _is_dim(self, upon: Upon, dim: Value) -> bool:
        return dim == AUTO or self._extent(int(dim), upon) > 1

    def _fits(self, upon: Upon, dim: Value, factor: Value) -> bool:
        parts = self.base.factor if factor == AUTO else factor
        return parts in (AUTO, 1) or self._divides(upon, self._depth(dim), int(parts))

    def _fits_inside(self, upon: Upon, dim: Value, parts: Value) -> bool:
        if AUTO in (dim, parts):
            return False
        return parts == 1 or self._divides(upon, int(dim), int(parts))

    def _divides(self, upon: Upon, depth: int, parts: int) -> bool:
        extent = self._extent(depth, upon)
        if parts > extent:
            return False
        return extent % parts == 0 or (upon.policy == "ragged" and parts in RAGGED)
