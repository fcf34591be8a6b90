"""Regularity of constant indices: even steps along their dimensions, and samples.

Exporters write views and broadcasts as gathers by constant indices: ``b * 768 + c`` for a strided
view of a flattened tensor, the pairs ``(b, s)`` for a mask. Read as steps, such indices say which
part of a tensor a part of the output needs, and which digit of a position counts the samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MOST_GROWN = 1 << 24
"""Elements up to which indices are written out for another batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Indices as sums of steps.

    Every dimension of the indices is a mixed-radix number; the index of a position is the sum of
    ``digit * step`` over its outer digits, plus the value of ``rest`` at its innermost digits.

    Attributes:
        digits: Per dimension, outermost first, the extent of a digit and its step per component.
        rest: The indices where all these digits are 0, components last.
    """

    digits: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
    rest: np.ndarray


def steps_of(indices: np.ndarray) -> Steps:
    """Split indices into nested regular steps and a rest.

    Args:
        indices: The components of an index in the last dimension.

    Returns:
        The digits of every dimension but the last, and the indices that remain where all digits are
        0.
    """
    digits: list[tuple[tuple[int, tuple[int, ...]], ...]] = []
    for dim in range(indices.ndim - 1):
        digits_of_dim = []
        while (regular := _period(indices, dim)) is not None:
            period, step = regular
            digits_of_dim.append((indices.shape[dim] // period, step))
            indices = np.take(indices, range(period), dim)
        digits.append(tuple(digits_of_dim))
    return Steps(tuple(digits), indices)


def _period(indices: np.ndarray, dim: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the shortest period along a dimension, and the step by which each index then grows."""
    moved = np.moveaxis(indices, dim, 0)
    extent = moved.shape[0]
    # The shortest period makes the longest digit; whole periods alone are digits.
    for period in (p for p in range(1, extent // 2 + 1) if extent % p == 0):
        step = moved[period].reshape(-1, moved.shape[-1])[0]
        step = step - moved[0].reshape(-1, moved.shape[-1])[0]
        if (moved[period:] - moved[:-period] == step).all():
            return period, tuple(int(part) for part in step)
    return None


@dataclass(frozen=True, slots=True)
class Indexed:
    """Dimension of a tensor that indices count along, and the place of the samples in it.

    Attributes:
        component: Component of an index that counts along the dimension.
        batch: Samples of the tensor.
        inner: Elements of the dimension per sample that follow each other.
    """

    component: int
    batch: int
    inner: int


def regrown(indices: np.ndarray, indexed: Indexed, batch: int) -> tuple[np.ndarray, int] | None:
    """Return the indices for another batch, and how many per sample follow each other.

    Args:
        indices: None of them negative, components last.
        indexed: The dimension that they count along.
        batch: The new one.

    Returns:
        None where indices differ from sample to sample, or point into another sample.
    """
    rest, samples = _own(indices, indexed)
    for dim, inner in _places(indices.shape[:-1], indexed.batch):
        shape = (*indices.shape[:dim], -1, indexed.batch, inner, *indices.shape[dim + 1 :])
        apart, counted = rest.reshape(shape), samples.reshape(shape[:-1])
        numbers = np.arange(indexed.batch).reshape(-1, *(1,) * (counted.ndim - dim - 2))
        if (counted != numbers).any() or (apart != np.take(apart, [0], dim + 1)).any():
            continue
        # Larger ones are written as a repetition, not element by element.
        if indices.size // indexed.batch * batch > MOST_GROWN:
            return None
        return _written(np.take(apart, [0] * batch, dim + 1), dim, indexed, batch), inner
    return None


def _own(indices: np.ndarray, indexed: Indexed) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices without their sample digit, and the sample digits."""
    counted = indices[..., indexed.component]
    sample = counted // indexed.inner % indexed.batch
    rest = indices.copy()
    rest[..., indexed.component] -= sample * indexed.inner
    return rest, sample


def _places(shape: tuple[int, ...], batch: int) -> list[tuple[int, int]]:
    """Return the dimensions and digit weights of indices that may count samples, likeliest first.

    With a batch of 1 any digit may: the whole dimension comes first, then its outermost digit.
    """
    ranked = []
    for dim, extent in enumerate(shape):
        most, more = divmod(extent, batch)
        inner = [] if more else [i for i in range(1, most + 1) if most % i == 0]
        ranked += [(extent != batch, most // i, dim, i) for i in inner]
    return [(dim, inner) for _, _, dim, inner in sorted(ranked)]


def _written(apart: np.ndarray, dim: int, indexed: Indexed, batch: int) -> np.ndarray:
    """Return indices for ``batch`` samples from those of one, with outer steps scaled."""
    component = indexed.component
    outer, inner = np.divmod(apart[..., component], indexed.inner * indexed.batch)
    numbers = np.arange(batch).reshape(-1, *(1,) * (outer.ndim - dim - 2))
    apart[..., component] = (outer * batch + numbers) * indexed.inner + inner
    extent = math.prod(apart.shape[dim : dim + 3])
    return apart.reshape(*apart.shape[:dim], extent, *apart.shape[dim + 3 :])


def counted_from_front(indices: np.ndarray, extents: tuple[int, ...]) -> np.ndarray:
    """Return the indices with negative ones, which count from the end, made positive.

    Args:
        indices: Components last.
        extents: Extents of the dimensions that the components count along.
    """
    wide = indices.astype(np.int64)
    return np.where(wide < 0, wide + np.asarray(extents, np.int64), wide)
