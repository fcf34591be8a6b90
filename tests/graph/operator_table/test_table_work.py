"""Multiply-accumulates, vector work, classes and parameters, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autoturbo.graph.operator_table import NodeView, describe
from autoturbo.graph.operators import Engine, Pattern
from tests.graph.operator_table.operator_harness import Described, node
from tests.tiers import spread

_GAPS: list[tuple[int, int, dict[str, Any]]] = [
    (3, 19, {"strides": (4,)}),
    (1, 9, {"strides": (2,)}),
    (2, 11, {"strides": (2,), "output_padding": (1,)}),
    (2, 12, {"strides": (2,), "dilations": (2,), "output_padding": (1,)}),
    (2, 15, {"strides": (3,), "output_shape": (15,)}),
]
"""Kernel, output and attributes of transposed convolutions over 5 rows."""

MACS: list[tuple[NodeView, int]] = [
    # ResNet-50's first convolution: 64 x 112 x 112 outputs of 3 x 7 x 7.
    (
        node(
            "Conv",
            [(1, 3, 224, 224), (64, 3, 7, 7)],
            [(1, 64, 112, 112)],
            strides=(2, 2),
            pads=(3, 3, 3, 3),
        ),
        118_013_952,
    ),
    # MobileNet-v2's first depthwise convolution: 32 x 112 x 112 outputs of 3 x 3.
    (
        node(
            "Conv",
            [(1, 32, 112, 112), (32, 1, 3, 3)],
            [(1, 32, 112, 112)],
            group=32,
            pads=(1, 1, 1, 1),
        ),
        32 * 112 * 112 * 9,
    ),
    (node("Conv", [(2, 6, 9), (4, 3, 3)], [(2, 4, 7)], group=2), 2 * 4 * 7 * 3 * 3),
    (node("Conv", [(1, 2, 4, 4, 4), (3, 2, 2, 2, 2)], [(1, 3, 3, 3, 3)]), 3 * 27 * 2 * 8),
    (
        node("ConvTranspose", [(1, 8, 5, 5), (8, 4, 3, 3)], [(1, 4, 11, 11)], strides=(2, 2)),
        8 * 25 * 4 * 9,
    ),
    (
        node("ConvTranspose", [(1, 8, 5), (8, 2, 3)], [(1, 8, 11)], strides=(2,), group=4),
        8 * 5 * 2 * 3,
    ),
    # The stride, or the padding of the output, reaches past the window: nothing is computed there.
    *[
        (
            node("ConvTranspose", [(1, 8, 5), (8, 2, k)], [(1, 8, out)], group=4, **more),
            8 * 5 * 2 * k,
        )
        for k, out, more in _GAPS
    ],
    (node("MatMul", [(32, 128, 768), (768, 3072)], [(32, 128, 3072)]), 32 * 128 * 768 * 3072),
    (node("MatMul", [(2, 12, 8, 64), (2, 12, 64, 8)], [(2, 12, 8, 8)]), 24 * 8 * 8 * 64),
    (node("MatMul", [(5, 1, 2, 3), (4, 3, 6)], [(5, 4, 2, 6)]), 5 * 4 * 2 * 6 * 3),
    (node("MatMul", [(7,), (7,)], [()]), 7),
    (node("MatMul", [(7,), (3, 7, 2)], [(3, 2)]), 42),
    (node("Gemm", [(3, 4), (5, 4), (5,)], [(3, 5)], transB=1), 60),
    (node("Gemm", [(4, 3), (4, 5)], [(3, 5)], transA=1), 60),
    (node("Einsum", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], equation="bij,bjk->bik"), 120),
    (node("Einsum", [(3,), (4,)], [(3, 4)], equation="i,j"), 12),
    (
        node("Einsum", [(2, 3), (3, 4), (4, 5)], [(2, 5)], equation="ij,jk,kl->il"),
        2 * (2 * 3 * 4 * 5),
    ),
    (node("QLinearMatMul", [(3, 4), (), (), (4, 5), (), (), (), ()], [(3, 5)]), 60),
    (node("LSTM", [(5, 3, 2), (2, 16, 2), (2, 16, 4)], [(5, 2, 3, 4)]), 2 * 5 * 3 * 4 * 4 * 6),
    (node("GRU", [(5, 3, 2), (1, 12, 2), (1, 12, 4)], [(5, 1, 3, 4)]), 5 * 3 * 3 * 4 * 6),
    (node("RNN", [(5, 3, 2), (1, 4, 2), (1, 4, 4)], [(5, 1, 3, 4)]), 5 * 3 * 4 * 6),
    (
        node("Attention", [(2, 4, 8, 16)] + [(2, 4, 32, 16)] * 2, [(2, 4, 8, 16)], opset=23),
        2 * (2 * 4 * 8 * 32 * 16),
    ),
    # Six tokens, each through two experts of 16 x 8 and 8 x 16.
    (
        node(
            "MoE",
            [(2, 3, 16), (6, 4), (4, 8, 16), None, (4, 16, 8)],
            [(2, 3, 16)],
            domain="com.microsoft",
            k=2,
        ),
        6 * 2 * (16 * 8 + 8 * 16),
    ),
    # Gate and value in one product of twice the width, then back.
    (
        node(
            "MoE",
            [(6, 16), (6, 4), (4, 32, 16), (4, 32), (4, 16, 16)],
            [(6, 16)],
            domain="com.microsoft",
            k=1,
        ),
        6 * (16 * 32 + 16 * 16),
    ),
    (
        node(
            "MatMulNBits",
            [(2, 3, 32), (5, 2, 8), (10,)],
            [(2, 3, 5)],
            domain="com.microsoft",
            K=32,
            N=5,
        ),
        2 * 3 * 32 * 5,
    ),
    (node("Softmax", [(2, 3)], [(2, 3)]), 0),
    (node("AveragePool", [(1, 1, 4, 4)], [(1, 1, 2, 2)], kernel_shape=(3, 3)), 0),
]


@pytest.mark.parametrize(
    ("view", "macs"), spread(MACS, 3), ids=[f"{i}-{v.op_type}" for i, (v, _) in enumerate(MACS)]
)
def test_multiply_accumulates(view: NodeView, macs: int) -> None:
    described = Described(view)
    assert described.spec.opaque is None
    assert described.operator.macs == macs
    assert (described.spec.engine is Engine.MATRIX) == (macs > 0)


VECTOR: list[tuple[NodeView, float, float]] = [
    (node("Add", [(4, 3), (3,)], [(4, 3)]), 12, 0),
    (node("Div", [(4, 3), (3,)], [(4, 3)]), 0, 12),
    (node("Sum", [(4, 3)] * 4, [(4, 3)]), 36, 0),
    (node("Mean", [(4, 3)] * 2, [(4, 3)]), 24, 0),
    (node("Sigmoid", [(4, 3)], [(4, 3)]), 12, 24),
    (node("Softmax", [(4, 3)], [(4, 3)]), 36, 24),
    (node("BatchNormalization", [(2, 3, 4), *[(3,)] * 4], [(2, 3, 4)]), 48, 0),
    (node("LayerNormalization", [(2, 8), (8,), (8,)], [(2, 8)]), 80, 2),
    (node("InstanceNormalization", [(2, 3, 4), (3,), (3,)], [(2, 3, 4)]), 120, 6),
    (node("MaxPool", [(1, 2, 5, 5)], [(1, 2, 3, 3)], kernel_shape=(3, 3)), 2 * 9 * 9, 0),
    (node("AveragePool", [(1, 2, 5, 5)], [(1, 2, 3, 3)], kernel_shape=(3, 3)), 180, 0),
    (node("GlobalAveragePool", [(2, 3, 4, 4)], [(2, 3, 1, 1)]), 96 + 6, 0),
    (node("ReduceMean", [(2, 3, 4)], [(2, 1, 4)], axes=(1,), opset=13), 24 + 8, 0),
    (node("ReduceLogSumExp", [(2, 3)], [(2, 1)], axes=(1,), opset=13), 18, 8),
    (node("Conv", [(1, 3, 4, 4), (8, 3, 1, 1), (8,)], [(1, 8, 4, 4)]), 128, 0),
    (node("Conv", [(1, 3, 4, 4), (8, 3, 1, 1)], [(1, 8, 4, 4)]), 0, 0),
    (node("Gemm", [(3, 4), (4, 5), (5,)], [(3, 5)]), 15, 0),
    (
        node("ConvTranspose", [(1, 3, 4), (3, 2, 2), (2,)], [(1, 2, 8)], strides=(2,)),
        16,
        0,
    ),
    (node("QuantizeLinear", [(4, 3), (), ()], [(4, 3)]), 36, 12),
    # A real transform of 8 points by 5/2 n log2 n; frames weighted first.
    (node("DFT", [(2, 8, 1)], [(2, 5, 2)], opset=17, axis=1), 2 * 60, 0),
    (node("STFT", [(1, 20), np.array(4), (8,)], [(1, 4, 5, 2)]), 4 * (60 + 8), 0),
    (node("Col2Im", [(2, 8, 6), np.array([3, 4]), np.array([2, 2])], [(2, 2, 3, 4)]), 96, 0),
    (node("NonZero", [(4, 3)], [(2, 12)]), 24 + 24, 0),
    # Eight boxes of each of three classes sorted, two kept of each: 16 overlaps.
    (
        node("NonMaxSuppression", [(1, 8, 4), (1, 3, 8), np.array([2])], [(6, 3)]),
        3 * 8 * 3 + 12 * 3 * 8 * 2,
        3 * 8 * 2,
    ),
    (node("Transpose", [(4, 3)], [(3, 4)]), 0, 0),
    (node("Reshape", [(4, 3), (2,)], [(3, 4)]), 0, 0),
]


@pytest.mark.parametrize(
    ("view", "vector", "special"),
    spread(VECTOR, 3),
    ids=[f"{i}-{v.op_type}" for i, (v, _, _) in enumerate(VECTOR)],
)
def test_vector_work(view: NodeView, vector: float, special: float) -> None:
    described = Described(view)
    assert described.spec.opaque is None
    assert math.isclose(described.operator.vector_ops, vector)
    assert math.isclose(described.operator.special_ops, special, abs_tol=1e-9)


CLASSES: list[tuple[NodeView, Engine, Pattern]] = [
    (node("Relu", [(2,)], [(2,)]), Engine.VECTOR, Pattern.ELEMENTWISE),
    (node("Clip", [(2,), (), ()], [(2,)]), Engine.VECTOR, Pattern.ELEMENTWISE),
    (node("Add", [(2,), (2,)], [(2,)]), Engine.VECTOR, Pattern.BROADCAST),
    (node("Where", [(2,)] * 3, [(2,)]), Engine.VECTOR, Pattern.BROADCAST),
    (node("Expand", [(2, 1), (2,)], [(2, 5)]), Engine.MOVE, Pattern.BROADCAST),
    (node("Transpose", [(2, 3)], [(3, 2)]), Engine.MOVE, Pattern.INJECTIVE),
    (node("Reshape", [(2, 3), (1,)], [(6,)]), Engine.NONE, Pattern.INJECTIVE),
    (node("Unsqueeze", [(2, 3), (1,)], [(2, 1, 3)]), Engine.NONE, Pattern.BROADCAST),
    (node("Gather", [(9, 4), (3,)], [(3, 4)]), Engine.MOVE, Pattern.INJECTIVE),
    (node("ReduceSum", [(2, 3)], [(1, 1)]), Engine.VECTOR, Pattern.REDUCE),
    (node("ArgMax", [(2, 3)], [(1, 3)]), Engine.VECTOR, Pattern.REDUCE),
    (node("Softmax", [(2, 3)], [(2, 3)]), Engine.VECTOR, Pattern.OUT_ELEMENTWISE_FUSABLE),
    (node("MatMul", [(2, 3), (3, 4)], [(2, 4)]), Engine.MATRIX, Pattern.OUT_ELEMENTWISE_FUSABLE),
    (
        node("MaxPool", [(1, 1, 4)], [(1, 1, 3)], kernel_shape=(2,)),
        Engine.VECTOR,
        Pattern.OUT_ELEMENTWISE_FUSABLE,
    ),
    (node("LRN", [(1, 5, 2)], [(1, 5, 2)], size=3), Engine.VECTOR, Pattern.OPAQUE),
    (node("TopK", [(2, 9), np.array([3])], [(2, 3)] * 2), Engine.VECTOR, Pattern.OPAQUE),
    (node("Dropout", [(2, 9)], [(2, 9)]), Engine.NONE, Pattern.ELEMENTWISE),
]


@pytest.mark.parametrize(
    ("view", "engine", "pattern"), spread(CLASSES, 3), ids=[view.op_type for view, _, _ in CLASSES]
)
def test_engine_and_fusion_class(view: NodeView, engine: Engine, pattern: Pattern) -> None:
    spec = describe(view)
    assert spec.opaque is None
    assert (spec.engine, spec.pattern) == (engine, pattern)


@pytest.mark.parametrize(
    ("op", "inputs", "output", "weight"),
    spread(
        [
            ("Conv", [(1, 3, 4), (2, 3, 1)], (1, 2, 4), 1),
            ("MatMul", [(2, 3), (3, 4)], (2, 4), 1),
            ("MatMul", [(2, 3), (3, 4)], (2, 4), 0),
            ("Gemm", [(2, 3), (3, 4), (4,)], (2, 4), 1),
            ("LayerNormalization", [(2, 3), (3,)], (2, 3), 1),
            ("InstanceNormalization", [(2, 3, 4), (3,), (3,)], (2, 3, 4), 1),
            ("LSTM", [(5, 1, 2), (1, 8, 2), (1, 8, 2)], (5, 1, 1, 2), 1),
        ],
        3,
    ),
)
def test_learned_parameters_make_it_parameterised(
    op: str, inputs: list[object], output: tuple[int, ...], weight: int
) -> None:
    assert describe(node(op, inputs, [output], weights=[weight])).parameterised
    assert not describe(node(op, inputs, [output])).parameterised


def test_what_folds_away_is_not_parameterised() -> None:
    shapes = [(2, 3, 4), *[(3,)] * 4]
    normalised = node("BatchNormalization", shapes, [(2, 3, 4)], weights=[1, 2, 3, 4])
    assert not describe(normalised).parameterised
    assert not describe(node("Add", [(2, 3), (3,)], [(2, 3)], weights=[1])).parameterised
