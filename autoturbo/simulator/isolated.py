"""Kernels in isolation: features of the cost model that are computed, not learned.

A kernel's time depends on the rest of the schedule through little: how its output is bound, where
its boundary tensors are kept, and what else is in the buffers meanwhile. With these fixed it
follows from its layers, its split and its rules alone. The time of the same kernel in a schedule is
a small factor away from that; the factor is what is learned.

A sub-graph is laid out behind whole producers of what it reads, with all that crosses its boundary
in DDR. Its representative tile (the most common class of parts, the first of several such) gets its
ordinary kernel template, and is estimated twice (:mod:`autoturbo.simulator.estimate`): as it is,
and with the boundary in the local buffers. Layouts know nothing of rules, which are many: what
spills is found with the published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.tiling import TilingRules
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import AUTO, Value
from autoturbo.schedule.memory.timeline import (
    BufferRules,
    Timeline,
    build_timeline,
    without_outputs,
)
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import KernelRules
from autoturbo.schedule.place.bind import Placement, Scope, chosen_binding, cores_used
from autoturbo.schedule.place.instances import (
    InstanceGraph,
    PartBook,
    Parts,
    graph_of,
    links_of,
    parts_of,
)
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.stitch.templates import shares_weights
from autoturbo.schedule.streams import OUT_DDR, RESIDENCES, ROOM
from autoturbo.schedule.work import Floats
from autoturbo.simulator.estimate import BUSY, Estimate, estimates
from autoturbo.simulator.sequence import movement_times

ISOLATED: Final = (
    "far_s", "near_s", "copy_s", "copy_gb_s",
    "dma_in_s", "transfer_s", "matrix_s", "vector_s", "dma_out_s",
    "layers_s", "serial_s", "chain_s",
    "ddr_bytes", "gb_bytes", "near_ddr_bytes", "late_bytes", "exchanged_bytes", "core_weight_bytes",
    "weights_shared", "cores_used",
)  # fmt: skip
"""Columns of :func:`isolated_kernels`: seconds of a launch with the boundary in DDR and in the
local buffers, overheads included; seconds of the copies from DDR and from GB before it, which
``far_s`` has and ``near_s`` has not; busy seconds of the engines and bytes of DDR and GB with the
boundary in DDR; bytes of DDR without it; what the kernel spills; what one core gets from others;
weights that a core keeps, whether all parts share them, and cores that work."""


class Bound(NamedTuple):
    """A sub-graph, and the cores and loop that its layout depends on.

    Attributes:
        subgraph: Its layers and split; the index does not matter.
        cores: Cores that its output is spread over.
        depth: The loop that spreading begins with; the outermost if None.
    """

    subgraph: SubGraph
    cores: int
    depth: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The representative tile of a sub-graph, laid out in isolation.

    Attributes:
        stages: Stages of its template, ``(layers, STAGE_COLUMNS)``.
        streams: Bytes that its layers stream with the boundary in DDR, ``(layers,
            STREAM_COLUMNS)``.
        outputs: Bytes of its outputs, which stay in the local buffers with the boundary there.
        copied: Bytes from DDR before the kernel.
        tail: The columns of :data:`ISOLATED` that no rule changes, from ``late_bytes`` on.
        weights_stay: Whether its weights can stay between instances, if rules say so.
        spare: Bytes of LB and of GB that are free for a recurrence's weights.
    """

    stages: Floats
    streams: Ints
    outputs: int
    copied: int
    tail: tuple[float, ...]
    weights_stay: bool
    spare: Ints

    @property
    def size(self) -> int:
        """Return the approximate bytes that it takes."""
        return self.stages.nbytes + self.streams.nbytes + 500


