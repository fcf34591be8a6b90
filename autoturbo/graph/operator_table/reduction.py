"""Reductions, extremes, running sums, the largest few; normalisations and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from autoturbo.graph.domain import AccessMap, AxisKind, DimAccess, along, fixed, merged
from autoturbo.graph.operator_table.build import (
    MICROSOFT,
    ONNX,
    Domain,
    NodeView,
    OperatorSpec,
    Row,
    Rows,
    agree,
    broadcast,
    chosen_axes,
    per_channel,
    positive_axis,
    whole_if,
)
from autoturbo.graph.operators import Pattern, Work

Count = Callable[[int], Work]
"""Work of a reduction, from the number of elements that make one output."""


def _reduce(node: NodeView, reduced: frozenset[int], work: Count) -> OperatorSpec:
    """Describe a sum over ``reduced``; these dimensions keep extent 1, or are removed."""
    keep = node.integer("keepdims", 1)
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
    """Return the dimensions that a ``Reduce`` operator sums over; without a list, all or none."""
    axes = node.parameter("axes", 1)
    if not axes:
        axes = () if node.integer("noop_with_empty_axes", 0) else None
    return chosen_axes(axes, len(node.shape_in(0)))


def _reduction(vector: float, special: float = 0.0, finish: float = 0.0) -> Row:
    """Return the row of a ``Reduce`` operator.

    Args:
        vector: Plain operations per element read.
        special: Transcendental operations per output.
        finish: Plain operations per output.
    """
    work = Work(vector=finish, special=special, vector_per_point=vector)

    def row(node: NodeView) -> OperatorSpec:
        return _reduce(node, _reduced(node), lambda _: work)

    return row


def _log_sum_exp(node: NodeView) -> OperatorSpec:
    """Describe ReduceLogSumExp: maximum, subtraction and sum per element.

    Returns:
        The reduction; each element takes an exponential as well, each output a logarithm.
    """
    return _reduce(
        node, _reduced(node), lambda count: Work(special=count + 1.0, vector_per_point=3.0)
    )


def _arg_extreme(node: NodeView) -> OperatorSpec:
    """Describe ArgMax and ArgMin: a comparison and a selection per element."""
    reduced = chosen_axes([node.integer("axis", 0)], len(node.shape_in(0)))
    return _reduce(node, reduced, lambda _: Work(vector_per_point=2.0))


def _cumulative(node: NodeView) -> OperatorSpec:
    """Describe CumSum: each element depends on those before it, so the axis stays whole."""
    axis = positive_axis((node.constant_integers(1) or (0,))[0], len(node.shape_in(0)))
    return _whole_along(node, [axis], Work(vector=1.0), Pattern.OPAQUE)


def _top_k(node: NodeView) -> OperatorSpec:
    """Describe TopK: sorted along one dimension, which every part of the result reads in full.

    Returns:
        The work of a heap of ``k``: ``log2(k) + 1`` comparisons per element read, over ``k``
        outputs.
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


# ------------------------------------------ normalisations and softmax: whole along some dimensions
#
# TVM decomposes the layer normalisations; here they are one operator of the class of softmax
# (``OUT_ELEMENTWISE_FUSABLE``): element-wise operators may follow in the same kernel.


_SOFTMAX_PER_AXIS = 13
"""Opset since which softmax is over one dimension; before, over all from ``axis`` on."""

_GROUP_NORM_PER_CHANNEL = 21
"""Opset since which GroupNormalization has a scale per channel; before, per group."""


def _softmax(work: Work) -> Row:
    """Return the row of Softmax or a relative of it."""

    def row(node: NodeView) -> OperatorSpec:
        shape = node.shape_in(0)
        modern = node.opset >= _SOFTMAX_PER_AXIS
        axis = positive_axis(node.integer("axis", -1 if modern else 1), max(len(shape), 1))
        held = [axis] if modern else range(axis, len(shape))
        return _whole_along(node, held, work)

    return row


def _whole_along(
    node: NodeView,
    held: Iterable[int],
    work: Work,
    pattern: Pattern = Pattern.OUT_ELEMENTWISE_FUSABLE,
) -> OperatorSpec:
    """Describe an operator of one input and output, the dimensions ``held`` needed in full."""
    domain = Domain()
    access = AccessMap(domain.dims(node.shape_in(0), whole_if(held)))
    return domain.answer(node, [access], [access], work, pattern=pattern)


def _lp(node: NodeView) -> OperatorSpec:
    axis = positive_axis(node.integer("axis", -1), len(node.shape_in(0)))
    return _whole_along(node, [axis], Work(vector=2.0, special=1.0))


def _mean_variance(node: NodeView) -> OperatorSpec:
    rank = len(node.shape_in(0))
    axes = node.integers("axes") or (0, 2, 3)
    return _whole_along(node, [positive_axis(axis, rank) for axis in axes], Work(vector=5.0))


