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

import numpy as np

from autoturbo.caches import BoundedCache, GrowingArray
from autoturbo.graph.arrays import (
    Ints,
    Regions,
)
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.boxes import (
    Cut,
    box_regions,
    boxes_of,
    external_inputs,
    regions_at,
)
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.split import operators_of


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts of one sub-graph by one split.

    Attributes:
        inputs: External input tensors, in order of first use.
        outputs: Output tensors.
        shapes: Per part, the index of its shape in :attr:`PartBook.shapes`.
        out_base: Row of :attr:`PartBook.regions` with the first part's first output; the outputs of
            a part are consecutive, then come the next part's.
        in_base: Row of :attr:`PartBook.regions` with the first part's first input.
        output_bytes: Bytes of the outputs per part.
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
        parts: Parts by layers and the axes that are split.
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
        book: Known parts of the sub-graphs.
        subgraphs: The split sub-graphs.
        parts: Per sub-graph, the parts that its split makes.
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
    steps, regions, seen = regions_at(context, ops, boxes, places)
    ranks = g.dim_start[touched + 1] - g.dim_start[touched]
    # Extents of -1 tell what is not touched from what is empty.
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
        layers: Layers of the sub-graph.
        box: A box of its last operator's domain.
        extents: Extents of all that the box determines; equal ones are one class.
    """
    # The extents of a large sub-graph are kilobytes, of each of its parts.
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
        parts: Parts of each sub-graph.
        chosen: Per sub-graph, which of its parts are chosen.
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
            # Rows of a part are consecutive in the book: those of one tensor are a stride apart.
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
        element: Bytes of one element.
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
    # Where starts go back, bisection finds nothing.
    return int(np.where(back, -1, changes).argmax())
