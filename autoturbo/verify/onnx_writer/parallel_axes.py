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
from autoturbo.graph.table import (
    attention,
    elementwise,
    matrix,
    normalisation,
    quantisation,
    recurrent,
    reduction,
)
from autoturbo.verify.onnx_writer.partial_operator import (
    Box,
    Frames,
    PartialOperator,
    extents,
    whole,
)

_TABLE = 2
"""Rank of a table of angles by position."""

AxesOf = Callable[[PartialOperator], set[int]]
"""Axes of a kind that are to be computed in full."""

NodeChange = Callable[[PartialOperator, Box, Frames], Frames | None]
"""What of a node changes on a part of its domain; None where it cannot run on that part."""


# --------------------------------------------------------------------------------- placed by index


def _scattered(task: PartialOperator) -> set[int]:
    """Indices count along one dimension."""
    return {int(task.attributes.get("axis", 0)) % len(task.input_shapes[0])}


def _scattered_slices(task: PartialOperator) -> set[int]:
    """Index tuples count along the first dimensions."""
    return set(range(task.input_shapes[1][-1]))


def _cells(task: PartialOperator) -> set[int]:
    """A cell is moved as one."""
    places = (task.axis("y"), task.axis("x"))
    return {axis for axis in places if axis is not None}


def _triangle(task: PartialOperator) -> set[int]:
    """An unknown diagonal cannot be moved."""
    rank = len(task.input_shapes[0])
    return {rank - 2, rank - 1} if task.input_at(1) is not None else set()


def _moved_diagonal(task: PartialOperator, box: Box, frames: Frames) -> Frames:
    """The diagonal as seen from the first row and column of a part."""
    given = task.node.inputs[1] if len(task.node.inputs) > 1 else None
    known = 0 if given is None or given.data is None else int(given.data.item())
    diagonal = known + box[-2][0] - box[-1][0]
    return replace(frames, parameters={1: np.array(diagonal, dtype=np.int64)})


# ------------------------------------------------------------------------------------ new extents


def _expanded(_task: PartialOperator, _box: Box, frames: Frames) -> Frames:
    return replace(frames, parameters={1: _integers(extents(frames.outputs[0]))})


