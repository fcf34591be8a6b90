"""The graph view: sub-graphs and layers as tables and as a picture, and the scopes of outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from markupsafe import Markup

from autoturbo.hardware.parts import storage_ratio
from autoturbo.report.alike import added, alike, numbered, subgraph_kind
from autoturbo.report.facts import Measured
from autoturbo.report.filling import group_colours
from autoturbo.report.layered import Drawing, Edge, Place, drawing_of
from autoturbo.report.names import layer_label, layer_title
from autoturbo.report.units import counted, percent, plain
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.partition.split import sink
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.shares import Shares
from autoturbo.simulator.whole_pass import KernelInterval

MOST_LAYERS = 400
"""Layers that are drawn one by one; of larger models only the sub-graphs are drawn."""


@dataclass(frozen=True, slots=True)
class SubGraphFacts:
    """One sub-graph over the whole batch.

    Attributes:
        index: Number of the sub-graph.
        title: Number, and the operator, shape and name of its last layer.
        layers: Indices of its layers.
        parts: Instances that it is cut into.
        cut: How, in words: ``"n (16) in 8"`` is an axis of 16 steps in 8 parts.
        scope: Scope in which its output is declared.
        shares: Seconds that it adds to the latency, by what bounds them.
        share: Share of the latency.
        macs: Multiply-accumulates of all clusters together.
        ddr_bytes: Bytes that all clusters together move from and to DDR.
        rate: Multiply-accumulates per second of all clusters while its kernels run.
    """

    index: int
    title: str
    layers: tuple[int, ...]
    parts: int
    cut: str
    scope: Scope
    shares: Shares
    share: float
    macs: float
    ddr_bytes: float
    rate: float


def subgraph_facts(best: Measured) -> tuple[SubGraphFacts, ...]:
    """Return the facts of all sub-graphs, in topological order."""
    schedule = best.schedule
    kernels_of: list[list[KernelInterval]] = [[] for _ in schedule.instances.subgraphs]
    for kernel in best.kernels:
        kernels_of[int(schedule.instances.subgraph[kernel.instance])].append(kernel)
    copied = {  # bytes that copies bring from DDR before each instance's kernel
        int(instance): float(timeline.copied[kernel, 2])
        for timeline in schedule.timelines
        for kernel, instance in enumerate(timeline.order)
    }
    return tuple(
        _facts(best, index, subgraph_kernels, copied)
        for index, subgraph_kernels in enumerate(kernels_of)
    )


def _facts(
    best: Measured, index: int, kernels: Sequence[KernelInterval], copied: Mapping[int, float]
) -> SubGraphFacts:
    schedule, found = best.schedule, best.found.subgraphs[index]
    subgraph, graph = schedule.instances.subgraphs[index], schedule.context.graph
    seconds = sum(kernel.end - kernel.begin for kernel in kernels)
    moved = sum(
        float(kernel.program.amounts[:, Amount.DDR].sum()) + copied.get(kernel.instance, 0.0)
        for kernel in kernels
    )
    passes = schedule.share.copies * schedule.share.loops
    layers = (schedule.context.layers[layer] for layer in subgraph.layers)
    macs = float(sum(graph.operators[o].macs for layer in layers for o in layer.operators))
    at_work = schedule.share.copies * len(schedule.timelines)  # clusters, over summed seconds
    return SubGraphFacts(
        index, f"{index}: {layer_label(schedule, subgraph.layers[-1])}", subgraph.layers,
        schedule.instances.parts[index].count, _cut(schedule, index),
        schedule.placement.scopes[int(schedule.instances.first[index])], found.shares,
        found.seconds / best.found.latency, macs * passes,
        moved * storage_ratio(schedule.context.dtype) * passes,
        macs * at_work / seconds if seconds else 0.0,
    )  # fmt: skip


class SubGraphRow(NamedTuple):
    """A row of the table of sub-graphs, those of isomorphic ones together.

    Attributes:
        label: Numbers, the operator and shape of the last layer, and the first one's name.
        cut: Cut of each into parts, in words.
        scopes: Scopes in which their outputs are declared.
        layers: Layers of each sub-graph.
        parts: Parts of each sub-graph.
        shares: Seconds that they add to the latency, by what bounds them.
        share: Share of the latency.
        macs: Multiply-accumulates of all sub-graphs together.
        ddr_bytes: Bytes that all sub-graphs together move from and to DDR.
    """

    label: str
    cut: str
    scopes: str
    layers: int
    parts: int
    shares: Shares
    share: float
    macs: float
    ddr_bytes: float


def subgraph_rows(schedule: Schedule, facts: Iterable[SubGraphFacts]) -> list[SubGraphRow]:
    """Return sub-graphs in order, isomorphic ones on one row."""
    return [
        SubGraphRow(
            numbered(schedule, [one.layers[-1] for one in group]), group[0].cut,
            ", ".join(sorted({one.scope.name for one in group})), len(group[0].layers),
            group[0].parts, added(one.shares for one in group), sum(one.share for one in group),
            sum(one.macs for one in group), sum(one.ddr_bytes for one in group),
        )
        for group in alike(facts, lambda one: subgraph_kind(schedule, one.index))
    ]  # fmt: skip


def _cut(schedule: Schedule, index: int) -> str:
    """Return the axes of the last operator that are cut, with their factors, in words."""
    subgraph = schedule.instances.subgraphs[index]
    axes = sink(schedule.context, subgraph.layers).axes if subgraph.split.axes else ()
    cuts = (f"{axes[axis].name} ({axes[axis].extent}) in {f}" for axis, f in subgraph.split.axes)
    return " x ".join(cuts) or "whole"


def scope_counts(schedule: Schedule) -> dict[str, int]:
    """Return how many layers keep their output in LB, GB and DDR, by the scope's name."""
    scopes = layer_scopes(schedule)
    kept = [scopes.get(layer.index, Scope.LB) for layer in schedule.context.layers]
    return {scope.name: kept.count(scope) for scope in Scope}


