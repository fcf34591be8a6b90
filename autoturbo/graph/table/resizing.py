"""Resize and its predecessor Upsample.

Enlarging by a whole factor ``f`` has output row ``f * i + r``, computed from the neighbours of
input row ``i``: itself for the nearest, one to each side for linear, two for cubic interpolation.
Any other change of an extent reads that dimension whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, merged
from autoturbo.graph.operators import Engine, Pattern, Work
from autoturbo.graph.table.build import ONNX, Domain, Rows, agree
from autoturbo.graph.table.spec import NodeView, OperatorSpec

_NEAREST = {
    # Where the sample of output row f * i + r lies relative to input row i, and which roundings
    # give i for every r.
    "half_pixel": ("round_prefer_floor", "round_prefer_ceil"),  # within half a row of i
    "pytorch_half_pixel": ("round_prefer_floor", "round_prefer_ceil"),  # the same
    "half_pixel_symmetric": ("round_prefer_floor", "round_prefer_ceil"),  # the same
    "asymmetric": ("floor",),  # i + r / f
    "tf_half_pixel_for_nn": ("floor",),  # i + (r + 1/2) / f
}

_REACH = {
    # Rows before and after row i that an interpolation may touch.
    ("linear", "half_pixel"): (1, 1),
    ("linear", "pytorch_half_pixel"): (1, 1),
    ("linear", "half_pixel_symmetric"): (1, 1),
    ("linear", "asymmetric"): (0, 1),
    ("cubic", "half_pixel"): (2, 2),
    ("cubic", "pytorch_half_pixel"): (2, 2),
    ("cubic", "half_pixel_symmetric"): (2, 2),
    ("cubic", "asymmetric"): (1, 2),
}

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@dataclass(frozen=True, slots=True)
class _Method:
    """How samples are placed and combined."""

    mode: str
    coordinates: str
    rounding: str
    exact: bool

    def reach(self) -> tuple[int, int] | None:
        """Rows before and after that a whole factor needs, or None where there is no such rule."""
        if not self.exact:
            return None
        if self.mode == "nearest":
            return (0, 0) if self.rounding in _NEAREST.get(self.coordinates, ()) else None
        return _REACH.get((self.mode, self.coordinates))


def _resize(node: NodeView) -> OperatorSpec:
    """Opset 10 and Upsample: corner-aligned coordinates, rounded down."""
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
    """How one dimension is read and written."""
    reach = method.reach()
    if extent == wanted and method.exact:
        axis = along(domain.axis(f"d{index}", extent))
        return axis, axis
    factor, rest = divmod(wanted, max(extent, 1))
    if reach is None or rest or factor <= 1:
        return WHOLE_DIM, along(domain.axis(f"d{index}", wanted))
    i, r = domain.axis(f"d{index}", extent), domain.axis(f"r{index}", factor)
    terms, (before, after) = [(i, 1)], reach
    if before + after:
        terms.append((domain.window(f"k{index}", before + after + 1), 1))
    return DimAccess(tuple(terms), -before), merged((i, extent), (r, factor))


def _method(node: NodeView, source: tuple[int, ...], target: tuple[int, ...]) -> _Method:
    """Read the attributes; ``exact`` says that scales are the ratios of the extents."""
    mode = node.text("mode", "nearest")
    old = node.op_type == "Upsample" or node.opset <= 10  # noqa: PLR2004 - the first Resize
    default, rounding = ("asymmetric", "floor") if old else ("half_pixel", "round_prefer_floor")
    coordinates = node.text("coordinate_transformation_mode", default)
    plain = (
        coordinates != "tf_crop_and_resize"
        and node.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        and not node.integer("antialias", 0)
    )
    return _Method(
        "linear" if mode == "bilinear" else mode,
        coordinates,
        node.text("nearest_mode", rounding),
        plain and _ratios(node, source, target, old=old),
    )


def _ratios(node: NodeView, source: tuple[int, ...], target: tuple[int, ...], *, old: bool) -> bool:
    """Whether every scale is the ratio of the extents (given sizes imply that)."""
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
    """The scales where they are known."""
    given = node.attributes.get("scales")
    value = node.value_in(1 if old else 2)
    if given is None and value is not None:
        given = value.value
    flat = np.asarray(() if given is None else given, dtype=np.float64).ravel()
    return flat.tolist() if flat.size else None


ROWS: Rows = {
    (ONNX, "Resize"): _resize,
    (ONNX, "Upsample"): _resize,
}
