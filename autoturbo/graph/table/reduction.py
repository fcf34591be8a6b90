"""Reductions over dimensions, positions of extremes, running sums and the largest few."""

from __future__ import annotations

import math
from collections.abc import Callable

from autoturbo.graph.domain import AccessMap, AxisKind, DimAccess, fixed
from autoturbo.graph.operators import Pattern, Work
from autoturbo.graph.table.build import (
    ONNX,
    Domain,
    Rows,
    agree,
    chosen_axes,
    positive_axis,
    whole_if,
)
from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row

Count = Callable[[int], Work]
"""Work of a reduction, from the number of elements that make one output."""


def _reduce(node: NodeView, reduced: frozenset[int], work: Count, *, keep: bool) -> OperatorSpec:
    """Sum over ``reduced``; these dimensions stay with extent 1, or go."""
    source, domain = node.shape_in(0), Domain()
    dims = domain.dims(
        source, lambda dim: AxisKind.REDUCTION if dim in reduced else AxisKind.PARALLEL
    )
    written: list[DimAccess] = []
    for index, dim in enumerate(dims):
        if index not in reduced:
            written.append(dim)
        elif keep:
            written.append(fixed())
    count = math.prod(source[index] for index in reduced)
    output = [AccessMap(tuple(written))]
    return domain.answer(node, [AccessMap(dims)], output, work(count), pattern=Pattern.REDUCE)


def _reduced(node: NodeView) -> frozenset[int]:
    """The dimensions that a ``Reduce`` operator sums over; without a list, all or none of them."""
    axes = node.parameter("axes", 1)
    if not axes:
        axes = () if node.integer("noop_with_empty_axes", 0) else None
    return chosen_axes(axes, len(node.shape_in(0)))


def _keep(node: NodeView) -> bool:
    return bool(node.integer("keepdims", 1))


def _reduction(vector: float, special: float = 0.0, finish: float = 0.0) -> Row:
    """A ``Reduce`` operator.

    Args:
        vector: plain operations per element read.
        special: transcendental operations per output.
        finish: plain operations per output.
    """
    work = Work(vector=finish, special=special, vector_per_point=vector)

    def row(node: NodeView) -> OperatorSpec:
        return _reduce(node, _reduced(node), lambda _: work, keep=_keep(node))

    return row


def _log_sum_exp(node: NodeView) -> OperatorSpec:
    """Maximum, subtraction and sum per element; an exponential per element and one logarithm."""

    def work(count: int) -> Work:
        return Work(special=count + 1.0, vector_per_point=3.0)

    return _reduce(node, _reduced(node), work, keep=_keep(node))


def _arg_extreme(node: NodeView) -> OperatorSpec:
    """A comparison and a selection per element."""
    reduced = chosen_axes([node.integer("axis", 0)], len(node.shape_in(0)))
    return _reduce(node, reduced, lambda _: Work(vector_per_point=2.0), keep=_keep(node))


def _cumulative(node: NodeView) -> OperatorSpec:
    """One operation per element; each depends on those before it, so the axis stays whole."""
    shape = node.shape_in(0)
    axis = node.constant_integers(1) or (0,)
    domain = Domain()
    access = AccessMap(domain.dims(shape, whole_if([positive_axis(axis[0], len(shape))])))
    return domain.answer(node, [access], [access], Work(vector=1.0), pattern=Pattern.OPAQUE)


def _top_k(node: NodeView) -> OperatorSpec:
    """Sorted along one dimension, of which any part of the result needs everything.

    Counted as a heap of ``k``: ``log2(k) + 1`` comparisons per element read, over ``k`` outputs.
    """
    source, target = node.shape_in(0), node.shape_out()
    axis = positive_axis(node.integer("axis", -1), len(source))
    agree(len(source) == len(target), "input and output differ in rank")
    domain = Domain()
    dims = domain.dims(target, whole_if([axis]))
    kept = max(target[axis], 1)
    read = list(dims)
    read[axis] = DimAccess(whole=True)
    work = Work(vector=source[axis] * (math.log2(kept) + 1) / kept)
    counter = node.value_in(1)
    absorbed = counter is None or counter.constant
    agree(absorbed, "how many are kept is not a known constant")
    return domain.answer(node, [AccessMap(tuple(read))], [AccessMap(dims)] * 2, work)


ROWS: Rows = {
    (ONNX, "ReduceSum"): _reduction(1),
    (ONNX, "ReduceMax"): _reduction(1),
    (ONNX, "ReduceMin"): _reduction(1),
    (ONNX, "ReduceProd"): _reduction(1),
    (ONNX, "ReduceMean"): _reduction(1, finish=1),  # scaled once per output
    (ONNX, "ReduceL1"): _reduction(2),  # absolute value, addition
    (ONNX, "ReduceSumSquare"): _reduction(2),  # multiplication, addition
    (ONNX, "ReduceL2"): _reduction(2, special=1),  # and a root
    (ONNX, "ReduceLogSum"): _reduction(1, special=1),  # and a logarithm
    (ONNX, "ReduceLogSumExp"): _log_sum_exp,
    (ONNX, "ArgMax"): _arg_extreme,
    (ONNX, "ArgMin"): _arg_extreme,
    (ONNX, "CumSum"): _cumulative,
    (ONNX, "CumProd"): _cumulative,
    (ONNX, "TopK"): _top_k,
}
