"""Sub-graphs become instances: GraphTurbo, OSDI '23, section 3.3.

Each sub-graph is split into ``f`` homogeneous parts. Edges between instances are inherited from
those between sub-graphs (complete bipartite), and an edge is dropped when the consumer does not
use the producer's output: their regions do not meet. (The printed sentence says the opposite, a
clear slip.)

A search meets the same sub-graphs cut in the same way over and over, so everything about one
(:class:`Parts`), and about one and those that it reads from (a block of links), is remembered with
the context; an instance graph is put together from these blocks.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numba import njit

from autoturbo.caches import BoundedCache, GrowingArray, remembered
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    Regions,
    clear_seen,
    propagate_in,
    seed_in,
)
from autoturbo.schedule.codegen.work import MATRIX, MOVE, VECTOR, Floats
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.split import Split, box_cost, operators_of, sink, workspace


@dataclass(frozen=True, slots=True)
class Cut:
    """A box of the domain of a sub-graph's last operator.

    Attributes:
        axes: The axes that are split, outermost first.
        bounds: First step and one past the last along each.
    """

    axes: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]


WHOLE: Final = Cut((), ())


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts of one sub-graph by one split.

    Attributes:
        inputs: External input tensors, in order of first use.
        outputs: Output tensors.
        shapes: Per part, the index of its shape in :attr:`PartBook.shapes`.
        out_base: Row of :attr:`PartBook.regions` with the first part's first output; the outputs of
            a part are consecutive, then come the next part's.
        in_base: Likewise for inputs.
        output_bytes: Per part.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: Ints
    out_base: int
    in_base: int
    output_bytes: Ints

    @property
    def count(self) -> int:
        """Return the number of parts."""
        return len(self.shapes)


@dataclass(frozen=True, slots=True)
class ShapeKey:
    """A class of parts with equal extents: the layers and one part that has them."""

    layers: tuple[int, ...]
    cut: Cut


@dataclass(eq=False)
class PartBook:
    """Known parts of a context's split sub-graphs, numbered in order of appearance.

    Attributes:
        context: Whose sub-graphs.
        rank: Most dimensions of any tensor, at least 1.
        regions: Rows ``(rank, 2)``; a tensor's further dimensions are ``[0, 1)``.
        shapes: Classes of parts, by index.
        alike: Per class, the first that is the same part of an isomorphic sub-graph.
        parts: By layers and the axes that are split.
        blocks: Links of one sub-graph's parts, by the reader and by what makes each of its inputs.
    """

    context: SchedulingContext
    rank: int = field(init=False)
    regions: GrowingArray = field(init=False)
    shapes: list[ShapeKey] = field(default_factory=list)
    alike: list[int] = field(default_factory=list)
    parts: dict[tuple[object, ...], Parts] = field(default_factory=dict)
    shape_index: dict[tuple[tuple[int, ...], bytes], int] = field(default_factory=dict)
    alike_index: dict[ShapeKey, int] = field(default_factory=dict)
    blocks: BoundedCache[tuple[Parts | None, ...], Ints] = field(
        default_factory=lambda: BoundedCache(1 << 18, 32 << 20, _weight)
    )

    def __post_init__(self) -> None:
        self.rank = max(1, *(len(t.shape) for t in self.context.graph.tensors))
        self.regions = GrowingArray((self.rank, 2))


def _weight(block: Ints) -> int:
    """Return the bytes of a block; it has a name so that schedules can be pickled."""
    return 200 + block.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Regions that instances read from each other: one entry per reader, input slot and maker.

    Attributes:
        start: ``start[i]:start[i + 1]`` are the entries of reader ``i``, by slot, then by maker.
        reader: Instance that reads.
        slot: Position of the tensor among the reader's external inputs.
        maker: Instance that makes it.
        output: Position of the tensor among the maker's outputs.
        size: Bytes of the region that the reader needs and the maker makes.
    """

    start: Ints
    reader: Ints
    slot: Ints
    maker: Ints
    output: Ints
    size: Ints


