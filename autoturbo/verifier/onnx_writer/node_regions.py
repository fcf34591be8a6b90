"""Regions on which a node runs for a part, and the changes of its attributes and inputs.

Windows that slide run with their halo; what they overhang at the edges of the tensor becomes
explicit padding. Of other nodes only extents change: an axis that every tensor is addressed by
position for position may be cut. One that addresses a tensor in another way, or that the node takes
from a parameter, is computed in full: what is not needed of an input stands as zeros, and what is
not wanted of an output is cut away. With no axis that may be cut, this embeds the part in the
whole, which is right for every operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoturbo.graph.domain import AccessMap, DimAccess, Interval, Region, volume
from autoturbo.graph.operator_table import elementwise, matrix, reduction, sequence
from autoturbo.verifier.onnx_writer.partial_operator import (
    Box,
    NodeRegions,
    PartialOperator,
    extents,
    whole,
)

_FIRST = 2
"""Samples and channels come before the dimensions that windows slide over."""


def _unclipped(dim: DimAccess, box: Box) -> Interval:
    low = high = dim.offset
    for axis, coefficient in dim.terms:
        low += box[axis][0] * coefficient
        high += (box[axis][1] - 1) * coefficient
    return low, high + 1


def _overhang(partial: PartialOperator) -> tuple[list[int], list[int]]:
    """Return the window positions before and after the tensor, per dimension slid over."""
    dims, needs = partial.operator.input_maps[0].dims[_FIRST:], partial.needs[0][_FIRST:]
    pairs = list(zip((_unclipped(dim, partial.box) for dim in dims), needs, strict=True))
    before = [max(need[0] - touched[0], 0) for touched, need in pairs]
    return before, [max(touched[1] - need[1], 0) for touched, need in pairs]


def _explicit(partial: PartialOperator, pads: Sequence[int], *replaced: str) -> dict[str, object]:
    """Return the padding attributes of a part, and remove others that determine padding."""
    return {"pads": list(pads), **{k: None for k in replaced if k in partial.attributes}}


# ----------------------------------------------------------------------------------- convolutions


def _convolution(partial: PartialOperator) -> NodeRegions | None:
    """Plan a convolution: its groups, halo and padding."""
    groups, (before, after) = _groups(partial), _overhang(partial)
    if groups is None:
        return None
    changes = _explicit(partial, [*before, *after], "auto_pad", "ceil_mode")
    if groups != 1 or "group" in partial.attributes:
        changes["group"] = groups
    return NodeRegions(partial.needs, partial.makes(partial.box), changes)


def _groups(partial: PartialOperator) -> int | None:
    """Return the number of whole groups in the box, 1 for part of a single one; else None."""
    low, high = partial.span(partial.box, "g")
    whole = partial.span(partial.box, "oc") == partial.span(partial.full, "oc")
    return high - low if whole or high - low == 1 else None


def _deformed(partial: PartialOperator) -> NodeRegions | None:
    """Plan a deformable convolution: only samples and output channels are split."""
    free = ("n",) if partial.axis("g") is not None else ("n", "oc")
    names = [axis.name for axis in partial.operator.axes]
    pairs = zip(names, partial.box, partial.full, strict=True)
    box = tuple(part if name in free else whole for name, part, whole in pairs)
    return NodeRegions(partial.reads(box), partial.makes(box))


def _transposed(partial: PartialOperator) -> NodeRegions | None:
    """Plan a transposed convolution: zeros beside its input reach as far as the wanted output.

    Returns:
        The plan; None where the box has parts of several groups, or nothing is wanted. The node
        makes the wanted positions alone: others that it reaches are cropped as padding.
    """
    groups, wanted = _groups(partial), partial.wanted[0]
    if groups is None or wanted is None:
        return None
    target = partial.operator.output_maps[0].dims
    rows = range(_FIRST, len(target))
    kernel = partial.input_shapes[1]
    reach = [_reach(target[d], kernel[d], partial.needs[0][d], wanted[d]) for d in rows]
    frame = (*partial.needs[0][:_FIRST], *(grown for grown, _ in reach))
    pads = [*(before for _, (before, _) in reach), *(after for _, (_, after) in reach)]
    output_region = (*partial.makes(partial.box)[0][:_FIRST], *wanted[_FIRST:])
    changes = _explicit(partial, pads, "auto_pad", "output_shape", "output_padding")
    if "group" in partial.attributes:
        changes["group"] = groups
    return NodeRegions((frame, *partial.needs[1:]), (output_region,), changes)


def _reach(
    dim: DimAccess, kernel: int, need: Interval, wanted: Interval
) -> tuple[Interval, Interval]:
    """Return the input rows whose windows cover the wanted rows, and their reach beyond these.

    Args:
        dim: Access of the output's rows.
        kernel: Rows of the kernel.
        need: Input rows to begin with.
        wanted: Output rows.
    """
    (_, stride), (_, dilation), *_ = dim.terms  # a third reaches gaps
    span = (kernel - 1) * dilation + 1
    low, high = need
    while low * stride + dim.offset > wanted[0]:
        low -= 1
    while (high - 1) * stride + dim.offset + span < wanted[1]:
        high += 1
    first, last = low * stride + dim.offset, (high - 1) * stride + dim.offset + span
    return (low, high), (wanted[0] - first, last - wanted[1])


# ------------------------------------------------------------------------------------------ pools


def _pool(partial: PartialOperator) -> NodeRegions | None:
    """Plan a pool: halo and padding; return None if positions of maxima are wanted."""
    before, after = _overhang(partial)
    sides = zip(before, after, partial.attributes["kernel_shape"], strict=True)
    if any(max(first, last) >= size for first, last, size in sides):
        return None
    if _wants_positions(partial) or _miscounts(partial, after):
        return None
    changes = _explicit(partial, [*before, *after], "auto_pad", "ceil_mode")
    return NodeRegions(partial.needs, partial.makes(partial.box), changes)


def _wants_positions(partial: PartialOperator) -> bool:
    """Return whether a part of a pool's second output is wanted."""
    positions = {value.tensor for value in partial.node.outputs[1:] if value is not None}
    pairs = zip(partial.operator.outputs, partial.wanted, strict=True)
    return any(tensor in positions and wanted is not None for tensor, wanted in pairs)


