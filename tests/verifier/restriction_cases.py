"""More nodes than the operator table has: what changes when a part of them is computed."""

from __future__ import annotations

import numpy as np

from tests.graph.operator_table.operator_harness import (
    Case,
    Draw,
    Input,
    ints,
    positive,
    real,
    scalar,
    truth,
    unit,
    whole,
)

MS = "com.microsoft"


def _ort(op: str, *inputs: Input, opset: int = 21, outputs: int = 1, **attributes: object) -> Case:
    return Case(op, inputs, attributes, opset, outputs=outputs, runtime=True)


def _microsoft(op: str, *inputs: Input, **attributes: object) -> Case:
    return Case(op, inputs, attributes, 21, MS, runtime=True)


_IMAGE = real(2, 4, 9, 8)

_BIAS = np.arange(6, dtype=np.float32)
"""Known: parts that no input reaches need it too."""

WINDOWS = [
    _ort("Conv", real(1, 8, 7, 7), real(8, 2, 3, 3), real(8), group=4, pads=(1, 2, 0, 1)),
    _ort("Conv", _IMAGE, real(6, 4, 5, 1), dilations=(2, 1), pads=(4, 0, 4, 0), strides=(2, 3)),
    _ort("Conv", _IMAGE, real(8, 2, 3, 3), group=2, auto_pad="SAME_LOWER", strides=(2, 1)),
    *[
        _ort("MaxPool", _IMAGE, opset=n, kernel_shape=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1))
        for n in (7, 10, 21)
    ],
    _ort("MaxPool", _IMAGE, kernel_shape=(2, 3), strides=(3, 2), ceil_mode=1),
    _ort("MaxPool", _IMAGE, kernel_shape=(3, 3), dilations=(3, 2), pads=(2, 2, 2, 2), ceil_mode=1),
    *[
        _ort(
            "AveragePool", _IMAGE, opset=n, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 2, 0, 1),
            count_include_pad=c,
        )
        for n, c in ((7, 0), (10, 1), (19, 0), (21, 1))
    ],
    _ort("AveragePool", _IMAGE, kernel_shape=(2, 3), strides=(3, 2), ceil_mode=1, pads=(1,) * 4),
    _ort("AveragePool", _IMAGE, opset=19, kernel_shape=(2, 2), dilations=(3, 2)),
    _ort("LpPool", _IMAGE, opset=18, kernel_shape=(3, 2), pads=(1, 0, 1, 1), p=1),
    *[
        _ort("ConvTranspose", real(2, 4, 5, 6), real(4, 3, 4, 3), _BIAS, group=2, **more)
        for more in (
            {"strides": (2, 3), "pads": (1, 1, 2, 0), "output_padding": (1, 2)},
            {"strides": (3, 2), "auto_pad": "SAME_UPPER"},
            {"strides": (3, 2), "auto_pad": "SAME_LOWER"},
            {"strides": (2, 2), "output_shape": (9, 12)},
            {"dilations": (2, 1), "pads": (3, 1, 3, 1)},
            {"strides": (5, 4), "output_padding": (2, 1)},
        )
    ],
    _ort("LRN", real(2, 9, 3, 3), size=5, alpha=3.0),
]  # fmt: skip

RESIZED = [
    _ort(
        "Resize", real(2, 3, 4, 5), None, np.array((1, 1, *factors), np.float32), opset=n,
        mode=mode, coordinate_transformation_mode=coordinates,
    )
    for n in (11, 19)
    for mode, coordinates, factors in (
        ("nearest", "asymmetric", (3, 1)), ("linear", "half_pixel", (2, 2)),
        ("cubic", "pytorch_half_pixel", (3, 1)),
    )
]  # fmt: skip


def _qkv(rows: int, keys: int) -> tuple[Draw, Draw, Draw]:
    return unit(2, rows, 12), unit(2, keys, 12), unit(2, keys, 12)


_ROWS, _TABLES = real(2, 5, 12), (unit(9, 2), unit(9, 2))

_FOUR = (unit(2, 4, 6, 5), unit(2, 2, 6, 5), unit(2, 2, 6, 5))

