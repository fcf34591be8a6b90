"""Fourier transforms, columns put together to images, and resized images.

A transform of ``n`` points is counted as a fast one: ``5 n log2 n`` operations, half of that for
real numbers. Angles are tables, so nothing is transcendental.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, fixed, merged
from autoturbo.graph.operator_table.build import (
    ONNX,
    Domain,
    NodeView,
    OperatorSpec,
    Rows,
    agree,
    chosen_axes,
    everything,
    whole_if,
)
from autoturbo.graph.operators import Engine, Pattern, Work

_AXIS_INPUT = 20
"""Opset since which DFT has its axis as an input."""

_SIGNAL = 3
"""Rank of a signal: batch, samples, and one number or two."""

_PAIR = 2
"""Numbers of a complex value."""


def _transform(count: int, *, real: bool) -> float:
    """Return the operations of a transform of ``count`` points."""
    return 5.0 * count * math.log2(max(count, 2)) / (2 if real else 1)


def _dft(node: NodeView) -> OperatorSpec:
    """Describe DFT: an independent transform per line along one dimension."""
    source, target = node.shape_in(0), node.shape_out()
    rank = len(source)
    agree(rank == len(target) > 1, "input and output differ in rank")
    if node.opset >= _AXIS_INPUT:
        axis = (node.constant_integers(2) or (-2,))[0]
    else:
        axis = node.integer("axis", 1)
    (line,) = chosen_axes([axis], rank)
    agree(line < rank - 1, "the last dimension holds the parts of a number")
    domain = Domain()
    dims = domain.dims(target, whole_if([line, rank - 1]))
    lines = math.prod(e for k, e in enumerate(target) if k not in (line, rank - 1))
    count = max(source[line], target[line])
    work = lines * _transform(count, real=source[-1] < _PAIR) / max(math.prod(target), 1)
    read = AccessMap((*dims[:line], WHOLE_DIM, *dims[line + 1 : -1], WHOLE_DIM))
    return domain.answer(node, [read], [AccessMap(dims)], Work(vector=work))


def _stft(node: NodeView) -> OperatorSpec:
    """Describe STFT: frames cut from a signal in steps, weighted by a window and transformed."""
    source, target = node.shape_in(0), node.shape_out()
    step = (node.constant_integers(1) or (0,))[0]
    window = node.value_in(2)
    length = node.constant_integers(3) or (window.shape if window is not None else ())
    agree(len(target) == _SIGNAL + 1 and step > 0 and length, "frames of unknown step or length")
    domain = Domain()
    b, f = domain.axis("b", target[0]), domain.axis("f", target[1])
    bins, parts = domain.whole("k", target[2]), domain.whole("c", target[3])
    place = domain.reduction("w", length[0])
    samples = DimAccess(((f, step), (place, 1)))
    rest = (fixed(),) if len(source) == _SIGNAL and source[2] == 1 else (WHOLE_DIM,)
    read = AccessMap((along(b), samples, *rest[: len(source) - 2]))
    real = len(source) < _SIGNAL or source[2] < _PAIR
    work = (_transform(length[0], real=real) + length[0]) / max(target[2] * target[3], 1)
    output_map = AccessMap((along(b), along(f), along(bins), along(parts)))
    inputs = [read, None, everything(window)]
    return domain.answer(node, inputs, [output_map], Work(vector=work))


def _col2im(node: NodeView) -> OperatorSpec:
    """Describe Col2Im: overlapping columns are summed, one addition per element read."""
    source, target = node.shape_in(0), node.shape_out()
    agree(len(source) == 3 and len(target) > 2, "columns of three dimensions")  # noqa: PLR2004
    block = source[1] // max(target[1], 1)
    agree(block * target[1] == source[1], "channels are not a multiple of the block")
    domain = Domain()
    n, c = along(domain.axis("n", target[0])), domain.axis("c", target[1])
    space = [along(domain.whole(f"d{k}", extent)) for k, extent in enumerate(target[2:], 2)]
    place = domain.reduction("k", block)
    read = AccessMap((n, merged((c, target[1]), (place, block)), WHOLE_DIM))
    work = Work(vector=block * source[2] / max(math.prod(target[2:]), 1))
    return domain.answer(node, [read], [AccessMap((n, along(c), *space))], work)


# -------------------------------------------------------------- Resize and its predecessor Upsample
#
# Enlarging by a whole factor ``f`` has output row ``f * i + r``, computed from the neighbours of
# input row ``i``: itself for the nearest, one to each side for linear, two for cubic interpolation.
# Any other change of an extent reads that dimension whole.


_LIKE_HALF_PIXEL = frozenset(("pytorch_half_pixel", "half_pixel_symmetric"))
"""Coordinates that lie where half_pixel's do when a factor is whole."""

