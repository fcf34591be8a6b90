"""Small spaces over sub-graphs, made without a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from autoturbo.schedule.knobs import AUTO, Value, knob_specs, subgraph_knob_specs
from autoturbo.search.conditions import dimension_name
from autoturbo.search.space import Dimension, Space
from autoturbo.search.subgraphs import Block

BATCHES = (AUTO, 4, 2, 1)
"""Of a share of eight."""

EXTENTS = {0: (8, 4, 2, 1), 1: (7, 7, 7, 7), 2: (12, 12, 12, 12)}


def space_of(model: dict[str, tuple[Value, ...]], *blocks: Block) -> Space:
    """A space of some of the model's knobs (choices besides auto) and of blocks."""
    dimensions = [Dimension(name, (AUTO, *model[name])) for name in knob_specs() if name in model]
    dimensions += [
        Dimension(dimension_name(b, field), (AUTO, *values))
        for b in blocks
        for field, values in b.choices.items()
    ]
    return Space(tuple(dimensions), 8, 50, blocks)


def block(layers: tuple[str, ...] = ("conv1",), **choices: tuple[Value, ...]) -> Block:
    """A block over a tensor of eight samples at most, 7 rows and 12 channels."""
    ordered = {name: choices[name] for name in subgraph_knob_specs() if name in choices}
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
    return space if space.listed else dataclasses.replace(space_of(kept), share=8)


def large_space() -> Space:
    """Everything at once: two blocks of every knob."""
    more: dict[str, tuple[Any, ...]] = {
        name: spec.choices for name, spec in subgraph_knob_specs().items() if spec.choices
    }
    blocks = (
        block(("conv1",), **{**more, **_OWN}),
        block(("conv2", "conv3"), **{**more, **_OWN}),
    )
    return space_of(_MODEL, *blocks)