@dataclass(frozen=True, eq=False)
class InstanceGraph:
    """Instances and their dependences.

    Attributes:
        book: Their known parts.
        subgraphs: The split sub-graphs.
        parts: Per sub-graph, how.
        first: Per sub-graph, its first instance; one entry more than sub-graphs.
        subgraph: Per instance, its sub-graph.
        part: Per instance, which part of that.
        shape: Per instance, its class of equal extents.
        out_region: Per instance, the row of its first output in the book of regions.
        in_region: Per instance, the row of its first input.
        links: The regions that they read from each other.
    """

    book: PartBook
    subgraphs: tuple[SubGraph, ...]
    parts: tuple[Parts, ...]
    first: Ints
    subgraph: Ints
    part: Ints
    shape: Ints
    out_region: Ints
    in_region: Ints
    links: Links

    @property
    def context(self) -> SchedulingContext:
        """Return the context of the instances."""
        return self.book.context

    @property
    def count(self) -> int:
        """Return the number of instances."""
        return len(self.subgraph)

    def regions_of(self, index: int) -> tuple[dict[int, Ints], dict[int, Ints]]:
        """Return an instance's regions of each output and of each input, ``(rank, 2)``."""
        parts, tensors = self.parts[int(self.subgraph[index])], self.context.graph.tensors
        rows: Ints = self.book.regions.rows
        made, needed = (
            {
                t: rows[row, : len(tensors[t].shape)].copy()
                for row, t in enumerate(tensors_of, first)
            }
            for tensors_of, first in (
                (parts.outputs, int(self.out_region[index])),
                (parts.inputs, int(self.in_region[index])),
            )
        )
        return made, needed

    @functools.cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """Return, per instance, the instances whose output it reads, ascending."""
        bounds, maker = self.links.start.tolist(), self.links.maker.tolist()
        return tuple(tuple(sorted(set(maker[a:b]))) for a, b in itertools.pairwise(bounds))

    @functools.cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Return, per instance, the instances that read its output, ascending."""
        readers: list[list[int]] = [[] for _ in range(self.count)]
        for reader, makers in enumerate(self.producers):
            for maker in makers:
                readers[maker].append(reader)
        return tuple(map(tuple, readers))


@remembered(1 << 16)
def external_inputs(context: SchedulingContext, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tensors that a sub-graph reads and does not make, in order of first use."""
    inner_tensors = {t for layer in layers for t in context.layers[layer].outputs}
    read = (t for layer in layers for t in context.layers[layer].inputs)
    return tuple(dict.fromkeys(t for t in read if t not in inner_tensors))


def part_bounds(extent: int, factor: int) -> list[tuple[int, int]]:
    """Return contiguous parts of near-equal length that cover ``range(extent)``, larger first."""
    size, rest = divmod(extent, factor)
    return list(itertools.pairwise(n * size + min(n, rest) for n in range(factor + 1)))


def boxes_of(context: SchedulingContext, layers: tuple[int, ...], split: Split) -> list[Cut]:
    """Return the boxes that a split makes, the outer axis slowest."""
    axes, operator = tuple(axis for axis, _ in split.axes), sink(context, layers)
    bounds = (part_bounds(operator.axes[axis].extent, factor) for axis, factor in split.axes)
    return [Cut(axes, box) for box in itertools.product(*bounds)]


def parts_of(book: PartBook, subgraph: SubGraph) -> Parts:
    """Return the parts of a sub-graph by its split; cached."""
    key = subgraph.layers, subgraph.split.axes
    if key not in book.parts:
        book.parts[key] = _make_parts(book, subgraph)
    return book.parts[key]


def _make_parts(book: PartBook, subgraph: SubGraph) -> Parts:
    context, layers = book.context, subgraph.layers
    g, ops = context.arrays, operators_of(context, layers)
    reads, makes = g.in_tensor[_runs(g.in_start, ops)], g.out_tensor[_runs(g.out_start, ops)]
    touched = np.unique(np.concatenate((reads, makes)))
    inputs, outputs = external_inputs(context, layers), context.layers[layers[-1]].outputs
    noted = np.asarray((*outputs, *inputs), np.int64)
    boxes = boxes_of(context, layers, subgraph.split)
    places = _runs(g.axis_start, ops), _runs(g.dim_start, touched), touched
    steps, regions, seen = _regions_at(context, ops, boxes, places)
    ranks = g.dim_start[touched + 1] - g.dim_start[touched]
    regions[np.repeat(seen == 0, ranks, axis=1)] = 0, -1
    shapes = [
        _shape_index(book, layers, box, extents)
        for box, extents in zip(
            boxes, np.diff(np.concatenate((steps, regions), axis=1))[..., 0], strict=True
        )
    ]
    position = np.searchsorted(touched, noted)
    rows = np.zeros((len(boxes), len(noted), book.rank, 2), np.int64)
    rows[..., 1] = seen[:, position, None]
    tensor, place = np.nonzero(np.arange(book.rank) < ranks[position, None])
    starts = np.cumsum(ranks) - ranks
    rows[:, tensor, place] = (
        regions[:, starts[position[tensor]] + place] * seen[:, position[tensor], None]
    )
    made, needed = rows[:, : len(outputs)], rows[:, len(outputs) :]
    sizes = (made[..., 1] - made[..., 0]).prod(axis=2) * g.element[noted[: len(outputs)]]
    return Parts(
        inputs, outputs, np.asarray(shapes, np.int64), book.regions.add(made),
        book.regions.add(needed), sizes.sum(axis=1).astype(np.int64),
    )  # fmt: skip


