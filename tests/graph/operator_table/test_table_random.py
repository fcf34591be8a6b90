"""The soundness check again, on shapes and attributes drawn at random, family by family.

Where a family has an exact answer (how many elements a region needs), that is checked too.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoturbo.graph.domain import volume
from tests.graph.operator_table.operator_harness import (
    Case,
    Described,
    Input,
    check_outside,
    ints,
    real,
    scalar,
    whole,
)

pytestmark = pytest.mark.full


EXAMPLES = settings(max_examples=30, deadline=None)
EXTENTS = st.integers(1, 5)
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**16)

Shape = tuple[int, ...]


def _check(case: Case, seed: int) -> Described:
    return check_outside(case, np.random.default_rng(seed), regions=4)


def _thinned(data: st.DataObject, shape: Shape) -> Shape:
    """A shape that broadcasts to the given one."""
    start = data.draw(st.integers(0, len(shape)))
    return tuple(1 if data.draw(st.booleans()) else extent for extent in shape[start:])


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_broadcasts(data: st.DataObject, shape: Shape, seed: int) -> None:
    left, right = _thinned(data, shape), _thinned(data, shape)
    described = _check(Case("Add", (real(*left), real(*right))), seed)
    element = tuple((0, 1) for _ in described.shape_out())
    assert all(volume(read) == 1 for read in described.reads(element).values())
    assert set(described.kinds()) <= {"parallel"}


@EXAMPLES
@given(data=st.data(), batch=st.lists(EXTENTS, max_size=2).map(tuple), seed=SEEDS)
def test_products(data: st.DataObject, batch: Shape, seed: int) -> None:
    m, n, k = (data.draw(EXTENTS) for _ in range(3))
    left = (k,) if data.draw(st.booleans()) else (*_thinned(data, batch), m, k)
    right = (k,) if data.draw(st.booleans()) else (*_thinned(data, batch), k, n)
    described = _check(Case("MatMul", (real(*left), real(*right))), seed)
    assert described.operator.macs == math.prod(described.shape_out()) * k
    element = tuple((0, 1) for _ in described.shape_out())
    assert [volume(read) for read in described.reads(element).values()] == [k, k]


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_contractions(data: st.DataObject, seed: int) -> None:
    extents = {letter: data.draw(EXTENTS) for letter in "abcd"}
    terms = [
        "".join(data.draw(st.permutations("abcd"))[: data.draw(st.integers(1, 4))])
        for _ in range(2)
    ]
    used = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))])
    inputs: tuple[Input, ...] = tuple(real(*(extents[c] for c in term)) for term in terms)
    described = _check(Case("Einsum", inputs, {"equation": f"{','.join(terms)}->{result}"}), seed)
    assert described.operator.macs == math.prod(extents[letter] for letter in used)


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_convolutions_in_the_plane(data: st.DataObject, seed: int) -> None:
    groups, inner, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    kernel = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    strides = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    pads = tuple(data.draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    source, weight = (2, groups * inner, 6, 5), (groups * outer, inner, *kernel)
    attributes = {"group": groups, "strides": strides, "pads": pads}
    case = Case("Conv", (real(*source), real(*weight)), attributes, runtime=True)
    described = _check(case, seed)
    outputs = math.prod(described.shape_out())
    assert described.operator.macs == outputs * inner * math.prod(kernel)


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_transposed_convolutions(data: st.DataObject, seed: int) -> None:
    groups, inner, outer, kernel, stride, dilation = (
        data.draw(st.integers(1, 3)) for _ in range(6)
    )
    extra = data.draw(st.integers(0, stride - 1))
    reach = (kernel - 1) * dilation
    pads = (data.draw(st.integers(0, reach)), data.draw(st.integers(0, reach)))
    assume(5 * stride + reach + 1 + extra - sum(pads) > 0)
    attributes = {
        "group": groups,
        "strides": (stride,),
        "dilations": (dilation,),
        "pads": pads,
        "output_padding": (extra,),
    }
    inputs = (real(2, groups * inner, 6), real(groups * inner, outer, kernel))
    described = _check(Case("ConvTranspose", inputs, attributes, runtime=True), seed)
    assert described.operator.macs == 2 * groups * inner * 6 * outer * kernel


@EXAMPLES
@given(data=st.data(), op=st.sampled_from(["MaxPool", "AveragePool"]), seed=SEEDS)
def test_pools(data: st.DataObject, op: str, seed: int) -> None:
    kernel, stride = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    pads = (data.draw(st.integers(0, kernel - 1)), data.draw(st.integers(0, kernel - 1)))
    attributes = {
        "kernel_shape": (kernel,),
        "strides": (stride,),
        "pads": pads,
        "ceil_mode": int(data.draw(st.booleans())),
    }
    described = _check(Case(op, (real(2, 3, 9),), attributes, runtime=True), seed)
    element = ((0, 1), (0, 1), (0, 1))
    (read,) = described.reads(element).values()
    assert volume(read) == min(kernel - pads[0], 9)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_reductions(data: st.DataObject, shape: Shape, seed: int) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    keep = int(data.draw(st.booleans()))
    case = Case("ReduceSum", (real(*shape), ints(*axes)), {"keepdims": keep}, runtime=True)
    described = _check(case, seed)
    element = tuple((0, 1) for _ in described.shape_out())
    (read,) = described.reads(element).values()
    assert volume(read) == math.prod(shape[axis] for axis in axes)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_slices(data: st.DataObject, shape: Shape, seed: int) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    steps = [data.draw(st.sampled_from([-2, -1, 1, 2, 3])) for _ in axes]
    near, far = st.integers(-7, 0), st.sampled_from([4, 5, 7, 99])
    starts = [data.draw(near if step > 0 else far) for step in steps]
    ends = [data.draw(far if step > 0 else st.integers(-9, -2)) for step in steps]
    cuts = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    expected = np.zeros(shape)[tuple(cuts)]
    assume(expected.size > 0)
    case = Case(
        "Slice",
        (real(*shape), ints(*starts), ints(*ends), ints(*axes), ints(*steps)),
        runtime=True,
    )
    described = _check(case, seed)
    everything = tuple((0, extent) for extent in described.shape_out())
    (read,) = described.reads(everything).values()
    flat = np.arange(math.prod(shape)).reshape(shape)
    touched = np.argwhere(np.isin(flat, flat[tuple(cuts)]))
    assert read == tuple(
        (int(low), int(high) + 1)
        for low, high in zip(touched.min(axis=0), touched.max(axis=0), strict=True)
    )


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_pads(data: st.DataObject, shape: Shape, seed: int) -> None:
    pads = [data.draw(st.integers(0, 3)) for _ in range(2 * len(shape))]
    described = _check(Case("Pad", (real(*shape), ints(*pads), scalar(1.5))), seed)
    everything = tuple((0, extent) for extent in described.shape_out())
    assert described.reads(everything)[0] == tuple((0, extent) for extent in shape)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_concatenations_and_splits(data: st.DataObject, shape: Shape, seed: int) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    extents = data.draw(st.lists(EXTENTS, min_size=1, max_size=4))
    parts = [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents]
    _check(Case("Concat", tuple(real(*part) for part in parts), {"axis": axis}), seed)
    total = (*shape[:axis], sum(extents), *shape[axis + 1 :])
    split = Case(
        "Split",
        (real(*total), ints(*extents)),
        {"axis": axis},
        outputs=len(extents),
        runtime=True,
    )
    described = _check(split, seed)
    for position, part in enumerate(parts):
        read = described.reads(tuple((0, extent) for extent in part), position)[0]
        assert volume(read) == math.prod(part)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_transpositions(data: st.DataObject, shape: Shape, seed: int) -> None:
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    described = _check(Case("Transpose", (real(*shape),), {"perm": perm}), seed)
    element = tuple((extent - 1, extent) for extent in described.shape_out())
    assert described.reads(element)[0] == tuple((extent - 1, extent) for extent in shape)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_gathers(data: st.DataObject, shape: Shape, seed: int) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    picks = data.draw(st.lists(EXTENTS, max_size=2).map(tuple))
    known = data.draw(st.booleans())
    indices: Input = whole(shape[axis], *picks, low=-shape[axis])
    if known:
        rng = np.random.default_rng(seed)
        indices = rng.integers(-shape[axis], shape[axis], size=picks)
        indices = np.asarray(indices, dtype=np.int64)
    described = _check(Case("Gather", (real(*shape), indices), {"axis": axis}), seed)
    element = tuple((0, 1) for _ in described.shape_out())
    assert volume(described.reads(element)[0]) in {1, shape[axis]}


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_resizes(data: st.DataObject, seed: int) -> None:
    sizes = data.draw(st.lists(st.sampled_from([2, 3, 4, 5, 6, 8, 9, 12]), min_size=2, max_size=2))
    attributes = {
        "mode": data.draw(st.sampled_from(["nearest", "linear", "cubic"])),
        "coordinate_transformation_mode": data.draw(
            st.sampled_from(["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"])
        ),
        "nearest_mode": data.draw(st.sampled_from(["round_prefer_floor", "floor", "ceil"])),
    }
    inputs = (real(1, 1, 4, 3), None, None, ints(1, 1, *sizes))
    _check(Case("Resize", inputs, attributes, 19, runtime=True), seed)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, opset=st.sampled_from([11, 13]), seed=SEEDS)
def test_softmax(data: st.DataObject, shape: Shape, opset: int, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    case = Case("Softmax", (real(*shape),), {"axis": axis}, opset, runtime=True)
    described = _check(case, seed)
    element = tuple((0, 1) for _ in shape)
    held = shape[axis % len(shape) :] if opset < 13 else (shape[axis],)
    assert volume(described.reads(element)[0]) == math.prod(held)


@EXAMPLES
@given(data=st.data(), groups=st.integers(1, 3), inner=st.integers(1, 3), seed=SEEDS)
def test_group_norms(data: st.DataObject, groups: int, inner: int, seed: int) -> None:
    channels, extent = groups * inner, data.draw(EXTENTS)
    inputs = (real(2, channels, extent), real(channels), real(channels))
    described = _check(Case("GroupNormalization", inputs, {"num_groups": groups}), seed)
    reads = described.reads(((0, 1), (0, 1), (0, 1)))
    assert [volume(read) for read in reads.values()] == [inner * extent, inner, inner]