def _repeated(_task: PartialOperator, _box: Box, frames: Frames) -> Frames:
    sides = zip(extents(frames.inputs[0]), extents(frames.outputs[0]), strict=True)
    return replace(frames, parameters={1: _integers([after // max(n, 1) for n, after in sides])})


def _integers(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# --------------------------------------------------------------------------------- counts of parts


def _grouped(task: PartialOperator, box: Box, frames: Frames) -> Frames:
    low, high = task.span(box, "g")
    return replace(frames, attributes={"num_groups": high - low})


def _directions(task: PartialOperator, box: Box, frames: Frames) -> Frames | None:
    """One of two directions of a recurrent layer, and its activations."""
    part = task.span(box, "d")
    if part == task.span(task.full, "d"):
        return frames
    if any(name in task.attributes for name in ("activation_alpha", "activation_beta")):
        return None
    changes: dict[str, object] = {"direction": "reverse" if part[0] else "forward"}
    functions = task.attributes.get("activations")
    if functions:
        half = len(functions) // 2
        changes["activations"] = functions[half * part[0] : half * part[1]]
    return replace(frames, attributes=changes)


def _packed(task: PartialOperator, box: Box, frames: Frames) -> Frames:
    """Columns of a weight packed in blocks; its scales and zero points may be flattened."""
    columns, outer = task.span(box, "n"), task.span(task.full, "n")[1]
    inputs = list(frames.inputs)
    for position in (1, 2, 3, 5):
        index = task.input_at(position)
        if index is not None and inputs[index]:
            each = task.input_shapes[index][0] // outer
            inputs[index] = ((columns[0] * each, columns[1] * each), *inputs[index][1:])
    return replace(frames, inputs=tuple(inputs), attributes={"N": columns[1] - columns[0]})


# -------------------------------------------------------------------------------------- attention


def _heads(task: PartialOperator, box: Box) -> tuple[Interval, Interval]:
    """Heads of keys, and heads of queries."""
    keys, groups = task.span(box, "h"), task.span(box, "g")
    count = task.span(task.full, "g")[1]
    return keys, (keys[0] * count + groups[0], (keys[1] - 1) * count + groups[1])


def _rows(task: PartialOperator) -> set[int]:
    """Rows of scores that see keys by their own position, where a mask cannot say so instead."""
    causal = task.attributes.get("is_causal") and task.input_at(3) is not None
    rows = task.axis("s")
    wanted = causal or task.attributes.get("unidirectional")
    return {rows} if wanted and rows is not None else set()


def _attention(task: PartialOperator, box: Box, frames: Frames) -> Frames:
    """ONNX's Attention: heads counted, a mask cut, a causal one written out."""
    keys, queries = _heads(task, box)
    changes: dict[str, object] = {}
    if "q_num_heads" in task.attributes:
        changes = {"q_num_heads": queries[1] - queries[0], "kv_num_heads": keys[1] - keys[0]}
    rows, length = task.span(box, "s"), task.span(box, "l")[1]
    scores = (task.span(box, "b"), queries, rows, (0, length))
    mask = task.input_at(3)
    if mask is not None:
        frames = _with_input(frames, mask, _aligned(task.input_shapes[mask], scores))
    if not task.attributes.get("is_causal", 0) or rows[0] == 0:
        return replace(frames, attributes=changes)
    seen = np.arange(*rows)[:, None] >= np.arange(length)
    return replace(frames, attributes={**changes, "is_causal": None}, parameters={3: seen})


def _with_input(frames: Frames, index: int, region: Region) -> Frames:
    inputs = frames.inputs
    return replace(frames, inputs=(*inputs[:index], region, *inputs[index + 1 :]))


def _aligned(shape: tuple[int, ...], region: Region) -> Region:
    """The part of an operand that is broadcast to a region."""
    pairs = zip(shape, region[len(region) - len(shape) :], strict=True)
    return tuple((0, 1) if extent == 1 else part for extent, part in pairs)


def _multi_head(task: PartialOperator, box: Box, frames: Frames) -> Frames | None:
    """com.microsoft.MultiHeadAttention: heads counted, masks and the bias of projections cut."""
    heads, padding, bias = task.span(box, "h"), task.input_at(4), task.input_at(3)
    if padding is not None:
        region = _kept(task, box, task.input_shapes[padding])
        if region is None:
            return None
        frames = _with_input(frames, padding, region)
    if bias is not None and heads != task.span(task.full, "h"):
        frames = replace(frames, parameters={3: _of_heads(task, bias, heads)})
    return replace(frames, attributes={"num_heads": heads[1] - heads[0]})


def _kept(task: PartialOperator, box: Box, shape: tuple[int, ...]) -> Region | None:
    """The part of a mask of keys; None for one in another form."""
    for names in ("b", "bl", "bsl"):
        if shape == tuple(task.span(task.full, name)[1] for name in names):
            return tuple(task.span(box, name) for name in names)
    return None


def _of_heads(task: PartialOperator, bias: int, heads: Interval) -> str:
    """The bias of some heads: of their queries, keys and values."""
    name, _ = task.fit(bias, task.needs[bias])
    elements, count = task.input_shapes[bias][0] // 3, task.span(task.full, "h")[1]
    part = [elements // count * head for head in heads]
    starts = range(0, 3 * elements, elements)
    regions: list[Region] = [((start + part[0], start + part[1]),) for start in starts]
    cuts = [task.body.slice(name, ((0, 3 * elements),), region) for region in regions]
    return task.body.concat(cuts, 0)


def _rotary(task: PartialOperator, box: Box, frames: Frames) -> Frames | None:
    """Positions and angles of the samples and rows at hand."""
    place = len(box) - 2
    for index in range(1, len(task.operands)):
        if _by_row(task, index):
            frames = _with_input(frames, index, (box[0], box[place], *frames.inputs[index][2:]))
    if place > 1 and task.attributes.get("num_heads"):
        frames = replace(frames, attributes={"num_heads": box[1][1] - box[1][0]})
    first = task.input_at(1) if _starts(task) else None
    if first is None or box[place][0] == 0:
        return frames
    return replace(frames, parameters={1: _later(task, first, box[place][0])})


def _by_row(task: PartialOperator, index: int) -> bool:
    """Whether an input has an entry per sample and row: positions, or angles without a table."""
    rank, positions = len(task.input_shapes[index]), _positions(task)
    return (rank > 1) if task.node.positions[index] == positions else rank > _TABLE


def _positions(task: PartialOperator) -> int:
    return 1 if task.node.proto.domain else 3


def _starts(task: PartialOperator) -> bool:
    """Whether just the position of the first row is given (com.microsoft)."""
    given = task.node.inputs[1]
    return _positions(task) == 1 and given is not None and len(given.shape) < _TABLE


def _later(task: PartialOperator, first: int, rows: int) -> str:
    """The position of a later row than the first."""
    name, _ = task.fit(first, task.needs[first])
    return task.body.node("Add", (name, task.body.constant(np.array(rows, dtype=np.int64))))[0]


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


_FAMILIES = (attention, elementwise, matrix, normalisation, quantisation, recurrent, reduction)

_OTHERS = (
    "DepthToSpace", "Gather", "GatherElements", "GatherND", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GridSample", "OneHot", "Pad", "ReverseSequence", "RoiAlign", "Scatter",
    "ScatterElements", "ScatterND", "SpaceToDepth", "Tile", "Transpose", "Trilu", "Expand",
)  # fmt: skip

INDIFFERENT = frozenset(_OTHERS).union(
    f"{domain}.{op}" if domain else op for family in _FAMILIES for domain, op in family.ROWS
)
"""Kinds that compute the same on parts as on the whole wherever axes run position for position."""


def plan_parallel(task: PartialOperator) -> Frames:
    """The frames on which the node runs; always right."""
    alike = task.operator.kind in INDIFFERENT and all(map(_straight, task.maps))
    frames = _within(task, _uncut_axes(task)) if alike else None
    return frames if frames is not None else _whole_regions(task)


def _whole_regions(task: PartialOperator) -> Frames:
    """The node as in the file, its inputs filled up with zeros."""
    inputs, outputs = (map(whole, shapes) for shapes in (task.input_shapes, task.output_shapes))
    return Frames(tuple(inputs), tuple(outputs))


def _within(task: PartialOperator, uncut: set[int]) -> Frames | None:
    """Frames for a box that holds the pinned axes in full; None where the node cannot run so."""
    box = settled(task, uncut)
    frames = Frames(task.reads(box), task.makes(box))
    shapes = (*task.input_shapes, *task.output_shapes)
    sides = zip((*frames.inputs, *frames.outputs), shapes, strict=True)
    if any(volume(region) == 0 < math.prod(shape) for region, shape in sides):
        return None
    change = NODE_CHANGES.get(task.operator.kind)
    return frames if change is None or box == task.full else change(task, box, frames)


def settled(task: PartialOperator, uncut: set[int]) -> Box:
    """The box with the pinned axes in full, and those of dimensions that would have gaps."""
    while True:
        pairs = enumerate(zip(task.box, task.full, strict=True))
        box = tuple(full if axis in uncut else part for axis, (part, full) in pairs)
        gaps = {axis for dim in _merged(task) if not _dense(dim, box) for axis, _ in dim.terms}
        if gaps <= uncut:
            return box
        uncut = uncut | gaps


def _merged(task: PartialOperator) -> list[DimAccess]:
    return [dim for access in task.maps for dim in access.dims if len(dim.terms) > 1]


def _dense(dim: DimAccess, box: Box) -> bool:
    """Whether the positions that a box addresses are one interval, each once."""
    span, points = 1, 1
    for axis, coefficient in dim.terms:
        count = box[axis][1] - box[axis][0]
        span += (count - 1) * abs(coefficient)
        points *= count
    return span == points


def _uncut_axes(task: PartialOperator) -> set[int]:
    """Axes that have to be computed in full."""
    operator = task.operator
    read = {axis for index in range(len(operator.inputs)) for axis in operator.input_axes(index)}
    uncut = set() if operator.kind in _SIZED else operator.output_axes - read
    return uncut | UNCUT_AXES.get(operator.kind, _none)(task)


def _none(_task: PartialOperator) -> set[int]:
    return set()


_SIZED = frozenset(("Expand", "Tile"))
"""Kinds whose outputs are as large as a parameter says, which is changed."""


def _straight(access: AccessMap) -> bool:
    """Whether no dimension is addressed from an offset, or in steps."""
    return not any(
        dim.offset or (len(dim.terms) == 1 and dim.terms[0][1] != 1) for dim in access.dims
    )