_REACH = {
    # Rows before and after input row i that output row f * i + r may touch for every r: by the
    # rounding to the nearest or the interpolation, and where the sample lies.
    ("round_prefer_floor", "half_pixel"): (0, 0),  # within half a row of i
    ("round_prefer_ceil", "half_pixel"): (0, 0),
    ("floor", "asymmetric"): (0, 0),  # i + r / f
    ("floor", "tf_half_pixel_for_nn"): (0, 0),  # i + (r + 1/2) / f
    ("linear", "half_pixel"): (1, 1),
    ("linear", "asymmetric"): (0, 1),
    ("cubic", "half_pixel"): (2, 2),
    ("cubic", "asymmetric"): (1, 2),
}

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@dataclass(frozen=True, slots=True)
class _Method:
    """Placing and combining of samples in a resize.

    Attributes:
        mode: Nearest, linear or cubic.
        exact: Scales are the ratios of the extents.
        reach: Rows before and after that a whole factor needs; None if there is no rule for it.
    """

    mode: str
    exact: bool
    reach: tuple[int, int] | None


def _resize(node: NodeView) -> OperatorSpec:
    """Return the method of Resize in opset 10 and of Upsample.

    Coordinates are corner-aligned and rounded down.
    """
    source, target = node.shape_in(0), node.shape_out()
    agree(len(source) == len(target), "input and output differ in rank")
    method, domain = _method(node, source, target), Domain()
    read, written = [], []
    for index, (extent, wanted) in enumerate(zip(source, target, strict=True)):
        r, w = _dimension(domain, index, extent, wanted, method)
        read.append(r)
        written.append(w)
    resized = sum(a != b for a, b in zip(source, target, strict=True))
    maps = [AccessMap(tuple(read))], [AccessMap(tuple(written))]
    if method.mode == "nearest":
        return domain.answer(node, *maps, engine=Engine.MOVE, pattern=Pattern.INJECTIVE)
    # A multiplication and an addition per sample combined.
    work = Work(vector=2.0 * _TAPS.get(method.mode, 1) ** resized)
    return domain.answer(node, *maps, work, pattern=Pattern.INJECTIVE)


def _dimension(
    domain: Domain, index: int, extent: int, wanted: int, method: _Method
) -> tuple[DimAccess, DimAccess]:
    """Return how one dimension is read and how it is written."""
    if extent == wanted and method.exact:
        axis = along(domain.axis(f"d{index}", extent))
        return axis, axis
    factor, rest = divmod(wanted, max(extent, 1))
    if method.reach is None or rest or factor <= 1:
        return WHOLE_DIM, along(domain.axis(f"d{index}", wanted))
    i, r = domain.axis(f"d{index}", extent), domain.axis(f"r{index}", factor)
    terms, (before, after) = [(i, 1)], method.reach
    if before + after:
        terms.append((domain.window(f"k{index}", before + after + 1), 1))
    return DimAccess(tuple(terms), -before), merged((i, extent), (r, factor))


def _method(node: NodeView, source: tuple[int, ...], target: tuple[int, ...]) -> _Method:
    """Return the interpolation method from the attributes."""
    mode = node.text("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    old = node.op_type == "Upsample" or node.opset <= 10  # noqa: PLR2004 - the first Resize
    default, rounding = ("asymmetric", "floor") if old else ("half_pixel", "round_prefer_floor")
    coordinates = node.text("coordinate_transformation_mode", default)
    plain = (
        coordinates != "tf_crop_and_resize"
        and node.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        and not node.integer("antialias", 0)
    )
    exact = plain and _ratios(node, source, target, old=old)
    way = node.text("nearest_mode", rounding) if mode == "nearest" else mode
    placed = "half_pixel" if coordinates in _LIKE_HALF_PIXEL else coordinates
    return _Method(mode, exact, _REACH.get((way, placed)) if exact else None)


def _ratios(node: NodeView, source: tuple[int, ...], target: tuple[int, ...], *, old: bool) -> bool:
    """Return whether every scale is the ratio of the extents (given sizes imply that)."""
    scales = _scales(node, old=old)
    if scales is None:
        return node.value_in(3) is not None
    axes = node.attributes.get("axes")
    wanted = [b / max(a, 1) for a, b in zip(source, target, strict=True)]
    if isinstance(axes, (tuple, list)):
        wanted = [wanted[int(axis)] for axis in axes]
    return len(scales) == len(wanted) and all(
        math.isclose(a, b, rel_tol=1e-6) for a, b in zip(scales, wanted, strict=True)
    )


def _scales(node: NodeView, *, old: bool) -> list[float] | None:
    """Return the scales, or None if they are not known."""
    given = node.attributes.get("scales")
    value = node.value_in(1 if old else 2)
    if given is None and value is not None:
        given = value.value
    flat = np.asarray(() if given is None else given, dtype=np.float64).ravel()
    return flat.tolist() if flat.size else None


ROWS: Rows = {
    (ONNX, "Col2Im"): _col2im,
    (ONNX, "DFT"): _dft,
    (ONNX, "STFT"): _stft,
    (ONNX, "Resize"): _resize,
    (ONNX, "Upsample"): _resize,
}
