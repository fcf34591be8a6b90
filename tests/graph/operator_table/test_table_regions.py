"""What parts of outputs need, worked out by hand: no less, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.graph.operator_table.operator_harness import Case, Described, Runner, node, real
from tests.tiers import spread

if TYPE_CHECKING:
    from autoturbo.graph.domain import Region
    from autoturbo.graph.operator_table import NodeView

CONV = node(
    "Conv",
    [(2, 3, 16, 16), (8, 3, 3, 3), (8,)],
    [(2, 8, 8, 8)],
    strides=(2, 2),
    pads=(1, 1, 1, 1),
)
GROUPED = node("Conv", [(1, 8, 6), (4, 2, 3)], [(1, 4, 4)], group=4)
RESIZED = [(1, 2, 4, 4), None, np.array([1, 1, 2, 2], np.float32)]

REGIONS: list[tuple[str, NodeView, Region, dict[int, Region]]] = [
    (
        "a tile of a convolution reads its rows, one halo row and its channels' weights",
        CONV,
        ((0, 1), (2, 4), (2, 4), (0, 8)),
        {
            0: ((0, 1), (0, 3), (3, 8), (0, 16)),
            1: ((2, 4), (0, 3), (0, 3), (0, 3)),
            2: ((2, 4),),
        },
    ),
    (
        "channels of a depthwise convolution are split together",
        GROUPED,
        ((0, 1), (1, 3), (0, 4)),
        {0: ((0, 1), (2, 6), (0, 6)), 1: ((1, 3), (0, 2), (0, 3))},
    ),
    (
        "an output row of a transposed convolution comes from the rows that reach it",
        node("ConvTranspose", [(1, 2, 8), (2, 3, 4)], [(1, 3, 16)], strides=(2,), pads=(1, 1)),
        ((0, 1), (0, 1), (6, 8)),
        {0: ((0, 1), (0, 2), (2, 5)), 1: ((0, 2), (0, 1), (0, 4))},
    ),
    (
        "columns of a product read all of the left and columns of the right",
        node("MatMul", [(4, 8, 16), (16, 32)], [(4, 8, 32)]),
        ((1, 3), (2, 4), (8, 16)),
        {0: ((1, 3), (2, 4), (0, 16)), 1: ((0, 16), (8, 16))},
    ),
    (
        "a batch of one is read by all batches",
        node("MatMul", [(4, 8, 16), (1, 16, 32)], [(4, 8, 32)]),
        ((1, 3), (0, 8), (0, 1)),
        {0: ((1, 3), (0, 8), (0, 16)), 1: ((0, 1), (0, 16), (0, 1))},
    ),
    (
        "transposed operands",
        node("Gemm", [(16, 8), (32, 16), (8, 1)], [(8, 32)], transA=1, transB=1),
        ((2, 4), (8, 16)),
        {0: ((0, 16), (2, 4)), 1: ((8, 16), (0, 16)), 2: ((2, 4), (0, 1))},
    ),
    (
        "softmax needs its row",
        node("Softmax", [(4, 8, 16)], [(4, 8, 16)]),
        ((1, 2), (2, 4), (3, 4)),
        {0: ((1, 2), (2, 4), (0, 16))},
    ),
    (
        "softmax of early opsets needs all from its axis on",
        node("Softmax", [(4, 8, 16)], [(4, 8, 16)], opset=11),
        ((1, 2), (2, 4), (3, 4)),
        {0: ((1, 2), (0, 8), (0, 16))},
    ),
    (
        "group normalisation splits by group",
        node("GroupNormalization", [(2, 6, 4), (6,), (6,)], [(2, 6, 4)], num_groups=3),
        ((0, 1), (2, 3), (1, 2)),
        {0: ((0, 1), (2, 4), (0, 4)), 1: ((2, 4),), 2: ((2, 4),)},
    ),
    (
        "a reduction reads the reduced dimension",
        node("ReduceSum", [(4, 8, 16), np.array([1])], [(4, 16)], keepdims=0),
        ((1, 2), (3, 5)),
        {0: ((1, 2), (0, 8), (3, 5))},
    ),
    (
        "a concatenation reads nothing of operands elsewhere",
        node("Concat", [(4, 3), (4, 5)], [(4, 8)], axis=1),
        ((1, 2), (4, 6)),
        {0: ((1, 2), (4, 3)), 1: ((1, 2), (1, 3))},
    ),
    (
        "a slice with a step",
        node("Slice", [(10,), np.array([1]), np.array([9]), np.array([0]), np.array([2])], [(4,)]),
        ((1, 3),),
        {0: ((3, 6),)},
    ),
    (
        "a slice backwards",
        node(
            "Slice",
            [(10,), np.array([-1]), np.array([-99]), np.array([0]), np.array([-1])],
            [(10,)],
        ),
        ((0, 3),),
        {0: ((7, 10),)},
    ),
    (
        "padding is read from nowhere",
        node("Pad", [(8,), np.array([2, 2])], [(12,)]),
        ((1, 5),),
        {0: ((0, 3),)},
    ),
    (
        "reflection reads the dimension",
        node("Pad", [(8, 4), np.array([2, 0, 2, 0])], [(12, 4)], mode="reflect"),
        ((1, 5), (0, 1)),
        {0: ((0, 8), (0, 1))},
    ),
    (
        "a transposition permutes",
        node("Transpose", [(2, 3, 4)], [(4, 2, 3)], perm=(2, 0, 1)),
        ((1, 2), (0, 1), (2, 3)),
        {0: ((0, 1), (2, 3), (1, 2))},
    ),
    (
        "heads are split off channels",
        node("Reshape", [(2, 128, 768), np.array([2, 128, 12, 64])], [(2, 128, 12, 64)]),
        ((0, 1), (0, 128), (3, 5), (0, 64)),
        {0: ((0, 1), (0, 128), (192, 320))},
    ),
    (
        "batch is split off merged rows",
        node("Reshape", [(256, 768), np.array([2, 128, 768])], [(2, 128, 768)]),
        ((1, 2), (16, 32), (0, 768)),
        {0: ((144, 160), (0, 768))},
    ),
    (
        "a batch stays although the rest cannot be factorised",
        node("Reshape", [(4, 3, 5), np.array([4, 5, 3])], [(4, 5, 3)]),
        ((1, 2), (0, 1), (0, 1)),
        {0: ((1, 2), (0, 3), (0, 5))},
    ),
    (
        "rows of a table may be any",
        node("Gather", [(1000, 64), (32, 16)], [(32, 16, 64)]),
        ((4, 8), (0, 16), (0, 32)),
        {0: ((0, 1000), (0, 32)), 1: ((4, 8), (0, 16))},
    ),
    (
        "one known row is that row",
        node("Gather", [(2, 128, 768), np.array(-1)], [(2, 768)], axis=1),
        ((0, 1), (0, 768)),
        {0: ((0, 1), (127, 128), (0, 768))},
    ),
    (
        "known rows in step are addressed",
        node("Gather", [(9, 4), np.array([6, 4, 2])], [(3, 4)]),
        ((1, 3), (0, 4)),
        {0: ((2, 5), (0, 4))},
    ),
    (
        "pixels of the enlarged image are copies",
        node("Resize", RESIZED, [(1, 2, 8, 8)], mode="nearest"),
        ((0, 1), (0, 1), (2, 4), (0, 8)),
        {0: ((0, 1), (0, 1), (1, 2), (0, 4))},
    ),
    (
        "bilinear enlarging has a halo of one",
        node("Resize", RESIZED, [(1, 2, 8, 8)], mode="linear"),
        ((0, 1), (0, 1), (4, 6), (0, 2)),
        {0: ((0, 1), (0, 1), (1, 4), (0, 2))},
    ),
    (
        "corner-aligned enlarging reads the image",
        node(
            "Resize",
            RESIZED,
            [(1, 2, 8, 8)],
            mode="linear",
            coordinate_transformation_mode="align_corners",
        ),
        ((0, 1), (0, 1), (4, 6), (0, 2)),
        {0: ((0, 1), (0, 1), (0, 4), (0, 4))},
    ),
    (
        "cells of space to depth",
        node("SpaceToDepth", [(1, 2, 4, 4)], [(1, 8, 2, 2)], blocksize=2),
        ((0, 1), (6, 7), (1, 2), (0, 2)),
        {0: ((0, 1), (0, 1), (3, 4), (1, 4))},
    ),
    (
        "scales of blocks",
        node("DequantizeLinear", [(4, 8), (4, 2)], [(4, 8)], axis=1, block_size=4),
        ((0, 4), (4, 6)),
        {0: ((0, 4), (4, 6)), 1: ((0, 4), (1, 2))},
    ),
    (
        "sequences of a batch are apart in a recurrent layer",
        node("LSTM", [(5, 4, 2), (1, 8, 2), (1, 8, 2)], [(5, 1, 4, 2)]),
        ((0, 1), (0, 1), (1, 3), (0, 1)),
        {0: ((0, 5), (1, 3), (0, 2)), 1: ((0, 1), (0, 8), (0, 2)), 2: ((0, 1), (0, 8), (0, 2))},
    ),
    (
        "a key head serves its group of query heads",
        node("Attention", [(1, 8, 16, 4), (1, 2, 32, 4), (1, 2, 32, 4)], [(1, 8, 16, 4)], opset=23),
        ((0, 1), (0, 2), (3, 5), (0, 4)),
        {
            0: ((0, 1), (0, 2), (3, 5), (0, 4)),
            1: ((0, 1), (0, 1), (0, 32), (0, 4)),
            2: ((0, 1), (0, 1), (0, 32), (0, 4)),
        },
    ),
]


@pytest.mark.parametrize(
    ("view", "region", "expected"), spread([r[1:] for r in REGIONS], 4), ids=[r[0] for r in REGIONS]
)
def test_regions(view: NodeView, region: Region, expected: dict[int, Region]) -> None:
    described = Described(view)
    assert described.spec.opaque is None
    assert described.reads(region) == expected


def test_outputs_of_a_split_need_their_own_part() -> None:
    described = Described(node("Split", [(2, 7), np.array([3, 4])], [(2, 3), (2, 4)], axis=1))
    assert described.reads(((0, 1), (1, 3)), output=0) == {0: ((0, 1), (1, 3))}
    assert described.reads(((0, 1), (1, 3)), output=1) == {0: ((0, 1), (4, 6))}


def test_absorbed_parameters_are_not_read() -> None:
    described = Described(node("Reshape", [(2, 3), np.array([6])], [(6,)]))
    assert described.spec.inputs[1] is None
    gathered = Described(node("Gather", [(9, 4), np.array(3)], [(4,)]))
    assert gathered.spec.inputs[1] is None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sliding_window_matches_what_runs(data: st.DataObject) -> None:
    """Zero outside the region gives the same outputs, and the region is as small as can be."""
    groups = data.draw(st.sampled_from([1, 2, 4]))
    kernel, stride, dilation = (data.draw(st.integers(1, 3)) for _ in range(3))
    before, after = (data.draw(st.integers(0, 2)) for _ in range(2))
    extent = data.draw(st.integers(5, 9))
    assume(before < (kernel - 1) * dilation + 1 and after < (kernel - 1) * dilation + 1)
    assume(extent + before + after >= (kernel - 1) * dilation + 1)
    case = Case(
        "Conv",
        (real(2, 4, extent), real(4, 4 // groups, kernel)),
        {"group": groups, "strides": (stride,), "dilations": (dilation,), "pads": (before, after)},
        runtime=True,
    )
    values = case.draw(np.random.default_rng(data.draw(st.integers(0, 99))))
    run = Runner(case, values)
    (result,) = run(values)
    described = Described(case.view(values, [result]))
    low = data.draw(st.integers(0, result.shape[2] - 1))
    high = data.draw(st.integers(low + 1, result.shape[2]))
    read = described.reads(((0, 2), (0, 4), (low, high)))[0]
    reach = (low * stride - before, (high - 1) * stride + (kernel - 1) * dilation + 1 - before)
    assert read == ((0, 2), (0, 4), (max(reach[0], 0), min(reach[1], extent)))
    kept = np.zeros_like(values[0])
    kept[:, :, read[2][0] : read[2][1]] = values[0][:, :, read[2][0] : read[2][1]]
    (again,) = run({**values, 0: kept})
    np.testing.assert_allclose(again[:, :, low:high], result[:, :, low:high], rtol=1e-4, atol=1e-3)
