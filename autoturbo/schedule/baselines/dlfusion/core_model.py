"""The number of cores of a layer, from measurements of synthesised ones.

DLFusion's finding: a core's rate rises with the operations it has to do and saturates above a
critical number; more cores help while each has more than that, and few channels do not scale.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.schedule.baselines.dlfusion.blocks import LayerFigures

NEAR = 0.05
"""Fewer cores are as good as the best number if they take at most this share longer."""

SATURATED = 0.9
"""Share of the highest rate of one core above which it counts as saturated."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A synthesised layer, measured.

    Attributes:
        figures: of the layer.
        cores: that worked on it.
        seconds: that it took.
    """

    figures: LayerFigures
    cores: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CoreModel:
    """``log2 cores = constant + by_operations * log2 operations + by_channels * log2 channels``.

    Attributes:
        constant: of the plane.
        by_operations: slope.
        by_channels: slope.
        critical: operations of one core from which on it is saturated.
        allowed: numbers of cores.
    """

    constant: float
    by_operations: float
    by_channels: float
    critical: float
    allowed: tuple[int, ...]

    def cores(self, figures: LayerFigures) -> int:
        """The number for a layer, the nearest allowed one."""
        power = (
            self.constant
            + self.by_operations * math.log2(max(figures.operations, 1.0))
            + self.by_channels * math.log2(max(figures.channels, 1))
        )
        return self.nearest(2.0**power)

    def nearest(self, cores: float) -> int:
        """The allowed number nearest to any, in powers of two."""
        power = math.log2(max(cores, 1.0))
        return min(self.allowed, key=lambda one: (abs(math.log2(one) - power), one))


def fit(samples: Sequence[Sample], allowed: Sequence[int]) -> CoreModel:
    """The model that fits measurements best, in least squares.

    Args:
        samples: every synthesised layer at every allowed number of cores.
        allowed: numbers of cores, ascending.

    Raises:
        ValueError: no samples.
    """
    if not samples:
        raise ValueError("a core model needs measurements")
    ordered = sorted(samples, key=_layer)
    layers = [list(group) for _, group in itertools.groupby(ordered, key=_layer)]
    rows = [
        [1.0, math.log2(of[0].figures.operations), math.log2(of[0].figures.channels)]
        for of in layers
    ]
    best = [math.log2(_fewest(of)) for of in layers]
    found, *_ = np.linalg.lstsq(np.asarray(rows), np.asarray(best), rcond=None)
    constant, by_operations, by_channels = (float(x) for x in found)
    return CoreModel(constant, by_operations, by_channels, _critical(samples), tuple(allowed))


def _layer(sample: Sample) -> tuple[float, int]:
    return sample.figures.operations, sample.figures.channels


def _fewest(samples: Sequence[Sample]) -> int:
    """The fewest cores that are nearly as fast as the best number."""
    limit = (1 + NEAR) * min(sample.seconds for sample in samples)
    return min(sample.cores for sample in samples if sample.seconds <= limit)


def _critical(samples: Sequence[Sample]) -> float:
    """Operations of a core from which on its rate is nearly the highest."""
    rates = [
        (s.figures.operations / s.cores, s.figures.operations / s.cores / s.seconds)
        for s in samples
    ]
    high = max(rate for _, rate in rates)
    return min(operations for operations, rate in rates if rate >= SATURATED * high)
