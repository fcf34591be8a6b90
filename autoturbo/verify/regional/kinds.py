"""What single kinds need beyond smaller extents: counts to change, axes that may not be cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from autoturbo.graph.domain import Interval, Region
from autoturbo.verify.regional.frames import Frames
from autoturbo.verify.regional.task import Box, Task, extents

_TABLE = 2
"""Rank of a table of angles by position."""

Pin = Callable[[Task], set[int]]
"""Axes of a kind that are to be computed in full."""

Change = Callable[[Task, Box, Frames], Frames | None]
"""What of a node changes on a part of its domain; None where it cannot run on that part."""


# --------------------------------------------------------------------------------- placed by index


def _scattered(task: Task) -> set[int]:
    """Indices count along one dimension."""
    return {int(task.attributes.get("axis", 0)) % len(task.input_shapes[0])}


def _scattered_slices(task: Task) -> set[int]:
    """Index tuples count along the first dimensions."""
    return set(range(task.input_shapes[1][-1]))


def _cells(task: Task) -> set[int]:
    """A cell is moved as one."""
    places = (task.axis("y"), task.axis("x"))
    return {axis for axis in places if axis is not None}


def _triangle(task: Task) -> set[int]:
    """An unknown diagonal cannot be moved."""
    rank = len(task.input_shapes[0])
    return {rank - 2, rank - 1} if task.input_at(1) is not None else set()


def _moved_diagonal(task: Task, box: Box, frames: Frames) -> Frames:
    """The diagonal as seen from the first row and column of a part."""
    given = task.node.inputs[1] if len(task.node.inputs) > 1 else None
    known = 0 if given is None or given.data is None else int(given.data.item())
    diagonal = known + box[-2][0] - box[-1][0]
    return replace(frames, parameters={1: np.array(diagonal, dtype=np.int64)})


# ------------------------------------------------------------------------------------ new extents


def _expanded(_task: Task, _box: Box, frames: Frames) -> Frames:
    return replace(frames, parameters={1: _integers(extents(frames.outputs[0]))})


def _repeated(_task: Task, _box: Box, frames: Frames) -> Frames:
    sides = zip(extents(frames.inputs[0]), extents(frames.outputs[0]), strict=True)
    return replace(frames, parameters={1: _integers([after // max(n, 1) for n, after in sides])})


def _integers(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# --------------------------------------------------------------------------------- counts of parts


def _grouped(task: Task, box: Box, frames: Frames) -> Frames:
    low, high = task.span(box, "g")
    return replace(frames, attributes={"num_groups": high - low})


def _directions(task: Task, box: Box, frames: Frames) -> Frames | None:
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


def _packed(task: Task, box: Box, frames: Frames) -> Frames:
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


def _heads(task: Task, box: Box) -> tuple[Interval, Interval]:
    """Heads of keys, and heads of queries."""
    keys, groups = task.span(box, "h"), task.span(box, "g")
    count = task.span(task.full, "g")[1]
    return keys, (keys[0] * count + groups[0], (keys[1] - 1) * count + groups[1])


def _rows(task: Task) -> set[int]:
    """Rows of scores that see keys by their own position, where a mask cannot say so instead."""
    causal = task.attributes.get("is_causal") and task.input_at(3) is not None
    rows = task.axis("s")
    wanted = causal or task.attributes.get("unidirectional")
    return {rows} if wanted and rows is not None else set()


def _attention(task: Task, box: Box, frames: Frames) -> Frames:
    """ONNX's Attention: heads counted, a mask cut, a causal one written out."""
    keys, queries = _heads(task, box)
    changes: dict[str, object] = {}
    if "q_num_heads" in task.attributes:
        changes = {"q_num_heads": queries[1] - queries[0], "kv_num_heads": keys[1] - keys[0]}
    rows, length = task.span(box, "s"), task.span(box, "l")[1]
    scores = (task.span(box, "b"), queries, rows, (0, length))
    mask = task.input_at(3)
    if mask is not None:
        frames = _cut(frames, mask, _aligned(task.input_shapes[mask], scores))
    if not task.attributes.get("is_causal", 0) or rows[0] == 0:
        return replace(frames, attributes=changes)
    seen = np.arange(*rows)[:, None] >= np.arange(length)
    return replace(frames, attributes={**changes, "is_causal": None}, parameters={3: seen})


