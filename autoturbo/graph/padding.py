"""A model with wider channels: the same function on more elements, the further ones padding.

Channels are followed through the access maps: an axis that addresses a dimension one to one carries
them on to every other dimension that it addresses. They can be padded where nothing but products
with weights sums over them (zeros in the weights silence the padding) and where they stay inside
the model: nobody outside has to pad an input or cut an output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoturbo.graph.domain import AccessMap, AxisKind, DimAccess
from autoturbo.graph.operators import Engine, Graph, Operator


@dataclass(frozen=True, slots=True)
class Channels:
    """Dimensions and loops that have one extent in common.

    Attributes:
        extent: Extent that all of them have.
        tensors: ``(tensor, dimension)`` pairs.
        axes: ``(operator, axis)`` pairs.
    """

    extent: int
    tensors: frozenset[tuple[int, int]]
    axes: frozenset[tuple[int, int]]


class _FixedError(Exception):
    """The channels cannot be padded."""


def channels_of(graph: Graph, tensor: int, dim: int) -> Channels | None:
    """Return the channels that a dimension belongs to; None if they cannot be padded.

    Args:
        graph: The model.
        tensor: Index into ``graph.tensors``.
        dim: One of its dimensions.
    """
    extent = graph.tensors[tensor].shape[dim]
    dims: set[tuple[int, int]] = set()
    axes: set[tuple[int, int]] = set()
    waiting = [(tensor, dim)]
    try:
        while waiting:
            current = waiting.pop()
            if current not in dims:
                dims.add(current)
                waiting += _next(graph, current, extent, axes)
    except _FixedError:
        return None
    return Channels(extent, frozenset(dims), frozenset(axes))


def padded(graph: Graph, channels: Channels, extent: int) -> Graph:
    """Return the graph with channels widened to ``extent``.

    Args:
        graph: The model.
        channels: A result of :func:`channels_of`.
        extent: The new number of them, not less than before.
    """
    tensors, operators = list(graph.tensors), list(graph.operators)
    for tensor, dim in channels.tensors:
        shape = tensors[tensor].shape
        tensors[tensor] = replace(tensors[tensor], shape=(*shape[:dim], extent, *shape[dim + 1 :]))
    for index, axis in channels.axes:
        axes = operators[index].axes
        wider = replace(axes[axis], extent=extent)
        operators[index] = replace(operators[index], axes=(*axes[:axis], wider, *axes[axis + 1 :]))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _next(
    graph: Graph, here: tuple[int, int], extent: int, axes: set[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the dimensions that continue the channels of one; record the axes that carry them.

    Raises:
        _FixedError: They may not be padded.
    """
    tensor, dim = here
    # What the model is given and returns has the extents that its users expect.
    if tensor in graph.read or tensor in graph.returned:
        raise _FixedError
    around = [graph.producer[tensor], *graph.consumers[tensor]]
    following: list[tuple[int, int]] = []
    for index in (i for i in around if i >= 0):
        operator = graph.operators[index]
        if operator.opaque:
            raise _FixedError
        for held, access in _accesses(operator):
            if held == tensor:
                axis = _carrier(operator, access.dims[dim], extent)
                if (index, axis) not in axes:
                    axes.add((index, axis))
                    following += _addressed(graph, operator, axis)
    return following


def _accesses(operator: Operator) -> list[tuple[int, AccessMap]]:
    return [
        *zip(operator.inputs, operator.input_maps, strict=True),
        *zip(operator.outputs, operator.output_maps, strict=True),
    ]


def _carrier(operator: Operator, access: DimAccess, extent: int) -> int:
    """Return the axis that addresses a dimension one to one.

    Raises:
        _FixedError: There is none.
    """
    axis = _sole(operator, access)
    if axis is None or operator.axes[axis].extent != extent:
        raise _FixedError
    return axis


def _sole(operator: Operator, access: DimAccess) -> int | None:
    """Return the axis of an access that is exactly one axis; None for any other access."""
    # Axes of one step do not move: an access with one other axis is still one to one.
    moving = [term for term in access.terms if operator.axes[term[0]].extent > 1]
    if access.whole or access.offset or len(moving) != 1 or moving[0][1] != 1:
        return None
    return moving[0][0]


def _addressed(graph: Graph, operator: Operator, axis: int) -> list[tuple[int, int]]:
    """Return all dimensions that an axis addresses.

    Raises:
        _FixedError: It does more than that, or the operator sums over it otherwise than in a
            product with weights.
    """
    dims, weighed = [], False
    for tensor, access in _accesses(operator):
        for dim, dim_access in enumerate(access.dims):
            if all(term[0] != axis for term in dim_access.terms):
                continue
            if _sole(operator, dim_access) != axis:
                raise _FixedError
            dims.append((tensor, dim))
            weighed = weighed or graph.tensors[tensor].constant
    kind = operator.axes[axis].kind
    summed = kind is AxisKind.REDUCTION and weighed and operator.engine is Engine.MATRIX
    if kind is not AxisKind.PARALLEL and not summed:
        raise _FixedError
    return dims


__all__ = ["Channels", "channels_of", "padded"]
