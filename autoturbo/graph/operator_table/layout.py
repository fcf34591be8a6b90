"""Rearrangements: every output element is a copy of one input element, found by its position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, merged
from autoturbo.graph.operator_table.build import (
    ONNX,
    Domain,
    NodeView,
    OperatorSpec,
    Row,
    Rows,
    agree,
    broadcast,
    everything,
    moved,
    positive_axis,
    whole_if,
)
from autoturbo.graph.operators import Engine, Pattern, Work


def _transpose(node: NodeView) -> OperatorSpec:
    source, domain = node.shape_in(0), Domain()
    order = node.integers("perm") or tuple(reversed(range(len(source))))
    agree(sorted(order) == list(range(len(source))), f"perm {order}")
    dims = domain.dims(node.shape_out())
    read = AccessMap(tuple(dims[order.index(i)] for i in range(len(source))))
    return moved(node, domain, [read], [AccessMap(dims)])


def _concat(node: NodeView) -> OperatorSpec:
    """Describe Concat: each operand is addressed from its offset, empty outside of it."""
    target, domain = node.shape_out(), Domain()
    axis = positive_axis(node.integer("axis", 1), len(target))
    dims = domain.dims(target)
    inputs, start = [], 0
    for position in range(len(node.inputs)):
        inputs.append(AccessMap((*dims[:axis], along(axis, 1, -start), *dims[axis + 1 :])))
        start += node.shape_in(position)[axis]
    agree(start == target[axis], "the operands do not add up to the output")
    return moved(node, domain, inputs, [AccessMap(dims)])


def _split(node: NodeView) -> OperatorSpec:
    """Describe Split, the mirror image of Concat."""
    source, domain = node.shape_in(0), Domain()
    axis = positive_axis(node.integer("axis", 0), len(source))
    dims = domain.dims(source)
    outputs: list[AccessMap | None] = []
    start = 0
    for position in range(len(node.outputs)):
        outputs.append(AccessMap((*dims[:axis], along(axis, 1, -start), *dims[axis + 1 :])))
        start += node.shape_out(position)[axis]
    agree(start == source[axis], "the outputs do not add up to the input")
    return moved(node, domain, [AccessMap(dims)], outputs)


def _slice(node: NodeView) -> OperatorSpec:
    """Describe Slice: row ``start + i * step``, with bounds clipped as ONNX says."""
    source, domain = node.shape_in(0), Domain()
    starts = node.parameter("starts", 1) or ()
    axes = node.parameter("axes", 3) or tuple(range(len(starts)))
    steps = node.constant_integers(4) or (1,) * len(starts)
    read = list(domain.dims(node.shape_out()))
    for start, axis, step in zip(starts, axes, steps, strict=True):
        dim = positive_axis(axis, len(source))
        first = start + source[dim] if start < 0 else start
        last = source[dim] - 1 if step < 0 else source[dim]
        read[dim] = along(dim, step, min(max(first, 0), last))
    outputs = [AccessMap(tuple(along(dim) for dim in range(len(read))))]
    return moved(node, domain, [AccessMap(tuple(read))], outputs)


def _pad(node: NodeView) -> OperatorSpec:
    """Describe Pad: row ``i - begin``; modes that copy inner values read the dimension in full."""
    source, target, domain = node.shape_in(0), node.shape_out(), Domain()
    rank = len(source)
    pads = node.parameter("pads", 1) or node.integers("paddings") or ()
    axes = node.constant_integers(3) or tuple(range(rank))
    agree(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} dimensions")
    dims = domain.dims(target)
    read = list(dims)
    copies = node.text("mode", "constant") != "constant"
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        dim = positive_axis(axis, rank)
        agree(target[dim] == source[dim] + begin + end, "the pads do not give the output")
        if begin or end:
            # Reflected and wrapped values may come from anywhere in the dimension.
            read[dim] = WHOLE_DIM if copies else along(dim, 1, -begin)
    value = everything(node.value_in(2))
    return moved(node, domain, [AccessMap(tuple(read)), None, value], [AccessMap(dims)])


def _expand(node: NodeView) -> OperatorSpec:
    target, domain = node.shape_out(), Domain()
    dims = domain.dims(target)
    read = broadcast(node.shape_in(0), target, dims)
    return moved(node, domain, [read], [AccessMap(dims)], Pattern.BROADCAST)


def _tile(node: NodeView) -> OperatorSpec:
    """Describe Tile: each dimension is ``repetition * extent + position``."""
    source, target, domain = node.shape_in(0), node.shape_out(), Domain()
    read, written = [], []
    for index, (extent, wanted) in enumerate(zip(source, target, strict=True)):
        agree(extent and wanted % extent == 0, f"{wanted} is not a multiple of {extent}")
        copies = wanted // extent
        outer = [(domain.axis(f"t{index}", copies), copies)] if copies > 1 else []
        inner = domain.axis(f"d{index}", extent)
        read.append(along(inner))
        written.append(merged(*outer, (inner, extent)))
    maps = AccessMap(tuple(read)), AccessMap(tuple(written))
    return moved(node, domain, maps[:1], maps[1:], Pattern.BROADCAST)


def _depth_to_space(node: NodeView) -> OperatorSpec:
    """Describe DepthToSpace: channel ``y x c`` (DCR) or ``c y x`` (CRD) goes to ``(y, x)``."""
    return _cells(node, node.shape_in(0), "yxc" if node.text("mode", "DCR") == "DCR" else "cyx")


def _space_to_depth(node: NodeView) -> OperatorSpec:
    return _cells(node, node.shape_out(), "yxc")


def _cells(node: NodeView, deep: tuple[int, ...], order: str) -> OperatorSpec:
    """Describe a depth/space exchange: axes ``n, c``, and per spatial dimension a cell and a place.

    Args:
        node: The node.
        deep: Shape of the side with many channels.
        order: Order of the axes that are channels there.

    Returns:
        A move of elements without work: to the side with many channels or away from it, whichever
        the node's output is.
    """
    block, domain = node.integer("blocksize", 0), Domain()
    agree(len(deep) == 4 and block > 0, "four dimensions expected")  # noqa: PLR2004
    channels = deep[1] // block**2
    agree(channels * block**2 == deep[1], f"{deep[1]} channels in cells of {block}")
    extents = {"n": deep[0], "c": channels, "h": deep[2], "y": block, "w": deep[3], "x": block}
    axes = {name: (domain.axis(name, extent), extent) for name, extent in extents.items()}
    depth, space = (
        AccessMap(tuple(merged(*(axes[name] for name in dim)) for dim in dims))
        for dims in (("n", order, "h", "w"), ("n", "c", "hy", "wx"))
    )
    inward = node.shape_out() == deep
    read, written = (space, depth) if inward else (depth, space)
    return moved(node, domain, [read], [written])


def _reverse_sequence(node: NodeView) -> OperatorSpec:
    """Describe ReverseSequence: time is reversed up to each batch element's length."""
    shape, domain = node.shape_in(0), Domain()
    batch = positive_axis(node.integer("batch_axis", 1), len(shape))
    time = positive_axis(node.integer("time_axis", 0), len(shape))
    access = AccessMap(domain.dims(shape, whole_if([time])))
    inputs = [access, AccessMap((access.dims[batch],))]
    return moved(node, domain, inputs, [access], Pattern.OPAQUE)