def _runs(start: Ints, which: Ints) -> Ints:
    """Return the concatenated ranges ``start[i]:start[i + 1]`` for ``i`` in ``which``."""
    counts = start[which + 1] - start[which]
    first = np.repeat(start[which] - np.cumsum(counts) + counts, counts)
    return first + np.arange(len(first))


def _shape_index(book: PartBook, layers: tuple[int, ...], box: Cut, extents: Ints) -> int:
    """Return the class of a box by its extents; a new class is named after its first box.

    Args:
        book: Known parts; a new class enters it.
        layers: Of the sub-graph.
        box: Of its last operator's domain.
        extents: Of all that the box determines; equal ones are one class.
    """
    key = (layers, hashlib.blake2b(extents.tobytes(), digest_size=16).digest())
    index = book.shape_index.get(key)
    if index is None:
        index = book.shape_index[key] = len(book.shapes)
        book.shapes.append(ShapeKey(layers, box))
        first = ShapeKey(first_alike(book.context, layers), box)
        book.alike.append(book.alike_index.setdefault(first, index))
    return index


def part_shape(book: PartBook, shape: int) -> Regions:
    """Return the regions of a part of a class, not cached: they are large."""
    key = book.shapes[shape]
    return box_regions(book.context, key.layers, key.cut)


def box_regions(context: SchedulingContext, layers: Sequence[int], cut: Cut = WHOLE) -> Regions:
    """Return the regions of all tensors and loops that one box of a sub-graph needs."""
    regions, nothing = Regions.of(context.arrays), np.zeros(0, np.int64)
    _find(context, operators_of(context, layers), [cut], regions, (nothing, nothing, nothing))
    return regions


def _regions_at(
    context: SchedulingContext, ops: Ints, boxes: Sequence[Cut], places: tuple[Ints, Ints, Ints]
) -> tuple[Ints, Ints, Ints]:
    """Return each box's regions of some loops and dimensions, and the tensors that it accesses.

    Args:
        context: The model on the target.
        ops: Operators of a sub-graph, in order.
        boxes: Of the domain of the last one, along the same axes.
        places: Positions of loops, of dimensions and of tensors in the context's arrays.

    Returns:
        ``(boxes, loops, 2)``, ``(boxes, dimensions, 2)`` and ``(boxes, tensors)``.
    """
    regions = _find(context, ops, boxes, workspace(context).regions, places)
    loops, dims, _ = map(len, places)
    return regions[:, :loops], regions[:, loops : loops + dims], regions[:, loops + dims :, 1]


def _find(
    context: SchedulingContext,
    ops: Ints,
    boxes: Sequence[Cut],
    regions: Regions,
    places: tuple[Ints, Ints, Ints],
) -> Ints:
    """Compute the regions that boxes need.

    Args:
        context: The model on the target.
        ops: Operators of the sub-graph, in order.
        boxes: Of its last operator's domain, all along the same axes.
        regions: Output: those of the last box.
        places: Positions of loops, of dimensions and of tensors in the context's arrays.

    Returns:
        Begin and end at the loops, then at the dimensions, and in the last column 1 for each tensor
        that is touched: ``(boxes, places, 2)``.
    """
    axes = np.asarray(boxes[0].axes, np.int64)
    bounds = np.asarray([box.bounds for box in boxes], np.int64).reshape(len(boxes), len(axes), 2)
    needed = np.zeros((len(boxes), sum(map(len, places)), 2), np.int64)
    _find_regions(context.arrays, ops, axes, bounds, regions, places, needed)
    return needed


@njit(cache=True)
def _find_regions(
    g: GraphArrays,
    ops: Ints,
    axes: Ints,
    boxes: Ints,
    regions: Regions,
    places: tuple[Ints, Ints, Ints],
    found: Ints,
) -> None:
    loops, dims, tensors = places
    for bounds, row in zip(boxes, found):  # noqa: B905 (compiled code takes no keyword here)
        clear_seen(g, ops, regions.seen)
        seed_in(g, ops[-1], axes, bounds, regions)
        propagate_in(g, ops, regions)
        for place, loop in enumerate(loops):
            row[place, 0], row[place, 1] = regions.box_low[loop], regions.box_high[loop]
        for place, dim in enumerate(dims, len(loops)):
            row[place, 0], row[place, 1] = regions.low[dim], regions.high[dim]
        for place, tensor in enumerate(tensors, len(loops) + len(dims)):
            row[place, 1] = regions.seen[tensor]