def lay_out(book: PartBook, wanted: Sequence[Bound]) -> list[Layout]:
    """Return the layouts of sub-graphs, each as if it were alone.

    Args:
        book: The known parts of the model; the sub-graphs are in terms of its layers.
        wanted: The sub-graphs, at least one.
    """
    context, rules = book.context, [BufferRules()] * len(wanted)
    _, first, placement, laid = lay_side_by_side(book, wanted, representative, rules, rules[0])
    layouts = []
    for instance, bound in enumerate(wanted, first):
        template = laid.templates[instance]
        streams = laid.streams[laid.rows[instance] : laid.rows[instance + 1]].copy()
        outputs = sum(size for _, size, _ in template.writes[-1])
        # The output goes to DDR because the boundary is there, not for want of room.
        spilled = int(streams[:, :ROOM].sum()) - min(outputs, int(streams[-1, OUT_DDR]))
        shared = shares_weights(context, template)
        stages = template.stages
        tail = (
            float(spilled), float(stages[:, [Stage.EXCHANGED, Stage.STATE]].sum()),
            float(stages[:, Stage.CORE_WEIGHTS].sum()), float(shared),
            float(cores_used(placement.bindings[instance])),
        )  # fmt: skip
        layouts.append(Layout(
            stages, streams, outputs, int(laid.copied[instance, Scope.DDR]), tail,
            shared and bound.subgraph.split.instances > 1, laid.spare[instance],
        ))  # fmt: skip
    return layouts


class SideBySide(NamedTuple):
    """Parts of sub-graphs in one timeline, each as if alone, with its boundary in DDR.

    Attributes:
        graph: The parts, behind the whole layers that they read.
        first: Number of these layers.
        placement: Bindings of the parts, and where their outputs are kept.
        timeline: Their buffers and streams.
    """

    graph: InstanceGraph
    first: int
    placement: Placement
    timeline: Timeline


def lay_side_by_side(
    book: PartBook,
    wanted: Sequence[Bound],
    choose: Callable[[Parts], Ints],
    rules: Sequence[BufferRules],
    leading: BufferRules,
) -> SideBySide:
    """Lay out parts of sub-graphs one after another, each as if it were alone.

    Args:
        book: The known parts of the model; the sub-graphs are in terms of its layers.
        wanted: The sub-graphs.
        choose: Says which parts of a sub-graph are taken, as indices.
        rules: Rules of each sub-graph's buffers.
        leading: Rules of the layers that they read.

    Returns:
        The parts, behind the layers that they read.
    """
    graph, first = side_by_side(book, [bound.subgraph for bound in wanted], choose)
    cores = book.context.target.cores
    spread = [(cores, None)] * first + [(bound.cores, bound.depth) for bound in wanted]
    owners, shapes = graph.subgraph.tolist(), graph.shape.tolist()
    placement = Placement(
        tuple(chosen_binding(book, s, *spread[own]) for s, own in zip(shapes, owners, strict=True)),
        (Scope.DDR,) * graph.count,
        limits=tuple(most if most < cores else 0 for most, _ in (spread[own] for own in owners)),
    )
    buffers = [leading] * first + list(rules)
    timeline = build_timeline(graph, range(graph.count), placement, buffers)
    return SideBySide(graph, first, placement, timeline)


def cores_of(context: SchedulingContext, cores: Value, depth: Value) -> tuple[int, int | None]:
    """Return the cores of a sub-graph's parts and the loop spread from, given its knobs.

    Args:
        context: The model on the target.
        cores: Value of the knob ``cores``; ``"auto"`` for all of them.
        depth: Value of ``core_parallel_dim``; ``"auto"`` for the outermost.
    """
    most = context.target.cores if cores == AUTO else int(cores)
    return most, None if depth == AUTO else int(depth)