def _trilu(node: NodeView) -> OperatorSpec:
    """Describe Trilu: a selection by position; a known diagonal is not an input."""
    domain = Domain()
    access = AccessMap(domain.dims(node.shape_in(0)))
    diagonal = node.value_in(1)
    known = diagonal is None or diagonal.value is not None
    offset = (node.constant_integers(1) or (0,))[0] if known else "?"
    inputs = [access, None if known else everything(diagonal)]
    return domain.answer(
        node, inputs, [access], Work(vector=1.0), pattern=Pattern.BROADCAST, extra=[("k", offset)]
    )


# ---------------------------------------------------- reshapes: the same elements in the same order
#
# Both shapes are factorised into common axes, outermost first: ``[B, S, H * D] -> [B, S, H, D]``
# has axes ``B, S, H, D``, and the third input dimension is addressed by ``H`` and ``D`` in mixed
# radix. Where two dimensions have no common factor (``[6, 4] -> [4, 6]`` after the common 2), the
# rest of that block, up to where both shapes agree again, is read and written whole; what is
# outside of the block still splits.


@dataclass(slots=True)
class _Side:
    """One of the two shapes while it is consumed from the front.

    Attributes:
        shape: The extents of the shape.
        dim: The dimension being consumed.
        rest: The remaining factor of that dimension's extent.
        axes: Per dimension, the ``(axis, extent)`` factors found so far.
        whole: Dimensions that are read in full.
    """

    shape: tuple[int, ...]
    dim: int = -1
    rest: int = 1
    axes: list[list[tuple[int, int]]] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)

    def advance(self) -> bool:
        """Advance to the next dimension with a factor left; return False at the end."""
        while self.rest == 1:
            if self.dim + 1 == len(self.shape):
                return False
            self.dim += 1
            self.rest = self.shape[self.dim]
            self.axes.append([])
        return True

    def take(self, axis: int, extent: int) -> None:
        """Consume a factor of the current dimension."""
        self.axes[self.dim].append((axis, extent))
        self.rest //= extent

    def access(self) -> AccessMap:
        """Return how the factors address the shape."""
        dims = range(len(self.shape))
        return AccessMap(tuple(WHOLE_DIM if d in self.whole else self._dim(d) for d in dims))

    def _dim(self, dim: int) -> DimAccess:
        return merged(*self.axes[dim]) if dim < len(self.axes) else DimAccess()


