"""Features of a cost model: numbers about kernels, candidates and targets, in a fixed order.

Five groups of columns, side by side:

* ratios of what the kernel takes alone (:mod:`autoturbo.cost_models.ratios`): no unit, no size, and
  so the same on every model and target;
* statistics of a sub-graph's kernel (:class:`autoturbo.simulator.contract.PlanStatistics`), each as
  ``sign(x) log(1 + |x|)``: sizes spread over ten orders of magnitude, single precision holds them;
* knobs of its own that a sub-graph has: the model's value where it has none, so that the same
  number means the same whoever decided it;
* knobs of the model: numbers as ``log2``, ``"auto"`` as the number it stands for, words by their
  position;
* the target's rates and sizes as ``log10``, so that one model serves many targets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.ratios import NEAR_UNIT, RATIOS, is_planned, ratios
from autoturbo.schedule.chip_part import ChipPart
from autoturbo.schedule.knobs import (
    Here,
    KernelKnobs,
    Knobs,
    SubGraphKnobs,
    WeightShare,
    kernel_knobs,
    knob_names,
    model_knobs,
    subgraph_knobs,
)
from autoturbo.simulator.plan import COLUMNS

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

FEATURES_SCHEMA: Final = 6
"""Raised whenever a column changes its meaning or place; a model of another one is refused."""

Rows = NDArray[np.float32]
"""Feature rows, ``(rows, columns)``."""

KNOB_NAMES: Final = tuple(name for name in model_knobs() if name not in ChipPart._fields)
"""Columns of the model's knobs; a search stays on one part of the chip."""

OVERRIDE_NAMES: Final = knob_names("subgraph")
"""Columns of a sub-graph's knobs; where boundaries were cut or merged, its layers tell."""

UNSEEN: Final = tuple(name for name in OVERRIDE_NAMES if subgraph_knobs()[name].unseen)
"""Knobs of a sub-graph that may change a latency where the kernel's own statistics are the same:
they decide what its neighbours find near them, or whether layers take turns. The others change the
statistics or nothing, but for ``weight_buffer_fraction``: there, more only takes room from
tensors."""

_WEIGHT_SHARE = next(
    i for i, name in enumerate(OVERRIDE_NAMES) if isinstance(subgraph_knobs()[name], WeightShare)
)

PORTABLE: Final = (*(f"ratio.{n}" for n in RATIOS), *(f"subgraph.{n}" for n in OVERRIDE_NAMES))
"""The first columns: of them alone a model that is to serve other models and targets is made. What
they say of a kernel depends on nothing around it, so that a prediction can be looked up."""


_NEAR, _FAR_NEAR = PORTABLE.index("ratio.near"), PORTABLE.index("ratio.far_near")


def squash(values: NDArray[np.float64]) -> Rows:
    """Return ``sign(x) log(1 + |x|)``; monotonic, and fits single precision."""
    squashed: Rows = (np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)
    return squashed


def knob_vector(knobs: Knobs, share: int) -> Rows:
    """Return a candidate as numbers, in the order of :data:`KNOB_NAMES`.

    Args:
        knobs: The candidate.
        share: Samples that ``batches_per_cluster="auto"`` stands for.
    """
    here = Here(share=share)
    decisions = model_knobs()
    numbers = [decisions[name].number(getattr(knobs, name), here) for name in KNOB_NAMES]
    return np.asarray(numbers, np.float32)


def override_rows(knobs: Knobs, overrides: Mapping[int, SubGraphKnobs], count: int) -> Rows:
    """Return the knobs that hold for sub-graphs as numbers, ``(count, len(OVERRIDE_NAMES))``.

    Args:
        knobs: The candidate.
        overrides: Knobs of sub-graphs, by row; the others have what the model's knobs say.
        count: Sub-graphs.
    """
    vectors = [own_vector(kernel_knobs(knobs, overrides.get(row))) for row in range(count)]
    return np.asarray(vectors, np.float32).reshape(count, len(OVERRIDE_NAMES))


