"""At least one small node for every row of the operator table."""

from __future__ import annotations

import numpy as np

from tests.graph.operator_table.operator_harness import (
    Case,
    Draw,
    Input,
    distinct,
    ints,
    positive,
    real,
    scalar,
    truth,
    unit,
    whole,
)

MS = "com.microsoft"


def _one(op: str, draw: Draw, opset: int = 21, **attributes: object) -> Case:
    return Case(op, (draw,), attributes, opset)


def _two(op: str, left: Input, right: Input, opset: int = 21, **attributes: object) -> Case:
    return Case(op, (left, right), attributes, opset)


def _microsoft(op: str, *inputs: Input, outputs: int = 1, **attributes: object) -> Case:
    return Case(op, inputs, attributes, 21, MS, outputs, runtime=True)


_ANYWHERE = [
    "Abs",
    "Neg",
    "Sign",
    "Floor",
    "Ceil",
    "Round",
    "Relu",
    "IsNaN",
    "IsInf",
    "Exp",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Sinh",
    "Cosh",
    "Tanh",
    "Asinh",
    "LeakyRelu",
    "ThresholdedRelu",
    "Shrink",
    "HardSigmoid",
    "HardSwish",
    "Elu",
    "Celu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Mish",
    "Gelu",
    "Identity",
    "Dropout",
]
_POSITIVE = ("Log", "Sqrt", "Reciprocal")
_UNIT = ("Asin", "Acos", "Atanh")
_PAIRS = ("Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "PRelu")

ELEMENTWISE = [
    *[_one(op, real(2, 3, 5)) for op in _ANYWHERE],
    *[_one(op, positive(4, 3)) for op in _POSITIVE],
    *[_one(op, unit(4, 3)) for op in _UNIT],
    _one("Acosh", lambda rng: 1 + positive(4, 3)(rng)),
    _one("Relu", real()),
    _one("Swish", real(3, 4), 24),
    _one("Not", truth(3, 4)),
    _one("BitwiseNot", whole(90, 3, 4)),
    _one("Cast", real(3, 4), to=7),
    _two("CastLike", real(3, 4), ints(1)),
    *[_two(op, real(3, 4, 5), real(4, 1)) for op in _PAIRS],
    _two("Add", real(1, 4), real(3, 1, 1)),
    _two("Add", real(3), real()),
    _two("Div", real(3, 4), positive(4)),
    _two("Pow", positive(3, 4), unit(3, 1)),
    _two("Mod", whole(90, 3, 4), whole(9, 4, low=1)),
    _two(
        "BitShift", whole(90, 3, 4, dtype="uint32"), whole(5, 4, dtype="uint32"), direction="LEFT"
    ),
    *[_two(op, truth(3, 4), truth(3, 1)) for op in ("And", "Or", "Xor")],
    *[_two(f"Bitwise{op}", whole(90, 3, 4), whole(90, 4)) for op in ("And", "Or", "Xor")],
    Case("Where", (truth(3, 1), real(4), real(2, 3, 4))),
    Case("Clip", (real(3, 4), scalar(-1), scalar(1))),
    Case("Clip", (real(3, 4), None, scalar(1))),
    *[Case(op, (real(3, 4), real(4), real(3, 1))) for op in ("Max", "Min", "Sum", "Mean")],
    Case("BatchNormalization", (real(2, 3, 4, 4), real(3), real(3), real(3), positive(3))),
    _microsoft("Gelu", real(3, 4)),
    _microsoft("QuickGelu", real(3, 4), alpha=1.7),
    _microsoft("FastGelu", real(3, 4), real(4)),
    _microsoft("BiasGelu", real(2, 3, 4), real(4)),
]

MATRIX = [
    _two("MatMul", real(3, 4), real(4, 5)),
    _two("MatMul", real(4), real(4, 5)),
    _two("MatMul", real(3, 4), real(4)),
    _two("MatMul", real(4), real(4)),
    _two("MatMul", real(4), real(2, 4, 5)),
    _two("MatMul", real(2, 3, 4), real(4)),
    _two("MatMul", real(2, 1, 3, 4), real(6, 4, 5)),
    _two("MatMul", real(1, 3, 4), real(2, 4, 5)),
    Case("Gemm", (real(3, 4), real(4, 5), real(5))),
    Case("Gemm", (real(4, 3), real(5, 4), real(3, 1)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    Case("Gemm", (real(3, 4), real(5, 4)), {"transB": 1}),
    Case("Gemm", (real(3, 4), real(4, 5), real())),
    _two("Einsum", real(2, 3, 4), real(2, 4, 5), equation="bij,bjk->bik"),
    _two("Einsum", real(2, 3, 4), real(5, 4), equation="bij, kj"),
    _two("Einsum", real(3), real(4), equation="i,j->ij"),
    _one("Einsum", real(2, 3, 4), equation="abc->ca"),
    Case("Einsum", (real(2, 3), real(3, 4), real(4, 5)), {"equation": "ij,jk,kl->il"}),
    Case(
        "MatMulInteger",
        (
            whole(90, 2, 3, 4, dtype="uint8"),
            whole(90, 4, 5, dtype="uint8"),
            whole(5, dtype="uint8"),
            whole(5, 5, dtype="uint8"),
        ),
        runtime=True,
    ),
    Case(
        "QLinearMatMul",
        (
            whole(90, 3, 4, dtype="uint8"),
            scalar(0.1),
            scalar(3, "uint8"),
            whole(90, 4, 5, dtype="uint8"),
            positive(5),
            whole(9, 5, dtype="uint8"),
            scalar(20.0),
            scalar(7, "uint8"),
        ),
        runtime=True,
    ),
    _microsoft("FusedGemm", real(3, 4), real(4, 5), real(5), activation="Relu"),
    _microsoft("FusedMatMul", real(2, 4, 3), real(2, 5, 4), transA=1, transB=1, alpha=0.5),
    _microsoft(
        "MatMulNBits",
        real(2, 3, 32),
        whole(256, 5, 2, 8, dtype="uint8"),
        positive(10),
        K=32,
        N=5,
        bits=4,
        block_size=16,
    ),
]


def _conv(x: Draw, w: Draw, *rest: Input, **attributes: object) -> Case:
    return Case("Conv", (x, w, *rest), attributes)


def _deconv(x: Draw, w: Draw, *rest: Input, **attributes: object) -> Case:
    return Case("ConvTranspose", (x, w, *rest), attributes, runtime=True)


CONVOLUTION = [
    _conv(real(2, 3, 7, 6), real(4, 3, 3, 3), real(4), pads=(1, 1, 1, 1), strides=(2, 1)),
    _conv(real(1, 3, 9), real(4, 3, 3), dilations=(2,), pads=(2, 1)),
    _conv(real(1, 2, 4, 5, 4), real(3, 2, 2, 2, 2)),
    _conv(real(1, 4, 6, 6), real(6, 2, 3, 3), real(6), group=2),
    _conv(real(2, 4, 6, 6), real(4, 1, 3, 3), group=4, pads=(1, 1, 1, 1)),
    _conv(real(1, 3, 5, 5), real(6, 1, 3, 3), group=3),
    _conv(real(1, 3, 7, 7), real(2, 3, 3, 4), auto_pad="SAME_UPPER", strides=(2, 2)),
    _conv(real(1, 3, 7, 7), real(2, 3, 4, 3), auto_pad="SAME_LOWER", strides=(2, 2)),
    _conv(real(1, 3, 7, 7), real(2, 3, 3, 3), auto_pad="VALID"),
    _conv(real(2, 3, 5, 5), real(4, 3, 1, 1), strides=(2, 2)),
    _deconv(real(1, 3, 4, 5), real(3, 2, 3, 3), real(2), strides=(2, 2), pads=(1, 1, 1, 1)),
    _deconv(real(1, 4, 5, 4), real(4, 2, 2, 2), group=2, strides=(2, 2), output_padding=(1, 1)),
    _deconv(real(2, 4, 6), real(4, 1, 3), group=4, dilations=(2,)),
    _deconv(real(1, 2, 5), real(2, 3, 2), strides=(2,)),
    _deconv(real(1, 2, 5), real(2, 3, 1), strides=(2,), output_padding=(1,)),
    _deconv(real(1, 2, 5), real(2, 3, 3), strides=(2,), auto_pad="SAME_UPPER"),
    Case(
        "DeformConv",
        (real(1, 4, 5, 5), real(2, 2, 2, 2), unit(1, 8, 4, 4), real(2), unit(1, 4, 4, 4)),
        {"kernel_shape": (2, 2), "group": 2},
        22,
    ),
    Case(
        "ConvInteger",
        (
            whole(90, 1, 2, 5, 5, dtype="uint8"),
            whole(90, 3, 2, 3, 3, dtype="uint8"),
            scalar(5, "uint8"),
        ),
    ),
    Case(
        "QLinearConv",
        (
            whole(90, 1, 2, 6, 5, dtype="uint8"),
            scalar(0.1),
            scalar(5, "uint8"),
            whole(90, 3, 2, 3, 3, dtype="int8"),
            positive(3),
            np.zeros(3, dtype=np.int8),
            scalar(40.0),
            scalar(5, "uint8"),
            whole(50, 3, dtype="int32"),
        ),
        {"pads": (1, 1, 1, 1)},
        runtime=True,
    ),
    _microsoft(
        "FusedConv", real(1, 2, 6, 6), real(3, 2, 3, 3), real(3), activation="Relu", strides=(2, 2)
    ),
]

POOLING = [
    _one("MaxPool", real(2, 3, 7, 6), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    _one("MaxPool", real(1, 2, 7), kernel_shape=(3,), strides=(2,), ceil_mode=1),
    _one("MaxPool", real(1, 2, 8, 8), kernel_shape=(3, 2), dilations=(2, 1)),
    Case("MaxPool", (real(1, 2, 6, 6),), {"kernel_shape": (2, 2), "strides": (2, 2)}, outputs=2),
    _one("AveragePool", real(1, 2, 7, 7), kernel_shape=(3, 3), pads=(1, 0, 1, 0)),
    _one("AveragePool", real(1, 2, 7), kernel_shape=(2,), auto_pad="SAME_UPPER", strides=(2,)),
    _one("LpPool", real(1, 2, 7, 7), kernel_shape=(3, 3), strides=(2, 2), p=2),
    _one("GlobalAveragePool", real(2, 3, 4, 5)),
    Case("GlobalMaxPool", (real(2, 3, 4),), runtime=True),
    Case("GlobalLpPool", (real(2, 3, 4, 4),), {"p": 2}, runtime=True),
    Case(
        "RoiAlign",
        (
            real(2, 3, 8, 8),
            lambda rng: (
                np.sort(rng.uniform(0, 7, size=(4, 2, 2)), axis=1).reshape(4, 4).astype(np.float32)
            ),
            whole(2, 4),
        ),
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
        runtime=True,
    ),
    _two("GridSample", real(2, 3, 5, 5), unit(2, 4, 3, 2)),
]

NORMALISATION = [
    _one("Softmax", real(3, 4, 5)),
    _one("Softmax", real(3, 4, 5), axis=1),
    Case("Softmax", (real(3, 4, 5),), {"axis": 1}, 11, runtime=True),
    _one("LogSoftmax", real(3, 4, 5), axis=0),
    Case("Hardmax", (real(3, 4, 5),), {}, 11, runtime=True),
    _one("Hardmax", real(3, 4), axis=-1),
    Case("LayerNormalization", (real(2, 3, 8), real(8), real(8))),
    Case("LayerNormalization", (real(2, 3, 4), real(3, 4)), {"axis": 1}, outputs=3),
    Case("RMSNormalization", (real(2, 3, 8), real(8)), {}, 23),
    Case("SimplifiedLayerNormalization", (real(2, 3, 8), real(8)), runtime=True),
    _microsoft("SkipLayerNormalization", real(2, 3, 8), real(3, 8), real(8), real(8)),
    _microsoft("SkipSimplifiedLayerNormalization", real(2, 3, 8), real(2, 3, 8), real(8)),
    Case("GroupNormalization", (real(2, 6, 4), real(6), real(6)), {"num_groups": 3}),
    Case("GroupNormalization", (real(2, 6, 4), real(3), real(3)), {"num_groups": 3}, 18),
    Case("InstanceNormalization", (real(2, 3, 4, 4), real(3), real(3))),
    _one("LpNormalization", real(3, 4), axis=0, p=2),
    _one("MeanVarianceNormalization", real(2, 3, 4, 4)),
    # The reference fills in as many channels as there are samples.
    _one("LRN", real(7, 7, 3, 2), size=3, alpha=5.0),
    _one("LRN", real(7, 7, 3, 2), size=4, alpha=5.0),
]

_SUMS = [
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceMean",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceProd",
]

REDUCTION = [
    *[_two(op, real(3, 4, 5), ints(1)) for op in _SUMS],
    *[_two(op, positive(3, 4), ints(-1), keepdims=0) for op in ("ReduceLogSum", "ReduceLogSumExp")],
    _one("ReduceSum", real(3, 4)),
    _one("ReduceSum", real(3, 4), noop_with_empty_axes=1),
    _one("ReduceMean", real(3, 4, 5), 13, axes=(0, 2), keepdims=0),
    _one("ArgMax", real(3, 4, 5), axis=1),
    _one("ArgMin", real(3, 4, 5), axis=-1, keepdims=0),
    _two("CumSum", real(3, 4), scalar(1, "int64")),
    _two("CumProd", real(3, 4), scalar(0, "int64"), 26),
    Case("TopK", (real(3, 8), ints(3)), {}, outputs=2),
    Case("TopK", (real(8, 3), ints(2)), {"axis": 0}, outputs=2),
]

RESHAPE = [
    _two("Reshape", real(2, 3, 8), ints(2, 3, 2, 4)),
    _two("Reshape", real(2, 3, 8), ints(6, 8)),
    _two("Reshape", real(2, 6, 3, 3), ints(2, 3, 2, 3, 3)),
    _two("Reshape", real(2, 3, 5), ints(2, 5, 3)),
    _two("Reshape", real(2, 3, 5), ints(10, 3)),
    _two("Reshape", real(6, 4, 3), ints(4, 6, 3)),
    _two("Reshape", real(4, 6), ints(6, 4)),
    _two("Reshape", real(1, 1), ints(1)),
    _one("Flatten", real(2, 3, 4), axis=1),
    _two("Squeeze", real(2, 1, 4), ints(1)),
    _two("Unsqueeze", real(2, 4), ints(0, 3)),
]

LAYOUT = [
    _one("Transpose", real(2, 3, 4), perm=(2, 0, 1)),
    _one("Transpose", real(2, 3, 4)),
    Case("Concat", (real(2, 3), real(2, 1), real(2, 4)), {"axis": 1}),
    Case("Concat", (real(2, 3), real(4, 3)), {"axis": -2}),
    Case("Split", (real(2, 7), ints(3, 4)), {"axis": 1}, outputs=2),
    Case("Split", (real(6, 3),), {"num_outputs": 3}, outputs=3),
    Case("Slice", (real(6, 7), ints(1, -6), ints(5, 99), ints(0, 1), ints(2, 3))),
    Case("Slice", (real(6, 7), ints(-1), ints(-99), ints(1), ints(-2))),
    Case("Slice", (real(6, 7), ints(2), ints(5))),
    Case("Pad", (real(3, 4), ints(1, 0, 2, -1)), runtime=True),
    Case("Pad", (real(3, 4), ints(1, 2), scalar(2.0), ints(1))),
    *[_two("Pad", real(3, 4), ints(1, 2, 2, 0), mode=mode) for mode in ("edge", "reflect", "wrap")],
    _two("Expand", real(3, 1), ints(2, 1, 4)),
    _two("Tile", real(2, 3), ints(3, 2)),
    _two("Tile", real(2, 3), ints(1, 2)),
    *[_one("DepthToSpace", real(1, 12, 2, 3), blocksize=2, mode=m) for m in ("DCR", "CRD")],
    _one("SpaceToDepth", real(2, 3, 4, 6), blocksize=2),
    _two("ReverseSequence", real(5, 3, 2), whole(5, 3, low=1)),
    _two("ReverseSequence", real(3, 5), whole(5, 3, low=1), batch_axis=0, time_axis=1),
    _one("Trilu", real(2, 4, 4)),
    _two("Trilu", real(4, 5), scalar(1, "int64"), upper=0),
]


def _column(high: int, count: int) -> Draw:
    """Distinct index tuples of one index each."""
    return lambda rng: distinct(high, count)(rng).reshape(count, 1)


INDEXING = [
    _two("Gather", real(7, 3), whole(7, 2, 4)),
    _two("Gather", real(3, 7, 2), whole(7, 4), axis=1),
    _two("Gather", real(3, 7), scalar(-2, "int64"), axis=1),
    _two("Gather", real(3, 7), ints(5, 3, 1), axis=1),
    _two("Gather", real(3, 7), ints(5, 3, 2), axis=1),
    _two("Gather", real(3, 7), ints(4).reshape(1, 1), axis=1),
    _two("Gather", real(24, 3), ints(*range(24)).reshape(4, 6), axis=0),
    _two("Gather", real(24, 3), ints(*(6 * k + i for k in range(4) for i in (3, 0, 5))), axis=0),
    _two(
        "Gather",
        real(3, 24),
        ints(*(k + 4 * i for k in range(4) for i in (1, 1, 5, 0))).reshape(4, 4),
        axis=1,
    ),
    _two("Gather", real(7, 3), ints(4, 1, 1, 6, 0, 2), axis=0),
    _two("Gather", real(7, 3), ints(2, 2, 5, 5).reshape(2, 2), axis=0),
    _two(
        "GatherElements",
        real(8, 5),
        ints(*(2 * (k // 5) + k % 2 for k in range(20))).reshape(4, 5),
        axis=0,
    ),
    _two(
        "GatherND",
        real(4, 5, 3),
        ints(*(n for b in range(4) for s in (2, -1, 0) for n in (b, s))).reshape(4, 3, 2),
    ),
    _two("GatherND", real(2, 5, 3), ints(4, 2, 0, 1).reshape(2, 2, 1), batch_dims=1),
    _two("GatherElements", real(4, 5), whole(4, 3, 5), axis=0),
    _two("GatherND", real(4, 5, 3), whole(4, 2, 2, 1)),
    _two("GatherND", real(2, 5, 3), whole(5, 2, 1), batch_dims=1),
    Case("ScatterElements", (real(3, 5), distinct(5, 3, 2), real(3, 2)), {"axis": 1}),
    Case("Scatter", (real(3, 5), distinct(5, 3, 2), real(3, 2)), {"axis": 1}, 10, runtime=True),
    Case("ScatterND", (real(4, 5, 3), _column(4, 2), real(2, 5, 3))),
    Case("OneHot", (whole(4, 2, 3), scalar(4, "int64"), real(2))),
    Case("OneHot", (whole(4, 2, 3), scalar(4, "int64"), real(2)), {"axis": 0}),
    Case("Range", (scalar(1), scalar(9), scalar(2))),
    _one("Shape", real(3, 4)),
    _one("Size", real(3, 4)),
    Case("Constant", (), {"value_floats": (1.0, 2.0)}),
    Case("ConstantOfShape", (ints(2, 3),)),
    _one("EyeLike", real(3, 4)),
]


def _resize(x: Draw, *scales: float, opset: int = 19, **attributes: object) -> Case:
    inputs = (x, None, np.array(scales, dtype=np.float32))
    return Case("Resize", inputs, attributes, opset, runtime=True)


_MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")

RESIZING = [
    *[
        _resize(real(1, 2, 4, 3), 1, 1, 2, 3, mode=m, coordinate_transformation_mode=c)
        for m in ("nearest", "linear")
        for c in _MODES
    ],
    *[
        _resize(real(1, 1, 6, 6), 1, 1, 2, 2, mode="cubic", coordinate_transformation_mode=c)
        for c in _MODES
    ],
    _resize(
        real(1, 2, 4, 3),
        *(1, 1, 2, 3),
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    _resize(real(1, 2, 4, 3), 1, 1, 2.5, 1, nearest_mode="ceil"),
    _resize(real(1, 2, 8, 6), 1, 1, 0.5, 0.5),
    Case("Resize", (real(1, 2, 4, 3), None, None, ints(1, 2, 8, 3)), {}, 19, runtime=True),
    Case("Resize", (real(1, 2, 4, 3), None, None, ints(1, 2, 7, 3)), {}, 19, runtime=True),
    Case("Resize", (real(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32)), {}, 10, runtime=True),
    Case("Upsample", (real(1, 2, 3, 3), np.array([1, 1, 2, 3], np.float32)), {}, 9, runtime=True),
    Case(
        "Upsample",
        (real(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32)),
        {"mode": "linear"},
        9,
        runtime=True,
    ),
]


def _byte(*shape: int) -> Draw:
    return whole(200, *shape, dtype="uint8")


_POINT = (scalar(0.5), scalar(9, "uint8"))

QUANTISATION = [
    Case("QuantizeLinear", (real(3, 4), scalar(0.5), scalar(9, "uint8"))),
    Case("QuantizeLinear", (real(3, 4), positive(4), whole(9, 4, dtype="uint8")), {"axis": 1}),
    Case("DequantizeLinear", (_byte(3, 4), positive(3), whole(9, 3, dtype="uint8")), {"axis": 0}),
    Case("DequantizeLinear", (_byte(3, 4), positive(3, 2)), {"axis": 1, "block_size": 2}),
    Case("DynamicQuantizeLinear", (real(3, 4),), outputs=3),
    _microsoft("QuantizeLinear", real(3, 4), *_POINT),
    _microsoft("DequantizeLinear", _byte(3, 4), *_POINT),
    *[_microsoft(op, _byte(3, 4), *_POINT, _byte(4), *_POINT, *_POINT) for op in ("QLinearAdd",)],
    _microsoft("QLinearMul", _byte(3, 4), *_POINT, _byte(3, 4), *_POINT, scalar(60), _POINT[1]),
    _microsoft("QLinearSigmoid", whole(20, 3, 4, dtype="uint8"), *_POINT, scalar(0.01), _POINT[1]),
    _microsoft("QLinearLeakyRelu", _byte(3, 4), *_POINT, *_POINT, alpha=0.1),
]


def _recurrent(op: str, gates: int, directions: int = 1, *, outputs: int = 2) -> Case:
    direction = "bidirectional" if directions > 1 else "forward"
    inputs = (
        unit(5, 3, 2),
        unit(directions, gates * 4, 2),
        unit(directions, gates * 4, 4),
        unit(directions, gates * 8),
        None,
        unit(directions, 3, 4),
    )
    attributes = {"hidden_size": 4, "direction": direction}
    return Case(op, inputs, attributes, 14, outputs=outputs, runtime=True)


RECURRENT = [
    _recurrent("LSTM", 4, outputs=3),
    _recurrent("LSTM", 4, 2),
    _recurrent("GRU", 3, 2),
    _recurrent("RNN", 1),
]

_ANGLES = (unit(8, 2), unit(8, 2))

ATTENTION = [
    Case("Attention", (unit(2, 4, 3, 5), unit(2, 2, 6, 5), unit(2, 2, 6, 5)), {}, 23),
    Case(
        "Attention",
        (unit(2, 3, 12), unit(2, 5, 6), unit(2, 5, 6), unit(3, 5)),
        {"q_num_heads": 4, "kv_num_heads": 2},
        23,
    ),
    _microsoft("MultiHeadAttention", unit(2, 3, 8), unit(2, 5, 8), unit(2, 5, 8), num_heads=2),
    Case("RotaryEmbedding", (real(2, 3, 8, 4), *_ANGLES, whole(8, 2, 8)), {}, 23),
    _microsoft("RotaryEmbedding", real(2, 3, 8, 4), whole(1, 1), *_ANGLES),
]


def _boxes(rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.uniform(0, 9, size=(2, 7, 2, 2)), axis=2).reshape(2, 7, 4).astype("float32")


SELECTION = [
    Case(
        "NonMaxSuppression",
        (_boxes, positive(2, 3, 7), ints(2), np.array([0.5], np.float32)),
        runtime=True,
    ),
    _one("NonZero", whole(2, 3, 4)),
    Case("Compress", (real(3, 4), truth(3)), {"axis": 0}),
    Case("Unique", (whole(4, 9, dtype="float32"),), runtime=True),
]

SIGNAL = [
    Case("DFT", (real(2, 8, 1),), {"axis": 1, "onesided": 1}, 17, runtime=True),
    Case("DFT", (real(2, 3, 6, 2), None, scalar(1, "int64")), {}, 20, runtime=True),
    Case("STFT", (real(2, 20), ints(4).reshape(()), unit(8), ints(8).reshape(())), runtime=True),
    Case("STFT", (real(1, 20, 1), scalar(3, "int64"), unit(6)), {"onesided": 0}, runtime=True),
    Case("Col2Im", (real(2, 8, 6), ints(3, 4), ints(2, 2)), runtime=True),
]

CACHES = [
    Case("TensorScatter", (real(2, 3, 8, 4), real(2, 3, 2, 4), whole(6, 2)), {}, 24),
    _microsoft(
        "GatherBlockQuantized",
        *(_byte(9, 16), whole(9, 2, 3), positive(9, 2)),
        bits=4,
        block_size=16,
        gather_axis=0,
        quantize_axis=1,
    ),
    _microsoft(
        "MoE",
        *(unit(2, 3, 16), real(6, 4), unit(4, 8, 16), unit(4, 8), unit(4, 16, 8)),
        k=2,
        activation_type="silu",
    ),
]

GROUPS: dict[str, list[Case]] = {
    "elementwise": ELEMENTWISE,
    "matrix": MATRIX,
    "convolution": CONVOLUTION,
    "pooling": POOLING,
    "normalisation": NORMALISATION,
    "reduction": REDUCTION,
    "reshape": RESHAPE,
    "layout": LAYOUT,
    "indexing": INDEXING,
    "resizing": RESIZING,
    "quantisation": QUANTISATION,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "selection": SELECTION,
    "signal": SIGNAL,
    "caches": CACHES,
}

CASES = [case for group in GROUPS.values() for case in group]