def make_instances(book: PartBook, subgraphs: tuple[SubGraph, ...]) -> InstanceGraph:
    """Split every sub-graph, given by the book's layers, and connect the parts."""
    parts = tuple(parts_of(book, s) for s in subgraphs)
    return graph_of(
        book, subgraphs, parts, [np.arange(p.count) for p in parts], _links(book, parts)
    )


def graph_of(
    book: PartBook,
    subgraphs: tuple[SubGraph, ...],
    parts: tuple[Parts, ...],
    chosen: Sequence[Ints],
    links: Links,
) -> InstanceGraph:
    """Return the instance graph of chosen parts of each sub-graph.

    Args:
        book: Known parts.
        subgraphs: The split sub-graphs.
        parts: Of each sub-graph.
        chosen: Which of them, per sub-graph.
        links: Between the chosen ones.
    """
    first = np.append(0, np.cumsum([len(indices) for indices in chosen])).astype(np.int64)
    subgraph, part = np.repeat(np.arange(len(parts)), np.diff(first)), np.concatenate(chosen)
    bases = [(p.out_base, len(p.outputs), p.in_base, len(p.inputs)) for p in parts]
    out_base, outputs, in_base, inputs = np.asarray(bases, np.int64)[subgraph].T
    shapes = np.concatenate([p.shapes[indices] for p, indices in zip(parts, chosen, strict=True)])
    return InstanceGraph(
        book, subgraphs, parts, first, subgraph, part, shapes,
        out_base + part * outputs, in_base + part * inputs, links,
    )  # fmt: skip


def links_of(rows: Ints, count: int) -> Links:
    """Return the links of ``count`` instances from their columns, the reader's first."""
    columns = [np.ascontiguousarray(column) for column in rows.T]
    return Links(np.searchsorted(columns[0], np.arange(count + 1)), *columns)


def _links(book: PartBook, parts: Sequence[Parts]) -> Links:
    """Return the links of all sub-graphs, from cached blocks where they are known."""
    maker = {t: index for index, p in enumerate(parts) for t in p.outputs}
    starts = list(itertools.accumulate((p.count for p in parts), initial=0))
    blocks = []
    for index, reader in enumerate(parts):
        makers = [maker.get(t, -1) for t in reader.inputs]
        maker_parts = [parts[m] if m >= 0 else None for m in makers]
        make = functools.partial(_make_block, book, reader, maker_parts)
        rows = book.blocks.get((reader, *maker_parts), make).copy()
        rows[:, 0] += starts[index]
        rows[:, 2] += np.asarray([starts[m] for m in makers], np.int64)[rows[:, 1]]
        blocks.append(rows)
    return links_of(np.concatenate(blocks), starts[-1])


def _make_block(book: PartBook, reader: Parts, makers: Sequence[Parts | None]) -> Ints:
    """Return the links of a sub-graph's parts, reader by reader and then by slot.

    Columns: reader's part, its input slot, maker's part, maker's output, bytes.
    """
    link_rows = [np.zeros((0, 5), np.int64)]
    for slot, (tensor, maker) in enumerate(zip(reader.inputs, makers, strict=True)):
        if maker is not None:
            output = maker.outputs.index(tensor)
            need, step = reader.in_base + slot, len(reader.inputs)
            base, stride = maker.out_base + output, len(maker.outputs)
            pairs = _meetings(
                book.regions.rows[need : need + reader.count * step : step],
                book.regions.rows[base : base + maker.count * stride : stride],
                int(book.context.arrays.element[tensor]),
            )
            pairs[:, 1], pairs[:, 3] = slot, output
            link_rows.append(pairs)
    rows = np.concatenate(link_rows)
    return np.ascontiguousarray(rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))])


