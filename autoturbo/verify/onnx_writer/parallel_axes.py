"""The same node on parts of its tensors: only extents change.

An axis that every tensor is addressed by position for position may be cut. One that addresses a
tensor in another way, or that the node takes from a parameter, is computed in full: what is not
needed of an input stands as zeros, and what is not wanted of an output is cut away. With no axis
that may be cut, this embeds the part in the whole, which is right for every operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from autoturbo.graph.domain import AccessMap, DimAccess, Interval, Region, volume
from autoturbo.graph.table import elementwise, matrix, reduction, sequence
from autoturbo.verify.onnx_writer.partial_operator import (
    Box,
    NodeRegions,
    PartialOperator,
    extents,
    whole,
)

_TABLE = 2
"""Rank of a table of angles by position."""

AxesOf = Callable[[PartialOperator], set[int]]
"""Axes of a kind that are to be computed in full."""

NodeChange = Callable[[PartialOperator, Box, NodeRegions], NodeRegions | None]
"""What of a node changes on a part of its domain; None where it cannot run on that part."""


# --------------------------------------------------------------------------------- placed by index


def _scattered(partial: PartialOperator) -> set[int]:
    """Return the dimension along which the indices of a scatter count."""
    return {int(partial.attributes.get("axis", 0)) % len(partial.input_shapes[0])}


def _scattered_slices(partial: PartialOperator) -> set[int]:
    """Return the first dimensions, along which index tuples count."""
    return set(range(partial.input_shapes[1][-1]))


def _cells(partial: PartialOperator) -> set[int]:
    """Return the axes inside a cell, which is moved as one."""
    places = (partial.axis("y"), partial.axis("x"))
    return {axis for axis in places if axis is not None}


def _triangle(partial: PartialOperator) -> set[int]:
    """Return the last two axes where the diagonal is not known and cannot be moved."""
    rank = len(partial.input_shapes[0])
    return {rank - 2, rank - 1} if partial.input_at(1) is not None else set()


def _moved_diagonal(partial: PartialOperator, box: Box, node_regions: NodeRegions) -> NodeRegions:
    """Count the diagonal from the first row and column of a part."""
    given = partial.node.inputs[1] if len(partial.node.inputs) > 1 else None
    known = 0 if given is None or given.data is None else int(given.data.item())
    diagonal = known + box[-2][0] - box[-1][0]
    return replace(node_regions, parameters={1: np.array(diagonal, dtype=np.int64)})


# ------------------------------------------------------------------------------------ new extents


def _expanded(_task: PartialOperator, _box: Box, node_regions: NodeRegions) -> NodeRegions:
    return replace(node_regions, parameters={1: _integers(extents(node_regions.outputs[0]))})


def _repeated(_task: PartialOperator, _box: Box, node_regions: NodeRegions) -> NodeRegions:
    sides = zip(extents(node_regions.inputs[0]), extents(node_regions.outputs[0]), strict=True)
    return replace(
        node_regions, parameters={1: _integers([after // max(n, 1) for n, after in sides])}
    )


def _integers(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# --------------------------------------------------------------------------------- counts of parts


def _grouped(partial: PartialOperator, box: Box, node_regions: NodeRegions) -> NodeRegions:
    low, high = partial.span(box, "g")
    return replace(node_regions, attributes={"num_groups": high - low})


def _directions(
    partial: PartialOperator, box: Box, node_regions: NodeRegions
) -> NodeRegions | None:
    """Keep one of two directions of a recurrent layer, and its activations."""
    part = partial.span(box, "d")
    if part == partial.span(partial.full, "d"):
        return node_regions
    if any(name in partial.attributes for name in ("activation_alpha", "activation_beta")):
        return None
    changes: dict[str, object] = {"direction": "reverse" if part[0] else "forward"}
    functions = partial.attributes.get("activations")
    if functions:
        half = len(functions) // 2
        changes["activations"] = functions[half * part[0] : half * part[1]]
    return replace(node_regions, attributes=changes)


def _packed(partial: PartialOperator, box: Box, node_regions: NodeRegions) -> NodeRegions:
    """Keep columns of a weight packed in blocks; scales and zero points may be flattened."""
    columns, outer = partial.span(box, "n"), partial.span(partial.full, "n")[1]
    inputs = list(node_regions.inputs)
    for position in (1, 2, 3, 5):
        index = partial.input_at(position)
        if index is not None and inputs[index]:
            each = partial.input_shapes[index][0] // outer
            inputs[index] = ((columns[0] * each, columns[1] * each), *inputs[index][1:])
    return replace(node_regions, inputs=tuple(inputs), attributes={"N": columns[1] - columns[0]})


# -------------------------------------------------------------------------------------- attention


def _heads(partial: PartialOperator, box: Box) -> tuple[Interval, Interval]:
    """Return the heads of keys, and the heads of queries."""
    keys, groups = partial.span(box, "h"), partial.span(box, "g")
    count = partial.span(partial.full, "g")[1]
    return keys, (keys[0] * count + groups[0], (keys[1] - 1) * count + groups[1])


def _rows(partial: PartialOperator) -> set[int]:
    """Return the rows of scores that see keys by their own position, where no mask says so."""
    causal = partial.attributes.get("is_causal") and partial.input_at(3) is not None
    rows = partial.axis("s")
    wanted = causal or partial.attributes.get("unidirectional")
    return {rows} if wanted and rows is not None else set()


def _attention(partial: PartialOperator, box: Box, node_regions: NodeRegions) -> NodeRegions:
    """Change ONNX's Attention: count heads, cut a mask, write a causal one out."""
    keys, queries = _heads(partial, box)
    changes: dict[str, object] = {}
    if "q_num_heads" in partial.attributes:
        changes = {"q_num_heads": queries[1] - queries[0], "kv_num_heads": keys[1] - keys[0]}
    rows, length = partial.span(box, "s"), partial.span(box, "l")[1]
    scores = (partial.span(box, "b"), queries, rows, (0, length))
    mask = partial.input_at(3)
    if mask is not None:
        node_regions = _with_input(node_regions, mask, _aligned(partial.input_shapes[mask], scores))
    if not partial.attributes.get("is_causal", 0) or rows[0] == 0:
        return replace(node_regions, attributes=changes)
    seen = np.arange(*rows)[:, None] >= np.arange(length)
    return replace(node_regions, attributes={**changes, "is_causal": None}, parameters={3: seen})


