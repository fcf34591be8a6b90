"""Sequential and parallel branches of a network of layers.

A branch is a chain of layers, each read by the next one only. Branches that begin at one place and
end at one place are parallel: the paper finds them backwards from an operator that has several
inputs, each used once (PartitionTuner, branch extraction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Branch:
    """Layers in a row.

    Attributes:
        layers: indices, in order.
        beside: branches that run beside it, itself among them, by index; alone where it is the
            only one.
    """

    layers: tuple[int, ...]
    beside: tuple[int, ...]


def branches_of(producers: Sequence[Sequence[int]]) -> tuple[Branch, ...]:
    """The branches of a network, each after those it reads from.

    Args:
        producers: per layer the layers that it reads from, all before it.
    """
    readers: list[list[int]] = [[] for _ in producers]
    for layer, read in enumerate(producers):
        for before in read:
            readers[before].append(layer)
    chains: list[list[int]] = []
    chain_of: dict[int, int] = {}
    for layer, read in enumerate(producers):
        if len(read) == 1 and len(readers[read[0]]) == 1:
            chain = chain_of[read[0]]
        else:
            chain = len(chains)
            chains.append([])
        chains[chain].append(layer)
        chain_of[layer] = chain
    beside = _beside(chains, producers, readers, chain_of)
    return tuple(
        Branch(tuple(chain), beside.get(index, (index,))) for index, chain in enumerate(chains)
    )


def _beside(
    chains: Sequence[Sequence[int]],
    producers: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
    chain_of: dict[int, int],
) -> dict[int, tuple[int, ...]]:
    """Parallel branches: those that end in one layer and read from one place."""
    found: dict[int, tuple[int, ...]] = {}
    for read in producers:
        ends = [chain_of[before] for before in read if len(readers[before]) == 1]
        by_source: dict[tuple[int, ...], list[int]] = {}
        for chain in ends:
            by_source.setdefault(tuple(producers[chains[chain][0]]), []).append(chain)
        for group in by_source.values():
            if len(group) > 1:
                found |= dict.fromkeys(group, tuple(sorted(group)))
    return found
