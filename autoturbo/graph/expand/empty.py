"""Nodes that read or make values of no elements, written out without them.

Values without elements (the cache before a first step, an empty slice, a sum over nothing) are
constants for the import: they are folded away. What is left are nodes that have something else to
compute with; here they are written for what is not empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import helper

from autoturbo.graph.expand.writer import Writer, refuse_unless
from autoturbo.graph.node_builder import EXPANDS
from autoturbo.graph.values import Value

_SIZES_ARE_AN_INPUT = 13
"""Opset since which the sizes of Split are an input."""


def concatenation(w: Writer) -> None:
    """Write a Concat of its parts that hold something."""
    rank, axis = len(w.shape(0)), int(w.attribute("axis", 1))
    refuse_unless(all(_fits(w.shape(k), w.shape(0), axis % rank) for k in _places(w)), "misfit")
    parts = [w.input(k) for k in _places(w) if not w.value(k).empty]
    refuse_unless(0 < len(parts) < len(_places(w)), "no part is empty, or all are")
    w.concat(*parts, axis=axis, to=w.output(0))


def _places(w: Writer) -> range:
    return range(len(w.step.inputs))


def _fits(shape: tuple[int, ...], first: tuple[int, ...], axis: int) -> bool:
    """Return whether a part agrees with the first one in all dimensions but one."""
    apart = [k for k, (a, b) in enumerate(zip(shape, first, strict=False)) if a != b]
    return len(shape) == len(first) and set(apart) <= {axis}


def split(w: Writer) -> None:
    """Write a Split into the parts that hold something, the others as constants."""
    shape, names = w.shape(0), w.step.node.output
    axis = int(w.attribute("axis", 0)) % len(shape)
    sizes = _sizes(w, shape[axis])
    refuse_unless(len(sizes) == len(names) and sum(sizes) == shape[axis], "misfit")
    refuse_unless(0 in sizes and any(sizes), "no part is empty, or all are")
    dtype = helper.tensor_dtype_to_np_dtype(w.element())
    for size, name in zip(sizes, names, strict=True):
        if not size and name:
            none = np.zeros((*shape[:axis], 0, *shape[axis + 1 :]), dtype)
            w.op("Identity", w.constant(none), to=name)
    kept = [(size, name or None) for size, name in zip(sizes, names, strict=True) if size]
    if len(kept) == 1:
        w.op("Identity", w.input(0), to=kept[0][1])
        return
    lengths, made = zip(*kept, strict=True)
    if w.opset >= _SIZES_ARE_AN_INPUT:
        w.node("Split", (w.input(0), w.integers(*lengths)), made, axis=axis)
    else:
        w.node("Split", (w.input(0),), made, axis=axis, split=lengths)


def _sizes(w: Writer, extent: int) -> list[int]:
    """Return the extents of a Split's parts; raise TypeError if they are not known."""
    given = w.value(1).data if w.has(1) else w.attribute("split", None)
    if given is None and w.has(1):
        raise TypeError("split")
    if given is not None:
        return [int(size) for size in given]
    parts = len(w.step.node.output)
    each = math.ceil(extent / parts)
    return [*[each] * (parts - 1), extent - each * (parts - 1)]


def scatter(w: Writer) -> None:
    """Write a scatter of nothing: its data."""
    refuse_unless(w.value(1).empty and not w.value(0).empty, "something is scattered")
    w.op("Identity", w.input(0), to=w.output(0))


def gemm(w: Writer) -> None:
    """Write a Gemm that sums nothing up: its addend, scaled."""
    rows = w.shape(0)[1 if w.attribute("transA", 0) else 0]
    columns = w.shape(1)[0 if w.attribute("transB", 0) else 1]
    refuse_unless(w.value(0).empty and rows and columns and w.has(2), "no sum over nothing")
    addend, scale = w.input(2), float(w.attribute("beta", 1.0))
    if scale != 1:
        addend = w.op("Mul", addend, w.number(scale, w.element(2)))
    if w.shape(2) == (rows, columns):
        w.op("Identity", addend, to=w.output(0))
        return
    refuse_unless(w.opset >= EXPANDS, "no Expand")
    w.op("Expand", addend, w.integers(rows, columns), to=w.output(0))


def product(w: Writer) -> None:
    """Write a sum of products with nothing: the other factors do not matter and become zeros."""
    factors = [w.value(k) for k in _places(w)][: _FACTORS.get(w.step.node.op_type)]
    refuse_unless(any(one.empty for one in factors), "no factor is empty")
    refuse_unless(not all(one.constant for one in factors), "all are constants")
    names = [_zeros(w, k) if k < len(factors) else w.input(k) for k in _places(w)]
    w.node(w.step.node.op_type, tuple(names), (w.output(0),))
    w.nodes[-1].attribute.extend(w.step.node.attribute)


_FACTORS = {"Conv": 2, "ConvTranspose": 2}
"""Inputs that are multiplied with each other, where not all are."""


def _zeros(w: Writer, place: int) -> str:
    """Return the name of zeros in place of an input that is not constant."""
    value: Value = w.value(place)
    if value.constant:
        return w.input(place)
    return w.zeros(w.shape(place), w.element(place))


WRITTEN: dict[str, Callable[[Writer], None]] = {
    "Concat": concatenation,
    "Split": split,
    "Scatter": scatter,
    "ScatterElements": scatter,
    "ScatterND": scatter,
    "Gemm": gemm,
    "Einsum": product,
    "Conv": product,
    "ConvTranspose": product,
    "MatMulInteger": product,
    "ConvInteger": product,
}
"""Functions that write a node of ONNX's own domain out, by operator type.

Each refuses nodes that neither read nor make anything empty."""