def _with_input(node_regions: NodeRegions, index: int, region: Region) -> NodeRegions:
    inputs = node_regions.inputs
    return replace(node_regions, inputs=(*inputs[:index], region, *inputs[index + 1 :]))


def _aligned(shape: tuple[int, ...], region: Region) -> Region:
    """Return the part of an operand that is broadcast to a region."""
    pairs = zip(shape, region[len(region) - len(shape) :], strict=True)
    return tuple((0, 1) if extent == 1 else part for extent, part in pairs)


def _multi_head(
    partial: PartialOperator, box: Box, node_regions: NodeRegions
) -> NodeRegions | None:
    """Change com.microsoft.MultiHeadAttention: count heads, cut masks and biases."""
    heads, padding, bias = partial.span(box, "h"), partial.input_at(4), partial.input_at(3)
    if padding is not None:
        region = _kept(partial, box, partial.input_shapes[padding])
        if region is None:
            return None
        node_regions = _with_input(node_regions, padding, region)
    if bias is not None and heads != partial.span(partial.full, "h"):
        node_regions = replace(node_regions, parameters={3: _of_heads(partial, bias, heads)})
    return replace(node_regions, attributes={"num_heads": heads[1] - heads[0]})


def _kept(partial: PartialOperator, box: Box, shape: tuple[int, ...]) -> Region | None:
    """Return the part of a mask of keys; None for one in another form."""
    for names in ("b", "bl", "bsl"):
        if shape == tuple(partial.span(partial.full, name)[1] for name in names):
            return tuple(partial.span(box, name) for name in names)
    return None


