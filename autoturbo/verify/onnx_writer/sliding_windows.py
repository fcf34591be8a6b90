"""Windows that slide: what they overhang at the edges of the tensor becomes explicit padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import DimAccess, Interval, volume
from autoturbo.verify.onnx_writer.partial_operator import Box, NodeRegions, PartialOperator

_FIRST = 2
"""Samples and channels come before the dimensions that windows slide over."""


@dataclass(frozen=True, slots=True)
class _Overhang:
    """Positions that windows touch before and after the tensor, per dimension slid over."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def pads(self) -> list[int]:
        """As the attribute of a node."""
        return [*self.before, *self.after]


def _unclipped(dim: DimAccess, box: Box) -> Interval:
    low = high = dim.offset
    for axis, coefficient in dim.terms:
        low += box[axis][0] * coefficient
        high += (box[axis][1] - 1) * coefficient
    return low, high + 1


def _overhang(partial: PartialOperator) -> _Overhang:
    dims = partial.operator.input_maps[0].dims[_FIRST:]
    pairs = list(
        zip((_unclipped(d, partial.box) for d in dims), partial.needs[0][_FIRST:], strict=True)
    )
    before = tuple(max(need[0] - touched[0], 0) for touched, need in pairs)
    after = tuple(max(touched[1] - need[1], 0) for touched, need in pairs)
    return _Overhang(before, after)


def _explicit(partial: PartialOperator, overhang: _Overhang) -> dict[str, object]:
    """Return the padding attributes of a part."""
    changes: dict[str, object] = {"pads": overhang.pads}
    return {**changes, **{k: None for k in ("auto_pad", "ceil_mode") if k in partial.attributes}}


# ----------------------------------------------------------------------------------- convolutions


def _convolution(partial: PartialOperator) -> NodeRegions | None:
    """Plan a convolution: the groups at hand, halo and padding."""
    groups = _groups(partial)
    if groups is None or _nothing(partial):
        return None
    changes = {**_explicit(partial, _overhang(partial)), "group": groups}
    if groups == 1 and "group" not in partial.attributes:
        del changes["group"]
    return NodeRegions(partial.needs, partial.makes(partial.box), changes)


def _groups(partial: PartialOperator) -> int | None:
    """Return how many groups the box has whole, or 1 where it has part of one; else None."""
    low, high = partial.span(partial.box, "g")
    whole = partial.span(partial.box, "oc") == partial.span(partial.full, "oc")
    return high - low if whole or high - low == 1 else None


def _nothing(partial: PartialOperator) -> bool:
    """Return whether windows lie in the padding alone."""
    return volume(partial.needs[0]) == 0


def _deformed(partial: PartialOperator) -> NodeRegions | None:
    """Plan a deformable convolution: only samples and output channels are cut."""
    free = ("n",) if partial.axis("g") is not None else ("n", "oc")
    names = [axis.name for axis in partial.operator.axes]
    pairs = zip(names, partial.box, partial.full, strict=True)
    box = tuple(part if name in free else whole for name, part, whole in pairs)
    return NodeRegions(partial.reads(box), partial.makes(box))


def _transposed(partial: PartialOperator) -> NodeRegions | None:
    """Plan a transposed convolution: zeros beside its input reach as far as is wanted.

    The node makes the wanted positions alone: what else it reaches is cut away as padding.
    """
    groups, wanted = _groups(partial), partial.wanted[0]
    if groups is None or wanted is None or _nothing(partial):
        return None
    target = partial.operator.output_maps[0].dims
    rows = range(_FIRST, len(target))
    kernel = partial.input_shapes[1]
    reach = [_reach(target[d], kernel[d], partial.needs[0][d], wanted[d]) for d in rows]
    frame = (*partial.needs[0][:_FIRST], *(grown for grown, _ in reach))
    pads = _Overhang(tuple(p[0] for _, p in reach), tuple(p[1] for _, p in reach))
    made = (*partial.makes(partial.box)[0][:_FIRST], *wanted[_FIRST:])
    gone = {
        k: None for k in ("auto_pad", "output_shape", "output_padding") if k in partial.attributes
    }
    changes: dict[str, object] = {"pads": pads.pads, **gone}
    if "group" in partial.attributes:
        changes["group"] = groups
    return NodeRegions((frame, *partial.needs[1:]), (made,), changes)


