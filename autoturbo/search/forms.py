"""Brings points of a search space into their one form: rules as tables, for all points at once.

A search does so a thousand times with some hundred points, for every candidate that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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
        self._void = np.asarray(void, np.int64)
        self._repeats = np.asarray([at for at, _ in repeats], np.int64)
        self._news = _stacked([table for _, table in repeats], 1)
        self._models = np.asarray([v.model for v in voids], np.int64)
        self._voids = np.asarray([v.own for v in voids], np.int64)
        self._tables = _stacked([v.table for v in voids], 2)
        self._batches = np.asarray([s.batches for s in splits], np.int64)
        self._policies = np.asarray([s.policy for s in splits], np.int64)
        self._splits = np.asarray([s.at for s in splits], np.int64).reshape(-1, 4)
        self._whole = np.asarray([s.whole for s in splits], np.int64)
        self._depths = _stacked([s.depths for s in splits], 1, np.int64)
        self._inner_depths = _stacked([s.inner_depths for s in splits], 1, np.int64)
        self._dims = _stacked([s.dims for s in splits], 2)
        self._fits = _stacked([s.fits for s in splits], 4)
        self._inner_fits = _stacked([s.inner_fits for s in splits], 4)

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
        mine = slice(None) if start < 0 else genes[:, start] == number
        points = genes[mine]
        points[:, self._void[self._void != start]] = 0
        self._put_back(points)
        self._put_out(points)
        self._split(points)
        genes[mine] = points

    def _put_back(self, points: Ints) -> None:
        """Put out choices of the model's that the start has made already."""
        chosen = points[:, self._repeats]
        points[:, self._repeats] = chosen * self._news[np.arange(len(self._repeats)), chosen]

    def _put_out(self, points: Ints) -> None:
        """Put out choices that mean nothing at the model's."""
        chosen, model = points[:, self._voids], _choices(points, self._models)
        nothing = self._tables[np.arange(len(self._voids)), model, chosen]
        points[:, self._voids] = chosen * ~nothing

    def _split(self, points: Ints) -> None:
        """Put out splits that cannot be."""
        batch, policy = _choices(points, self._batches), _choices(points, self._policies)
        dim, factor, inner, parts = (_choices(points, at) for at in self._splits.T)
        each = np.arange(len(self._splits))
        dim = dim * self._dims[each, batch, dim]
        factor = factor * self._fits[each, batch, policy, dim, factor]
        split = factor != self._whole
        dim = dim * (split & self._fits[each, batch, policy, dim, factor])
        good = self._inner_fits[each, batch, policy, inner, parts] & split
        good &= self._inner_depths[each, inner] != self._depths[each, dim]
        for at, found in zip(
            self._splits.T, (dim, factor, inner * good, parts * good), strict=True
        ):
            points[:, at[at >= 0]] = found[:, at >= 0]


def _choices(points: Ints, positions: Ints) -> Ints:
    """Return the choices of some dimensions, ``(points, dimensions)``; 0 where there is none."""
    return points[:, positions] * (positions >= 0)


def _stacked(
    tables: Sequence[NDArray[Any]], axes: int, dtype: type[Any] = np.bool_
) -> NDArray[Any]:
    """Return tables of different sizes as one; what none of them holds is 0."""
    if not tables:
        return np.zeros((0,) * (axes + 1), dtype)
    shape = np.max([table.shape for table in tables], axis=0)
    return np.stack([
        np.pad(table, [(0, most - extent) for most, extent in zip(shape, table.shape, strict=True)])
        for table in tables
    ]).astype(dtype)  # fmt: skip