def _local_response(node: NodeView) -> OperatorSpec:
    """Describe LRN: division by a power of a sum of squares over ``size`` neighbouring channels.

    Returns:
        A window over the channels, of TVM's class ``OPAQUE``. A square and an addition per
        neighbour; scale and add a constant, then logarithm, exponential and division.
    """
    shape, size = node.shape_in(0), node.integer("size", 1)
    agree(len(shape) > 1, "no channels")
    domain = Domain()
    dims = domain.dims(shape)
    neighbour = domain.window("k", size)
    channels = DimAccess(((1, 1), (neighbour, 1)), -((size - 1) // 2))
    read = AccessMap((dims[0], channels, *dims[2:]))
    work = Work(vector=2.0, special=3.0, vector_per_point=2.0)
    return domain.answer(node, [read], [AccessMap(dims)], work)


def _layer(vector: float, *, skip: bool = False) -> Row:
    """Return the row of a normalisation over all dimensions from ``axis`` on, then scaled.

    Args:
        vector: Operations per element.
        skip: Whether the second input is added first, and the sum is the fourth output.
    """
    scale = 2 if skip else 1

    def row(node: NodeView) -> OperatorSpec:
        shape, domain = node.shape_in(0), Domain()
        axis = positive_axis(node.integer("axis", -1), len(shape))
        dims = domain.dims(shape, whole_if(range(axis, len(shape))))
        access = AccessMap(dims)
        statistics = AccessMap((*dims[:axis], *(fixed() for _ in shape[axis:])))
        parameter_maps = [
            None if v is None else broadcast(v.shape, shape, dims) for v in node.inputs[1:]
        ]
        work = Work(vector=vector, special=1.0 / max(math.prod(shape[axis:]), 1))
        return domain.answer(
            node,
            [access, *parameter_maps],
            [access, statistics, statistics, access],
            work,
            pattern=Pattern.OUT_ELEMENTWISE_FUSABLE,
            parameterised=node.is_weight(scale),
        )

    return row


def _group(node: NodeView) -> OperatorSpec:
    """Describe GroupNormalization: per sample and group, over its channels and positions."""
    shape, groups = node.shape_in(0), node.integer("num_groups", 1)
    agree(len(shape) > 1 and shape[1] % groups == 0, f"channels in {groups} groups")
    inner, domain = shape[1] // groups, Domain()
    n, g = domain.axis("n", shape[0]), domain.axis("g", groups)
    c = domain.whole("c", inner)
    rest = [along(domain.whole(f"d{i}", extent)) for i, extent in enumerate(shape[2:], 2)]
    channel = merged((g, groups), (c, inner))
    access = AccessMap((along(n), channel, *rest))
    per_group = node.opset < _GROUP_NORM_PER_CHANNEL
    scaled, extent = (along(g), groups) if per_group else (channel, shape[1])
    parameters = [per_channel(node.value_in(i), scaled, extent) for i in (1, 2)]
    return _scaled(node, domain, access, parameters, inner * math.prod(shape[2:]))


def _instance(node: NodeView) -> OperatorSpec:
    """Describe InstanceNormalization: per sample and channel, over its positions."""
    shape, domain = node.shape_in(0), Domain()
    agree(len(shape) > 1, "no channels")
    dims = domain.dims(shape, whole_if(range(2, len(shape))))
    parameters = [per_channel(node.value_in(i), dims[1], shape[1]) for i in (1, 2)]
    return _scaled(node, domain, AccessMap(dims), parameters, math.prod(shape[2:]))


def _scaled(
    node: NodeView,
    domain: Domain,
    access: AccessMap,
    parameters: Sequence[AccessMap | None],
    count: int,
) -> OperatorSpec:
    """Describe a normalisation over ``count`` elements with scale and shift."""
    return domain.answer(
        node,
        [access, *parameters],
        [access],
        Work(vector=5.0, special=1.0 / max(count, 1)),
        pattern=Pattern.OUT_ELEMENTWISE_FUSABLE,
        parameterised=node.is_weight(1),
    )


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
    # Maximum, subtract, add per element; an exponential and the division.
    (ONNX, "Softmax"): _softmax(Work(vector=3.0, special=2.0)),
    # The same with a subtraction instead of the division; the logarithm is one per row.
    (ONNX, "LogSoftmax"): _softmax(Work(vector=4.0, special=1.0)),
    # Maximum and comparison.
    (ONNX, "Hardmax"): _softmax(Work(vector=2.0)),
    # Sum, sum of squares (2), and x * a + b with a and b folded (2): 5 per element, one root per
    # row. Without a mean: square, sum, two multiplications (4). A skip adds 1.
    (ONNX, "LayerNormalization"): _layer(5.0),
    (ONNX, "RMSNormalization"): _layer(4.0),
    (ONNX, "SimplifiedLayerNormalization"): _layer(4.0),
    (MICROSOFT, "SkipLayerNormalization"): _layer(6.0, skip=True),
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _layer(5.0, skip=True),
    (ONNX, "GroupNormalization"): _group,
    (ONNX, "InstanceNormalization"): _instance,
    (ONNX, "LpNormalization"): _lp,  # square and sum per element; the division
    (ONNX, "MeanVarianceNormalization"): _mean_variance,  # as layer normalisation
    (ONNX, "LRN"): _local_response,
}