def side_by_side(
    book: PartBook, subgraphs: Sequence[SubGraph], choose: Callable[[Parts], Ints]
) -> tuple[InstanceGraph, int]:
    """Return a graph of parts of sub-graphs, each as if alone, and the number of leading layers.

    These are the layers that the parts read, each as one part that reads nothing; no sub-graph
    reads another.

    Args:
        book: The known parts of the model.
        subgraphs: Each in terms of the context's layers; they may overlap.
        choose: Says which parts of a sub-graph are taken, as indices.
    """
    context, rows = book.context, list[tuple[int, ...]]()
    subgraph_parts = [parts_of(book, subgraph) for subgraph in subgraphs]
    layers = sorted(
        {m for p in subgraph_parts for t in p.inputs if (m := context.producer[t]) >= 0}
    )
    whole = [SubGraph(0, (layer,), Split(-1, 1, 0, 0, 0)) for layer in layers]
    parts = (*(parts_of(book, s) for s in whole), *subgraph_parts)
    chosen = [choose(p) for p in parts]
    maker = {
        t: (index, n) for index, x in enumerate(layers) for n, t in enumerate(parts[index].outputs)
    }
    reader = len(layers)
    for p, indices in zip(subgraph_parts, chosen[len(layers) :], strict=True):
        read = [(slot, *maker[t], t) for slot, t in enumerate(p.inputs) if t in maker]
        for row in (p.in_base + indices * len(p.inputs)).tolist():
            rows += [(reader, slot, index, n, row + slot, t) for slot, index, n, t in read]
            reader += 1
    table = np.asarray(rows, np.int64).reshape(-1, 6)
    regions, element = book.regions.rows[table[:, 4]], context.arrays.element[table[:, 5]]
    size = (regions[..., 1] - regions[..., 0]).prod(axis=1) * element
    columns = np.column_stack((table[:, :4], size))[size > 0]
    links = links_of(columns, reader)
    return graph_of(book, (*whole, *subgraphs), parts, chosen, links), len(layers)


def isolated_kernels(
    context: SchedulingContext, layouts: Sequence[Layout], rules: Sequence[KernelRules]
) -> Floats:
    """Return the features of kernels in isolation, ``(kernels, len(ISOLATED))``.

    Args:
        context: The context that the layouts come from.
        layouts: Layouts of the kernels, at least one.
        rules: Rules of each kernel's buffers and instructions.
    """
    rows = np.append(0, np.cumsum([len(layout.stages) for layout in layouts]))
    stages = np.concatenate([own.stages for own in layouts])
    pairs = list(zip(layouts, rules, strict=True))
    table = np.asarray([TilingRules.with_spare(own.instructions, one.spare) for one, own in pairs])
    kept = [RESIDENCES[own.buffers.residence] if one.weights_stay else 0 for one, own in pairs]
    resident = np.asarray(kept, np.int64)
    rates = rates_of(context.target, context.dtype)
    streams = np.concatenate([own.streams for own in layouts])
    # Both ends of a range: with all of the boundary in DDR, and with none of it.
    near = without_outputs(streams, rows[1:] - 1, np.asarray([own.outputs for own in layouts]))
    far, close = (
        estimates(rows, stages, moved, table, resident, rates) for moved in (streams, near)
    )
    overheads = context.target.overheads
    far_s, close_s = (
        found[:, Estimate.SECONDS] + overheads.around(found[:, Estimate.SECONDS])
        for found in (far, close)
    )
    copied = np.asarray([layout.copied for layout in layouts])
    nothing = np.zeros_like(copied)
    copy, copy_gb = (
        movement_times(np.column_stack(sizes), nothing, context.target)[:, 0]
        for sizes in ((nothing, nothing, copied), (nothing, copied, nothing))
    )
    return np.column_stack((
        far_s + copy, close_s, copy, copy_gb,
        far[:, BUSY], far[:, [Estimate.LAYERS, Estimate.SERIAL, Estimate.CHAIN]],
        far[:, Estimate.DDR_READ] + far[:, Estimate.DDR_WRITTEN] + copied, far[:, Estimate.GB],
        close[:, Estimate.DDR_READ] + close[:, Estimate.DDR_WRITTEN],
        np.asarray([own.tail for own in layouts]),
    ))  # fmt: skip


def representative(parts: Parts) -> Ints:
    """Return the first part of the class with most parts; on ties, of the first class.

    Args:
        parts: Of a sub-graph.

    Returns:
        Its index, as an array of one.
    """
    _, first, count = np.unique(parts.shapes, return_index=True, return_counts=True)
    return np.asarray([first[count == count.max()].min()], np.int64)
