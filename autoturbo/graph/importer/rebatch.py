"""Gives another batch to a file whose own batch is written into its constants.

Shape inference alone does not notice: ``Reshape`` of four samples to the constant target
``[1, -1]`` is a valid shape, and a wrong one. So the file's own shapes are inferred first; then it
is known of every value in which dimension it grows with the batch, and

- a ``Reshape`` or ``Expand`` is given the target that it had, grown in the right dimension;
- a constant operand that has the file's batch in that dimension, joined or combined with values
  that have the new one, or the state that a recurrence begins with, is taken as repeated for every
  sample, once however often it is read;
- constant indices that are alike for every sample are counted on, or fewer;
- bounds of slices and sizes of splits that are whole batches are scaled;

and at the end every output must have grown by the ratio of the batches in one dimension.

The right dimension of a reshaped value follows from row-major order: what is to the right of the
batch stays to the right of it. With the file's own batch of one, a merge of the batch with another
dimension leaves no trace in the shape; then the batch is taken to be on its own where a one
stands in its place, else outermost in a dimension that is not the last (heads), else innermost.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from onnx import NodeProto, TypeProto, helper

from autoturbo.graph.indices import MOST_GROWN, Indexed, counted_from_front, regrown
from autoturbo.graph.operator_table.build import MICROSOFT
from autoturbo.graph.repeats import ALIGNED, COMBINES, INDEXED, ROTATES, STATES
from autoturbo.graph.source import Source, domain_of, integer_of
from autoturbo.graph.values import (
    Repetition,
    Step,
    Value,
    element_type,
    static_shape,
    tensor_type,
)

_SAME_ORDER = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze"))
"""Operators that leave the elements in their order."""

_MATRIX = 2
"""Dimensions of a matrix: what is in front of them agrees."""

_BOUNDS = frozenset(("Slice", "Split"))
"""Operators whose constants say where to cut."""

_PARTS = _BOUNDS | {"Concat"}
"""Operators that join and cut along a dimension, samples staying as far apart as they are."""

_SCATTERS = frozenset(("ScatterElements", "Scatter"))
"""Operators that put values into a tensor, which may be a constant, along a dimension."""

_TABLE = 2
"""Rank of a table of angles, which is for all samples."""

_WITH_SIZES = 4
"""Inputs of a Resize that is given sizes."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Place of the batch in a value.

    Attributes:
        axis: The dimension.
        inner: Elements of that dimension per sample that follow each other (``S`` in ``B * S``).
    """

    axis: int
    inner: int = 1


@dataclass(slots=True)
class Rebatch:
    """A change of batch.

    Attributes:
        batch: The file's own.
        ratio: New batch over the file's.
        baked: Shapes at the file's own batch, by value name.
    """

    batch: int
    ratio: Fraction
    baked: Mapping[str, Shape]
    _layouts: dict[Value, Layout] = field(default_factory=dict)
    _reached: set[Value] = field(default_factory=set)
    _inner: dict[str, int] = field(default_factory=dict)
    _made: dict[tuple[object, ...], Value] = field(default_factory=dict)

    def scaled_type(self, kind: TypeProto) -> TypeProto:
        """Return a type that the file states for its own batch, at the new batch."""
        shape = static_shape(kind)
        grown = self._grown(shape, 0) if shape else None
        return kind if grown is None else tensor_type(element_type(kind), grown)

    def adjust(self, node: NodeProto, inputs: list[Value | None]) -> list[Value | None]:
        """Return the inputs of a node, constants that hold the batch replaced."""
        into_constant = node.op_type in _SCATTERS and bool(inputs[0] and inputs[0].constant)
        changes = (
            (node.op_type in ("Reshape", "Expand"), self._scale_reshape_target),
            (node.op_type == "Resize", self._scale_resize_sizes),
            (node.op_type in ALIGNED or into_constant, self._repeat_operand),
            (node.op_type in INDEXED, self._scale_indices),
            (node.op_type in STATES, self._repeat_initial_state),
            (node.op_type in _BOUNDS, self._scale_slice_bounds),
        )
        change = next((change for fits, change in changes if fits), None)
        if node.op_type == ROTATES and domain_of(node) in ("", MICROSOFT):
            return self._repeat_positions(node, inputs)
        return inputs if change is None or domain_of(node) else change(node, inputs)

    def follow(self, step: Step) -> None:
        """Record where the outputs of a node hold the batch."""
        if self._reached.isdisjoint(step.read):
            return
        for value in step.outputs:
            if value is not None and not value.constant:
                self._reached.add(value)
                self.place(value)
                self._inherit(step, value)

    def place(self, value: Value) -> None:
        """Record where a value holds the batch: the one dimension that has grown."""
        before, after = self.baked.get(value.name), value.shape
        if before is None or after is None or len(before) != len(after):
            return
        axes = [k for k, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        # Where two extents changed, which of them is the batch cannot be told.
        if len(axes) == 1 and self._grown(before, axes[0]) == after:
            self._layouts[value] = Layout(axes[0])
            self._reached.add(value)

    def _inherit(self, step: Step, value: Value) -> None:
        """Derive the extent to the right of the batch, within its dimension, from the inputs."""
        layout = self._layouts.get(value)
        known = [source for source in step.read if source in self._layouts]
        if layout is None or not known:
            return
        shape = self.baked[value.name]
        if step.node.op_type in _SAME_ORDER:
            right = math.prod(shape[layout.axis + 1 :])
            inner = max(self._right_of_batch(known[0]) // right, 1)
        elif step.node.op_type in _PARTS:
            inner = self._layouts[known[0]].inner
        else:
            same = [s for s in known if self._extent(s) == shape[layout.axis]]
            inner = self._layouts[same[0]].inner if same else 1
        inner = self._inner.get(value.name, inner)
        self._layouts[value] = Layout(layout.axis, inner)

    # -------------------------------------------------------------------------------- arithmetic

    def _grown(self, shape: Shape, axis: int) -> Shape | None:
        """Return a shape with one extent scaled, or None if that is not a whole number."""
        extent = shape[axis] * self.ratio
        if extent.denominator != 1:
            return None
        return (*shape[:axis], int(extent), *shape[axis + 1 :])

    def _extent(self, value: Value) -> int:
        """Return the file's extent of the dimension that holds the batch."""
        return self.baked[value.name][self._layouts[value].axis]

    def _right_of_batch(self, value: Value) -> int:
        layout = self._layouts[value]
        return layout.inner * math.prod(self.baked[value.name][layout.axis + 1 :])

    def _axis_after(self, right_of_batch: int, shape: Shape) -> int | None:
        """Return the dimension that holds the batch after a reshape to the file's ``shape``."""
        candidates = []
        for axis, extent in enumerate(shape):
            right = math.prod(shape[axis + 1 :])
            inner, rest = divmod(right_of_batch, right)
            if rest == 0 and inner and extent % (inner * self.batch) == 0:
                alone = inner == 1 and extent == self.batch
                outermost = inner * self.batch == extent and axis < len(shape) - 1
                # Samples alone are likeliest, then a dimension that begins with them.
                candidates.append((0 if alone else 1 if outermost else 2, axis))
        return min(candidates)[1] if candidates else None

    # -------------------------------------------------------------------------------- constants

    def _scale_reshape_target(
        self, node: NodeProto, inputs: list[Value | None]
    ) -> list[Value | None]:
        data, target = (*inputs, None, None)[:2]
        before = self.baked.get(node.output[0])
        if data is None or target is None or not before:
            return inputs
        if data.constant and node.op_type == "Expand":
            return [self._spread(data, target, before), target]
        if data not in self._layouts:
            return inputs
        if node.op_type == "Reshape":
            axis = self._axis_after(self._right_of_batch(data), before)
        else:
            axis = self._layouts[data].axis + len(before) - len(self.baked[data.name])
        wanted = None if axis is None else self._grown(before, axis)
        if wanted is None:
            return inputs
        extents = np.asarray(wanted, dtype=np.int64)
        scaled = Value(f"{target.name} of {node.output[0]}", target.type, True, extents)  # noqa: FBT003
        return [data, scaled, *inputs[2:]]

    def _spread(self, data: Value, target: Value, before: Shape) -> Value:
        """Return a constant that is expanded from the file's batch to the new one."""
        after = () if target.data is None else tuple(target.data.tolist())
        grown = [
            k for k in range(-len(after), 0) if len(after) == len(before) and after[k] != before[k]
        ]
        if len(grown) != 1 or self._grown(before, grown[0] % len(before)) != after:
            return data
        return self._repeated(data, grown[0], before[grown[0]], 1)

    def _scale_resize_sizes(
        self, node: NodeProto, inputs: list[Value | None]
    ) -> list[Value | None]:
        """Return the inputs of a Resize with sizes of the new batch; other forms do not name it."""
        data, *_, sizes = inputs
        before = self.baked.get(node.output[0])
        if len(inputs) != _WITH_SIZES or data not in self._layouts or sizes is None or not before:
            return inputs
        wanted = self._grown(before, self._layouts[data].axis)
        if wanted is None or sizes.data is None or len(sizes.data) != len(before):
            return inputs
        return [*inputs[:-1], _constant(sizes, np.asarray(wanted))]

    def _repeat_operand(self, node: NodeProto, inputs: list[Value | None]) -> list[Value | None]:
        grown = next((v for v in inputs if v is not None and v in self._layouts), None)
        if grown is None:
            return inputs
        axis, extent = self._layouts[grown].axis, self._extent(grown)
        from_right = len(self.baked[grown.name]) - axis
        along = node.op_type == "Concat" or node.op_type in _SCATTERS
        # What is joined or put along the samples' own dimension is not one of the samples.
        if along and integer_of(node, "axis") in (axis, -from_right):
            return inputs
        # An extent of 1 is broadcast: the same constant serves any batch.
        if node.op_type in COMBINES and extent == 1:
            return inputs
        # The last two dimensions are multiplied, not aligned with the constant's.
        if node.op_type == "MatMul" and from_right <= _MATRIX:
            return inputs
        inner = self._layouts[grown].inner
        return [
            self._repeated(value, -from_right, extent, inner) if value and value.constant else value
            for value in inputs
        ]

    def _repeat_positions(self, node: NodeProto, inputs: list[Value | None]) -> list[Value | None]:
        """Return the inputs of a rotary embedding, positions and angles repeated per sample."""
        places = 1 if domain_of(node) else len(inputs) - 1
        chosen = {
            k for k, v in enumerate(inputs) if k == places or (v and len(v.shape or ()) > _TABLE)
        }
        return self._repeated_along(0, inputs, chosen)

    def _repeat_initial_state(
        self, node: NodeProto, inputs: list[Value | None]
    ) -> list[Value | None]:
        """Return the inputs of a recurrence, states and sequence lengths repeated per sample."""
        axis = 1 - integer_of(node, "layout")
        return self._repeated_along(axis, inputs, STATES[node.op_type])

    def _repeated_along(
        self, axis: int, inputs: list[Value | None], places: Container[int]
    ) -> list[Value | None]:
        """Repeat constants along the dimension in which the first input has the samples."""
        data = inputs[0] if inputs else None
        if data is None or data not in self._layouts or self._layouts[data].axis != axis:
            return inputs
        repetition = self._extent(data), self._layouts[data].inner
        return [
            self._repeated(value, min(axis, len(value.shape or ()) - 1), *repetition)
            if value and value.constant and place in places
            else value
            for place, value in enumerate(inputs)
        ]

    def _scale_indices(self, node: NodeProto, inputs: list[Value | None]) -> list[Value | None]:
        """Return constant indices for the new batch: a set per sample, or indices over samples."""
        data, indices = (*inputs, None, None)[:2]
        if data is None or indices is None or data not in self._layouts or not indices.constant:
            return inputs
        layout, counted = self._layouts[data], _counted(node, data, indices)
        if not counted:
            return inputs
        if layout.axis in counted:
            new = self._recounted(node, data, indices, counted)
        elif node.op_type == "Gather" or (node.op_type == "GatherND" and layout.axis > counted[-1]):
            return inputs
        else:
            new = self._repeated(indices, layout.axis, self._extent(data), layout.inner)
        return [data, new, *inputs[2:]]

    def _recounted(self, node: NodeProto, data: Value, indices: Value, counted: range) -> Value:
        """Return indices into the samples for the new batch; unchanged ones if samples differ."""
        layout, shape = self._layouts[data], indices.shape or ()
        stays = indices.literal or self.baked.get(indices.name) == shape
        if indices.data is None or not stays or not node.op_type.startswith("Gather"):
            return indices
        extents = self.baked[data.name][counted.start : counted.stop]
        positions = shape[:-1] if node.op_type == "GatherND" else shape
        positive = counted_from_front(indices.data.reshape(*positions, len(counted)), extents)
        indexed = Indexed(layout.axis - counted.start, self.batch, layout.inner)
        grown = regrown(positive, indexed, int(self.batch * self.ratio))
        if grown is None:
            return indices
        array, self._inner[node.output[0]] = grown
        array = array if node.op_type == "GatherND" else array[..., 0]
        # Readers that want the same get one constant, so that it is stored once.
        key = (indices, array.shape, array.tobytes())
        return self._made.setdefault(key, _constant(indices, array))

    def _scale_slice_bounds(
        self, node: NodeProto, inputs: list[Value | None]
    ) -> list[Value | None]:
        """Return slice bounds or split sizes scaled by whole batches."""
        data = inputs[0] if inputs else None
        if data is None or data not in self._layouts:
            return inputs
        entries = _bounds(node, inputs, self._layouts[data].axis, len(data.shape or ()))
        return [data, *(value and self._in_batches(value, data, entries.get(place))
                        for place, value in enumerate(inputs[1:], 1))]  # fmt: skip

    def _in_batches(self, value: Value, data: Value, entry: slice | None) -> Value:
        """Return a constant whose chosen entry is scaled from the file's batch to the new one."""
        if entry is None or value.data is None or value.data.ndim != 1 or not value.literal:
            return value
        extent, inner = self._extent(data), self._layouts[data].inner
        bounds = value.data.astype(np.int64)
        part = bounds[entry]
        batches, rest = np.divmod(
            np.clip(np.where(part < 0, part + extent, part), 0, extent), self.batch * inner
        )
        # A bound within a batch says nothing of other batches.
        if rest.any():
            return value
        bounds[entry] = batches * int(self.batch * self.ratio) * inner
        return _constant(value, bounds)

    def _repeated(self, value: Value, axis: int, extent: int, inner: int) -> Value:
        """Return a constant repeated for the new batch, or unchanged if it does not hold the batch.

        Its elements are computed only if they are known and equal in all samples.
        """
        shape = value.shape or ()
        if not -len(shape) <= axis < len(shape) or shape[axis] != extent:
            return value
        dim = axis % len(shape)
        grown = self._grown(shape, dim)
        if grown is None:
            return value
        kind = tensor_type(element_type(value.type), grown)
        name = f"{value.name} for {grown[dim]}"
        # Without its elements a large constant is written as a repetition of what the file stores.
        origin = Repetition(value, dim, self.batch, inner)
        data = None if value.data is None else _alike(value.data, origin, grown)
        grown_value = Value(
            name, kind, constant=True, data=data, repeated=None if data is not None else origin
        )
        return self._made.setdefault((value, dim, inner), grown_value)

    def check(self, outputs: list[Value], source: Source) -> None:
        """Refuse a graph if an output has not followed the batch.

        Raises:
            ModelError: Naming the output, its shape and what it should have been.
        """
        for value in outputs:
            before = self.baked.get(value.name)
            if value not in self._reached or not before or value in self._layouts:
                continue
            raise source.error(
                f"at another batch its shape {list(before)} became {list(value.shape or ())}:"
                " the batch is fixed inside the graph",
                value.name,
                "export with a dynamic batch",
            )


