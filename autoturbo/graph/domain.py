"""Iteration domains and access maps: points that an operator computes, regions that it reads.

An operator visits every point of a box of named axes. A tensor dimension is addressed by an affine
expression of those axes, ``offset + sum(coefficient * axis)``, clipped to the tensor's extent:
a convolution reads row ``oh * stride + kh * dilation - pad``, a merged reshape writes row
``b * S + s``, a concatenation reads column ``c - start`` (empty outside the operand).

Every question the scheduler asks (what may be split, the halo a part needs, multiply-accumulates,
recomputation) is answered from these by one function each, here on single boxes and in
:mod:`autoturbo.graph.arrays` on many at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

Interval = tuple[int, int]
"""Half-open ``[low, high)``; empty when ``high <= low``."""

Region = tuple[Interval, ...]
"""One interval per tensor dimension."""


class AxisKind(StrEnum):
    """How an axis takes part in the computation.

    ``PARALLEL``: appears in the outputs, points are independent: may be split.
    ``WHOLE``: appears in the outputs, but every point needs the whole extent (softmax, sort).
    ``REDUCTION``: summed over, does not appear in the outputs.
    ``WINDOW``: a reduction over a kernel window (kh, kw).
    ``GAP``: reaches outputs that no point computes, between and behind windows: it is no work.
    ``STEP``: goes one after another, each point from the result of the one before (time).
    ``SPREAD``: like ``WHOLE`` for parts of the output, but the cores that work on a part may share
    it out: at every step they exchange their results (hidden units).
    """

    PARALLEL = "parallel"
    WHOLE = "whole"
    REDUCTION = "reduction"
    WINDOW = "window"
    GAP = "gap"
    STEP = "step"
    SPREAD = "spread"


SHOWN = frozenset((AxisKind.PARALLEL, AxisKind.WHOLE, AxisKind.STEP, AxisKind.SPREAD))
"""Kinds of axes whose points are results: those that are not summed over."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of the iteration domain: its name, its trip count and its kind."""

    name: str
    extent: int
    kind: AxisKind = AxisKind.PARALLEL


@dataclass(frozen=True, slots=True)
class DimAccess:
    """How one tensor dimension is addressed.

    Attributes:
        terms: ``(axis index, coefficient)`` pairs, coefficients not 0.
        offset: Added to the sum of the terms.
        whole: The dimension is needed in full whatever the axes (a gathered table, say); terms then
            say only that it belongs to these axes.
    """

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0
    whole: bool = False


WHOLE_DIM = DimAccess(whole=True)


def whole_along(axis: int) -> DimAccess:
    """Return the access of a dimension that is needed in full and belongs to an axis."""
    return DimAccess(((axis, 1),), whole=True)


def along(axis: int, coefficient: int = 1, offset: int = 0) -> DimAccess:
    """Return the access ``offset + coefficient * axis``."""
    return DimAccess(((axis, coefficient),), offset)


def fixed(offset: int = 0) -> DimAccess:
    """Return the access of one constant position: broadcast dimensions and picked elements."""
    return DimAccess((), offset)


def merged(*axes_and_extents: tuple[int, int]) -> DimAccess:
    """Return the mixed-radix access of several axes merged into one dimension, outermost first.

    Args:
        axes_and_extents: ``(axis index, extent)`` pairs.
    """
    terms: list[tuple[int, int]] = []
    stride = 1
    for axis, extent in reversed(axes_and_extents):
        terms.append((axis, stride))
        stride *= extent
    return DimAccess(tuple(reversed(terms)))


@dataclass(frozen=True, slots=True)
class AccessMap:
    """How an operator addresses one tensor: one :class:`DimAccess` per dimension."""

    dims: tuple[DimAccess, ...]


def interval_of(access: DimAccess, axes: tuple[Interval, ...], extent: int) -> Interval:
    """Return the smallest interval of a dimension that the axis intervals touch, clipped."""
    if access.whole:
        return (0, extent)
    low = high = access.offset
    for axis, coefficient in access.terms:
        first, last = axes[axis][0] * coefficient, (axes[axis][1] - 1) * coefficient
        low += min(first, last)
        high += max(first, last)
    return (max(low, 0), min(high + 1, extent))


def axes_of(access: DimAccess, interval: Interval, axes: list[Interval]) -> None:
    """Narrow ``axes`` in place to the points whose access may fall into ``interval``.

    Terms are taken by falling coefficient; an inner axis is narrowed only while all outer ones are
    a single point, so the result is a superset (a box), exact for aligned mixed-radix blocks.
    """
    if access.whole or not access.terms:
        return
    low, high = interval[0] - access.offset, interval[1] - 1 - access.offset
    terms = sorted(access.terms, key=lambda term: -abs(term[1]))
    for position, (axis, coefficient) in enumerate(terms):
        rest_low, rest_high = _range(terms[position + 1 :], axes)
        least, most = low - rest_high, high - rest_low
        if coefficient < 0:
            least, most = -most, -least
        step = abs(coefficient)
        first = max(axes[axis][0], -(-least // step))
        last = min(axes[axis][1] - 1, most // step)
        axes[axis] = (first, last + 1)
        if first != last:
            return
        low, high = low - first * coefficient, high - first * coefficient


def _range(terms: list[tuple[int, int]], axes: list[Interval]) -> Interval:
    """Return the least and the greatest value of a sum of terms (inclusive)."""
    ends = [(axes[a][0] * c, (axes[a][1] - 1) * c) for a, c in terms]
    return (sum(min(e) for e in ends), sum(max(e) for e in ends))


def volume(region: Region) -> int:
    """Return the number of elements in a region; 0 if any interval is empty."""
    return math.prod(max(high - low, 0) for low, high in region)


def hull(first: Region, second: Region) -> Region:
    """Return the smallest region that holds both; an empty one adds nothing."""
    if volume(first) == 0:
        return second
    if volume(second) == 0:
        return first
    return tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(first, second, strict=True))


def meet(first: Region, second: Region) -> Region:
    """Return the intersection of two regions; it is empty if any of its intervals is."""
    return tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(first, second, strict=True))
