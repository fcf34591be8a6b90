"""DLFusion and the strategies it was compared with: fused blocks of layers, each on some cores.

Liu et al., "DLFusion", arXiv 2011.05630 (baselines.md, section 2). A model is a row of blocks,
contiguous in topological order; a block is one kernel on a number of cores of its own. Blocks run
one after another and hand over through off-chip memory, so that the time of a model is the sum of
its blocks'.
"""

from autoturbo.schedule.baselines.dlfusion.strategies import (
    STRATEGIES,
    Block,
    BlockCosts,
    CoreModel,
    Sample,
    allowed_cores,
    best_blocks,
    dlfusion,
    fit,
    fixed_length,
    total,
    unfused,
)

__all__ = [
    "STRATEGIES",
    "Block",
    "BlockCosts",
    "CoreModel",
    "Sample",
    "allowed_cores",
    "best_blocks",
    "dlfusion",
    "fit",
    "fixed_length",
    "total",
    "unfused",
]
