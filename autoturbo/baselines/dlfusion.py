"""DLFusion and the strategies it was compared with: fused blocks of layers, each on some cores.

Liu et al., "DLFusion", arXiv 2011.05630 (baselines.md, section 2). A model is a row of blocks,
contiguous in topological order; a block is one kernel on a number of cores of its own. Blocks run
one after another and hand over through off-chip memory, so that the time of a model is the sum of
its blocks'. Beside the joint algorithm: fixed lengths, unfused, and the reduced brute force.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

NEAR = 0.05
"""Fewer cores are as good as the best number if they take at most this share longer."""

SATURATED = 0.9
"""Share of the highest rate of one core above which it counts as saturated."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A synthesised layer, measured.

    Attributes:
        figures: Figures of the layer.
        cores: Cores that worked on it.
        seconds: Seconds that it took.
    """

    figures: LayerFigures
    cores: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CoreModel:
    """``log2 cores = constant + by_operations * log2 operations + by_channels * log2 channels``.

    Attributes:
        constant: Height of the fitted plane at one operation and one channel.
        by_operations: Slope of the plane along the logarithm of operations.
        by_channels: Slope of the plane along the logarithm of channels.
        critical: Operations from which on a core is saturated.
        allowed: Numbers of cores that a block may have, ascending.
    """

    constant: float
    by_operations: float
    by_channels: float
    critical: float
    allowed: tuple[int, ...]

    def cores(self, figures: LayerFigures) -> int:
        """Return the allowed number of cores nearest to the model's optimum for a layer."""
        # a layer without work has no logarithm, and counts as one operation
        power = (
            self.constant
            + self.by_operations * math.log2(max(figures.operations, 1.0))
            + self.by_channels * math.log2(max(figures.channels, 1))
        )
        return self.nearest(2.0**power)

    def nearest(self, cores: float) -> int:
        """Return the allowed number nearest to any, in powers of two."""
        power = math.log2(max(cores, 1.0))
        # of two that are as near, the fewer
        return min(self.allowed, key=lambda one: (abs(math.log2(one) - power), one))


def fit(samples: Sequence[Sample], allowed: Sequence[int]) -> CoreModel:
    """Return the model that fits measurements best, in least squares.

    Args:
        samples: Every synthesised layer at every allowed number of cores.
        allowed: Numbers of cores, ascending.

    Raises:
        ValueError: No samples.
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
    coefficients, *_ = np.linalg.lstsq(np.asarray(rows), np.asarray(best), rcond=None)
    constant, by_operations, by_channels = (float(x) for x in coefficients)
    return CoreModel(constant, by_operations, by_channels, _critical(samples), tuple(allowed))


def _layer(sample: Sample) -> tuple[float, int]:
    return sample.figures.operations, sample.figures.channels


def _fewest(samples: Sequence[Sample]) -> int:
    """Return the fewest cores that are nearly as fast as the best number."""
    limit = (1 + NEAR) * min(sample.seconds for sample in samples)
    return min(sample.cores for sample in samples if sample.seconds <= limit)


def _critical(samples: Sequence[Sample]) -> float:
    """Return the operations of a core at which its rate is nearly the highest."""
    rates = [
        (s.figures.operations / s.cores, s.figures.operations / s.cores / s.seconds)
        for s in samples
    ]
    high = max(rate for _, rate in rates)
    return min(operations for operations, rate in rates if rate >= SATURATED * high)


@dataclass(frozen=True, slots=True)
class Block:
    """Layers that run as one kernel.

    Attributes:
        first: Index of the first layer.
        end: Index one past the last layer.
        cores: Cores that work on the block.
    """

    first: int
    end: int
    cores: int


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """The two figures that DLFusion knows a layer by.

    Attributes:
        operations: Multiply-accumulates; vector operations where it has none.
        channels: Channels of its output.
    """

    operations: float
    channels: int


class BlockCosts(Protocol):
    """The costs of one model's blocks on one target."""

    @property
    def figures(self) -> Sequence[LayerFigures]:
        """Return the figures of each layer."""
        ...

    @property
    def cores(self) -> int:
        """Return the cores of the target."""
        ...

    def seconds(self, first: int, end: int, cores: int) -> float:
        """Return the seconds of a block; infinite where it does not fit."""
        ...


