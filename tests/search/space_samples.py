"""Small spaces over sub-graphs, made without a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from autoturbo.schedule.knobs import (
    AUTO,
    Here,
    Knobs,
    SubGraphKnobs,
    Value,
    model_knobs,
    subgraph_knobs,
)
from autoturbo.search.encoding import START, dimension_name
from autoturbo.search.space import Dimension, Space
from autoturbo.search.subgraphs import Block

BATCHES = (AUTO, 4, 2, 1)
"""Of a share of eight."""

HERE = Here(8, 50)

EXTENTS = {0: (8, 4, 2, 1), 1: (7, 7, 7, 7), 2: (12, 12, 12, 12)}


def space_of(model: dict[str, tuple[Value, ...]], *blocks: Block) -> Space:
    """A space of some of the model's knobs (choices besides auto) and of blocks."""
    dimensions = [Dimension(name, (AUTO, *model[name])) for name in model_knobs() if name in model]
    dimensions += [
        Dimension(dimension_name(b, field), (AUTO, *values))
        for b in blocks
        for field, values in b.choices.items()
    ]
    return Space(tuple(dimensions), HERE, blocks)


def block(layers: tuple[str, ...] = ("conv1",), **choices: tuple[Value, ...]) -> Block:
    """A block over a tensor of eight samples at most, 7 rows and 12 channels."""
    ordered = {name: choices[name] for name in subgraph_knobs() if name in choices}
    count = len(BATCHES)
    return Block(layers, ordered, {d: sizes[:count] for d, sizes in EXTENTS.items()}, 0, 2)


_OWN: dict[str, tuple[Value, ...]] = {
    "boundary": ("cut", "merge"), "dim": (0, 1, 2), "factor": (1, 2, 3, 4, 7),
    "inner_dim": (1, 2), "inner_factor": (2, 3, 7), "cores": (2, 1), "priority": (1, 9),
    "scope": ("GB",), "weight_residency": ("stream", "GB"), "prefetch_depth": (1, 2),
    "instruction_scheduling": ("on", "off"),
}  # fmt: skip

_MODEL: dict[str, tuple[Value, ...]] = {
    "batches_per_cluster": BATCHES[1:], "factor_policy": ("divisors", "ragged"),
    "instance_order": ("bfs", "priority"), "weight_residency": ("GB",), "prefetch_depth": (2, 4),
    "instruction_scheduling": ("off",), "max_layers": (2,),
}  # fmt: skip


@st.composite
def small_spaces(draw: st.DrawFn) -> Space:
    """Spaces of up to a few thousand points, with one block or two."""
    model = draw(st.lists(st.sampled_from(sorted(_MODEL)), min_size=1, max_size=3, unique=True))
    blocks = []
    for layers in (("conv1",), ("conv2", "conv3"))[: draw(st.integers(0, 2))]:
        names = draw(st.lists(st.sampled_from(sorted(_OWN)), min_size=1, max_size=3, unique=True))
        blocks.append(block(layers, **{name: _OWN[name] for name in names}))
    kept = {name: _MODEL[name] for name in model}
    space = space_of(kept, *blocks)
    return space if space.listed else space_of(kept)


def large_space() -> Space:
    """Everything at once: two blocks of every knob."""
    more: dict[str, tuple[Any, ...]] = {
        name: spec.choices for name, spec in subgraph_knobs().items() if spec.choices
    }
    blocks = (
        block(("conv1",), **{**more, **_OWN}),
        block(("conv2", "conv3"), **{**more, **_OWN}),
    )
    return space_of(_MODEL, *blocks)


STARTED: dict[str, tuple[Value, ...]] = {
    "batches_per_cluster": (4, 2, 1), "factor_policy": ("divisors", "ragged"),
    "instance_order": ("bfs", "priority"), "prefetch_depth": (2, 4),
}  # fmt: skip

_CUT = SubGraphKnobs("", boundary="cut", dim=1, factor=7)
_WHOLE = SubGraphKnobs("", boundary="cut", factor=1)


def started_space(*, small: bool = False) -> Space:
    """The heuristic's block, and two starts: two alike sub-graphs and one that is not cut."""
    starts = (
        Knobs(),
        Knobs(factor_policy="ragged", overrides=tuple(_at(_CUT, x) for x in ("a", "b", "c"))),
        Knobs(batches_per_cluster=4, overrides=(_at(_WHOLE, "a"),)),
    )
    own: dict[str, tuple[Value, ...]] = {"factor": (1, 2, 4), "priority": (9,)}
    more: dict[str, tuple[Value, ...]] = {"dim": (0, 2), "inner_dim": (1, 2), "inner_factor": (2,)}
    if not small:
        own |= more
    heuristic = block(("x",), **own)
    first = _of_start(block(("a", "b"), boundary=("merge",), **own), 1, _CUT, depth=1)
    second = _of_start(block(("a",), **{**own, "factor": (2, 4)}), 2, _WHOLE, depth=0)
    plain = space_of(STARTED, heuristic, first, second)
    model = len(STARTED)
    dimensions = (
        *plain.dimensions[:model], Dimension(START, (AUTO, 1, 2)), *plain.dimensions[model:],
    )  # fmt: skip
    return Space(dimensions, HERE, (heuristic, first, second), starts)


def _at(own: SubGraphKnobs, layer: str) -> SubGraphKnobs:
    return dataclasses.replace(own, layer=layer)


def _of_start(plain: Block, start: int, base: SubGraphKnobs, depth: int) -> Block:
    parts = 1 if base.factor == AUTO else int(base.factor)
    return dataclasses.replace(plain, start=start, base=base, depth=depth, parts=parts)
