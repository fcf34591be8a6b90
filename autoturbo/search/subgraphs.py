"""The sub-graphs with knobs of their own in a search, and the values worth trying there.

A start, for one the published heuristic, is plan once. Its heaviest sub-graphs are anchored by
their last layers: an override names a layer and so stays meaningful when other knobs move the cuts.
Sub-graphs that are alike (the blocks of a transformer) share their knobs: one of twelve changes
little, and what is good for one is good for all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autoturbo.schedule.chip_part import ChipPart
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import InSubGraph, Knobs, SubGraphKnobs, Value, subgraph_knobs
from autoturbo.schedule.knobs.pins import NO_PINS, Pins
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.part_work import PartWork, middle_part_work
from autoturbo.schedule.partition.split import sink, split_axes
from autoturbo.schedule.pipeline import ModelScheduler, plan
from autoturbo.schedule.place.bind import bindable_dims, spreading_order

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

_NOTHING = SubGraphKnobs("")


@dataclass(frozen=True, slots=True)
class Block:
    """The knobs of alike sub-graphs.

    Attributes:
        layers: Anchors, the last layer of each sub-graph; the first one names the block.
        choices: What is tried besides ``"auto"``, by knob; a knob without a choice is left out.
        extents: By dimension that can be split, its extent at each number of samples at once (in
            the order that :func:`blocks_of` was given); 1 where it cannot be split then.
        depth: The dimension that ``dim="auto"`` stands for in the start's plan.
        parts: Instances that ``factor="auto"`` stands for there.
        start: Number of the start that has these sub-graphs, 0 for the heuristic.
        base: What the start says of each of them, which ``"auto"`` leaves as it is.
    """

    layers: tuple[str, ...]
    choices: dict[str, tuple[Value, ...]]
    extents: dict[int, tuple[int, ...]]
    depth: int = 0
    parts: int = 1
    start: int = 0
    base: SubGraphKnobs = _NOTHING


def blocks_of(
    model_scheduler: ModelScheduler,
    most: int,
    batches: Sequence[int | str],
    knobs: Knobs | None = None,
    start: int = 0,
    pins: Pins = NO_PINS,
) -> tuple[Block, ...]:
    """Return the knobs of the heaviest sub-graphs, the heaviest first.

    Args:
        model_scheduler: The whole model on the target.
        most: Kinds of sub-graphs at most.
        batches: Values of ``batches_per_cluster`` that are tried, the start's own first.
        knobs: The start; the published heuristic if None.
        start: Its number.
        pins: What people have decided; sub-graphs with pins of their own are alike nowhere.
    """
    if most <= 0 or not model_scheduler.model.operators:
        return ()
    knobs = knobs or Knobs()
    planned = plan(model_scheduler, knobs)
    context, share, subgraphs = planned.context, planned.share, planned.subgraphs
    works = [middle_part_work(context, s.layers, s.split) for s in subgraphs]
    overridden = {own.layer: dataclasses.replace(own, layer="") for own in knobs.overrides}
    base = [overridden.get(context.layers[s.layers[-1]].name, _NOTHING) for s in subgraphs]
    seconds = np.asarray([_seconds(work, context.target, model_scheduler.dtype) for work in works])
    seconds *= planned.instances * share.loops
    kinds: dict[tuple[object, ...], list[int]] = {}

    def pinned_in(layers: Iterable[int]) -> tuple[str, ...]:
        return tuple(n for layer in layers for n in pins.names(context.layers[layer].name))

    for subgraph in subgraphs:
        if start and base[subgraph.index] == _NOTHING:
            continue  # only what a start names tells its points from another's
        pinned = pinned_in(subgraph.layers)
        kind = (base[subgraph.index], pinned, *_kind(context, subgraph, works[subgraph.index]))
        kinds.setdefault(kind, []).append(subgraph.index)
    heaviest = sorted(kinds.values(), key=lambda k: (-seconds[k].sum(), k[0]))[:most]
    part = ChipPart.of(knobs)
    contexts = [
        model_scheduler.context_for(model_scheduler.share(b, part=part).batches, knobs)
        for b in batches
    ]
    blocks = [_block(contexts, [subgraphs[i] for i in k], works[k[0]]) for k in heaviest]
    return tuple(
        _on(block, start, base[k[0]], pinned_in(subgraphs[k[0]].layers), pins)
        for block, k in zip(blocks, heaviest, strict=True)
    )


def _on(block: Block, start: int, base: SubGraphKnobs, pinned: Sequence[str], pins: Pins) -> Block:
    """Return a block of a start, without the choices that the start or a person has made."""
    choices = {
        name: tuple(v for v in pins.offered_in(name, values) if v != getattr(base, name))
        for name, values in block.choices.items()
        if name not in pinned
    }
    remaining = {name: values for name, values in choices.items() if values}
    return dataclasses.replace(block, choices=remaining, start=start, base=base)


def _seconds(work: PartWork, target: Target, dtype: str) -> float:
    """Return the roofline time of one instance of a sub-graph."""
    cycles = target.cores * target.clock
    lanes = target.vector.elements_per_cycle(dtype)
    macs = target.matrix.macs_per_cycle(dtype)
    return max(
        work.macs / (cycles * macs if macs else math.inf),
        work.vector_ops / (cycles * lanes if lanes else math.inf),
        work.weight_bytes / target.ddr_bandwidth_per_cluster,
    )


def _kind(context: SchedulingContext, subgraph: SubGraph, work: PartWork) -> tuple[object, ...]:
    """Return a key that is equal for sub-graphs of the same operators, extents and split."""
    graph, split = context.graph, subgraph.split
    operators = [graph.operators[o] for x in subgraph.layers for o in context.layers[x].operators]
    described = tuple((operator.kind, operator.extents) for operator in operators)
    return work, split.axis, split.factor, described


def _block(
    contexts: Sequence[SchedulingContext], alike: Sequence[SubGraph], work: PartWork
) -> Block:
    first, context = alike[0], contexts[0]
    axes = dict(split_axes(context, first.layers))
    extents = {depth: _extents(contexts, first.layers, depth) for depth in axes}
    depth = first.split.depth if first.split.axis >= 0 else min(axes, default=0)
    here = InSubGraph(
        context.target,
        {depth: sizes[0] for depth, sizes in extents.items()},
        _spread_dims(context, first),
        _is_read(context, first),
        work.weight_bytes > 0,
    )
    choices = {
        name: decision.offered_in(here) if decision.searched else ()
        for name, decision in subgraph_knobs().items()
    }
    return Block(
        tuple(context.layers[s.layers[-1]].name for s in alike),
        {name: values for name, values in choices.items() if values},
        extents,
        depth,
        first.split.instances,
    )


def _extents(
    contexts: Sequence[SchedulingContext], layers: tuple[int, ...], depth: int
) -> tuple[int, ...]:
    extents = []
    for context in contexts:
        axis = dict(split_axes(context, layers)).get(depth)
        extents.append(1 if axis is None else sink(context, layers).axes[axis].extent)
    return tuple(extents)


def _is_read(context: SchedulingContext, subgraph: SubGraph) -> bool:
    outputs = context.layers[subgraph.layers[-1]].outputs
    return any(context.consumers[tensor] for tensor in outputs)


def _spread_dims(context: SchedulingContext, subgraph: SubGraph) -> tuple[int, ...]:
    """Return the dimensions that can be spread over cores, counted from the outermost loop."""
    operator = sink(context, subgraph.layers)
    if operator.opaque or not operator.outputs:
        return ()
    last = subgraph.layers[-1]
    bindable, order = bindable_dims(context, last), spreading_order(context, last)
    return tuple(depth for depth, dim in enumerate(order) if bindable[dim])