def _miscounts(partial: PartialOperator, after: Sequence[int]) -> bool:
    """Return whether windows reach beyond the padding that a mean counts."""
    if not partial.attributes.get("count_include_pad", 0):
        return False
    rank = len(after)
    pads = partial.attributes.get("pads") or [0] * (2 * rank)
    automatic = partial.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"")
    return not automatic and any(a > p for a, p in zip(after, pads[rank:], strict=True))


def _neighbours(partial: PartialOperator) -> NodeRegions | None:
    """Plan a normalisation over neighbouring channels with their halo, which is cropped."""
    return NodeRegions(partial.needs, (partial.needs[0],))


# --------------------------------------------------------------------------------------- resizing


def _resized(partial: PartialOperator) -> NodeRegions | None:
    """Plan an enlargement by whole factors with its halo, which is cropped."""
    access = partial.operator.input_maps[0].dims
    written = partial.operator.output_maps[0].dims
    rows = list(zip(access, written, partial.needs[0], partial.input_shapes[0], strict=True))
    output_region: list[Interval] = []
    source: list[Interval] = []
    for index, (read, write, need, extent) in enumerate(rows):
        if read.whole:
            output_region.append((0, partial.output_shapes[0][index]))
            source.append((0, extent))
            continue
        factor = dict(write.terms)[read.terms[0][0]]
        output_region.append((need[0] * factor, need[1] * factor))
        source.append(need)
    inputs = (tuple(source), *partial.needs[1:])
    return NodeRegions(inputs, (tuple(output_region),), parameters=_sizes(partial, output_region))


def _sizes(
    partial: PartialOperator, made: Sequence[Interval]
) -> Mapping[int, np.ndarray | str | None]:
    """Return the sizes of a part as a parameter, if the node has sizes."""
    inputs = partial.node.inputs
    if len(inputs) <= _SIZES or inputs[_SIZES] is None:
        return {}
    axes = partial.attributes.get("axes") or range(len(made))
    return {_SIZES: _integers([made[axis][1] - made[axis][0] for axis in axes])}


_SIZES = 3
"""The input of Resize that says extents."""

# ------------------------------------------------------------------------------------ the kinds

Plan = Callable[[PartialOperator], NodeRegions | None]
"""Returns the regions of a part, or None where it has to be embedded in the whole."""

PLANS: Mapping[str, Plan] = {
    "AveragePool": _pool,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed,
    "DeformConv": _deformed,
    "LRN": _neighbours,
    "LpPool": _pool,
    "MaxPool": _pool,
    "QLinearConv": _convolution,
    "Resize": _resized,
    "Upsample": _resized,
    "com.microsoft.FusedConv": _convolution,
}
"""By kind."""


