"""What a cost model sees: numbers about kernels, settings and targets, in a fixed order.

Three groups of columns, side by side:

* statistics of a sub-graph's kernel (:class:`autoturbo.simulate.contract.PlanStatistics`), each as
  ``sign(x) log(1 + |x|)``: sizes spread over ten orders of magnitude, single precision holds them;
* knobs: numbers as ``log2``, ``"auto"`` as the number it stands for, words by their position;
* the target's rates and sizes as ``log10``, so that one model serves many targets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.knobs import AUTO, Knobs, Value, knob_specs

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

FEATURES_SCHEMA: Final = 1
"""Raised whenever a column changes its meaning or place; a model of another one is refused."""

Rows = NDArray[np.float32]
"""Feature rows, ``(rows, columns)``."""

UNLIMITED = 20.0
"""``log2`` of "no limit": more layers than any model has."""

KNOB_NAMES: Final = tuple(knob_specs())
"""Knob columns."""

TARGET_NAMES: Final = (
    "clusters", "cores", "clock", "macs", "lanes", "special_lanes", "lb_bytes", "lb_weight_bytes",
    "lb_bandwidth", "gb_bytes", "gb_bandwidth", "transfer_bandwidth", "dma_bandwidth",
    "ddr_bandwidth", "launch", "barrier",
)  # fmt: skip
"""Target columns."""


def feature_names(statistics: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns of :func:`kernel_rows`, given those of the statistics."""
    knobs = (f"knob.{name}" for name in KNOB_NAMES)
    return (*(f"plan.{s}" for s in statistics), *knobs, *(f"target.{n}" for n in TARGET_NAMES))


def squash(values: NDArray[np.float64]) -> Rows:
    """``sign(x) log(1 + |x|)``; monotonic, and fits single precision."""
    squashed: Rows = (np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)
    return squashed


def knob_vector(knobs: Knobs, share: int) -> Rows:
    """A setting as numbers, in the order of :data:`KNOB_NAMES`.

    Args:
        knobs: the setting.
        share: samples that ``batches_per_cluster="auto"`` stands for.
    """
    values = [_number(name, getattr(knobs, name), share) for name in KNOB_NAMES]
    return np.asarray(values, np.float32)


@functools.cache
def _number(name: str, value: Value, share: int) -> float:
    spec = knob_specs()[name]
    if spec.low is None:
        return float(spec.choices.index(value) + 1) if value in spec.choices else 0.0
    if value == AUTO:
        value = share if name == "batches_per_cluster" else spec.published
    try:
        return math.log2(max(float(value), 2.0**-10))
    except ValueError:
        return UNLIMITED


def target_vector(target: Target, dtype: str) -> Rows:
    """A target as numbers, in the order of :data:`TARGET_NAMES`; 0 stays 0."""
    figures = (
        target.clusters, target.cores, target.clock,
        target.matrix.macs_per_cycle(dtype), target.vector.elements_per_cycle(dtype),
        target.vector.special_lanes, target.lb.capacity, target.lb.weight_capacity,
        target.lb.bandwidth, target.gb.capacity, target.gb.bandwidth, target.transfer.bandwidth,
        target.dma.channels * target.dma.bandwidth, target.ddr.bandwidth * target.ddr.efficiency,
        target.overheads.kernel_launch, target.overheads.barrier,
    )  # fmt: skip
    return np.asarray([math.log10(f) if f > 0 else 0.0 for f in figures], np.float32)


def kernel_rows(statistics: NDArray[np.float64], knobs: Rows, target: Rows) -> Rows:
    """One row per sub-graph of a setting.

    Args:
        statistics: ``(sub-graphs, statistics)``.
        knobs: of :func:`knob_vector`.
        target: of :func:`target_vector`.
    """
    rows = len(statistics)
    same = np.broadcast_to(np.concatenate([knobs, target]), (rows, len(knobs) + len(target)))
    return np.concatenate([squash(statistics), same], axis=1, dtype=np.float32)


def setting_row(
    statistics: NDArray[np.float64], launches: NDArray[np.int64], knobs: Rows, target: Rows
) -> Rows:
    """A whole setting in one row: totals over launches, the largest, then knobs and target."""
    if not len(statistics):
        totals = largest = np.zeros(statistics.shape[1])
    else:
        totals, largest = launches @ statistics, statistics.max(axis=0)
    parts = [squash(totals), squash(largest), knobs, target]
    return np.concatenate(parts, dtype=np.float32)