def factorise(
    source: Sequence[int], target: Sequence[int], domain: Domain
) -> tuple[AccessMap, AccessMap]:
    """Add to ``domain`` the axes common to two shapes of equal volume.

    Returns:
        How the source and how the target is addressed.
    """
    agree(math.prod(source) == math.prod(target), f"{source} and {target} differ in volume")
    agree(all(extent > 0 for extent in (*source, *target)), "no elements")
    left, right = _Side(tuple(source)), _Side(tuple(target))
    while left.advance() and right.advance():
        # The largest factor that both have: few axes say all of it, and long ones split well.
        common = math.gcd(left.rest, right.rest)
        if common == 1:
            _whole_block(left, right, domain)
            continue
        axis = domain.axis(f"r{len(domain.axes)}", common)
        left.take(axis, common)
        right.take(axis, common)
    return left.access(), right.access()


def _whole_block(left: _Side, right: _Side, domain: Domain) -> None:
    """Consume dimensions until both sides agree again, all of them needed in full.

    A dimension that is already divided is addressed, below its outer factors, by an axis that is
    never split; on the side that is read, this axis appears nowhere else: it is a reduction.
    """
    read, written = 1, 1
    # The side that is behind goes on, until both have consumed as much.
    while read != written or read == 1:
        if read <= written:
            read *= _consume(left, domain, read=True)
        else:
            written *= _consume(right, domain, read=False)


def _consume(side: _Side, domain: Domain, *, read: bool) -> int:
    """Consume the rest of the current dimension; return its extent."""
    side.advance()
    extent = side.rest
    if read and not side.axes[side.dim]:
        side.whole.add(side.dim)
        side.rest = 1
        return extent
    add = domain.reduction if read else domain.whole
    side.take(add(f"w{len(domain.axes)}", extent), extent)
    return extent


def _reshape(pattern: Pattern) -> Row:
    """Return the row of a reshape: the output's shape suffices, other inputs are absorbed."""

    def row(node: NodeView) -> OperatorSpec:
        domain = Domain()
        read, written = factorise(node.shape_in(0), node.shape_out(), domain)
        return domain.answer(node, [read], [written], engine=Engine.NONE, pattern=pattern)

    return row


ROWS: Rows = {
    (ONNX, "Transpose"): _transpose,
    (ONNX, "Concat"): _concat,
    (ONNX, "Split"): _split,
    (ONNX, "Slice"): _slice,
    (ONNX, "Pad"): _pad,
    (ONNX, "Expand"): _expand,
    (ONNX, "Tile"): _tile,
    (ONNX, "DepthToSpace"): _depth_to_space,
    (ONNX, "SpaceToDepth"): _space_to_depth,
    (ONNX, "ReverseSequence"): _reverse_sequence,
    (ONNX, "Trilu"): _trilu,
    (ONNX, "Reshape"): _reshape(Pattern.INJECTIVE),
    (ONNX, "Flatten"): _reshape(Pattern.INJECTIVE),
    (ONNX, "Squeeze"): _reshape(Pattern.INJECTIVE),
    (ONNX, "Unsqueeze"): _reshape(Pattern.BROADCAST),  # TVM's expand_dims
}
