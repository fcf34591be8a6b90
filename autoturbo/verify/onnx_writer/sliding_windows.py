"""Windows that slide: what they overhang at the edges of the tensor becomes explicit padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import DimAccess, Interval, volume
from autoturbo.verify.onnx_writer.partial_operator import Box, Frames, PartialOperator

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


def _overhang(task: PartialOperator) -> _Overhang:
    dims = task.operator.input_maps[0].dims[_FIRST:]
    pairs = list(zip((_unclipped(d, task.box) for d in dims), task.needs[0][_FIRST:], strict=True))
    before = tuple(max(need[0] - touched[0], 0) for touched, need in pairs)
    after = tuple(max(touched[1] - need[1], 0) for touched, need in pairs)
    return _Overhang(before, after)


def _explicit(task: PartialOperator, overhang: _Overhang) -> dict[str, object]:
    """The padding attributes of a part."""
    changes: dict[str, object] = {"pads": overhang.pads}
    return {**changes, **{k: None for k in ("auto_pad", "ceil_mode") if k in task.attributes}}


# ----------------------------------------------------------------------------------- convolutions


def _convolution(task: PartialOperator) -> Frames | None:
    """Groups that are at hand, halo and padding."""
    groups = _groups(task)
    if groups is None or _nothing(task):
        return None
    changes = {**_explicit(task, _overhang(task)), "group": groups}
    if groups == 1 and "group" not in task.attributes:
        del changes["group"]
    return Frames(task.needs, task.makes(task.box), changes)


def _groups(task: PartialOperator) -> int | None:
    """Groups of channels of which the box has all, or the one of which it has some."""
    low, high = task.span(task.box, "g")
    whole = task.span(task.box, "oc") == task.span(task.full, "oc")
    return high - low if whole or high - low == 1 else None


def _nothing(task: PartialOperator) -> bool:
    """Whether windows lie in the padding alone."""
    return volume(task.needs[0]) == 0


def _deformed(task: PartialOperator) -> Frames | None:
    """Samples and, without groups, output channels may be cut; samples lie anywhere in an image."""
    free = ("n",) if task.axis("g") is not None else ("n", "oc")
    names = [axis.name for axis in task.operator.axes]
    pairs = zip(names, task.box, task.full, strict=True)
    box = tuple(part if name in free else whole for name, part, whole in pairs)
    return Frames(task.reads(box), task.makes(box))


def _transposed(task: PartialOperator) -> Frames | None:
    """A transposed convolution: zeros beside its input reach just as far as is wanted.

    The node makes the wanted positions alone: what else it reaches is cut away as padding.
    """
    groups, wanted = _groups(task), task.wanted[0]
    if groups is None or wanted is None or _nothing(task):
        return None
    target = task.operator.output_maps[0].dims
    rows = range(_FIRST, len(target))
    kernel = task.input_shapes[1]
    reach = [_reach(target[d], kernel[d], task.needs[0][d], wanted[d]) for d in rows]
    frame = (*task.needs[0][:_FIRST], *(grown for grown, _ in reach))
    pads = _Overhang(tuple(p[0] for _, p in reach), tuple(p[1] for _, p in reach))
    made = (*task.makes(task.box)[0][:_FIRST], *wanted[_FIRST:])
    gone = {k: None for k in ("auto_pad", "output_shape", "output_padding") if k in task.attributes}
    changes: dict[str, object] = {"pads": pads.pads, **gone}
    if "group" in task.attributes:
        changes["group"] = groups
    return Frames((frame, *task.needs[1:]), (made,), changes)


def _reach(
    dim: DimAccess, kernel: int, need: Interval, wanted: Interval
) -> tuple[Interval, Interval]:
    """Input rows whose windows cover what is wanted, and how far they reach beyond it."""
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


def _pool(task: PartialOperator) -> Frames | None:
    """Halo and padding; positions of maxima count over the whole tensor and are not cut."""
    overhang = _overhang(task)
    kernel = task.attributes["kernel_shape"]
    pads = zip(overhang.before, overhang.after, kernel, strict=True)
    if _nothing(task) or any(max(before, after) >= size for before, after, size in pads):
        return None
    if _wants_positions(task) or _miscounts(task, overhang):
        return None
    return Frames(task.needs, task.makes(task.box), _explicit(task, overhang))


def _wants_positions(task: PartialOperator) -> bool:
    """Return whether a part of the second output of a pool is wanted."""
    positions = {value.tensor for value in task.node.outputs[1:] if value is not None}
    pairs = zip(task.operator.outputs, task.wanted, strict=True)
    return any(tensor in positions and wanted is not None for tensor, wanted in pairs)


def _miscounts(task: PartialOperator, overhang: _Overhang) -> bool:
    """Whether windows reach beyond the padding that a mean counts."""
    if not task.attributes.get("count_include_pad", 0):
        return False
    rank = len(overhang.after)
    pads = task.attributes.get("pads") or [0] * (2 * rank)
    automatic = task.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"")
    return not automatic and any(a > p for a, p in zip(overhang.after, pads[rank:], strict=True))


def _neighbours(task: PartialOperator) -> Frames | None:
    """Normalised over neighbouring channels: run with their halo, which is cut away."""
    return None if _nothing(task) else Frames(task.needs, (task.needs[0],))


# --------------------------------------------------------------------------------------- resizing


def _resized(task: PartialOperator) -> Frames | None:
    """Enlarged by whole factors: the halo is enlarged too, and cut away."""
    access = task.operator.input_maps[0].dims
    written = task.operator.output_maps[0].dims
    rows = list(zip(access, written, task.needs[0], task.input_shapes[0], strict=True))
    if _nothing(task):
        return None
    made: list[Interval] = []
    source: list[Interval] = []
    for index, (read, write, need, extent) in enumerate(rows):
        if read.whole:
            made.append((0, task.output_shapes[0][index]))
            source.append((0, extent))
            continue
        factor = dict(write.terms)[read.terms[0][0]]
        made.append((need[0] * factor, need[1] * factor))
        source.append(need)
    frames = (tuple(source), *task.needs[1:])
    return Frames(frames, (tuple(made),), parameters=_sizes(task, made))


def _sizes(
    task: PartialOperator, made: Sequence[Interval]
) -> Mapping[int, np.ndarray | str | None]:
    """The sizes of a part, where they are given."""
    inputs = task.node.inputs
    if len(inputs) <= _SIZES or inputs[_SIZES] is None:
        return {}
    axes = task.attributes.get("axes") or range(len(made))
    return {_SIZES: np.array([made[axis][1] - made[axis][0] for axis in axes], dtype=np.int64)}


_SIZES = 3
"""The input of Resize that says extents."""

# ------------------------------------------------------------------------------------ the kinds

Plan = Callable[[PartialOperator], Frames | None]
"""The frames of a part, or None where it has to be embedded in the whole."""

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


def plan_window(task: PartialOperator) -> Frames | None:
    """The frames of a sliding window; None for other kinds, and where there is no such way."""
    return PLANS[task.operator.kind](task) if task.operator.kind in PLANS else None