def allowed_cores(cores: int) -> tuple[int, ...]:
    """Return the numbers of cores that a block may have: powers of two up to all of them."""
    return tuple(2**power for power in range(cores.bit_length()) if 2**power <= cores)


def total(costs: BlockCosts, blocks: Sequence[Block]) -> float:
    """Return the seconds of a model in blocks."""
    return sum(costs.seconds(block.first, block.end, block.cores) for block in blocks)


FIXED_CORES = 4
"""Cores of every layer in the strategy that gives all the same number."""

FIXED_LENGTH = 4
"""Layers of a block in the strategy of that name."""


def none(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Return every layer by itself on one core: no optimisation."""
    del model
    return unfused(costs, [1] * len(costs.figures))


def fixed_cores(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Return every layer by itself, all on the same number of cores."""
    return unfused(costs, [model.nearest(FIXED_CORES)] * len(costs.figures))


def layer_cores(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Return every layer by itself, on the model's number of cores for it."""
    return unfused(costs, [model.cores(figures) for figures in costs.figures])


def fuse_all(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Return one block on all cores."""
    return (Block(0, len(costs.figures), model.allowed[-1]),)


def fixed_blocks(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Return blocks of a fixed length, each on the number of cores that suits its layers."""
    return fixed_length(costs, model, FIXED_LENGTH)


def fixed_length(costs: BlockCosts, model: CoreModel, length: int) -> tuple[Block, ...]:
    """Return blocks of a given length; see :func:`fixed_blocks`."""
    ends = [*range(length, len(costs.figures), length), len(costs.figures)]
    return tuple(
        Block(first, end, _block_cores(costs, model, first, end))
        for first, end in zip([0, *ends[:-1]], ends, strict=True)
    )


def dlfusion(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Return the joint algorithm's blocks: layers join a block until its cores have enough to do.

    Linear in the layers, without a search: a block's number of cores is the rounded mean of its
    layers', and it closes when the operations of each core pass the critical number.
    """
    blocks: list[Block] = []
    first = 0
    for layer in range(len(costs.figures)):
        cores = _block_cores(costs, model, first, layer + 1)
        operations = sum(f.operations for f in costs.figures[first : layer + 1])
        if operations / cores >= model.critical:
            blocks.append(Block(first, layer + 1, cores))
            first = layer + 1
    if first < len(costs.figures):
        end = len(costs.figures)
        blocks.append(Block(first, end, _block_cores(costs, model, first, end)))
    return tuple(blocks)


STRATEGIES: dict[str, Callable[[BlockCosts, CoreModel], tuple[Block, ...]]] = {
    "none": none,
    "fixed_cores": fixed_cores,
    "layer_cores": layer_cores,
    "fuse_all": fuse_all,
    "fixed_blocks": fixed_blocks,
    "dlfusion": dlfusion,
}
"""Strategies by name, the baseline first."""


def unfused(costs: BlockCosts, cores: Sequence[int]) -> tuple[Block, ...]:
    """Return every layer by itself."""
    return tuple(Block(i, i + 1, cores[i]) for i in range(len(costs.figures)))


def best_blocks(costs: BlockCosts, longest: int | None = None) -> tuple[Block, ...]:
    """Return the reduced brute force's blocks: the best of all, on a short list of core counts.

    Blocks add up, so a dynamic programme over where the last one begins sees them all.

    Args:
        costs: Costs of the model's blocks on the target.
        longest: Most layers of a block; any number if None.

    Raises:
        ValueError: No blocks of that length fit.
    """
    count = len(costs.figures)
    longest = count if longest is None else longest
    best: list[tuple[float, tuple[Block, ...]]] = [(0.0, ())]
    for end in range(1, count + 1):
        ways = (
            (best[first][0] + costs.seconds(first, end, cores), first, cores)
            for first in range(max(0, end - longest), end)
            for cores in allowed_cores(costs.cores)
        )
        # of equal ways the longest last block, then the fewest cores
        seconds, first, cores = min(ways)
        best.append((seconds, (*best[first][1], Block(first, end, cores))))
    if math.isinf(best[-1][0]):
        raise ValueError(f"no blocks of at most {longest} layers fit the target")
    return best[-1][1]


def _block_cores(costs: BlockCosts, model: CoreModel, first: int, end: int) -> int:
    """Return the rounded mean of the layers' core numbers."""
    numbers = [model.cores(figures) for figures in costs.figures[first:end]]
    return model.nearest(sum(numbers) / len(numbers))