def plan_window(partial: PartialOperator) -> NodeRegions | None:
    """Return the regions of a sliding window; None for other operators and cases.

    They are also None if windows lie in the padding alone.
    """
    plan = PLANS.get(partial.operator.kind)
    return None if plan is None or volume(partial.needs[0]) == 0 else plan(partial)


_TABLE = 2
"""Rank of a table of angles by position, and of positions by sample and row."""

AxesOf = Callable[[PartialOperator], set[int]]
"""Axes of a kind that are to be computed in full."""

NodeChange = Callable[[PartialOperator, Box, NodeRegions], NodeRegions | None]
"""Function that changes a node for a part of its domain; None if it cannot run on that part."""


# --------------------------------------------------------------------------------- placed by index


def _scattered(partial: PartialOperator) -> set[int]:
    """Return the dimension that the indices of a scatter address."""
    return {int(partial.attributes.get("axis", 0)) % len(partial.input_shapes[0])}


def _scattered_slices(partial: PartialOperator) -> set[int]:
    """Return the first dimensions, which index tuples address."""
    return set(range(partial.input_shapes[1][-1]))


def _cells(partial: PartialOperator) -> set[int]:
    """Return the axes inside a cell, which is moved as one."""
    places = (partial.axis("y"), partial.axis("x"))
    return {axis for axis in places if axis is not None}


def _triangle(partial: PartialOperator) -> set[int]:
    """Return the last two axes if the diagonal is unknown and cannot be moved."""
    rank = len(partial.input_shapes[0])
    return {rank - 2, rank - 1} if partial.input_at(1) is not None else set()


