"""Parts of windows and rearrangements whose shapes and attributes are drawn at random."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from operator_harness import Case, ints, real
from regional_harness import random_part, run_whole

from autoturbo.verify.onnx_writer.restriction import Rule

EXAMPLES = settings(max_examples=30, deadline=None)
EXTENTS = st.integers(1, 5)
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**16)

PARTS = 4


def _check(case: Case, seed: int) -> set[Rule]:
    rng = np.random.default_rng(seed)
    whole = run_whole(case, rng)
    assert whole.described.spec.opaque is None
    return {random_part(whole, rng).check(rng) for _ in range(PARTS)}


def _window(data: st.DataObject, source: int) -> tuple[int, int, int, tuple[int, int]]:
    """Kernel, stride, dilation and padding of one dimension."""
    kernel, stride, dilation = (data.draw(st.integers(1, 3)) for _ in range(3))
    pads = (data.draw(st.integers(0, kernel - 1)), data.draw(st.integers(0, kernel - 1)))
    assume(source + sum(pads) >= (kernel - 1) * dilation + 1)
    return kernel, stride, dilation, pads


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_convolutions(data: st.DataObject, seed: int) -> None:
    groups, inner, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    (kh, sh, dh, ph), (kw, sw, dw, pw) = _window(data, 7), _window(data, 5)
    attributes: dict[str, object] = {
        "group": groups, "strides": (sh, sw), "dilations": (dh, dw),
        "pads": (ph[0], pw[0], ph[1], pw[1]),
    }  # fmt: skip
    inputs = (real(2, groups * inner, 7, 5), real(groups * outer, inner, kh, kw))
    _check(Case("Conv", inputs, attributes, runtime=True), seed)


@EXAMPLES
@given(data=st.data(), op=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]), seed=SEEDS)
def test_pools(data: st.DataObject, op: str, seed: int) -> None:
    kernel, stride, dilation, pads = _window(data, 9)
    attributes: dict[str, object] = {
        "kernel_shape": (kernel,), "strides": (stride,), "dilations": (dilation,), "pads": pads,
        "ceil_mode": int(data.draw(st.booleans())),
    }  # fmt: skip
    if op == "AveragePool":
        attributes["count_include_pad"] = int(data.draw(st.booleans()))
    _check(Case(op, (real(2, 3, 9),), attributes, 19, runtime=True), seed)


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_padding_that_follows_from_the_extents(data: st.DataObject, seed: int) -> None:
    stride = data.draw(st.integers(1, 3))
    kernel = data.draw(st.integers(stride, 4))  # a pool that leaves positions out does not run
    rule = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    extent = data.draw(st.integers(4, 9))
    attributes: dict[str, object] = {"strides": (stride,), "auto_pad": rule}
    inputs = (real(2, 3, extent), real(4, 3, kernel))
    _check(Case("Conv", inputs, attributes, runtime=True), seed)
    attributes["kernel_shape"] = (kernel,)
    for op in ("MaxPool", "AveragePool"):
        _check(Case(op, (real(2, 3, extent),), attributes, runtime=True), seed)


@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_reshapes(data: st.DataObject, seed: int) -> None:
    factors = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = data.draw(st.permutations(factors))
    source, target = (_joined(data, values) for values in (factors, order))
    assert math.prod(source) == math.prod(target)
    case = Case("Reshape", (real(*source), ints(*target)), runtime=True)
    assert _check(case, seed) <= {Rule.DATA_MOVEMENT, Rule.WHOLE}


def _joined(data: st.DataObject, factors: list[int]) -> tuple[int, ...]:
    """A shape whose dimensions are products of neighbouring factors."""
    shape = [1]
    for factor in factors:
        if data.draw(st.booleans()):
            shape.append(factor)
        else:
            shape[-1] *= factor
    return tuple(shape)


@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_repetitions(data: st.DataObject, shape: tuple[int, ...], seed: int) -> None:
    copies = [data.draw(st.integers(1, 3)) for _ in shape]
    _check(Case("Tile", (real(*shape), ints(*copies)), runtime=True), seed)
    wide = [extent if extent > 1 else data.draw(EXTENTS) for extent in shape]
    case = Case("Expand", (real(*shape), ints(2, *wide)), runtime=True)
    assert _check(case, seed) <= {Rule.PARALLEL_AXES, Rule.WHOLE}
