"""Which part of every tensor belongs to which sample, and the same graph for fewer samples.

Clusters share out the batch and loop over it, so the scheduler needs the graph at every batch size
that divides it. A model file has its batch baked into shapes and reshapes; instead of rewriting the
file, samples are traced through the access maps: an axis carries the batch when it addresses the
batch's digit of a dimension. Everything that multiplies with that axis is then scaled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autoturbo.graph.domain import AccessMap, Axis, AxisKind, DimAccess
from autoturbo.graph.operators import Graph, Operator, Tensor
from autoturbo.graph.rebatch import REPEATS


@dataclass(frozen=True, slots=True)
class BatchTrace:
    """Where samples are.

    Attributes:
        tensors: per tensor index, ``(dimension, unit)``: sample ``i`` has the positions whose
            digit of weight ``unit`` is ``i``. Tensors without samples are absent.
        axes: per operator index, ``(axis, unit)`` of its domain likewise.
        obstacle: why samples cannot be told apart, or None.
    """

    tensors: dict[int, tuple[int, int]]
    axes: dict[int, tuple[int, int]]
    obstacle: str | None = None


class _MixedError(Exception):
    """An operator mixes samples; the message says how."""


def trace_batch(graph: Graph) -> BatchTrace:
    """Follow the samples from the inputs to the outputs."""
    trace = BatchTrace({}, {})
    for tensor in graph.inputs:
        shape = graph.tensors[tensor].shape
        if shape and shape[0] == graph.batch:
            trace.tensors[tensor] = (0, 1)
    try:
        for index, operator in enumerate(graph.operators):
            _follow(graph, index, operator, trace)
    except _MixedError as mixed:
        return replace(trace, obstacle=str(mixed))
    if not all(tensor in trace.tensors for tensor in graph.outputs):
        return replace(trace, obstacle="an output does not carry the batch")
    return trace


def _follow(graph: Graph, index: int, operator: Operator, trace: BatchTrace) -> None:
    labelled = [(p, trace.tensors[t]) for p, t in enumerate(operator.inputs) if t in trace.tensors]
    if not labelled:
        return
    if operator.opaque:
        raise _MixedError(f"{operator.name} ({operator.kind}) is opaque")
    found = {_axis_of(graph, operator, position, label) for position, label in labelled}
    if len(found) != 1:
        raise _MixedError(f"{operator.name} ({operator.kind}) combines different samples")
    axis, unit = found.pop()
    _require_samples(graph, operator, axis, trace)
    if operator.kind in _PLACED and axis in _PLACED[operator.kind](graph, operator):
        raise _MixedError(f"{operator.name} ({operator.kind}) counts positions over the batch")
    trace.axes[index] = (axis, unit)
    for tensor, access in zip(operator.outputs, operator.output_maps, strict=True):
        dim, weight = _dim_of(operator, access, axis, unit)
        if graph.tensors[tensor].shape[dim] % (weight * graph.batch):
            raise _MixedError(f"{operator.name} ({operator.kind}) keeps some of the samples")
        trace.tensors[tensor] = dim, weight


def _axis_of(
    graph: Graph, operator: Operator, position: int, label: tuple[int, int]
) -> tuple[int, int]:
    """The axis that addresses the batch digit of an input dimension."""
    dim, unit = label
    access = operator.input_maps[position].dims[dim]
    for axis, coefficient in access.terms:
        span = abs(coefficient) * operator.axes[axis].extent
        if coefficient <= unit and unit % coefficient == 0 and unit * graph.batch <= span:
            _require_parallel(operator, axis, access)
            return axis, unit // coefficient
    raise _MixedError(f"{operator.name} ({operator.kind}) mixes samples")


def _require_parallel(operator: Operator, axis: int, access: DimAccess) -> None:
    if operator.axes[axis].kind is not AxisKind.PARALLEL or access.offset:
        raise _MixedError(f"{operator.name} ({operator.kind}) works across the batch")


def _scattered_to(graph: Graph, operator: Operator) -> set[int]:
    """Axes of the dimensions that are indexed: the first, as many as a tuple of indices has."""
    depth = graph.tensors[operator.inputs[1]].shape[-1]
    return {axis for dim in operator.input_maps[0].dims[:depth] for axis, _ in dim.terms}


def _scattered_along(graph: Graph, operator: Operator) -> set[int]:
    """Axes that the indices are not addressed by: that of the dimension that they index."""
    del graph
    return {axis for dim in operator.input_maps[0].dims for axis, _ in dim.terms} - {
        axis for dim in operator.input_maps[1].dims for axis, _ in dim.terms
    }


def _of_matrices(graph: Graph, operator: Operator) -> set[int]:
    del graph
    return {axis for dim in operator.input_maps[0].dims[-2:] for axis, _ in dim.terms}


def _counted(graph: Graph, operator: Operator) -> set[int]:
    """All axes of a pool that gives the positions of its maxima: they count over all samples."""
    positions = any(graph.tensors[tensor].dtype == "int64" for tensor in operator.outputs)
    return set(range(len(operator.axes))) if positions else set()


_PLACED: dict[str, Callable[[Graph, Operator], set[int]]] = {
    "MaxPool": _counted,
    "Scatter": _scattered_along,
    "ScatterElements": _scattered_along,
    "ScatterND": _scattered_to,
    "Trilu": _of_matrices,
}
"""Axes along which an operator computes by position: the second half is no smaller whole."""


def _require_samples(graph: Graph, operator: Operator, axis: int, trace: BatchTrace) -> None:
    """Refuse values that are taken apart with the samples, though nothing says they have any.

    Constants with the batch written into them are repeated for another one, in some operators.
    """
    for tensor, access in zip(operator.inputs, operator.input_maps, strict=True):
        repeated = graph.tensors[tensor].constant and operator.kind in REPEATS
        if tensor in trace.tensors or repeated:
            continue
        if any(axis == a for one in access.dims for a, _ in one.terms):
            name = graph.tensors[tensor].name
            raise _MixedError(f"{operator.name} ({operator.kind}) reads {name}, not of samples")


def _dim_of(operator: Operator, access: AccessMap, axis: int, unit: int) -> tuple[int, int]:
    for dim, one in enumerate(access.dims):
        for term_axis, coefficient in one.terms:
            if term_axis == axis and coefficient > 0 and not one.offset:
                return dim, unit * coefficient
    raise _MixedError(f"{operator.name} ({operator.kind}) loses the batch")


def rebatch(graph: Graph, batch: int, trace: BatchTrace) -> Graph:
    """The same model for ``batch`` samples.

    Raises:
        ValueError: the trace has an obstacle.
    """
    if batch == graph.batch:
        return graph
    if trace.obstacle:
        raise ValueError(trace.obstacle)
    tensors = list(graph.tensors)
    for tensor, (dim, _) in trace.tensors.items():
        tensors[tensor] = _scaled(tensors[tensor], dim, graph.batch, batch)
    operators = list(graph.operators)
    for index, (axis, _) in trace.axes.items():
        operators[index] = _scaled_operator(operators[index], axis, graph.batch, batch)
        _scale_weights(graph, index, axis, batch, tensors)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators), batch=batch)


def _scaled(tensor: Tensor, dim: int, old: int, new: int) -> Tensor:
    shape = list(tensor.shape)
    shape[dim] = shape[dim] * new // old
    return replace(tensor, shape=tuple(shape))


def _scaled_operator(operator: Operator, axis: int, old: int, new: int) -> Operator:
    extent = operator.axes[axis].extent
    axes = list(operator.axes)
    axes[axis] = Axis(axes[axis].name, extent * new // old, axes[axis].kind)
    scale = [_scaled_map(m, axis, extent, old, new) for m in operator.input_maps]
    outputs = [_scaled_map(m, axis, extent, old, new) for m in operator.output_maps]
    return replace(operator, axes=tuple(axes), input_maps=tuple(scale), output_maps=tuple(outputs))


def _scaled_map(access: AccessMap, axis: int, extent: int, old: int, new: int) -> AccessMap:
    return AccessMap(tuple(_scaled_dim(dim, axis, extent, old, new) for dim in access.dims))


def _scaled_dim(dim: DimAccess, axis: int, extent: int, old: int, new: int) -> DimAccess:
    """Strides of axes outside the batch axis shrink with it."""
    own = [coefficient for a, coefficient in dim.terms if a == axis]
    if not own or len(dim.terms) == 1:
        return dim
    terms = tuple(
        (a, c * new // old if a != axis and abs(c) >= abs(own[0]) * extent else c)
        for a, c in dim.terms
    )
    return replace(dim, terms=terms)


def _scale_weights(graph: Graph, index: int, axis: int, batch: int, tensors: list[Tensor]) -> None:
    """Constants with the batch baked in (an expanded position table) shrink too."""
    operator = graph.operators[index]
    for tensor, access in zip(operator.inputs, operator.input_maps, strict=True):
        if not graph.tensors[tensor].constant:
            continue
        for dim, one in enumerate(access.dims):
            if any(a == axis for a, _ in one.terms):
                tensors[tensor] = _scaled(graph.tensors[tensor], dim, graph.batch, batch)
