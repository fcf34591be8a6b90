"""Convolutions in any number of spatial dimensions, and pools.

Domain: ``n, g, oc, o0.., ic, k0..`` with ``oc`` and ``ic`` counted within a group; axes of extent 1
are left out for a depthwise convolution. Input row ``o * stride + k * dilation - pad``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, fixed, merged
from autoturbo.graph.operator_table.build import (
    MICROSOFT,
    ONNX,
    Domain,
    NodeView,
    OperatorSpec,
    Row,
    Rows,
    ValueView,
    agree,
    everything,
    per_channel,
)
from autoturbo.graph.operators import Engine, Pattern, Work


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension of a sliding window."""

    kernel: int
    stride: int
    dilation: int
    pad: int

    @property
    def reach(self) -> int:
        """Return the extent of the dilated kernel."""
        return (self.kernel - 1) * self.dilation + 1


def windows(
    node: NodeView, kernel: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> tuple[Window, ...]:
    """Return the windows of a node, from its attributes and its input and output extents.

    Args:
        node: A convolution or a pool.
        kernel: Extents of the window.
        source: Spatial extents that the window slides over.
        target: Number of window positions.
    """
    rank = len(kernel)
    agree(len(source) == len(target) == rank, f"{rank} spatial dimensions expected")
    strides = node.integers("strides") or (1,) * rank
    dilations = node.integers("dilations") or (1,) * rank
    pads = (node.integers("pads") or (0,) * (2 * rank))[:rank]
    automatic = node.text("auto_pad", "NOTSET")
    if automatic == "VALID":
        pads = (0,) * rank
    rows = [Window(*row) for row in zip(kernel, strides, dilations, pads, strict=True)]
    if automatic.startswith("SAME"):
        rows = [
            replace(w, pad=_first_part(automatic, (o - 1) * w.stride + w.reach - i))
            for w, i, o in zip(rows, source, target, strict=True)
        ]
    return tuple(rows)


def _first_part(automatic: str, padding: int) -> int:
    """Return the padding before the first element, by ONNX's rule for each ``auto_pad``."""
    total = max(padding, 0)
    # Upper says where the odd element goes: to the end.
    return total // 2 if automatic == "SAME_UPPER" else total - total // 2


def slide(
    domain: Domain, positions: Sequence[int], windows: Sequence[Window], *, always: bool = False
) -> list[DimAccess]:
    """Add the axes along which windows move over their elements.

    Windows of one element get no axis, unless ``always``: in outputs, a window axis says that
    positions may be reached several times, or never.

    Returns:
        How the dimensions that the windows slide over are addressed, in the order of ``positions``.
    """
    accesses = []
    for index, (position, window) in enumerate(zip(positions, windows, strict=True)):
        if window.kernel == 1 and not always:
            accesses.append(along(position, window.stride, -window.pad))
            continue
        k = domain.window(f"k{index}", window.kernel)
        terms = ((position, window.stride), (k, window.dilation))
        accesses.append(DimAccess(terms, -window.pad))
    return accesses


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The domain of a convolution, and how its tensors are addressed."""

    domain: Domain
    source: AccessMap
    weight: AccessMap
    output: AccessMap
    channel: DimAccess
    channels: int


def _convolution(node: NodeView, data: int, weight: int) -> _Convolution:
    source, kernel, target = node.shape_in(data), node.shape_in(weight), node.shape_out()
    groups = node.integer("group", 1)
    outer, inner = target[1] // groups, kernel[1]
    agree(len(source) == len(kernel) == len(target) > 2, "data and weight differ in rank")  # noqa: PLR2004
    agree(source[1] == groups * inner, f"{source[1]} channels, {groups} groups of {inner}")
    agree(kernel[0] == target[1] == groups * outer, "channels are not a multiple of the groups")
    domain = Domain()
    n = domain.axis("n", target[0])
    group = [] if groups == 1 else [(domain.axis("g", groups), groups)]
    oc = _in_group(domain.axis, "oc", outer, groups)
    positions = [domain.axis(f"o{i}", extent) for i, extent in enumerate(target[2:])]
    ic = _in_group(domain.reduction, "ic", inner, groups)
    spatial = windows(node, kernel[2:], source[2:], target[2:])
    rows = slide(domain, positions, spatial)
    channel = merged(*group, *oc)
    return _Convolution(
        domain,
        AccessMap((along(n), merged(*group, *ic), *rows)),
        AccessMap((channel, merged(*ic), *_kernel_dims(rows))),
        AccessMap((along(n), channel, *(along(position) for position in positions))),
        channel,
        target[1],
    )


def _in_group(
    add: Callable[[str, int], int], name: str, extent: int, groups: int
) -> list[tuple[int, int]]:
    """Add the axis of channels within a group; add none if each group has only one."""
    return [(add(name, extent), extent)] if groups == 1 or extent > 1 else []


def _kernel_dims(rows: Sequence[DimAccess]) -> list[DimAccess]:
    """Return the accesses of the kernel: by the last axis of each row, if it has a window."""
    return [along(row.terms[-1][0]) if len(row.terms) > 1 else DimAccess() for row in rows]


def _finish(
    node: NodeView,
    conv: _Convolution,
    inputs: Sequence[AccessMap | None],
    weight: int,
    vector: float,
) -> OperatorSpec:
    """Return the description that all convolutions share."""
    return conv.domain.answer(
        node,
        inputs,
        [conv.output],
        Work(macs=1, vector=vector),
        engine=Engine.MATRIX,
        pattern=Pattern.OUT_ELEMENTWISE_FUSABLE,
        parameterised=node.is_weight(weight),
    )


def _per_output(value: ValueView | None, conv: _Convolution) -> AccessMap | None:
    return per_channel(value, conv.channel, conv.channels)


def _conv(node: NodeView) -> OperatorSpec:
    """Describe Conv; a bias costs one addition per output."""
    conv = _convolution(node, 0, 1)
    bias = _per_output(node.value_in(2), conv)
    return _finish(node, conv, [conv.source, conv.weight, bias], 1, 0.0 if bias is None else 1.0)


def _fused_conv(node: NodeView) -> OperatorSpec:
    """Describe com.microsoft.FusedConv: bias, an addend, an activation (one operation each)."""
    conv = _convolution(node, 0, 1)
    bias, addend = _per_output(node.value_in(2), conv), node.value_in(3)
    if addend is not None:
        agree(addend.shape == node.shape_out(), "the addend has a shape of its own")
    inputs = [conv.source, conv.weight, bias, None if addend is None else conv.output]
    vector = 1.0 + (bias is not None) + (addend is not None)
    return _finish(node, conv, inputs, 1, vector)


def _deform_conv(node: NodeView) -> OperatorSpec:
    """Describe DeformConv, which samples anywhere in the image.

    Returns:
        The convolution with offsets, and weights if any, per window point and position. A bilinear
        sample is 8 vector operations, made once for all output channels of a group.
    """
    conv = _convolution(node, 0, 1)
    spatial = conv.output.dims[2:]
    source = AccessMap((*conv.source.dims[:2], *(WHOLE_DIM for _ in spatial)))
    placed = AccessMap((conv.output.dims[0], WHOLE_DIM, *spatial))
    bias = _per_output(node.value_in(3), conv)
    spec = _finish(
        node, conv, [source, conv.weight, placed, bias, placed], 1, float(bias is not None)
    )
    # Work is counted per point of the product, of which there is one for each output channel.
    sampling = 8.0 * node.integer("group", 1) / max(conv.channels, 1)
    return replace(spec, work=replace(spec.work, vector_per_point=sampling))


def _conv_integer(node: NodeView) -> OperatorSpec:
    """Describe ConvInteger: zero points cost one subtraction per output.

    Returns:
        The convolution; sums of windows and kernels count as computed before.
    """
    conv = _convolution(node, 0, 1)
    points = [everything(node.value_in(2)), _per_output(node.value_in(3), conv)]
    vector = float(sum(point is not None for point in points))
    return _finish(node, conv, [conv.source, conv.weight, *points], 1, vector)


def _qlinear_conv(node: NodeView) -> OperatorSpec:
    """Describe QLinearConv: 5 operations per output to requantise, 1 for a bias.

    Returns:
        The convolution; requantising subtracts, scales, rounds, adds the zero point and saturates.
    """
    conv = _convolution(node, 0, 3)
    bias = _per_output(node.value_in(8), conv)
    inputs = [
        conv.source,
        everything(node.value_in(1)),
        everything(node.value_in(2)),
        conv.weight,
        _per_output(node.value_in(4), conv),
        _per_output(node.value_in(5), conv),
        everything(node.value_in(6)),
        everything(node.value_in(7)),
        bias,
    ]
    return _finish(node, conv, inputs, 3, 5.0 if bias is None else 6.0)


def _conv_transpose(node: NodeView) -> OperatorSpec:
    """Describe ConvTranspose: each input adds a scaled kernel to the output.

    It starts at row ``i * stride + k * dilation - pad``.

    Returns:
        The domain ``n, g, oc, i0.., ic, k0..``, with the multiply-accumulates of the definition,
        those that fall into the padding included. Output elements are reached by several points, or
        by none; where windows leave gaps between them or before the end, further axes reach these
        (:func:`_gap`).
    """
    source, kernel, target = node.shape_in(0), node.shape_in(1), node.shape_out()
    groups = node.integer("group", 1)
    inner, outer = source[1] // groups, kernel[1]
    agree(len(source) == len(kernel) == len(target) > 2, "data and weight differ in rank")  # noqa: PLR2004
    agree(kernel[0] == source[1] == groups * inner, "channels are not a multiple of the groups")
    agree(target[1] == groups * outer, f"{target[1]} channels, {groups} groups of {outer}")
    domain = Domain()
    n = domain.axis("n", source[0])
    group = [] if groups == 1 else [(domain.axis("g", groups), groups)]
    oc = _in_group(domain.axis, "oc", outer, groups)
    positions = [domain.axis(f"i{i}", extent) for i, extent in enumerate(source[2:])]
    ic = _in_group(domain.reduction, "ic", inner, groups)
    spatial = _transposed_windows(node, kernel[2:], source[2:], target[2:])
    rows = slide(domain, positions, spatial, always=True)
    gaps = map(_gap, spatial, source[2:], target[2:])
    reached = [_widened(domain, *part) for part in zip(rows, spatial, gaps, strict=True)]
    channel, read = merged(*group, *oc), merged(*group, *ic)
    conv = _Convolution(
        domain,
        AccessMap((along(n), read, *(along(position) for position in positions))),
        AccessMap((read, merged(*oc), *_kernel_dims(rows))),
        AccessMap((along(n), channel, *reached)),
        channel,
        target[1],
    )
    bias = _per_output(node.value_in(2), conv)
    # One addition per output element, of which there are not as many as positions.
    ratio = math.prod(target[2:]) / max(math.prod(source[2:]), 1)
    inputs = [conv.source, conv.weight, bias]
    return _finish(node, conv, inputs, 1, 0.0 if bias is None else ratio)


def _gap(window: Window, source: int, target: int) -> int:
    """Return the positions beyond a window that parts of the input must make as well.

    A stride greater than the window and padding of the output leave elements that no input reaches.
    """
    last = target - 1 + window.pad - (source - 1) * window.stride
    # Up to the next window at least, or elements between two would be in no part.
    wanted = max(last, window.stride - 1)
    return max(-(-wanted // window.dilation) - (window.kernel - 1), 0)


def _widened(domain: Domain, row: DimAccess, window: Window, gap: int) -> DimAccess:
    """Return how outputs are addressed by a window and the gap behind it."""
    if not gap:
        return row
    axis = domain.gap(f"gap of {domain.axes[row.terms[-1][0]].name}", gap + 1)
    return DimAccess((*row.terms, (axis, window.dilation)), row.offset)


def _transposed_windows(
    node: NodeView, kernel: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> tuple[Window, ...]:
    """Return the windows of a transposed convolution, padding derived from the output's extents.

    With ``auto_pad`` or ``output_shape`` the total padding makes the extents agree and is divided
    between both ends by ONNX's rule; otherwise it is given.
    """
    given = windows(node, kernel, source, target)
    automatic = node.text("auto_pad", "NOTSET")
    if not automatic.startswith("SAME") and node.integers("output_shape") is None:
        return given
    extra = node.integers("output_padding") or (0,) * len(kernel)
    return tuple(
        replace(w, pad=_first_part(automatic, (i - 1) * w.stride + extra_rows + w.reach - o))
        for w, i, o, extra_rows in zip(given, source, target, extra, strict=True)
    )


# ------------------------------- pools: reductions over a window, or all positions, of each channel


def _pool(work: Work) -> Row:
    """Return the row of a pool: domain ``n, c, o0.., k0..``, indices addressed like the maxima."""

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
    """Return the row of a global pool: domain ``n, c, k0..``, every position of a channel."""

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
    """Describe RoiAlign: boxes and channels are independent; a box may lie anywhere in any image.

    Returns:
        One point per output element. A bilinear sample is 4 multiplications and 4 additions; there
        are ``sampling_ratio`` squared of them, taken as 4 where the ratio adapts to the box.
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
    """Describe GridSample: each position samples anywhere in its image, 8 operations a sample."""
    source, target = node.shape_in(0), node.shape_out()
    agree(source[:2] == target[:2], "batch or channels differ")
    domain = Domain()
    n, channel, *rest = domain.dims(target)
    inputs = [AccessMap((n, channel, *(WHOLE_DIM for _ in rest))), AccessMap((n, *rest, WHOLE_DIM))]
    return domain.answer(node, inputs, [AccessMap((n, channel, *rest))], Work(vector=8.0))


ROWS: Rows = {
    (ONNX, "Conv"): _conv,
    (ONNX, "ConvTranspose"): _conv_transpose,
    (ONNX, "DeformConv"): _deform_conv,
    (ONNX, "ConvInteger"): _conv_integer,
    (ONNX, "QLinearConv"): _qlinear_conv,
    (MICROSOFT, "FusedConv"): _fused_conv,
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
