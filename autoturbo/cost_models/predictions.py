"""A cost model's predictions for candidates of a search that were not measured."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoturbo.caches import row_bytes
from autoturbo.graph.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predictions for candidates.

    Attributes:
        expected: Expected figure of each candidate, lower is better, ``(points,)``.
        optimistic: What it might give at best, ``(points,)``: kernels that nobody measured would
            find all that crosses their boundaries in LB. What they take depends mostly on where
            their tensors are, which no model knows well beforehand.
        kinds: Equal for candidates of which the first is to be measured: the others are the same to
            measure, or have less room for it.
    """

    expected: NDArray[np.float64]
    optimistic: NDArray[np.float64]
    kinds: Sequence[Hashable]

    @staticmethod
    def plain(points: Ints, expected: NDArray[np.float64]) -> Prediction:
        """Return predictions without more detail: each candidate is a kind of its own."""
        return Prediction(expected, expected, row_bytes(points).tolist())
