"""Lines: how far each layer of a kernel has to be for the first tiles of the next.

Tiles of a layer divide its products, or the rows of each. Either way the outermost dimensions of
its output, as loops run, are complete line by line. Of one layer that reads another inside a kernel
it is worked out here how many lines of that have to be complete before a first part of its own
lines may be computed: from the regions of the parts, halo included, on the core that has a full
part. Where cores need data of each other, or a line is divided over tiles in another way, nothing
is known, and the layer waits for all of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import GraphArrays, Ints, Regions, clear_seen, need, propagate_in
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.split import workspace
from autoturbo.schedule.place.bind import Binding, core_spans
from autoturbo.schedule.stitch.stages import spread_over
from autoturbo.schedule.work import COUNT, MATRIX, ROWS, Flags

PARTS: Final = 16
"""First parts of a layer for which it is known what they read: fewer than tiles may be, rounded
up."""


class TileReads(NamedTuple):
    """Lines of other layers of a kernel that tiles read.

    Attributes:
        edges: Positions of the layer that reads and of the other, ``(edges, 2)``.
        lines: Lines of each layer's output, by products and by rows, ``(layers, 2)``; 0 for none.
        needs: Per edge, by what the tiles of the reading layer divide and by what those of the
            other do: lines of the other that the first 1, 2, ... sixteenths of the reading layer
            need; -1 where that is not known, ``(edges, 2, 2, PARTS)``.
    """

    edges: Ints
    lines: Ints
    needs: Ints

    def without(self, spilled: Flags) -> TileReads:
        """Return the reads with all of a tensor read by layers whose input has left LB.

        Args:
            spilled: Per layer, whether it does, ``(layers,)``.
        """
        if not spilled.any():
            return self
        late = spilled[self.edges[:, 0], None, None, None]
        return self._replace(needs=np.where(late, -1, self.needs))


NOTHING_KNOWN: Final = TileReads(
    np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64), np.zeros((0, 2, 2, PARTS), np.int64)
)
"""Of a kernel whose layers wait for all of each other."""


class _Space(NamedTuple):
    """Dimensions that the tiles of a layer divide.

    Attributes:
        dims: The two outermost dimensions of its output that they divide, -1 for none.
        extents: Extents of these dimensions on a core.
        low: First element of a core along these.
    """

    dims: tuple[int, int]
    extents: tuple[int, int]
    low: tuple[int, int]

    @property
    def lines(self) -> int:
        """Return the number of lines, 0 where tiles divide no dimension."""
        return self.extents[0] * self.extents[1] if self.dims[0] >= 0 else 0


_NO_SPACE: Final = _Space((-1, -1), (1, 1), (0, 0))


def tile_reads(
    context: SchedulingContext,
    layers: tuple[int, ...],
    edges: Sequence[tuple[int, ...]],
    shape: Regions,
    bindings: Sequence[Binding],
    exchanged: Sequence[Sequence[int]],
) -> TileReads:
    """Return how far each layer of a part's kernel has to be for tiles of the layers that read it.

    Args:
        context: The model on the target.
        layers: Layers of the part.
        edges: Per layer, positions of the layers that it reads, as :func:`.stitch.local_edges`.
        shape: Regions of the part.
        bindings: Per layer, the binding of its output.
        exchanged: Per layer and input, bytes that a core gets from others.
    """
    spaces = line_spaces(context, layers, shape, bindings)
    lines = np.asarray([[space.lines for space in pair] for pair in spaces], np.int64)
    needs = np.full((sum(map(len, edges)), 2, 2, PARTS), -1, np.int64)
    position, first = {layer: p for p, layer in enumerate(layers)}, 0
    for at, index in enumerate(layers):
        layer = context.layers[index]
        inner = [
            (tensor, position[context.producer[tensor]], size)
            for tensor, size in zip(layer.inputs, exchanged[at], strict=True)
            if context.producer[tensor] in position
        ]
        known = [edge for edge, (_, _, size) in enumerate(inner) if not size]
        if known:
            read = [(inner[edge][0], spaces[inner[edge][1]]) for edge in known]
            found = _needs(context, index, shape, bindings[at], spaces[at], read)
            needs[[first + edge for edge in known]] = found
        first += len(inner)
    pairs = [(reader, maker) for reader, own in enumerate(edges) for maker in own]
    return TileReads(np.asarray(pairs, np.int64).reshape(-1, 2), lines, needs)


def line_spaces(
    context: SchedulingContext,
    layers: tuple[int, ...],
    shape: Regions,
    bindings: Sequence[Binding],
) -> list[tuple[_Space, _Space]]:
    """Return per layer of a part what its tiles divide: by products, and by rows of each.

    A layer without a matrix product has tiles of the outermost dimensions, whichever they are.

    Args:
        context: The model on the target.
        layers: Layers of the part.
        shape: Regions of the part.
        bindings: Per layer, the binding of its output.
    """
    return [
        _spaces(context, layer, shape, binding)
        for layer, binding in zip(layers, bindings, strict=True)
    ]


def _spaces(
    context: SchedulingContext, index: int, shape: Regions, binding: Binding
) -> tuple[_Space, _Space]:
    layer, work = context.layers[index], context.work
    ops, tensor = np.asarray(layer.operators, np.int64), layer.outputs[0]
    one = len(layer.outputs) == 1 and shape.seen[tensor]
    if not one or work.recurrent[ops].any() or (work.sharing[ops] > 1).any():
        return _NO_SPACE, _NO_SPACE
    own = _own_region(context, tensor, shape, binding)
    if own is None:
        return _NO_SPACE, _NO_SPACE
    matrix = work.engine[layer.anchor] == MATRIX
    kinds = np.zeros(len(binding), np.int64)
    if matrix:
        kinds = _dimension_roles(
            context.arrays, ops, layer.anchor, work.role, tensor, own, workspace(context).regions
        )
    start = context.arrays.dim_start[tensor]
    whole = shape.high[start : start + len(binding)] - shape.low[start : start + len(binding)]

    def of(role: int) -> _Space:
        dims = [
            d for d in context.loop_order[tensor]
            if own[1, d] - own[0, d] > 1 and (not matrix or kinds[d] == role)
        ][:2]  # fmt: skip
        # Only if all cores have as many lines do those of one core speak for all.
        if not dims or any(whole[d] % binding[d] for d in dims):
            return _NO_SPACE
        pairs = [(d, int(own[1, d] - own[0, d]), int(own[0, d])) for d in dims]
        a, b = (*pairs, (-1, 1, 0))[:2]
        return _Space((a[0], b[0]), (a[1], b[1]), (a[2], b[2]))

    return of(COUNT), of(ROWS)


def _own_region(
    context: SchedulingContext, tensor: int, shape: Regions, binding: Binding
) -> Ints | None:
    """Return a tensor's region on a core with a full part, ``(2, rank)``; None if empty."""
    start, rank = context.arrays.dim_start[tensor], len(binding)
    low, high = shape.low[start : start + rank], shape.high[start : start + rank]
    core, _ = spread_over((high - low).tolist(), binding)
    region, factors = np.stack((low, high), axis=1)[None], np.asarray([binding], np.int64)
    begin, end, there = core_spans(region, factors, np.asarray([core]))
    return np.concatenate((begin, end)) if there[0] and (end > begin).all() else None