def _of_heads(partial: PartialOperator, bias: int, heads: Interval) -> str:
    """Return the name of some heads' bias: of their queries, keys and values."""
    name, _ = partial.fit(bias, partial.needs[bias])
    elements, count = partial.input_shapes[bias][0] // 3, partial.span(partial.full, "h")[1]
    part = [elements // count * head for head in heads]
    starts = range(0, 3 * elements, elements)
    regions: list[Region] = [((start + part[0], start + part[1]),) for start in starts]
    cuts = [partial.builder.slice(name, ((0, 3 * elements),), region) for region in regions]
    return partial.builder.concat(cuts, 0)


def _rotary(partial: PartialOperator, box: Box, node_regions: NodeRegions) -> NodeRegions | None:
    """Change a rotary embedding: positions and angles of the samples and rows at hand."""
    place = len(box) - 2
    for index in range(1, len(partial.operands)):
        if _by_row(partial, index):
            node_regions = _with_input(
                node_regions, index, (box[0], box[place], *node_regions.inputs[index][2:])
            )
    if place > 1 and partial.attributes.get("num_heads"):
        node_regions = replace(node_regions, attributes={"num_heads": box[1][1] - box[1][0]})
    first = partial.input_at(1) if _starts(partial) else None
    if first is None or box[place][0] == 0:
        return node_regions
    return replace(node_regions, parameters={1: _later(partial, first, box[place][0])})


def _by_row(partial: PartialOperator, index: int) -> bool:
    """Return whether an input has an entry per sample and row."""
    rank, positions = len(partial.input_shapes[index]), _positions(partial)
    return (rank > 1) if partial.node.positions[index] == positions else rank > _TABLE


def _positions(partial: PartialOperator) -> int:
    return 1 if partial.node.proto.domain else 3


def _starts(partial: PartialOperator) -> bool:
    """Return whether just the position of the first row is given (com.microsoft)."""
    given = partial.node.inputs[1]
    return _positions(partial) == 1 and given is not None and len(given.shape) < _TABLE


def _later(partial: PartialOperator, first: int, rows: int) -> str:
    """Return the name of the position of a later row than the first."""
    name, _ = partial.fit(first, partial.needs[first])
    return partial.builder.node(
        "Add", (name, partial.builder.constant(np.array(rows, dtype=np.int64)))
    )[0]


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
"""By kind: what else changes on a part."""


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
    """Return the regions on which the node runs; always right."""
    straight = partial.operator.kind in PARALLEL_KINDS and all(map(_straight, partial.maps))
    node_regions = _within(partial, _uncut_axes(partial)) if straight else None
    return node_regions if node_regions is not None else _whole_regions(partial)


def _whole_regions(partial: PartialOperator) -> NodeRegions:
    """Return the regions of the node as in the file, its inputs filled up with zeros."""
    inputs, outputs = (
        map(whole, shapes) for shapes in (partial.input_shapes, partial.output_shapes)
    )
    return NodeRegions(tuple(inputs), tuple(outputs))


def _within(partial: PartialOperator, uncut: set[int]) -> NodeRegions | None:
    """Return regions with some axes uncut; None where the node cannot run so."""
    box = settled(partial, uncut)
    node_regions = NodeRegions(partial.reads(box), partial.makes(box))
    shapes = (*partial.input_shapes, *partial.output_shapes)
    sides = zip((*node_regions.inputs, *node_regions.outputs), shapes, strict=True)
    if any(volume(region) == 0 < math.prod(shape) for region, shape in sides):
        return None
    change = NODE_CHANGES.get(partial.operator.kind)
    return (
        node_regions
        if change is None or box == partial.full
        else change(partial, box, node_regions)
    )


def settled(partial: PartialOperator, uncut: set[int]) -> Box:
    """Return the box with some axes uncut, and those of dimensions that would have gaps."""
    while True:
        pairs = enumerate(zip(partial.box, partial.full, strict=True))
        box = tuple(full if axis in uncut else part for axis, (part, full) in pairs)
        gaps = {axis for dim in _merged(partial) if not _dense(dim, box) for axis, _ in dim.terms}
        if gaps <= uncut:
            return box
        uncut = uncut | gaps


def _merged(partial: PartialOperator) -> list[DimAccess]:
    return [dim for access in partial.maps for dim in access.dims if len(dim.terms) > 1]


def _dense(dim: DimAccess, box: Box) -> bool:
    """Return whether the positions that a box addresses are one interval, each once."""
    span, points = 1, 1
    for axis, coefficient in dim.terms:
        count = box[axis][1] - box[axis][0]
        span += (count - 1) * abs(coefficient)
        points *= count
    return span == points


def _uncut_axes(partial: PartialOperator) -> set[int]:
    """Return the axes that have to be computed in full."""
    operator = partial.operator
    read = {axis for index in range(len(operator.inputs)) for axis in operator.input_axes(index)}
    uncut = set() if operator.kind in _SIZED else operator.output_axes - read
    return uncut | UNCUT_AXES.get(operator.kind, _none)(partial)


def _none(_task: PartialOperator) -> set[int]:
    return set()


_SIZED = frozenset(("Expand", "Tile"))
"""Kinds whose outputs are as large as a parameter says, which is changed."""


def _straight(access: AccessMap) -> bool:
    """Return whether no dimension is addressed from an offset, or in steps."""
    return not any(
        dim.offset or (len(dim.terms) == 1 and dim.terms[0][1] != 1) for dim in access.dims
    )