def _constant(like: Value, array: np.ndarray) -> Value:
    """Return a constant of the same type with other elements."""
    element = element_type(like.type)
    elements = array.astype(helper.tensor_dtype_to_np_dtype(element))
    name = f"{like.name} for {list(array.shape)}"
    return Value(name, tensor_type(element, array.shape), constant=True, data=elements)


def _alike(array: np.ndarray, origin: Repetition, grown: Shape) -> np.ndarray | None:
    """Return the elements of a constant for another batch, or None if samples differ."""
    dim, shape = origin.dim, array.shape
    if shape[dim] % (origin.batch * origin.inner) or math.prod(grown) > MOST_GROWN:
        return None
    outer = shape[dim] // (origin.batch * origin.inner)
    apart = array.reshape(*shape[:dim], outer, origin.batch, origin.inner, *shape[dim + 1 :])
    first_sample = apart.take([0], axis=dim + 1)
    if (apart != first_sample).any():
        return None
    return first_sample.repeat(grown[dim] * origin.batch // shape[dim], axis=dim + 1).reshape(grown)


def _counted(node: NodeProto, data: Value, indices: Value) -> range:
    """Return the dimensions that indices address."""
    if node.op_type == "GatherND":
        first = integer_of(node, "batch_dims")
        return range(first, first + (indices.shape or (0,))[-1])
    axis = integer_of(node, "axis") % max(len(data.shape or ()), 1)
    return range(axis, axis + 1)


def _bounds(node: NodeProto, inputs: list[Value | None], axis: int, rank: int) -> dict[int, slice]:
    """Return the entries of inputs that are positions along a dimension, by input."""
    if node.op_type == "Split":
        return {1: slice(None)} if integer_of(node, "axis") % rank == axis else {}
    numbers = [None if value is None else value.data for value in inputs]
    starts, _, axes, steps = (*numbers[1:], None, None, None, None)[:4]
    if starts is None:
        return {}
    along = range(starts.size) if axes is None else axes.ravel().tolist()
    entries = [k for k, dim in enumerate(along) if dim % rank == axis]
    if len(entries) != 1 or (steps is not None and steps.ravel()[entries[0]] != 1):
        return {}
    entry = slice(entries[0], entries[0] + 1)
    return {1: entry, 2: entry}