@compiled
def _dimension_roles(
    g: GraphArrays, ops: Ints, anchor: int, role: Ints, tensor: int, own: Ints, regions: Regions
) -> Ints:
    """Return per dimension of a layer's output the role of the product's axes that it divides.

    0 where it divides axes of several roles.

    Args:
        g: The graph.
        ops: Operators of the layer.
        anchor: The product.
        role: Roles of all axes.
        tensor: The output.
        own: Region of the output on a core.
        regions: Any contents.
    """
    rank = own.shape[1]
    found, part = np.zeros(rank, np.int64), own.copy()
    first, end = g.axis_start[anchor], g.axis_start[anchor + 1]
    _propagate(g, ops, tensor, own, regions)
    whole = regions.box_high[first:end] - regions.box_low[first:end]
    for dim in range(rank):
        part[:] = own
        # A single line: the axes that get shorter with it are those that the dimension divides.
        part[1, dim] = part[0, dim] + 1
        _propagate(g, ops, tensor, part, regions)
        for axis in range(first, end):
            if regions.box_high[axis] - regions.box_low[axis] < whole[axis - first]:
                found[dim] = role[axis] if found[dim] in (0, role[axis]) else -1
    return np.maximum(found, 0)


@borrowing
def _propagate(g: GraphArrays, ops: Ints, tensor: int, part: Ints, regions: Regions) -> None:
    """Compute what a layer needs for a part of its output."""
    clear_seen(g, ops, regions.seen)
    need(g, tensor, part[0], part[1], regions)
    propagate_in(g, ops, regions)


