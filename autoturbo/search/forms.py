"""Brings points of a search space into their one form: rules as tables, and compiled code.

A search does so a thousand times with some hundred points, for every candidate that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints

Table = NDArray[np.bool_]
"""Facts about choices, by their indices."""


@dataclass(frozen=True, slots=True, eq=False)
class Void:
    """Choices of one dimension that mean nothing at choices of another (-1: it is not there)."""

    model: int
    own: int
    table: Table

    def counts(self) -> NDArray[np.int64]:
        """Different choices, by the model's choice."""
        return np.asarray((~self.table).sum(axis=1), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The four knobs that split a sub-graph; a missing dimension has position -1.

    ``depths`` and ``inner_depths`` give the dimension of each choice, ``dims`` says which can be
    split at each number of samples, ``fits`` which factors a dimension takes, by samples, policy,
    dimension's choice and factor's choice; ``whole`` is the factor choice 1.
    """

    batches: int
    policy: int
    at: tuple[int, int, int, int]
    depths: NDArray[np.int64]
    inner_depths: NDArray[np.int64]
    dims: Table
    fits: Table
    inner_fits: Table
    whole: int

    def counts(self) -> NDArray[np.int64]:
        """Different settings, by choices of samples and policy."""
        usable = self.fits & self.dims[:, None, :, None]
        whole = np.arange(usable.shape[3]) == self.whole
        usable[:, :, 0, 0] = True
        once = (usable & ~whole).sum(axis=3)
        inner = self.inner_fits.sum(axis=3)
        apart = (self.depths[:, None] != self.inner_depths[None, :]).astype(np.int64)
        seconds = 1 + np.einsum("bpe,de->bpd", inner, apart)
        total = (once * seconds).sum(axis=2) + int(whole.any())
        return np.asarray(total, np.int64)


class Rules:
    """Everything that makes choices of some points mean nothing.

    Args:
        void: dimensions that mean nothing.
        news: by dimension of the model, the choices that are none of the start's.
        voids: they have a dimension each, and read only the model's.
        splits: they have dimensions of their own.
    """

    def __init__(
        self,
        void: Sequence[int],
        news: Mapping[int, Table],
        voids: Sequence[Void],
        splits: Sequence[Split],
    ) -> None:
        repeats = [(at, table) for at, table in news.items() if not table.all()]
        self._any = bool(void or repeats or voids or splits)
        self._arguments = (
            np.asarray(void, np.int64),
            np.asarray([at for at, _ in repeats], np.int64),
            _stacked([table for _, table in repeats], 1),
            np.asarray([(v.model, v.own) for v in voids], np.int64).reshape(-1, 2),
            _stacked([v.table for v in voids], 2),
            np.asarray(
                [(s.batches, s.policy, *s.at, s.whole) for s in splits], np.int64
            ).reshape(-1, 7),
            _stacked([s.depths for s in splits], 1, np.int64),
            _stacked([s.inner_depths for s in splits], 1, np.int64),
            _stacked([s.dims for s in splits], 2),
            _stacked([s.fits for s in splits], 4),
            _stacked([s.inner_fits for s in splits], 4),
        )  # fmt: skip

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self._any

    def apply(self, genes: Ints, start: int = -1, number: int = 0) -> None:
        """Change points in place.

        Args:
            genes: ``(points, dimensions)``.
            start: position of a dimension that points must have a choice of; -1 for all points.
            number: of that choice.
        """
        _settle(genes, start, number, *self._arguments)


def _stacked(
    tables: Sequence[NDArray[Any]], axes: int, dtype: type[Any] = np.bool_
) -> NDArray[Any]:
    """Tables of different sizes as one; what none of them holds is 0."""
    if not tables:
        return np.zeros((0,) * (axes + 1), dtype)
    shape = np.max([table.shape for table in tables], axis=0)
    return np.stack([
        np.pad(table, [(0, most - extent) for most, extent in zip(shape, table.shape, strict=True)])
        for table in tables
    ]).astype(dtype)  # fmt: skip


@njit(cache=True)
def _at(point: Ints, position: int) -> int:
    """A choice of a dimension, 0 for one that is not there."""
    return point[position] if position >= 0 else 0


@njit(cache=True)
def _put_out(point: Ints, void: Ints, start: int) -> None:
    """Dimensions that mean nothing, the one that chooses the start excepted."""
    for position in void:
        if position != start:
            point[position] = 0


@njit(cache=True)
def _put_back(point: Ints, repeats: Ints, news: Table) -> None:
    """Choices of the model's that the start has made already."""
    for each in range(len(repeats)):
        if not news[each, point[repeats[each]]]:
            point[repeats[each]] = 0


@njit(cache=True)
def _void(point: Ints, voids: Ints, tables: Table) -> None:
    """Choices that mean nothing at the model's."""
    for each in range(len(voids)):
        own = voids[each, 1]
        if tables[each, _at(point, voids[each, 0]), point[own]]:
            point[own] = 0


@njit(cache=True)
def _split(
    point: Ints,
    splits: Ints,
    depths: Ints,
    inner_depths: Ints,
    dims: Table,
    fits: Table,
    inner_fits: Table,
) -> None:
    """Splits that cannot be."""
    for each in range(len(splits)):
        batch, policy = _at(point, splits[each, 0]), _at(point, splits[each, 1])
        at = splits[each, 2:6]
        dim, factor = _at(point, at[0]), _at(point, at[1])
        inner, parts = _at(point, at[2]), _at(point, at[3])
        dim *= dims[each, batch, dim]
        factor *= fits[each, batch, policy, dim, factor]
        split = factor != splits[each, 6]
        dim *= split and fits[each, batch, policy, dim, factor]
        good = inner_fits[each, batch, policy, inner, parts] and split
        good = good and inner_depths[each, inner] != depths[each, dim]
        for k, choice in enumerate((dim, factor, inner * good, parts * good)):
            if at[k] >= 0:
                point[at[k]] = choice


@njit(cache=True)
def _settle(
    genes: Ints,
    start: int,
    number: int,
    void: Ints,
    repeats: Ints,
    news: Table,
    voids: Ints,
    void_tables: Table,
    splits: Ints,
    depths: Ints,
    inner_depths: Ints,
    dims: Table,
    fits: Table,
    inner_fits: Table,
) -> None:
    """Apply rules to the points that have a start, in place."""
    for row in range(len(genes)):
        point = genes[row]
        if start < 0 or point[start] == number:
            _put_out(point, void, start)
            _put_back(point, repeats, news)
            _void(point, voids, void_tables)
            _split(point, splits, depths, inner_depths, dims, fits, inner_fits)