@functools.lru_cache(maxsize=1 << 12)
def own_vector(values: KernelKnobs) -> Rows:
    """Return knobs that hold for a kernel as numbers, in the order of :data:`OVERRIDE_NAMES`."""
    here, decisions = Here(), subgraph_knobs()
    pairs = zip(OVERRIDE_NAMES, values, strict=True)
    return np.asarray([decisions[name].number(v, here) for name, v in pairs], np.float32)


def target_vector(target: Target, dtype: str) -> Rows:
    """Return a target's rates and sizes as ``log10``; 0 stays 0."""
    figures = (
        target.clusters, target.cores, target.clock,
        target.matrix.macs_per_cycle(dtype), target.vector.elements_per_cycle(dtype),
        target.vector.special_lanes, target.lb.capacity, target.lb.weight_capacity,
        target.lb.bandwidth, target.gb.capacity, target.gb.bandwidth, target.transfer.bandwidth,
        target.dma.channels * target.dma.bandwidth, target.ddr.bandwidth * target.ddr.efficiency,
        target.overheads.kernel_launch + target.overheads.kernel_ramp, target.overheads.barrier,
    )  # fmt: skip
    return np.asarray([math.log10(f) if f > 0 else 0.0 for f in figures], np.float32)


def kernel_rows(
    statistics: NDArray[np.float64], overrides: Rows, knobs: Rows, target: Rows
) -> Rows:
    """Return one row per sub-graph.

    Args:
        statistics: ``(sub-graphs, statistics)``.
        overrides: Rows of :func:`override_rows`.
        knobs: Rows of :func:`knob_vector`, the same for all sub-graphs or one row each.
        target: Figures of :func:`target_vector`.
    """
    rows = len(statistics)
    same = [np.broadcast_to(own, (rows, own.shape[-1])) for own in (knobs, target)]
    parts = [portable_rows(statistics, overrides), squash(statistics), *same]
    return np.concatenate(parts, axis=1, dtype=np.float32)


def portable_rows(statistics: NDArray[np.float64], overrides: Rows) -> Rows:
    """Return columns :data:`PORTABLE` of kernels, from the arguments of :func:`kernel_rows`."""
    if not is_planned(statistics.shape[1]):
        return overrides
    share = overrides[:, _WEIGHT_SHARE]
    return np.concatenate([ratios(statistics, share), overrides], axis=1, dtype=np.float32)


def alone(rows: Rows) -> NDArray[np.float64]:
    """Return logarithms of the seconds that kernels take alone, ``(2, kernels)``.

    With all of their boundary in the local buffers, and in DDR.

    Args:
        rows: Rows of :func:`kernel_rows`.

    Returns:
        None of the two, ``(0, kernels)``, for rows without the portable columns, those of an
        evaluator with statistics of its own.
    """
    if rows.shape[1] < len(PORTABLE) + len(COLUMNS):
        return np.zeros((0, len(rows)))
    near = rows[:, _NEAR].astype(np.float64) + math.log(NEAR_UNIT)
    return np.stack([near, near + rows[:, _FAR_NEAR]])


def setting_row(
    statistics: NDArray[np.float64],
    launches: NDArray[np.int64],
    overrides: Rows,
    knobs: Rows,
    target: Rows,
) -> Rows:
    """Return a whole candidate in one row.

    Totals over launches, the largest, means of the sub-graphs' knobs, then knobs and target.

    Args:
        statistics: Statistics of its distinct kernels, ``(kernels, columns)``.
        launches: Launches of each kernel, ``(kernels,)``.
        overrides: The sub-graphs' knobs, a row per kernel.
        knobs: The model's, one row.
        target: Figures of the target, one row.
    """
    if not len(statistics):
        totals = largest = np.zeros(statistics.shape[1])
        means = np.zeros(overrides.shape[1], np.float32)
    else:
        totals, largest = launches @ statistics, statistics.max(axis=0)
        means = overrides.mean(axis=0)
    parts = [squash(totals), squash(largest), means, knobs, target]
    return np.concatenate(parts, dtype=np.float32)
