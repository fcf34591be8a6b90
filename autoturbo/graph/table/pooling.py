"""Pools: a reduction over a sliding window, or over all positions, of each channel."""

from __future__ import annotations

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, along, fixed
from autoturbo.graph.operators import Pattern, Work
from autoturbo.graph.table.build import ONNX, Domain, Rows, agree
from autoturbo.graph.table.convolution import slide, windows
from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row


def _pool(work: Work) -> Row:
    """Domain ``n, c, o0.., k0..``; indices of the maxima are addressed like the maxima."""

    def row(node: NodeView) -> OperatorSpec:
        source, target = node.shape_in(0), node.shape_out()
        kernel = node.integers("kernel_shape") or ()
        agree(source[:2] == target[:2] and len(source) > 2, "batch or channels differ")  # noqa: PLR2004
        domain = Domain()
        output = domain.dims(target)
        positions = range(2, len(target))
        rows = slide(domain, positions, windows(node, kernel, source[2:], target[2:]))
        maps = [AccessMap(output)] * len(node.outputs)
        read = AccessMap((*output[:2], *rows))
        return domain.answer(node, [read], maps, work, pattern=Pattern.OUT_ELEMENTWISE_FUSABLE)

    return row


def _global_pool(work: Work) -> Row:
    """Domain ``n, c, k0..``: every position of a channel."""

    def row(node: NodeView) -> OperatorSpec:
        source, target = node.shape_in(0), node.shape_out()
        agree(target == source[:2] + (1,) * (len(source) - 2), "the output is not one position")
        domain = Domain()
        output = domain.dims(target[:2])
        rest = [along(domain.reduction(f"k{i}", e)) for i, e in enumerate(source[2:])]
        write = AccessMap((*output, *(fixed() for _ in rest)))
        read = AccessMap((*output, *rest))
        return domain.answer(node, [read], [write], work, pattern=Pattern.OUT_ELEMENTWISE_FUSABLE)

    return row


def _roi_align(node: NodeView) -> OperatorSpec:
    """Boxes and channels are independent; a box may lie anywhere in any image.

    A bilinear sample is 4 multiplications and 4 additions; ``sampling_ratio`` squared of them per
    output, taken as 4 where the ratio adapts to the box.
    """
    source, target = node.shape_in(0), node.shape_out()
    agree(len(source) == len(target) == 4, "four dimensions expected")  # noqa: PLR2004
    domain = Domain()
    box, channel, *rest = domain.dims(target)
    ratio = node.integer("sampling_ratio", 0) or 2
    inputs = [
        AccessMap((WHOLE_DIM, channel, WHOLE_DIM, WHOLE_DIM)),
        AccessMap((box, WHOLE_DIM)),
        AccessMap((box,)),
    ]
    work = Work(vector=8.0 * ratio**2)
    return domain.answer(node, inputs, [AccessMap((box, channel, *rest))], work)


def _grid_sample(node: NodeView) -> OperatorSpec:
    """Every position is sampled anywhere in its own image: 8 operations a bilinear sample."""
    source, target = node.shape_in(0), node.shape_out()
    agree(source[:2] == target[:2], "batch or channels differ")
    domain = Domain()
    n, channel, *rest = domain.dims(target)
    inputs = [
        AccessMap((n, channel, *(WHOLE_DIM for _ in rest))),
        AccessMap((n, *rest, WHOLE_DIM)),
    ]
    return domain.answer(node, inputs, [AccessMap((n, channel, *rest))], Work(vector=8.0))


ROWS: Rows = {
    # One comparison, or addition, per window point; the mean scales once per output.
    (ONNX, "MaxPool"): _pool(Work(vector_per_point=1.0)),
    (ONNX, "AveragePool"): _pool(Work(vector=1.0, vector_per_point=1.0)),
    (ONNX, "GlobalMaxPool"): _global_pool(Work(vector_per_point=1.0)),
    (ONNX, "GlobalAveragePool"): _global_pool(Work(vector=1.0, vector_per_point=1.0)),
    # A power and an addition per window point (the square of p = 2 is one multiplication), a root.
    (ONNX, "LpPool"): _pool(Work(special=1.0, vector_per_point=2.0)),
    (ONNX, "GlobalLpPool"): _global_pool(Work(special=1.0, vector_per_point=2.0)),
    (ONNX, "RoiAlign"): _roi_align,
    (ONNX, "GridSample"): _grid_sample,
}