def _needs(
    context: SchedulingContext,
    index: int,
    shape: Regions,
    binding: Binding,
    spaces: tuple[_Space, _Space],
    read: Sequence[tuple[int, tuple[_Space, _Space]]],
) -> Ints:
    """Return lines of tensors that first parts of a layer need, ``(tensors, 2, 2, PARTS)``.

    Args:
        context: The model on the target.
        index: The layer.
        shape: Regions of the part.
        binding: Binding of the layer's output.
        spaces: Dimensions that its tiles divide.
        read: The tensors, and what the tiles of their makers divide.
    """
    layer, found = context.layers[index], np.full((len(read), 2, 2, PARTS), -1, np.int64)
    tensor = layer.outputs[0]
    own = _own_region(context, tensor, shape, binding) if spaces != (_NO_SPACE,) * 2 else None
    if own is None:
        return found
    tensors = np.asarray([t for t, _ in read], np.int64)
    makers = np.asarray([[(s.dims, s.extents, s.low) for s in pair] for _, pair in read], np.int64)
    ops = np.asarray(layer.operators, np.int64)
    for here, one in enumerate(spaces):
        if here and one == spaces[0]:
            # Tiles of products and of rows divide the same dimensions.
            found[:, 1] = found[:, 0]
        elif one.lines:
            dims, extents = np.asarray(one.dims, np.int64), np.asarray(one.extents, np.int64)
            found[:, here] = _lines_needed(
                context.arrays, ops, tensor, own, dims, extents, tensors, makers,
                workspace(context).regions,
            )  # fmt: skip
    return found


@compiled
def _lines_needed(  # noqa: PLR0913  compiled: arrays by position
    g: GraphArrays,
    ops: Ints,
    tensor: int,
    own: Ints,
    dims: Ints,
    extents: Ints,
    tensors: Ints,
    makers: Ints,
    regions: Regions,
) -> Ints:
    """Return lines of tensors that first parts of a layer need, ``(tensors, 2, PARTS)``.

    Args:
        g: The graph.
        ops: Operators of the layer.
        tensor: Output of the layer.
        own: The output's region on a core.
        dims: Dimensions that its tiles divide, the second -1 for none.
        extents: Extents of these dimensions.
        tensors: Tensors whose lines are asked for.
        makers: By tensor and by what tiles divide: dimensions, extents and first elements.
        regions: Any contents.
    """
    found = np.full((len(tensors), 2, PARTS), -1, np.int64)
    part, total = own.copy(), extents[0] * extents[1]
    for index in range(PARTS):
        lines = -(-(index + 1) * total // PARTS)
        outer, inner = (lines - 1) // extents[1], (lines - 1) % extents[1]
        for rest in range(2 if outer else 1):  # the last line of the outer dimension, those before
            part[:] = own
            low = own[0, dims[0]]
            part[0, dims[0]], part[1, dims[0]] = low + outer, low + outer + 1
            if rest:
                part[0, dims[0]], part[1, dims[0]] = low, low + outer
            elif dims[1] >= 0:
                part[1, dims[1]] = own[0, dims[1]] + inner + 1
            _propagate(g, ops, tensor, part, regions)
            for at in range(len(tensors)):
                first = g.dim_start[tensors[at]]
                for there in range(2):
                    wanted = makers[at, there]
                    if wanted[0, 0] < 0 or not regions.seen[tensors[at]]:
                        continue
                    a = regions.high[first + wanted[0, 0]] - wanted[2, 0]
                    b = 1
                    if wanted[0, 1] >= 0:
                        b = regions.high[first + wanted[0, 1]] - wanted[2, 1]
                    line = (min(a, wanted[1, 0]) - 1) * wanted[1, 1] + min(b, wanted[1, 1])
                    found[at, there, index] = max(found[at, there, index], line, 0)
    return found