def _moved_diagonal(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions:
    """Shift the diagonal to the first row and column of a part."""
    given = partial.node.inputs[1] if len(partial.node.inputs) > 1 else None
    known = 0 if given is None or given.data is None else int(given.data.item())
    diagonal = known + box[-2][0] - box[-1][0]
    return replace(plan, parameters={1: _integers(diagonal)})


# ------------------------------------------------------------------------------------ new extents


def _expanded(_partial: PartialOperator, _box: Box, plan: NodeRegions) -> NodeRegions:
    return replace(plan, parameters={1: _integers(extents(plan.outputs[0]))})


def _repeated(_partial: PartialOperator, _box: Box, plan: NodeRegions) -> NodeRegions:
    sides = zip(extents(plan.inputs[0]), extents(plan.outputs[0]), strict=True)
    counts = [after // max(before, 1) for before, after in sides]
    return replace(plan, parameters={1: _integers(counts)})


def _integers(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# --------------------------------------------------------------------------------- counts of parts


def _grouped(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions:
    low, high = partial.span(box, "g")
    return replace(plan, attributes={"num_groups": high - low})


def _directions(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions | None:
    """Keep one of two directions of a recurrent layer, and its activations."""
    part = partial.span(box, "d")
    if part == partial.span(partial.full, "d"):
        return plan
    if any(name in partial.attributes for name in ("activation_alpha", "activation_beta")):
        return None
    changes: dict[str, object] = {"direction": "reverse" if part[0] else "forward"}
    functions = partial.attributes.get("activations")
    if functions:
        half = len(functions) // 2
        changes["activations"] = functions[half * part[0] : half * part[1]]
    return replace(plan, attributes=changes)


def _packed(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions:
    """Keep columns of a weight packed in blocks; scales and zero points may be flattened."""
    columns, outer = partial.span(box, "n"), partial.span(partial.full, "n")[1]
    inputs = list(plan.inputs)
    for position in (1, 2, 3, 5):
        index = partial.input_at(position)
        if index is not None and inputs[index]:
            each = partial.input_shapes[index][0] // outer
            inputs[index] = ((columns[0] * each, columns[1] * each), *inputs[index][1:])
    return replace(plan, inputs=tuple(inputs), attributes={"N": columns[1] - columns[0]})


# -------------------------------------------------------------------------------------- attention


def _heads(partial: PartialOperator, box: Box) -> tuple[Interval, Interval]:
    """Return the key heads and the query heads."""
    keys, groups = partial.span(box, "h"), partial.span(box, "g")
    count = partial.span(partial.full, "g")[1]
    return keys, (keys[0] * count + groups[0], (keys[1] - 1) * count + groups[1])


def _rows(partial: PartialOperator) -> set[int]:
    """Return the axis of score rows, if causality depends on their positions; else no axis."""
    causal = partial.attributes.get("is_causal") and partial.input_at(3) is not None
    rows = partial.axis("s")
    wanted = causal or partial.attributes.get("unidirectional")
    return {rows} if wanted and rows is not None else set()


def _attention(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions:
    """Adapt ONNX's Attention: count heads, slice a mask, expand a causal one."""
    keys, queries = _heads(partial, box)
    changes: dict[str, object] = {}
    if "q_num_heads" in partial.attributes:
        changes = {"q_num_heads": queries[1] - queries[0], "kv_num_heads": keys[1] - keys[0]}
    rows, length = partial.span(box, "s"), partial.span(box, "l")[1]
    scores = (partial.span(box, "b"), queries, rows, (0, length))
    mask = partial.input_at(3)
    if mask is not None:
        plan = _with_input(plan, mask, _aligned(partial.input_shapes[mask], scores))
    if not partial.attributes.get("is_causal", 0) or rows[0] == 0:
        return replace(plan, attributes=changes)
    seen = np.arange(*rows)[:, None] >= np.arange(length)
    return replace(plan, attributes={**changes, "is_causal": None}, parameters={3: seen})


def _with_input(plan: NodeRegions, index: int, region: Region) -> NodeRegions:
    inputs = plan.inputs
    return replace(plan, inputs=(*inputs[:index], region, *inputs[index + 1 :]))


def _aligned(shape: tuple[int, ...], region: Region) -> Region:
    """Return the part of an operand that is broadcast to a region."""
    pairs = zip(shape, region[len(region) - len(shape) :], strict=True)
    return tuple((0, 1) if extent == 1 else part for extent, part in pairs)


def _multi_head(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions | None:
    """Adapt com.microsoft.MultiHeadAttention: count heads, slice masks and biases."""
    heads, padding, bias = partial.span(box, "h"), partial.input_at(4), partial.input_at(3)
    if padding is not None:
        region = _kept(partial, box, partial.input_shapes[padding])
        if region is None:
            return None
        plan = _with_input(plan, padding, region)
    if bias is not None and heads != partial.span(partial.full, "h"):
        plan = replace(plan, parameters={3: _of_heads(partial, bias, heads)})
    return replace(plan, attributes={"num_heads": heads[1] - heads[0]})


def _kept(partial: PartialOperator, box: Box, shape: tuple[int, ...]) -> Region | None:
    """Return the part of a key mask; None for a mask of another form."""
    for names in ("b", "bl", "bsl"):
        if shape == tuple(partial.span(partial.full, name)[1] for name in names):
            return tuple(partial.span(box, name) for name in names)
    return None


def _of_heads(partial: PartialOperator, bias: int, heads: Interval) -> str:
    """Return the name of the bias of some heads: of queries, keys and values."""
    name, _ = partial.fit(bias, partial.needs[bias])
    elements, count = partial.input_shapes[bias][0] // 3, partial.span(partial.full, "h")[1]
    part = [elements // count * head for head in heads]
    starts = range(0, 3 * elements, elements)
    regions: list[Region] = [((start + part[0], start + part[1]),) for start in starts]
    cuts = [partial.builder.slice(name, ((0, 3 * elements),), region) for region in regions]
    return partial.builder.concat(*cuts, axis=0)


def _rotary(partial: PartialOperator, box: Box, plan: NodeRegions) -> NodeRegions | None:
    """Adapt a rotary embedding: positions and angles of the part's samples and rows.

    In com.microsoft, positions come before the tables of angles, and may be that of the first row.

    Returns:
        The plan with the part's positions and angles.
    """
    place, microsoft = len(box) - 2, bool(partial.node.proto.domain)
    positions = 1 if microsoft else 3
    for index, position in enumerate(partial.node.positions[1:], 1):
        shared = 1 if position == positions else _TABLE
        if len(partial.input_shapes[index]) > shared:  # it has an entry per sample and row
            rows = (box[0], box[place], *plan.inputs[index][2:])
            plan = _with_input(plan, index, rows)
    if place > 1 and partial.attributes.get("num_heads"):
        plan = replace(plan, attributes={"num_heads": box[1][1] - box[1][0]})
    first, later = partial.input_at(1), box[place][0]
    if not microsoft or first is None or len(partial.input_shapes[first]) >= _TABLE or later == 0:
        return plan
    name, _ = partial.fit(first, partial.needs[first])
    moved = partial.builder.op("Add", name, partial.builder.constant(_integers(later)))
    return replace(plan, parameters={1: moved})


UNCUT_AXES: Mapping[str, AxesOf] = {
    "Attention": _rows,
    "DepthToSpace": _cells,
    "Scatter": _scattered,
    "ScatterElements": _scattered,
    "ScatterND": _scattered_slices,
    "SpaceToDepth": _cells,
    "Trilu": _triangle,
    "com.microsoft.MultiHeadAttention": _rows,
}
"""By kind: axes to be computed in full beside those that the access maps tell."""

NODE_CHANGES: Mapping[str, NodeChange] = {
    "Attention": _attention,
    "Expand": _expanded,
    "GRU": _directions,
    "GroupNormalization": _grouped,
    "LSTM": _directions,
    "RNN": _directions,
    "RotaryEmbedding": _rotary,
    "Tile": _repeated,
    "Trilu": _moved_diagonal,
    "com.microsoft.MatMulNBits": _packed,
    "com.microsoft.MultiHeadAttention": _multi_head,
    "com.microsoft.RotaryEmbedding": _rotary,
}
"""By kind: further changes for a part."""


_FAMILIES = (elementwise, matrix, reduction, sequence)

_OTHERS = (
    "DepthToSpace", "Gather", "GatherElements", "GatherND", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GridSample", "OneHot", "Pad", "ReverseSequence", "RoiAlign", "Scatter",
    "ScatterElements", "ScatterND", "SpaceToDepth", "Tile", "Transpose", "Trilu", "Expand",
)  # fmt: skip

PARALLEL_KINDS = frozenset(_OTHERS).union(
    f"{domain}.{op}" if domain else op for family in _FAMILIES for domain, op in family.ROWS
)
"""Kinds that compute the same on parts as on the whole wherever axes run position for position."""


def plan_parallel(partial: PartialOperator) -> NodeRegions:
    """Return the regions on which the node runs; in the worst case the whole tensors."""
    straight = partial.operator.kind in PARALLEL_KINDS and all(map(_straight, partial.maps))
    plan = _within(partial, _uncut_axes(partial)) if straight else None
    inputs, outputs = partial.input_shapes, partial.output_shapes
    return plan or NodeRegions(tuple(map(whole, inputs)), tuple(map(whole, outputs)))


def _within(partial: PartialOperator, uncut: set[int]) -> NodeRegions | None:
    """Return regions with some axes whole; None if the node cannot run on them."""
    box = settled(partial, uncut)
    plan = NodeRegions(partial.reads(box), partial.makes(box))
    shapes = (*partial.input_shapes, *partial.output_shapes)
    sides = zip((*plan.inputs, *plan.outputs), shapes, strict=True)
    if any(volume(region) == 0 < math.prod(shape) for region, shape in sides):
        return None
    change = NODE_CHANGES.get(partial.operator.kind)
    if change is None or box == partial.full:
        return plan
    return change(partial, box, plan)


def settled(partial: PartialOperator, uncut: set[int]) -> Box:
    """Return the box with some axes whole, and those of dimensions that would have gaps."""
    dims = [dim for access in partial.maps for dim in access.dims if len(dim.terms) > 1]
    while True:
        pairs = enumerate(zip(partial.box, partial.full, strict=True))
        box = tuple(full if axis in uncut else part for axis, (part, full) in pairs)
        gaps = {axis for dim in dims if not _dense(dim, box) for axis, _ in dim.terms}
        if gaps <= uncut:
            return box
        uncut = uncut | gaps


def _dense(dim: DimAccess, box: Box) -> bool:
    """Return whether a box addresses one interval of positions, each once."""
    span, points = 1, 1
    for axis, coefficient in dim.terms:
        count = box[axis][1] - box[axis][0]
        span += (count - 1) * abs(coefficient)
        points *= count
    return span == points


def _uncut_axes(partial: PartialOperator) -> set[int]:
    """Return the axes that must be computed in full."""
    operator = partial.operator
    read = {axis for index in range(len(operator.inputs)) for axis in operator.input_axes(index)}
    uncut = set() if operator.kind in _SIZED else operator.output_axes - read
    more = UNCUT_AXES.get(operator.kind)
    return uncut | more(partial) if more else uncut


_SIZED = frozenset(("Expand", "Tile"))
"""Kinds whose outputs are as large as a parameter says, which is changed."""


def _straight(access: AccessMap) -> bool:
    """Return whether no dimension is addressed with an offset or a step."""
    return not any(
        dim.offset or (len(dim.terms) == 1 and dim.terms[0][1] != 1) for dim in access.dims
    )