def _meetings(wanted: Ints, made: Ints, element: int) -> Ints:
    """Return pairs of overlapping regions: reader's part, 0, maker's part, 0, bytes.

    Makers are parts in order along the first split axis, so those that overlap a reader are
    consecutive and found by bisection.

    Args:
        wanted: Regions that the readers need, ``(readers, rank, 2)``.
        made: Regions that the makers make.
        element: Bytes of an element.
    """
    dim = _sorted_dim(made)
    first = np.searchsorted(made[:, dim, 1], wanted[:, dim, 0], side="right")
    counts = np.maximum(np.searchsorted(made[:, dim, 0], wanted[:, dim, 1]) - first, 0)
    reader = np.repeat(np.arange(len(wanted)), counts)
    maker = np.arange(len(reader)) + (first - np.cumsum(counts) + counts)[reader]
    low = np.maximum(wanted[reader, :, 0], made[maker, :, 0])
    high = np.minimum(wanted[reader, :, 1], made[maker, :, 1])
    size = element * np.maximum(high - low, 0).prod(axis=1)
    none = np.zeros_like(reader)
    pairs: Ints = np.column_stack((reader, none, maker, none, size))[size > 0]
    return pairs


def _sorted_dim(regions: Ints) -> int:
    """Return the dimension of ascending regions that has the most distinct starts."""
    steps = np.diff(regions, axis=0)
    changes = (steps[:, :, 0] > 0).sum(axis=0)
    back = (steps < 0).any(axis=(0, 2))
    return int(np.where(back, -1, changes).argmax())


# Work and bytes of one part of a sub-graph, from its regions alone.


class PartWork(NamedTuple):
    """Computation and traffic of one part of a sub-graph.

    Attributes:
        layers: How many it has.
        operators: How many these have.
        macs: Multiply-accumulates on the matrix engine.
        vector_ops: Plain operations on the vector engine.
        special_ops: Its slow operations.
        moved_bytes: Rearranged in the local buffers.
        weight_bytes: Read.
        input_bytes: Read from outside the sub-graph.
        output_bytes: Written for others.
        footprint_bytes: Alive at once in the local buffers of a cluster.
        largest_layer_bytes: Of the largest tensor that an operator makes.
    """

    layers: int
    operators: int
    macs: float
    vector_ops: float
    special_ops: float
    moved_bytes: int
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    footprint_bytes: int
    largest_layer_bytes: int


@remembered(1 << 16)
def middle_part_work(context: SchedulingContext, layers: tuple[int, ...], split: Split) -> PartWork:
    """Return the work and the bytes of a sub-graph's middle part; isomorphic ones share it."""
    if (first := first_alike(context, layers)) != layers:
        return middle_part_work(context, first, split)
    cut = boxes_of(context, layers, split)[split.instances // 2]
    footprint = box_cost(context, layers, cut.axes, cut.bounds).footprint
    part = workspace(context).regions  # that part's still
    g, w, ops = context.arrays, context.work, operators_of(context, layers)
    elements = _products(np.maximum(part.high - part.low, 0), g.dim_start)
    sizes = np.where(part.seen != 0, -(-elements * g.element // g.divisor), 0)
    macs, vector, special = (
        work[ops] for work in operator_work(context, np.maximum(part.box_high - part.box_low, 0))
    )
    operators = [(context.graph.operators[op], int(w.engine[op])) for op in ops.tolist()]
    output_sizes = [(int(sizes[t]), code) for operator, code in operators for t in operator.outputs]
    weights = (
        t for operator, code in operators if code != MOVE for t in operator.inputs if g.constant[t]
    )
    return PartWork(
        len(layers), len(ops), float(macs[w.engine[ops] == MATRIX].sum()), float(vector.sum()),
        float(special.sum()), sum(size for size, code in output_sizes if code == MOVE),
        int(sizes[list(weights)].sum()), int(sizes[list(external_inputs(context, layers))].sum()),
        int(sizes[list(context.layers[layers[-1]].outputs)].sum()),
        footprint, max((size for size, _ in output_sizes), default=0),
    )  # fmt: skip


def operator_work(context: SchedulingContext, lengths: Ints) -> tuple[Floats, Floats, Floats]:
    """Return multiply-accumulates, plain and slow vector operations of each operator.

    ``lengths`` are the steps of each of their axes. Multiply-accumulates of the vector engine are
    among its plain operations too.
    """
    work, start = context.work, context.arrays.axis_start
    points = _products(np.where(context.arrays.axis_computes != 0, lengths, 1), start)
    shown = _products(np.where(work.shown != 0, lengths, 1), start)
    macs = points * work.macs
    plain = shown * work.vector + points * work.per_point
    return macs, plain + np.where(work.engine == VECTOR, macs, 0), shown * work.special


def _products(lengths: Ints, start: Ints) -> Ints:
    """Return the product of ``lengths[start[i]:start[i + 1]]`` for each ``i``; 1 if empty."""
    products = np.multiply.reduceat(np.append(lengths, 1), start[:-1])
    return np.where(np.diff(start) > 0, products, 1)