def _cut(frames: Frames, index: int, region: Region) -> Frames:
    inputs = frames.inputs
    return replace(frames, inputs=(*inputs[:index], region, *inputs[index + 1 :]))


def _aligned(shape: tuple[int, ...], region: Region) -> Region:
    """The part of an operand that is broadcast to a region."""
    pairs = zip(shape, region[len(region) - len(shape) :], strict=True)
    return tuple((0, 1) if extent == 1 else part for extent, part in pairs)


def _multi_head(task: Task, box: Box, frames: Frames) -> Frames | None:
    """com.microsoft.MultiHeadAttention: heads counted, masks and the bias of projections cut."""
    heads, padding, bias = task.span(box, "h"), task.input_at(4), task.input_at(3)
    if padding is not None:
        region = _kept(task, box, task.input_shapes[padding])
        if region is None:
            return None
        frames = _cut(frames, padding, region)
    if bias is not None and heads != task.span(task.full, "h"):
        frames = replace(frames, parameters={3: _of_heads(task, bias, heads)})
    return replace(frames, attributes={"num_heads": heads[1] - heads[0]})


def _kept(task: Task, box: Box, shape: tuple[int, ...]) -> Region | None:
    """The part of a mask of keys; None for one in another form."""
    for names in ("b", "bl", "bsl"):
        if shape == tuple(task.span(task.full, name)[1] for name in names):
            return tuple(task.span(box, name) for name in names)
    return None


def _of_heads(task: Task, bias: int, heads: Interval) -> str:
    """The bias of some heads: of their queries, keys and values."""
    name, _ = task.fit(bias, task.needs[bias])
    elements, count = task.input_shapes[bias][0] // 3, task.span(task.full, "h")[1]
    part = [elements // count * head for head in heads]
    starts = range(0, 3 * elements, elements)
    regions: list[Region] = [((start + part[0], start + part[1]),) for start in starts]
    cuts = [task.body.slice(name, ((0, 3 * elements),), region) for region in regions]
    return task.body.concat(cuts, 0)


def _rotary(task: Task, box: Box, frames: Frames) -> Frames | None:
    """Positions and angles of the samples and rows at hand."""
    place = len(box) - 2
    for index in range(1, len(task.operands)):
        if _by_row(task, index):
            frames = _cut(frames, index, (box[0], box[place], *frames.inputs[index][2:]))
    if place > 1 and task.attributes.get("num_heads"):
        frames = replace(frames, attributes={"num_heads": box[1][1] - box[1][0]})
    first = task.input_at(1) if _starts(task) else None
    if first is None or box[place][0] == 0:
        return frames
    return replace(frames, parameters={1: _later(task, first, box[place][0])})


def _by_row(task: Task, index: int) -> bool:
    """Whether an input has an entry per sample and row: positions, or angles without a table."""
    rank, positions = len(task.input_shapes[index]), _positions(task)
    return (rank > 1) if task.node.positions[index] == positions else rank > _TABLE


def _positions(task: Task) -> int:
    return 1 if task.node.proto.domain else 3


def _starts(task: Task) -> bool:
    """Whether just the position of the first row is given (com.microsoft)."""
    given = task.node.inputs[1]
    return _positions(task) == 1 and given is not None and len(given.shape) < _TABLE


def _later(task: Task, first: int, rows: int) -> str:
    """The position of a later row than the first."""
    name, _ = task.fit(first, task.needs[first])
    return task.body.node("Add", (name, task.body.constant(np.array(rows, dtype=np.int64))))[0]


PINS: Mapping[str, Pin] = {
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

CHANGES: Mapping[str, Change] = {
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
