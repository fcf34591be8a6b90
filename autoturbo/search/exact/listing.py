"""Spaces small enough to be looked at whole, and their points in order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from autoturbo.errors import UsageError
from autoturbo.schedule.knobs import AUTO
from autoturbo.search.conditions import Genes, dimension_name
from autoturbo.search.space import Dimension, Space
from autoturbo.search.subgraphs import Block

_TOGETHER = 1 << 14
"""Combinations of choices brought into their one form at once."""


def restricted(space: Space, choices: Mapping[str, Sequence[Any] | None]) -> Space:
    """The part of a space with some dimensions only, and some of their choices.

    Args:
        space: the whole.
        choices: by dimension, what is tried besides ``"auto"``; None for everything. Dimensions
            that are not named are ``"auto"``.

    Raises:
        UsageError: a dimension or a choice that the space has not.
    """
    known = {d.name: d for d in space.dimensions}
    for name in choices:
        if name not in known:
            raise UsageError(f"the space has no dimension {name!r}", hint=", ".join(known))
    kept = [
        _narrowed(known[d.name], choices[d.name]) for d in space.dimensions if d.name in choices
    ]
    dimensions = tuple(d for d in kept if len(d.choices) > 1)
    left = {d.name: d.choices[1:] for d in dimensions}
    blocks = tuple(b for block in space.blocks if (b := _block(block, left)).choices)
    if "batches_per_cluster" not in left:
        blocks = tuple(_at_first_batch(b) for b in blocks)
    return Space(dimensions, space.share, space.layers, blocks)


def _narrowed(dimension: Dimension, wanted: Sequence[Any] | None) -> Dimension:
    if wanted is None:
        return dimension
    strange = [c for c in wanted if c not in dimension.choices]
    if strange:
        hint = f"it has {', '.join(map(str, dimension.choices))}"
        raise UsageError(f"{dimension.name} has no choice {strange[0]!r}", hint=hint)
    if "batches_per_cluster" in dimension.name and len(wanted) < len(dimension.choices) - 1:
        # Extents are listed by the position of the choice.
        raise UsageError("batches_per_cluster is searched with all choices or not at all")
    kept = tuple(c for c in dimension.choices if c in wanted and c != AUTO)
    return Dimension(dimension.name, (AUTO, *kept))


def _block(block: Block, left: Mapping[str, tuple[Any, ...]]) -> Block:
    own = {f: left[n] for f in block.choices if (n := dimension_name(block, f)) in left}
    return dataclasses.replace(block, choices=own)


def _at_first_batch(block: Block) -> Block:
    extents = {depth: sizes[:1] for depth, sizes in block.extents.items()}
    return dataclasses.replace(block, extents=extents)


def points_of(space: Space) -> Iterator[tuple[int, ...]]:
    """Every point once, in lexical order of its choices; settings that mean the same are one."""
    widths = space.widths
    total = math.prod(widths.tolist())
    for first in range(0, total, _TOGETHER):
        genes = _digits(first, min(first + _TOGETHER, total), widths)
        normal = space.normal(genes)
        yield from map(tuple, genes[(normal == genes).all(axis=1)].tolist())


def _digits(first: int, last: int, widths: Genes) -> Genes:
    """Numbers in the mixed radix of the widths, the last dimension fastest."""
    found = np.zeros((last - first, len(widths)), np.int64)
    rest: list[int] = list(range(first, last))
    for position in range(len(widths) - 1, -1, -1):
        width = int(widths[position])
        found[:, position] = [number % width for number in rest]
        rest = [number // width for number in rest]
    return found