def layer_scopes(schedule: Schedule) -> dict[int, Scope]:
    """Return where the output of each layer is kept: the farthest scope of any of its parts."""
    farthest: dict[int, Scope] = {}
    for timeline in schedule.timelines:
        made = np.flatnonzero(timeline.kind == KINDS.index("tensor"))
        scopes = timeline.buffers.scope[made].tolist()
        for tensor, scope in zip(timeline.tensor[made].tolist(), scopes, strict=True):
            layer = schedule.context.producer[tensor]
            farthest[layer] = max(farthest.get(layer, Scope.LB), Scope(scope))
    return farthest


def graph_edges(schedule: Schedule) -> list[Edge]:
    """Return which layer reads which, each pair once."""
    context = schedule.context
    return [
        (maker, layer.index)
        for layer in context.layers
        for maker in dict.fromkeys(context.producer[tensor] for tensor in layer.inputs)
        if maker >= 0
    ]


@dataclass(frozen=True, slots=True)
class Box:
    """A box of the picture: a layer, or a sub-graph.

    Attributes:
        title: Operator and shape of the layer, or of a sub-graph's last layer.
        below: Kernel and its cores, and where the output is kept.
        told: All that is known of it, for the pointer and for the text field.
        colour: Colour of its sub-graph.
    """

    title: str
    below: str
    told: str
    colour: str


def layers_picture(best: Measured, facts: Sequence[SubGraphFacts]) -> Markup:
    """Return a picture of the layers from top to bottom as SVG, a box each."""
    schedule = best.schedule
    colours, home = group_colours(len(facts)), _homes(facts)
    layers = range(len(schedule.context.layers))
    boxes = [_layer_box(best, facts[home[layer]], colours, layer) for layer in layers]
    return _svg(boxes, drawing_of(len(boxes), graph_edges(schedule)))


def subgraphs_picture(best: Measured, facts: Sequence[SubGraphFacts]) -> Markup:
    """Return a picture of the sub-graphs from top to bottom as SVG, a box each."""
    colours, home = group_colours(len(facts)), _homes(facts)
    edges = {(home[maker], home[reader]) for maker, reader in graph_edges(best.schedule)}
    between = sorted(edge for edge in edges if edge[0] != edge[1])
    boxes = [_subgraph_box(best.schedule, group, colours) for group in facts]
    return _svg(boxes, drawing_of(len(boxes), between))


def _homes(facts: Iterable[SubGraphFacts]) -> dict[int, int]:
    """Return the sub-graph of each layer."""
    return {layer: group.index for group in facts for layer in group.layers}


def _layer_box(best: Measured, group: SubGraphFacts, colours: Sequence[str], layer: int) -> Box:
    schedule, found = best.schedule, best.found.layers[layer]
    scope = layer_scopes(schedule).get(layer, Scope.LB).name
    share = percent(found.seconds / best.found.latency) if found.seconds else "0 %"
    limit = f", bound by {found.shares.limit}" if found.seconds else ""
    told = (
        f"{layer_label(schedule, layer)}: {share} of the time{limit}; sub-graph {group.title}, "
        f"{_cut_words(group)}; output in {scope}"
    )
    below = f"kernel {group.index}, {_cores(schedule, group)}, {scope}"
    return Box(layer_title(schedule, layer), below, told, colours[group.index])