def _reach(
    dim: DimAccess, kernel: int, need: Interval, wanted: Interval
) -> tuple[Interval, Interval]:
    """Return input rows whose windows cover what is wanted, and their reach beyond it."""
    (_, stride), (_, dilation) = dim.terms
    span = (kernel - 1) * dilation + 1
    low, high = need
    while low * stride + dim.offset > wanted[0]:
        low -= 1
    while (high - 1) * stride + dim.offset + span < wanted[1]:
        high += 1
    first, last = low * stride + dim.offset, (high - 1) * stride + dim.offset + span
    return (low, high), (wanted[0] - first, last - wanted[1])


# ------------------------------------------------------------------------------------------ pools


def _pool(partial: PartialOperator) -> NodeRegions | None:
    """Plan a pool: halo and padding; None where positions of maxima are wanted."""
    overhang = _overhang(partial)
    kernel = partial.attributes["kernel_shape"]
    pads = zip(overhang.before, overhang.after, kernel, strict=True)
    if _nothing(partial) or any(max(before, after) >= size for before, after, size in pads):
        return None
    if _wants_positions(partial) or _miscounts(partial, overhang):
        return None
    return NodeRegions(partial.needs, partial.makes(partial.box), _explicit(partial, overhang))


def _wants_positions(partial: PartialOperator) -> bool:
    """Return whether a part of the second output of a pool is wanted."""
    positions = {value.tensor for value in partial.node.outputs[1:] if value is not None}
    pairs = zip(partial.operator.outputs, partial.wanted, strict=True)
    return any(tensor in positions and wanted is not None for tensor, wanted in pairs)


def _miscounts(partial: PartialOperator, overhang: _Overhang) -> bool:
    """Return whether windows reach beyond the padding that a mean counts."""
    if not partial.attributes.get("count_include_pad", 0):
        return False
    rank = len(overhang.after)
    pads = partial.attributes.get("pads") or [0] * (2 * rank)
    automatic = partial.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"")
    return not automatic and any(a > p for a, p in zip(overhang.after, pads[rank:], strict=True))


def _neighbours(partial: PartialOperator) -> NodeRegions | None:
    """Plan a normalisation over neighbouring channels with their halo, which is cut away."""
    return None if _nothing(partial) else NodeRegions(partial.needs, (partial.needs[0],))


# --------------------------------------------------------------------------------------- resizing


def _resized(partial: PartialOperator) -> NodeRegions | None:
    """Plan an enlargement by whole factors with its halo, which is cut away."""
    access = partial.operator.input_maps[0].dims
    written = partial.operator.output_maps[0].dims
    rows = list(zip(access, written, partial.needs[0], partial.input_shapes[0], strict=True))
    if _nothing(partial):
        return None
    made: list[Interval] = []
    source: list[Interval] = []
    for index, (read, write, need, extent) in enumerate(rows):
        if read.whole:
            made.append((0, partial.output_shapes[0][index]))
            source.append((0, extent))
            continue
        factor = dict(write.terms)[read.terms[0][0]]
        made.append((need[0] * factor, need[1] * factor))
        source.append(need)
    node_regions = (tuple(source), *partial.needs[1:])
    return NodeRegions(node_regions, (tuple(made),), parameters=_sizes(partial, made))


def _sizes(
    partial: PartialOperator, made: Sequence[Interval]
) -> Mapping[int, np.ndarray | str | None]:
    """Return the sizes of a part as a parameter, where the node is given sizes."""
    inputs = partial.node.inputs
    if len(inputs) <= _SIZES or inputs[_SIZES] is None:
        return {}
    axes = partial.attributes.get("axes") or range(len(made))
    return {_SIZES: np.array([made[axis][1] - made[axis][0] for axis in axes], dtype=np.int64)}


_SIZES = 3
"""The input of Resize that says extents."""

# ------------------------------------------------------------------------------------ the kinds

Plan = Callable[[PartialOperator], NodeRegions | None]
"""Returns the regions of a part, or None where it has to be embedded in the whole."""

PLANS: Mapping[str, Plan] = {
    "AveragePool": _pool,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed,
    "DeformConv": _deformed,
    "LRN": _neighbours,
    "LpPool": _pool,
    "MaxPool": _pool,
    "QLinearConv": _convolution,
    "Resize": _resized,
    "Upsample": _resized,
    "com.microsoft.FusedConv": _convolution,
}
"""By kind."""


def plan_window(partial: PartialOperator) -> NodeRegions | None:
    """Return the regions of a sliding window; None for other operators and cases."""
    return PLANS[partial.operator.kind](partial) if partial.operator.kind in PLANS else None
