"""Blocks of layers and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Block:
    """Layers that run as one kernel.

    Attributes:
        first: index of the first layer.
        end: one past the last.
        cores: that work on it.
    """

    first: int
    end: int
    cores: int


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """The two figures that DLFusion knows a layer by.

    Attributes:
        operations: multiply-accumulates; vector operations where it has none.
        channels: of its output.
    """

    operations: float
    channels: int


class BlockCosts(Protocol):
    """What blocks of one model take on one target."""

    @property
    def figures(self) -> Sequence[LayerFigures]:
        """Per layer."""
        ...

    @property
    def cores(self) -> int:
        """Of the target."""
        ...

    def seconds(self, first: int, end: int, cores: int) -> float:
        """Of a block; infinite where it does not fit."""
        ...


def allowed_cores(cores: int) -> tuple[int, ...]:
    """Numbers of cores that a block may have: powers of two up to all of them."""
    return tuple(2**power for power in range(cores.bit_length()) if 2**power <= cores)


def total(costs: BlockCosts, blocks: Sequence[Block]) -> float:
    """Seconds of a model in blocks."""
    return sum(costs.seconds(block.first, block.end, block.cores) for block in blocks)