ATTENTION = [
    Case("Attention", _FOUR, {"is_causal": 1}, 23),
    Case("Attention", (*_FOUR, unit(6, 6)), {"is_causal": 1}, 23),
    Case("Attention", (*_FOUR, unit(6, 6)), {"scale": 0.3, "softcap": 2.0}, 23),
    Case("Attention", (*_FOUR, truth(2, 1, 6, 6)), {}, 23),
    Case("Attention", (*_FOUR, unit(4, 1, 6)), {}, 23),
    *[
        _microsoft("MultiHeadAttention", *_qkv(3, 5), *masks, num_heads=3)
        for masks in (
            (unit(36),),
            (None, whole(2, 2, 5, dtype="int32")),
            (None, whole(5, 2, dtype="int32", low=1)),
            (None, None, unit(2, 3, 3, 5)),
        )
    ],
    _microsoft("MultiHeadAttention", *_qkv(5, 5), num_heads=3, unidirectional=1),
    Case("RotaryEmbedding", (real(2, 3, 5, 4), unit(2, 5, 2), unit(2, 5, 2)), {}, 23),
    Case("RotaryEmbedding", (_ROWS, *_TABLES, whole(9, 2, 5)), {"num_heads": 3}, 23),
    _microsoft("RotaryEmbedding", _ROWS, whole(9, 2, 5), *_TABLES, num_heads=3),
]  # fmt: skip

MATRIX = [
    _microsoft(
        "MatMulNBits", real(2, 3, 32), whole(256, 5, 2, 8, dtype="uint8"), positive(*scales),
        *zeros, K=32, N=5, bits=4, block_size=16,
    )
    for scales in ((10,), (5, 2))
    for zeros in ((), (whole(256, 5, dtype="uint8"),))
]  # fmt: skip

RECURRENT = [
    _ort(
        op, unit(5, 3, 2), unit(2, gates * 4, 2), unit(2, gates * 4, 4), None,
        whole(6, 3, dtype="int32", low=1), opset=14, outputs=2,
        hidden_size=4, direction="bidirectional", activations=functions * 2,
    )
    for op, gates, functions in (
        ("GRU", 3, ("Sigmoid", "Relu")), ("LSTM", 4, ("Sigmoid", "Tanh", "Relu")),
    )
]  # fmt: skip

OPSETS = [7, 10, 21]

LAYOUT = [
    *[_ort("Slice", real(5, 6), opset=n, axes=(0, 1), starts=(1, 2), ends=(4, 6)) for n in (7, 9)],
    *[
        _ort("Slice", real(5, 9), ints(0, -2), ints(99, -99), ints(0, 1), ints(2, -3), opset=n)
        for n in (10, 11, 13)
    ],
    *[_ort("Pad", real(3, 4), opset=n, pads=(1, 0, 2, 3), value=2.5) for n in (7, 10)],
    *[_ort("Pad", real(3, 4), ints(1, 0, 2, 3), scalar(2.5), opset=n) for n in (11, 13, 18)],
    _ort("Pad", whole(9, 3, 4), ints(1, 0, 2, 3), scalar(2, "int64"), opset=18),
    *[_ort("Split", real(6, 5), opset=n, axis=0, split=(1, 3, 2), outputs=3) for n in (7, 11)],
    *[_ort("Concat", real(2, 3), real(2, 4), real(2, 1), opset=n, axis=1) for n in OPSETS],
    *[_ort("Reshape", real(2, 6, 4), ints(2, 3, 8), opset=n) for n in OPSETS],
    *[_ort("Squeeze", real(2, 1, 4, 1), opset=n, axes=(1, 3)) for n in (7, 11)],
    *[_ort("Gather", real(3, 7), ints(5, 3, 1), opset=n, axis=1) for n in (7, 11, 13)],
    *[_ort("ReduceMean", real(3, 4, 5), opset=n, axes=(1,)) for n in (7, 11, 13, 17)],
    _ort("Expand", real(3, 1), ints(2, 3, 5), opset=8),
    _ort("CastLike", real(3, 4), whole(9, 2)),
    _ort("Shape", real(3, 4), start=1),
]

OTHERS = [
    *[_ort("MatMul", real(2, 3, 4), real(4, 5), opset=n) for n in OPSETS],
    *[
        _ort("BatchNormalization", real(2, 3, 4), real(3), real(3), real(3), positive(3), opset=n)
        for n in (9, 13, 14, 15)
    ],
    *[_ort("ReverseSequence", real(5, 3, 2), whole(6, 3, low=1), opset=n) for n in (10, 21)],
    _ort("Mod", whole(90, 3, 4), whole(9, 4, low=1)),
    _ort("GatherND", whole(9, 4, 5), whole(4, 3, 1)),
    _ort("Trilu", real(2, 4, 5), scalar(-1, "int64"), upper=1),
    _ort("OneHot", whole(4, 2, 3), scalar(4, "int64"), real(2), axis=1),
]

CASES = [*WINDOWS, *RESIZED, *ATTENTION, *MATRIX, *RECURRENT, *LAYOUT, *OTHERS]