def _subgraph_box(schedule: Schedule, group: SubGraphFacts, colours: Sequence[str]) -> Box:
    told = (
        f"sub-graph {group.title}: {counted(len(group.layers), 'layer')}, {_cut_words(group)}; "
        f"{percent(group.share)} of the time; output in {group.scope.name}"
    )
    below = f"kernel {group.index}, {_cores(schedule, group)}, {group.scope.name}"
    last = layer_title(schedule, group.layers[-1])
    more = f"{counted(len(group.layers), 'layer')} to " if group.layers[1:] else ""
    return Box(f"{more}{last}", below, told, colours[group.index])


def _cut_words(group: SubGraphFacts) -> str:
    return "whole" if group.parts == 1 else f"{counted(group.parts, 'part')} ({group.cut})"


def _cores(schedule: Schedule, group: SubGraphFacts) -> str:
    """Return the parts of a kernel and the cores that each is shared out to."""
    first = int(schedule.instances.first[group.index])
    shared = math.prod(schedule.placement.bindings[first])
    cores = counted(min(shared, schedule.context.target.cores), "core")
    return cores if group.parts == 1 else f"{counted(group.parts, 'part')} on {cores}"


_LETTER: Final = 6.9
"""Pixels of a letter of a box's title, widest mean."""

_LEAST_WIDE, _MOST_WIDE = 150, 280
"""Pixels of a box."""

_HIGH, _STEP = 36, 60
"""Pixels of a box, and from one rank to the next."""


def _svg(boxes: Sequence[Box], drawing: Drawing) -> Markup:
    """Return the picture of boxes as they were laid out."""
    longest = max((len(text) for box in boxes for text in (box.title, box.below)), default=0)
    wide = min(max(_LEAST_WIDE, 24 + longest * _LETTER), _MOST_WIDE)
    letters = int((wide - 20) / _LETTER)
    width, height = drawing.width * wide + 4, drawing.ranks * _STEP
    edges = Markup().join(
        Markup('<path d="{}"/>').format(_way(drawing, place, wide))
        for place in drawing.centres
        if not place.is_lane and drawing.steps[place]
    )
    drawn = Markup().join(
        _drawn(boxes[place.node], drawing.centres[place] * wide, place.rank * _STEP, wide, letters)
        for place in drawing.centres
        if not place.is_lane
    )
    return Markup(
        '<svg class="graph" viewBox="-2 -2 {width:.0f} {height:.0f}" style="--wide:{width:.0f}px">'
        '<g class="edges">{edges}</g>{drawn}</svg>'
    ).format(width=width, height=height, edges=edges, drawn=drawn)


def _drawn(box: Box, centre: float, top: float, wide: float, letters: int) -> Markup:
    """Return one box: its sub-graph's colour at the left, two lines of text."""
    return Markup(
        '<g class="box" transform="translate({x:.1f} {y:.0f})" style="--c:{colour}">'
        '<title>{told}</title><rect width="{wide:.0f}" height="{high}" rx="5"/>'
        '<path d="M5 1v{bar}"/><text x="13" y="15">{title}</text>'
        '<text x="13" y="29" class="below">{below}</text></g>'
    ).format(
        x=centre - wide / 2, y=top, colour=box.colour, told=plain(box.told), wide=wide, high=_HIGH,
        bar=_HIGH - 2, title=plain(_shortened(box.title, letters)),
        below=plain(_shortened(box.below, letters + 2)),
    )  # fmt: skip


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}\N{HORIZONTAL ELLIPSIS}"


def _way(drawing: Drawing, place: Place, wide: float) -> str:
    """Return the lines from a box to all its readers: down its lanes, curved between ranks."""
    lines = []
    following = [place]
    while following:
        here = following.pop()
        x, y = drawing.centres[here] * wide, here.rank * _STEP + _HIGH
        for reached in drawing.steps[here]:
            at, top = drawing.centres[reached] * wide, reached.rank * _STEP
            middle = (y + top) / 2
            lines.append(f"M{x:.1f} {y:.0f}C{x:.1f} {middle:.0f} {at:.1f} {middle:.0f}")
            lines.append(f"{at:.1f} {top:.0f}" + (f"v{_HIGH}" if reached.is_lane else ""))
            if reached.is_lane:
                following.append(reached)
    return " ".join(lines)
