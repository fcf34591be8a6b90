"""DLFusion's joint algorithm, the strategies beside it, and the reduced brute force."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autoturbo.schedule.baselines.dlfusion.blocks import Block, BlockCosts, allowed_cores
from autoturbo.schedule.baselines.dlfusion.core_model import CoreModel

FIXED_CORES = 4
"""Of the strategy that gives all layers the same number."""

FIXED_LENGTH = 4
"""Layers of a block in the strategy of that name."""


def none(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """No optimisation: every layer by itself on one core."""
    del model
    return unfused(costs, [1] * len(costs.figures))


def fixed_cores(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """The same number of cores for all layers, no fusion."""
    return unfused(costs, [model.nearest(FIXED_CORES)] * len(costs.figures))


def layer_cores(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """The model's number of cores for each layer, no fusion."""
    return unfused(costs, [model.cores(figures) for figures in costs.figures])


def fuse_all(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """One block on all cores."""
    return (Block(0, len(costs.figures), model.allowed[-1]),)


def fixed_blocks(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """Blocks of a fixed length, each on the number of cores that suits its layers."""
    return fixed_length(costs, model, FIXED_LENGTH)


def fixed_length(costs: BlockCosts, model: CoreModel, length: int) -> tuple[Block, ...]:
    """Blocks of some layers; see :func:`fixed_blocks`."""
    ends = [*range(length, len(costs.figures), length), len(costs.figures)]
    return tuple(
        Block(first, end, _block_cores(costs, model, first, end))
        for first, end in zip([0, *ends[:-1]], ends, strict=True)
    )


def dlfusion(costs: BlockCosts, model: CoreModel) -> tuple[Block, ...]:
    """The joint algorithm: a layer joins the open block until its cores have enough to do.

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
"""By name; the baseline first."""


def unfused(costs: BlockCosts, cores: Sequence[int]) -> tuple[Block, ...]:
    """Every layer by itself."""
    return tuple(Block(i, i + 1, cores[i]) for i in range(len(costs.figures)))


def best_blocks(costs: BlockCosts, longest: int | None = None) -> tuple[Block, ...]:
    """The reduced brute force: the best of all blocks, on a short list of numbers of cores.

    Blocks add up, so a dynamic programme over where the last one begins sees them all.

    Args:
        costs: of the model on the target.
        longest: layers of a block at most; any number if None.

    Raises:
        ValueError: no blocks of that length fit.
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
        seconds, first, cores = min(ways)
        best.append((seconds, (*best[first][1], Block(first, end, cores))))
    if math.isinf(best[-1][0]):
        raise ValueError(f"no blocks of at most {longest} layers fit the target")
    return best[-1][1]


def _block_cores(costs: BlockCosts, model: CoreModel, first: int, end: int) -> int:
    """The rounded mean of the layers' numbers."""
    numbers = [model.cores(figures) for figures in costs.figures[first:end]]
    return model.nearest(sum(numbers) / len(numbers))
