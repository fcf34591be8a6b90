"""Operators written out on import: the same numbers as ONNX Runtime's, and work counted by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, helper, numpy_helper

from autoturbo.commands.model_facts import model_facts, opaque_sentence
from autoturbo.errors import ModelError
from autoturbo.graph.model_nodes import ModelNodes, load_nodes
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph, tensor_bytes
from autoturbo.hardware import load_target
from autoturbo.schedule.work import COLUMNS, COUNT, DEPTH, ROWS, axis_roles
from autoturbo.simulator.bound import lower_bound
from autoturbo.verifier.execution import plain_model
from tests.tiers import tiered

MS = "com.microsoft"

Array = np.ndarray
_RNG = np.random.default_rng(25)


def real(*shape: int) -> Array:
    return _RNG.normal(size=shape).astype(np.float32)


def whole(low: int, high: int, *shape: int, dtype: str = "int32") -> Array:
    return _RNG.integers(low, high, size=shape).astype(dtype)


def byte(*shape: int) -> Array:
    return whole(0, 256, *shape, dtype="uint8")


def signed(*shape: int) -> Array:
    """Two products with a byte fit 16 bits: processors without VNNI saturate there."""
    return whole(-63, 64, *shape, dtype="int8")


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype=dtype)


def ints(*values: int) -> Array:
    return np.array(values, dtype=np.int32)


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        inputs: by position, None where absent.
        macs: of the graph, worked out by hand.
        known: positions of inputs that the file stores.
        tolerance: of numbers, relative and absolute.
    """

    op: str
    inputs: Sequence[Array | None]
    macs: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: int = 1
    domain: str = MS
    opset: int = 17
    known: tuple[int, ...] = ()
    tolerance: float = 2e-4

    @property
    def label(self) -> str:
        shapes = ["-" if a is None else "x".join(map(str, a.shape)) for a in self.inputs]
        given = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}{self.opset}({' '.join(shapes)};{given})"

    @property
    def feeds(self) -> dict[str, Array]:
        pairs = enumerate(self.inputs)
        return {f"i{k}": a for k, a in pairs if a is not None and k not in self.known}

    def model(self) -> ModelProto:
        names = ["" if a is None else f"i{k}" for k, a in enumerate(self.inputs)]
        made = [f"o{k}" for k in range(self.outputs)]
        given: dict[str, Any] = dict(self.attributes)
        node = helper.make_node(self.op, names, made, "n", domain=self.domain, **given)
        pairs = ((k, self.inputs[k]) for k in self.known)
        stored = [numpy_helper.from_array(a, f"i{k}") for k, a in pairs if a is not None]
        read = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.feeds.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in made]
        graph = helper.make_graph([node], "one", read, results, stored)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    read = {value.name for value in session.get_inputs()}
    return [np.asarray(r) for r in session.run(None, {k: v for k, v in feeds.items() if k in read})]


def nodes_of(case: Case, folder: Path) -> ModelNodes:
    path = folder / "one.onnx"
    onnx.save(case.model(), path)
    return load_nodes(path)


# ----------------------------------------------------------------------------- attention by groups


def _group(
    rows: int, past: int, lengths: Sequence[int], total: int, *more: Array | None,
    packed: bool = False, heads: int = 4, keys: int = 2, angles: int = 0, **attributes: object,
) -> Case:  # fmt: skip
    """GroupQueryAttention of 16 channels a head; keys attended to are ``total``."""
    batch, width = len(lengths), 16
    caches = [real(batch, keys, past, width) if past else None for _ in range(2)]
    wide = heads + 2 * keys if packed else heads
    sides = [None if packed else real(batch, rows, keys * width) for _ in range(2)]
    tables: list[Array | None] = [real(32, angles // 2) if angles else None for _ in range(2)]
    inputs = [
        real(batch, rows, wide * width), *sides, *caches,
        ints(*(n - 1 for n in lengths)), scalar(total, "int32"), *tables, *more,
    ]  # fmt: skip
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"num_heads": heads, "kv_num_heads": keys, **attributes}
    if angles:
        attributes["do_rotary"] = 1
    macs = 2 * batch * heads * rows * total * width
    return Case("GroupQueryAttention", inputs, macs, attributes, 3, known=(6,))


_PLACES = np.array([[5], [5]])

GROUPS = [
    _group(1, 5, (6, 6), 6),
    _group(1, 5, (6, 4), 6, packed=True, angles=16),  # samples of different length
    _group(1, 8, (6, 4), 6, angles=16),  # a buffer longer than what is attended to
    _group(3, 5, (8,), 8, angles=16),  # a later part of a prompt
    _group(3, 9, (8,), 8, angles=16),
    _group(4, 0, (4, 4), 4, angles=16),  # a prompt
    _group(4, 9, (4, 4), 4, angles=16),
    _group(1, 9, (10, 7), 10, local_window_size=3),
    _group(6, 0, (6,), 6, local_window_size=3, softcap=5.0, scale=0.3),
    _group(6, 0, (6,), 6, None, real(1, 1, 6, 6), softcap=5.0),
    _group(1, 5, (6, 6), 6, None, real(2, 1, 1, 6), real(4)),  # a bias and sinks
    _group(1, 5, (6, 6), 6, smooth_softmax=1),
    _group(1, 5, (6, 6), 6, _PLACES, angles=16, rotary_interleaved=1),
    _group(3, 0, (3,), 3, causal=0),
    _group(1, 5, (6, 6), 6, heads=4, keys=4),
]

# ------------------------------------------------------------------------------- attention by heads

_B, _S, _L, _P, _H, _W = 2, 3, 5, 4, 2, 16
"""Samples, rows, keys, past keys, heads, and all channels."""


def _products(length: int) -> int:
    return 2 * _B * _S * length * _W


def _heads(*inputs: Array | None, length: int = _L, outputs: int = 1, **attributes: object) -> Case:
    attributes = {"num_heads": _H, **attributes}
    return Case("MultiHeadAttention", inputs, _products(length), attributes, outputs)


def _qkv(length: int = _L) -> tuple[Array, Array, Array]:
    return real(_B, _S, _W), real(_B, length, _W), real(_B, length, _W)


def _past() -> tuple[Array, Array]:
    return real(_B, _H, _P, 8), real(_B, _H, _P, 8)


HEADS = [
    _heads(*_qkv()),  # one row of the table
    _heads(*_qkv(), None, ints(5, 3)),
    _heads(*_qkv(_S), None, None, None, *_past(), length=_P + _S, outputs=3),
    _heads(
        *(*_qkv(_S), real(3 * _W), None, real(1, _H, _S, _P + _S), *_past()),
        length=_P + _S, outputs=3, unidirectional=1,
    ),
    _heads(
        *(*_qkv(_S), None, np.ones((_B, _P + _S), np.int32), None, *_past()),
        length=_P + _S, outputs=3,
    ),
    _heads(*_qkv(_S), length=_S, outputs=3),
    _heads(real(_B, _S, _W), real(_B, _H, _L, 8), real(_B, _H, _L, 8)),
    Case(
        "MultiHeadAttention",
        (real(_B, _S, _W), real(_B, _L, _W), real(_B, _L, 2 * _W)),
        _B * _S * _L * 3 * _W,
        {"num_heads": _H},
    ),
]  # fmt: skip


def _joint(*more: Array | None, past: int = 0, outputs: int = 1, **attributes: object) -> Case:
    projected = _B * _S * 12 * 3 * _W
    inputs = (real(_B, _S, 12), real(12, 3 * _W), *more)
    attributes = {"num_heads": _H, **attributes}
    return Case("Attention", inputs, projected + _products(past + _S), attributes, outputs)


_MASK = np.array([[1, 1, 0], [1, 0, 0]], np.int32)

JOINT = [
    _joint(real(3 * _W)),
    _joint(real(3 * _W), ints(3, 2)),
    _joint(real(3 * _W), ints(3, 2, 0, 1)),
    _joint(real(3 * _W), _MASK, unidirectional=1),
    _joint(real(3 * _W), np.tril(np.ones((_B, _S, _S), np.int32))),
    _joint(
        *(real(3 * _W), None, real(2, _B, _H, _P, 8)), past=_P, outputs=2, unidirectional=1,
        scale=0.2,
    ),
    Case(
        "Attention",
        (real(_B, _S, 12), real(12, 64), real(64), None, None, real(1, _H, _S, _S)),
        _B * _S * 12 * 64 + _B * _S * _S * (16 + 32),
        {"num_heads": _H, "qkv_hidden_sizes": [16, 16, 32]},
    ),
]  # fmt: skip


def _standard(*inputs: Array | None, macs: int, outputs: int = 1, **attributes: object) -> Case:
    opset = attributes.pop("opset", 24)
    assert isinstance(opset, int)
    return Case("Attention", inputs, macs, attributes, outputs, "", opset)


_FOUR = (real(2, 4, 3, 8), real(2, 2, 3, 8), real(2, 2, 3, 8))
_CACHE = (real(2, 2, 4, 8), real(2, 2, 4, 8))

STANDARD = [
    *[
        _standard(
            *(*_FOUR, None, *_CACHE), macs=2 * 2 * 4 * 3 * 7 * 8, outputs=3, opset=opset, **order
        )
        for opset in (23, 24)
        for order in ({}, {"is_causal": 1})
    ],
    _standard(
        *(real(2, 3, 32), real(2, 3, 16), real(2, 3, 16), real(3, 7), *_CACHE),
        macs=2 * 2 * 4 * 3 * 7 * 8, outputs=3, q_num_heads=4, kv_num_heads=2, softcap=3.0,
    ),
    _standard(
        *(real(2, 3, 32), real(2, 5, 16), real(2, 5, 24)),
        macs=2 * 4 * 3 * 5 * (8 + 12), q_num_heads=4, kv_num_heads=2,
    ),
    _standard(
        *(real(2, 4, 2, 8), real(2, 2, 5, 8), real(2, 2, 5, 8), None, None, None),
        np.array([4, 5]), macs=2 * 2 * 4 * 2 * 5 * 8, is_causal=1,
    ),
    # Scores as an output: by ONNX's own body.
    _standard(*_FOUR, macs=2 * 2 * 4 * 3 * 3 * 8, outputs=4, qk_matmul_output_mode=1),
]  # fmt: skip

# ----------------------------------------------------------------------------- fused and quantised

_IDS = whole(0, 20, 2, 6)
_ZERO = scalar(128, "uint8")
_NONE = scalar(0, "int8")

FUSED = [
    Case("FusedMatMul", (real(3, 2, 5), real(2, 5, 6)), 2 * 3 * 5 * 6, {"transBatchA": 1}),
    Case(
        "FusedMatMul", (real(5, 2, 3), real(2, 5, 6)), 2 * 3 * 5 * 6,
        {"transBatchA": 1, "transA": 1, "alpha": 0.5},
    ),
    *[
        Case(
            "FusedConv", (real(1, 3, 8, 8), real(4, 3, 3, 3), real(4), *added), 4 * 64 * 27,
            {"activation": kind, "activation_params": numbers, "pads": [1, 1, 1, 1]},
        )
        for kind, numbers in (("LeakyRelu", [0.1]), ("HardSigmoid", [0.2, 0.5]))
        for added in ((), (real(1, 4, 8, 8),))
    ],
    Case(
        "FusedConv", (real(1, 3, 8, 8), real(4, 3, 3, 3)), 4 * 36 * 27,
        {"activation": "Clip", "activation_params": [0.0, 3.0]},
    ),
    Case("NhwcMaxPool", (signed(1, 8, 8, 3),), 0, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case(
        "EmbedLayerNormalization",
        (_IDS, _IDS % 2, real(20, 8), real(6, 8), real(2, 8), real(8), real(8), _IDS % 2),
        outputs=3,
    ),
    Case(
        "EmbedLayerNormalization",
        (_IDS, None, real(20, 8), real(16, 8), None, real(8), real(8)), outputs=2,
    ),
]  # fmt: skip

_POINT = (scalar(0.5), _ZERO)
_OUT = (scalar(0.25), scalar(100, "uint8"))

QUANTISED = [
    Case("DynamicQuantizeMatMul", (real(2, 3, 8), signed(8, 5), scalar(0.1)), 2 * 3 * 8 * 5),
    Case(
        "DynamicQuantizeMatMul", (real(3, 8), byte(8, 5), abs(real(5)), byte(5), real(5)), 120
    ),
    Case(
        "MatMulIntegerToFloat",
        (
            *(byte(3, 8), byte(8, 5), scalar(0.1), scalar(0.2)),
            *(scalar(3, "uint8"), scalar(4, "uint8"), real(5)),
        ),
        120,
    ),
    Case(
        "QGemm",
        (
            *(byte(3, 8), scalar(0.125), _ZERO, signed(8, 5), scalar(0.25), _NONE),
            *(whole(-50, 50, 5), scalar(4.0), _ZERO),
        ),
        120,
    ),
    Case(
        "QGemm",
        (
            *(byte(3, 8), scalar(0.1), _ZERO, signed(5, 8), abs(real(5)), signed(5) * 0),
            whole(-50, 50, 5),
        ),
        120, {"transB": 1, "alpha": 1.0},
    ),
    Case(
        "QAttention",
        (
            *(byte(2, 3, 12), signed(12, 48), real(48), scalar(0.01), scalar(0.01), None),
            *(_ZERO, _NONE),
        ),
        2 * 3 * 12 * 48 + _products(3), {"num_heads": 2}, tolerance=2e-3,
    ),
    *[
        Case(
            "QLinearAveragePool", (byte(1, *shape), *_POINT, *_OUT),
            attributes={"kernel_shape": [2, 2], "strides": [2, 2], "channels_last": last},
        )
        for shape, last in (((3, 8, 8), 0), ((8, 8, 3), 1))
    ],
    *[
        Case(
            "QLinearGlobalAveragePool", (byte(1, *shape), *_POINT, *_OUT),
            attributes={"channels_last": last},
        )
        for shape, last in (((3, 8, 8), 0), ((8, 8, 3), 1))
    ],
    Case(
        "QLinearSoftmax",
        (byte(2, 3, 8), scalar(0.02), _ZERO, scalar(1 / 256), scalar(0, "uint8")),
        attributes={"axis": -1, "opset": 13},
    ),
    Case("QLinearWhere", (_IDS > 9, byte(2, 6), *_POINT, byte(2, 6), *_OUT, *_POINT)),
    Case(
        "QLinearConcat", (*_POINT, byte(2, 3), *_OUT, byte(2, 4), *_POINT), attributes={"axis": 1}
    ),
    Case(
        "QLinearConv",
        (
            *(byte(1, 8, 8, 3), scalar(0.1), _ZERO, signed(4, 3, 3, 3), scalar(0.1), _NONE),
            *(scalar(4.0), _ZERO),
        ),
        4 * 64 * 27, {"channels_last": 1, "pads": [1, 1, 1, 1]},
    ),
    Case(
        "QEmbedLayerNormalization",
        (
            *(_IDS, _IDS % 2, byte(20, 8), byte(6, 8), byte(2, 8), byte(8), byte(8), None),
            *[scalar(0.02)] * 5, *[_ZERO] * 5,
        ),
        outputs=2,
    ),
]  # fmt: skip

_STORED = (1, 2, 3, 8, 9, 10, 11)


def _lstm(*directions: str, rows: int = 0, opset: int = 17) -> Case:
    """DynamicQuantizeLSTM of 5 steps, 2 samples, 6 inputs and 8 units; ``rows`` scales each."""
    count = len(directions)
    extents = (count, rows) if rows else (count,)
    steps = [0.01 * abs(real(*extents)) + 0.01 for _ in range(2)]
    zeros = np.zeros(extents, np.int8)
    return Case(
        "DynamicQuantizeLSTM",
        (
            *(real(5, 2, 6), signed(count, 6, 32), signed(count, 8, 32), real(count, 64)),
            *(ints(5, 3), real(count, 2, 8), None, None),
            *(steps[0], zeros, steps[1], zeros),
        ),
        count * 5 * 2 * 32 * (6 + 8),
        {"hidden_size": 8, "direction": "bidirectional" if count > 1 else directions[0]},
        3, opset=opset, known=_STORED, tolerance=2e-2,
    )  # fmt: skip


RECURRENT = [
    _lstm("forward"),
    _lstm("reverse", rows=32),
    _lstm("forward", "reverse"),
    _lstm("forward", "reverse", rows=32),
    _lstm("forward", "reverse", rows=32, opset=11),
]

DEFINED = [
    Case(
        "CenterCropPad", (real(2, 6, 7), np.array([4, 9])), attributes={"axes": [1, 2]},
        domain="", opset=18, known=(1,),
    ),
]  # fmt: skip

PAIRS = [
    # (ab)c: 8 x 16 x 4, then 8 x 4 x 32; all letters at once are 8 x 16 x 4 x 32 twice
    Case(
        "Einsum", (real(8, 16), real(16, 4), real(4, 32)), 8 * 16 * 4 + 8 * 4 * 32,
        {"equation": "ij,jk,kl->il"}, domain="",
    ),
    Case(
        "Einsum", (real(2, 3), real(2, 5), real(2, 7), real(3, 5)),
        2 * 3 * 5 + 2 * 3 + 2 * 7, {"equation": "bi, bj, bk, ij"}, domain="",
    ),
]  # fmt: skip

CASES = [*GROUPS, *HEADS, *JOINT, *STANDARD, *FUSED, *QUANTISED, *RECURRENT, *DEFINED, *PAIRS]


FIRST = {case.op: case for case in reversed(CASES)}
"""One form of each operator."""

OTHERS = [case for case in CASES if case is not FIRST[case.op]]


@pytest.mark.parametrize("case", tiered(FIRST.values(), OTHERS), ids=lambda case: case.label)
def test_written_out_it_computes_the_same_and_its_work_is_counted(
    case: Case, tmp_path: Path
) -> None:
    nodes = nodes_of(case, tmp_path)
    assert nodes.graph.opaque == ()
    assert nodes.graph.macs == case.macs
    expected, actual = run(case.model(), case.feeds), run(plain_model(nodes), case.feeds)
    for want, got in zip(expected, actual, strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype)
        limit = 1 if want.dtype.kind in "iu" else case.tolerance  # a rounding may fall either way
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=case.tolerance, atol=limit
        )


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case.label)
def test_weights_of_a_quantised_recurrence_count_as_bytes(case: Case, tmp_path: Path) -> None:
    graph = nodes_of(case, tmp_path).graph
    weights = {t: graph.tensors[t] for x in graph.operators for t in x.inputs[1:3]}
    kept = [tensor.stored for tensor in weights.values()]
    assert [stored.bits for stored in kept if stored] == [8, 8]


# --------------------------------------------------------------------------------------- the others

LOOPS = {
    "Loop": (
        """(float[2,4] x, float[4,4] w) => (float[2,4] y, float[3,2,4] s) {
            n = Constant<value = int64 {3}>()
            t = Constant<value = bool {1}>()
            y, s = Loop(n, t, x)<body = b (int64 i, bool c, float[2,4] v)
                => (bool d, float[2,4] u, float[2,4] r) {
                d = Identity(c)
                m = MatMul(v, w)
                u = Tanh(m)
                r = Identity(m)
            }>
        }""",
        3 * 2 * 4 * 4,
    ),
    "Scan": (
        """(float[5,2,4] x, float[2,4] h, float[4,4] w) => (float[2,4] y, float[2,5,4] s) {
            y, s = Scan<num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
                body = b (float[2,4] v, float[2,4] e) => (float[2,4] u, float[2,4] r) {
                m = MatMul(v, w)
                a = Add(m, e)
                u = Tanh(a)
                r = Relu(a)
            }>(h, x)
        }""",
        5 * 2 * 4 * 4,
    ),
}


def _text(body: str, folder: Path) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> net {body}')
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("kind", LOOPS)
def test_loops_of_known_length_are_written_out(kind: str, tmp_path: Path) -> None:
    body, macs = LOOPS[kind]
    path = _text(body, tmp_path)
    nodes = load_nodes(path)
    assert (nodes.graph.macs, nodes.graph.opaque) == (macs, ())
    given = onnx.load(path).graph.input
    feeds = {v.name: real(*(d.dim_value for d in v.type.tensor_type.shape.dim)) for v in given}
    expected, actual = run(onnx.load(path), feeds), run(plain_model(nodes), feeds)
    for want, got in zip(expected, actual, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


GROWING = """(float[2,4] x, float[4,4] w) => (float[2,4] y, float[2,{grown},4] s{more}) {{
    n = Constant<value = int64 {{{trips}}}>()
    t = Constant<value = bool {{1}}>()
    k = Constant<value = int64[1] {{1}}>()
    one = Unsqueeze(x, k)
    zero = Concat<axis = 1>(one)
    y, s{again} = Loop(n, t, x, zero)<body = b (int64 i, bool c, float[2,4] v, float[A,B,C] a)
        => (bool d, float[2,4] u, float[A,B,C] r{row}) {{
        d = Identity(c)
        m = MatMul(v, w)
        u = Tanh(m)
        e = Unsqueeze(u, k)
        r = Concat<axis = 1>(a, e)
        {last}
    }}>
}}"""


def test_a_result_that_grows_trip_by_trip_is_put_together_once(tmp_path: Path) -> None:
    body = GROWING.format(grown=6, trips=5, more="", again="", row="", last="")
    nodes = load_nodes(_text(body, tmp_path))
    (joined,) = (o for o in nodes.graph.operators if o.kind == "Concat")
    assert len(joined.inputs) == 6
    feeds = {"x": real(2, 4), "w": real(4, 4)}
    expected, actual = run(onnx.load(tmp_path / "net.onnx"), feeds), run(plain_model(nodes), feeds)
    for want, got in zip(expected, actual, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_growing_result_that_is_read_in_each_trip_is_kept(tmp_path: Path) -> None:
    last = "z = ReduceSum(a)"
    more = {"more": ", float[5,1,1,1] q", "again": ", q", "row": ", float[1,1,1] z"}
    graph = import_model(_text(GROWING.format(grown=6, trips=5, last=last, **more), tmp_path))
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("Concat") == 1 + 5 + 1  # before the loop, in each trip, the second result


@pytest.mark.parametrize(
    ("outputs", "nodes", "count"),
    [
        ("float[6,2] b", "b = Concat<axis = -2>(a, x)", 1),
        ("float[4,4] b", "b = Concat<axis = 1>(a, a)", 2),
        ("float[4,4] b", "e = Concat<axis = 1>(x, x) b = Concat<axis = 0>(e, e)", 2),
        ("float[6,2] b, float[4,2] a", "b = Concat<axis = 0>(a, x)", 2),
        ("float[4,2] b", "b = Concat<axis = 0>(a)", 1),
    ],
)
def test_concats_are_joined_along_one_axis_where_nobody_else_reads(
    outputs: str, nodes: str, count: int, tmp_path: Path
) -> None:
    body = f"(float[2,2] x) => ({outputs}) {{ a = Concat<axis = 0>(x, x) {nodes} }}"
    graph = import_model(_text(body, tmp_path))
    assert [operator.kind for operator in graph.operators] == ["Concat"] * count


@given(st.lists(st.tuples(st.integers(-2, 1), st.sampled_from("abc")), min_size=1, max_size=6))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_joined_concats_compute_the_same(tmp_path: Path, steps: list[tuple[int, str]]) -> None:
    """Each step puts the value so far beside itself, beside its negative, or alone."""
    lines, name = [], "x"
    for k, (axis, form) in enumerate(steps):
        other = {"a": f", {name}", "b": f", n{k}", "c": ""}[form]
        lines += [f"n{k} = Neg({name})", f"v{k} = Concat<axis = {axis}>({name}{other})"]
        name = f"v{k}"
    body = f"(float[2,3] x) => (float[A,B] y) {{ {' '.join(lines)} y = Relu({name}) }}"
    path = _text(body, tmp_path)
    feeds = {"x": real(2, 3)}
    (want,), (got,) = run(onnx.load(path), feeds), run(plain_model(load_nodes(path)), feeds)
    np.testing.assert_array_equal(got, want)


def _counting(start: int, step: int, end: int, most: int | None, op: str = "Less") -> str:
    """A loop as Keras exports have it: two counters, the data entered by one of them."""
    limit = "" if most is None else "n"
    return f"""(float[2,40,4] x, float[4,4] w, float[2,4] h) => (float[2,4] y) {{
        n = Constant<value = int64 {{{most or 0}}}>()
        first = Constant<value = int32 {{{start}}}>()
        end = Constant<value = int32 {{{end}}}>()
        step = Constant<value = int32 {{{step}}}>()
        begins = {op}(first, end)
        k, t, y = Loop({limit}, begins, first, first, h)<
            body = b (int64 i, bool c, int32 k0, int32 t0, float[2,4] v)
                => (bool d, int32 k1, int32 t1, float[2,4] u) {{
                k1 = Add(k0, step)
                t1 = Add(t0, step)
                less = {op}(k1, end)
                also = {op}(t1, end)
                d = And(less, also)
                e = Gather<axis = 1>(x, t0)
                p = MatMul(v, w)
                a = Add(p, e)
                u = Tanh(a)
        }}>
    }}"""


@pytest.mark.parametrize("most", [2**31 - 1, None, 3])
def test_a_loop_that_its_counters_end_is_written_out(most: int | None, tmp_path: Path) -> None:
    path = _text(_counting(0, 1, 5, most), tmp_path)
    nodes = load_nodes(path)
    assert nodes.graph.opaque == ()
    assert nodes.graph.macs == min(5, most or 5) * 2 * 4 * 4
    feeds = {"x": real(2, 40, 4), "w": real(4, 4), "h": real(2, 4)}
    expected, actual = run(onnx.load(path), feeds), run(plain_model(nodes), feeds)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-4, atol=1e-5)


@given(st.integers(0, 9), st.integers(1, 4), st.integers(0, 30), st.sampled_from([None, 4, 99]))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(5, 1, 5, None)
def test_trips_are_counted_as_the_condition_says(
    tmp_path: Path, start: int, step: int, end: int, most: int | None
) -> None:
    trips = len(range(start, end, step))
    body = _counting(start, step, end, most).replace("2,4] y)", "2,4] z)", 1)
    graph = import_model(_text(body[:-1] + "z = Neg(y) }", tmp_path))
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("MatMul") == min(trips, 99 if most is None else most)


@pytest.mark.parametrize(
    "condition",
    ["d = Cast<to = 9>(s)", "d = Identity(c) z = Neg(s)", "d = Constant<value = bool {1}>()"],
)
def test_a_loop_that_data_end_or_nothing_stays_whole(condition: str, tmp_path: Path) -> None:
    graph = import_model(_text(f"""(float[4] x) => (float[4] y) {{
        y = Loop(, , x)<body = b (int64 i, bool c, float[4] v) => (bool d, float[4] u) {{
            u = Neg(v)
            s = ReduceMax<keepdims = 0>(u)
            {condition}
        }}>
    }}""", tmp_path))  # fmt: skip
    (loop,) = graph.opaque
    assert loop.opaque == "no row for Loop: its end depends on data"


@pytest.mark.parametrize(
    "body",
    [
        "(int64 i, bool c, float[4] v, float[4] w) => (bool d, float[4] u)",
        "(int64 i, bool c, float[4] v, float[4] w) => (bool d, float[4] u, float[4] w)",
        "(int64 i) => (bool d, float[4] u)",
        "(int64 i, bool c, float[4] v) => ()",
    ],
)
def test_a_body_that_does_not_fit_its_loop_ends_in_no_traceback(body: str, tmp_path: Path) -> None:
    path = _text(f"""(float[4] x) => (float[4] y) {{
        n = Constant<value = int64 {{3}}>()
        y = Loop(n, , x)<body = b {body} {{
            u = Neg(x)
            e = ReduceSum(w)
            k = Constant<value = float {{0}}>()
            d = Less(e, k)
        }}>
    }}""", tmp_path)  # fmt: skip
    with contextlib.suppress(ModelError):
        import_model(path)


def _loop_of_products(trips: str, tmp_path: Path) -> Graph:
    body = f"""(float[2,4] x, float[1] k) => (float[2,4] y) {{
        n = {trips}
        w = RandomNormal<shape = [4, 4]>()
        t = Constant<value = bool {{1}}>()
        y = Loop(n, t, x)<body = b (int64 i, bool c, float[2,4] v) => (bool d, float[2,4] u) {{
            d = Identity(c)
            p = MatMul(v, w)
            u = Tanh(p)
        }}>
    }}"""
    return import_model(_text(body, tmp_path))


def test_a_long_loop_counts_its_first_trip_as_often_as_it_goes(tmp_path: Path) -> None:
    short = _loop_of_products("Constant<value = int64 {100}>()", tmp_path)
    long = _loop_of_products("Constant<value = int64 {100000}>()", tmp_path)
    (loop,) = long.opaque
    assert loop.opaque == (
        "100000 trips of 3 nodes are not written out: counted as the first trip 100000 times"
    )
    assert opaque_sentence(model_facts(long)) == (
        f"1 operator runs whole, not analysed: {loop.name} (Loop); {loop.name}: {loop.opaque}"
    )
    assert long.uncounted is None
    assert long.macs == 1000 * short.macs == 100_000 * 2 * 4 * 4
    for figure in ("vector_ops", "special_ops"):
        written = sum(getattr(operator, figure) for operator in short.operators)
        assert getattr(loop, figure) == 1000 * written
    assert axis_roles(loop) == [COUNT, ROWS, COLUMNS, DEPTH]
    assert loop.extents == (100_000, 2, 4, 4)
    bounds = [lower_bound(graph, load_target("stcp920"), "float16") for graph in (short, long)]
    assert bounds[1].matrix_s == pytest.approx(1000 * bounds[0].matrix_s)


def test_a_loop_that_grows_what_it_carries_is_not_counted(tmp_path: Path) -> None:
    graph = import_model(_text("""(float[2,4] x) => (float[100000,4] y) {
        n = Constant<value = int64 {49999}>()
        t = Constant<value = bool {1}>()
        y = Loop(n, t, x)<body = b (int64 i, bool c, float[A,4] v) => (bool d, float[B,4] u) {
            d = Identity(c)
            u = Concat<axis = 0>(v, x)
        }>
    }""", tmp_path))  # fmt: skip
    (loop,) = graph.opaque
    assert loop.opaque == "no row for Loop: extents change from trip to trip"
    assert not loop.counted


def test_a_loop_of_unknown_length_stays_whole_and_figures_say_so(tmp_path: Path) -> None:
    graph = _loop_of_products("Cast<to = 7>(k)", tmp_path)
    (loop,) = graph.opaque
    assert loop.opaque == "no row for Loop: its end depends on data"
    assert graph.uncounted is not None
    assert graph.uncounted.operators == {"Loop": 1}
    assert "incomplete: the work of 1 Loop" in graph.uncounted.sentence


HELD = """(float[2,4] x, bool c, float[2,3] k) => (float[2,3] y, float[2,3] z) {
    y, z = If(c)<
        then_branch = a () => (float[2,3] t, float[2,3] k2)
            <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[2,3] k2 = {1,2,3,4,5,6}> {
            t = MatMul(x, w)
        },
        else_branch = b () => (float[2,3] e, float[2,3] f)
            <float[4,3] w = {9,8,7,6,5,4,3,2,1,0,1,2}> {
            m = MatMul(x, w)
            e = If(c)<
                then_branch = d () => (float[2,3] n) { n = Neg(m) },
                else_branch = g () => (float[2,3] n)
                    <float[3,3] w = {2,0,0,0,2,0,0,0,2}> { n = MatMul(m, w) }
            >
            f = Constant<value = float[2,3] {6,5,4,3,2,1}>()
        }>
}"""


def test_constants_of_branches_with_one_name_stay_apart(tmp_path: Path) -> None:
    path = _text(HELD, tmp_path)
    nodes = load_nodes(path)
    (chosen,) = nodes.graph.operators
    assert chosen.macs == 2 * 4 * 3 + 2 * 3 * 3
    read = [nodes.graph.tensors[t] for t in chosen.inputs]
    assert [one.shape for one in read if one.constant] == [(4, 3), (3, 3)]
    for condition in (True, False):
        feeds = {"x": real(2, 4), "c": np.array(condition), "k": real(2, 3)}
        expected, actual = run(onnx.load(path), feeds), run(plain_model(nodes), feeds)
        for want, got in zip(expected, actual, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


BRANCHES = """(float[2,4] x, int64 sr, float[4,3] w) => (float[2,3] y) {
    k = Constant<value = int64 {16000}>()
    c = Equal(sr, k)
    y = If(c)<
        then_branch = a () => (float[2,3] t) { t = MatMul(x, w) },
        else_branch = b () => (float[2,3] e) {
            m = MatMul(x, w)
            e = Tanh(m)
        }>
}"""


def test_a_branch_is_chosen_by_a_value_that_is_given(tmp_path: Path) -> None:
    path = _text(BRANCHES, tmp_path)
    kinds = {
        rate: [o.kind for o in import_model(path, values={"sr": [rate]}).operators]
        for rate in (16000, 8000)
    }
    assert kinds == {16000: ["MatMul"], 8000: ["MatMul", "Tanh"]}
    feeds = {"x": real(2, 4), "w": real(4, 3), "sr": np.array(8000)}
    written = plain_model(load_nodes(path, values={"sr": [8000]}))
    assert [value.name for value in written.graph.input] == ["x", "sr", "w"]
    np.testing.assert_allclose(run(written, feeds)[0], np.tanh(feeds["x"] @ feeds["w"]), rtol=1e-5)


def test_a_branch_that_data_choose_is_counted_as_the_dearer_one(tmp_path: Path) -> None:
    path = _text(BRANCHES, tmp_path)
    whole_one, dear = import_model(path), import_model(path, values={"sr": [8000]})
    (chosen,) = whole_one.opaque
    assert chosen.opaque == (
        "its condition depends on data: counted as its dearer branch, else_branch"
    )
    assert f"{chosen.name} (If): {chosen.opaque}" in whole_one.notes
    assert (whole_one.uncounted, whole_one.macs) == (None, dear.macs)
    assert chosen.vector_ops == sum(operator.vector_ops for operator in dear.operators)
    assert chosen.special_ops == sum(operator.special_ops for operator in dear.operators)
    bounds = [lower_bound(g, load_target("stcp920"), "float16") for g in (whole_one, dear)]
    assert bounds[0].matrix_s == pytest.approx(bounds[1].matrix_s)


def test_products_of_unlike_extents_keep_the_shape_of_the_largest(tmp_path: Path) -> None:
    graph = import_model(_text("""(float[3,57,64] x, bool c, float[64,64] w, float[64,10] v)
        => (float[3,57,10] y) {
        y = If(c)<
            then_branch = a () => (float[3,57,10] t) {
                p = MatMul(x, w)
                q = ReduceMean<axes = [1]>(p)
                s = MatMul(q, v)
                m = MatMul(p, v)
                t = Add(m, s)
            },
            else_branch = b () => (float[3,57,10] e) { e = MatMul(x, v) }
        >
    }""", tmp_path))  # fmt: skip
    (chosen,) = graph.opaque
    assert chosen.macs == 3 * 57 * 64 * 64 + 3 * 64 * 10 + 3 * 57 * 64 * 10
    _, rows, columns, _ = chosen.extents
    assert columns == 64
    assert rows == pytest.approx(3 * 57, rel=0.25)


def test_branches_that_agree_say_their_shape(tmp_path: Path) -> None:
    gelu = """if<
        then_branch = a () => (float[A,B] t) { t = com.microsoft.Gelu(x) },
        else_branch = b () => (float[A,B] e) { e = Neg(x) }>"""
    text = f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        net (float[2,4] x, bool c) => (float[A,B] y) {{ y = If(c){gelu[2:]} }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    graph = import_model(tmp_path / "net.onnx")
    assert [graph.tensors[t].shape for t in graph.outputs] == [(2, 4)]


WEIGHTS = """(float[2,4] x, bool c) => (float[2,8] y) <float[4,8] shared, float[4,8] cheap> {{
    y = If(c)<
        then_branch = a () => (float[2,8] t) {{ t = MatMul(x, cheap) }},
        else_branch = b () => (float[2,8] e) <{stored}> {{
            m = MatMul(x, shared)
            {wide}
            e = MatMul(m, v)
        }}>
}}"""


def _store(graph: GraphProto) -> None:
    """Store random numbers for the values that a graph and its branches declare."""
    for one in graph.value_info:
        kind = one.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numbers = 3 * real(*(dim.dim_value for dim in kind.shape.dim))
        graph.initializer.append(numpy_helper.from_array(numbers.astype(dtype), one.name))
    del graph.value_info[:]
    for node in graph.node:
        for item in node.attribute:
            _store(item.g)


@pytest.mark.parametrize(
    ("stored", "wide", "own"),
    [
        ("float[8,8] v", "", 4 * 64),
        ("float[8,8] u", "v = Transpose(u)", 4 * 64),
        ("int8[8,8] u, float s, int8 z", "v = DequantizeLinear(u, s, z)", 64 + 4 + 1),
    ],
)
def test_weights_of_the_dearer_branch_count_and_no_others(
    stored: str, wide: str, own: int, tmp_path: Path
) -> None:
    text = WEIGHTS.format(stored=stored, wide=wide)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> net {text}')
    _store(model.graph)
    onnx.save(model, tmp_path / "net.onnx")
    nodes = load_nodes(tmp_path / "net.onnx")
    (chosen,) = nodes.graph.opaque
    tensors = [nodes.graph.tensors[t] for t in chosen.inputs]
    weights = [one for one in tensors if one.constant]
    assert sum(tensor_bytes(one, "float32") for one in weights) == 4 * 4 * 8 + own
    for condition in (True, False):
        feeds = {"x": real(2, 4), "c": np.array(condition)}
        expected, actual = run(model, feeds), run(plain_model(nodes), feeds)
        np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize(("values", "field"), [({"rate": [1]}, "rate"), ({"x": [1, 2]}, "x")])
def test_values_that_do_not_fit_are_refused(
    values: dict[str, list[float]], field: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(_text(BRANCHES, tmp_path), values=values)
    assert caught.value.at.field == field


def _channels_last(x: Array) -> Array:
    return x.transpose(0, *range(2, x.ndim), 1)


def _group_norm(x: Array, scale: Array, shift: Array, groups: int) -> Array:
    """Of channels in the second place."""
    parts = x.reshape(x.shape[0], groups, -1)
    mean, var = parts.mean(-1, keepdims=True), parts.var(-1, keepdims=True)
    normal = ((parts - mean) / np.sqrt(var + 1e-5)).reshape(x.shape)
    return np.asarray(normal * scale[:, None, None] + shift[:, None, None])


def _no_kernel() -> list[tuple[Case, list[Array]]]:
    """Operators that ONNX Runtime has on other devices only, and what they compute."""
    x, skip, bias = real(2, 8, 4, 5), real(2, 8, 4, 5), real(8)
    scale, shift = real(8), real(8)
    normal = _group_norm(x, scale, shift, 2)
    total = x + skip + bias[:, None, None]
    again = _group_norm(total, scale, shift, 2)
    weights = real(6, 8, 3, 3)
    conv = np.zeros((2, 6, 2, 3), np.float32)
    for row, column in np.ndindex(3, 3):
        part = x[:, :, row : row + 2, column : column + 3]
        conv += np.einsum("nchw,mc->nmhw", part, weights[:, :, row, column])
    rows, mask = real(2, 3, 4, 5), real(2, 1, 1, 5)
    powers = np.exp(rows + mask)
    return [
        (
            Case(
                "GroupNorm", (_channels_last(x), scale, shift),
                attributes={"groups": 2, "activation": 1},
            ),
            [_channels_last(normal / (1 + np.exp(-normal)))],
        ),
        (
            Case(
                "SkipGroupNorm", (x, scale, shift, skip, bias), outputs=2,
                attributes={"groups": 2, "channels_last": 0, "activation": 0},
            ),
            [again, total],
        ),
        (
            Case("NhwcConv", (_channels_last(x), _channels_last(weights)), 2 * 6 * 6 * 72),
            [_channels_last(conv)],
        ),
        (
            Case(
                "NhwcFusedConv",
                (_channels_last(x), weights, None, _channels_last(conv)),
                2 * 6 * 6 * 72, {"activation": "Relu"},
            ),
            [_channels_last(np.maximum(2 * conv, 0))],
        ),
        (Case("BiasAdd", (x, real(8, 1, 1) * 0 + 2, skip)), [x + 2 + skip]),
        (Case("BiasSoftmax", (rows, mask), attributes={"axis": 3}),
         [powers / powers.sum(-1, keepdims=True)]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "expected"), [pytest.param(*pair, id=pair[0].op) for pair in _no_kernel()]
)
def test_operators_of_other_devices(case: Case, expected: list[Array], tmp_path: Path) -> None:
    nodes = nodes_of(case, tmp_path)
    assert (nodes.graph.opaque, nodes.graph.macs) == ((), case.macs)
    for want, got in zip(expected, run(plain_model(nodes), case.feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "attributes", [{"kv_cache_bit_width": 8}, {"sliding_window_cache": 1, "local_window_size": 3}]
)
def test_a_form_that_is_not_written_out_says_what_is_missing(
    attributes: dict[str, Any], tmp_path: Path
) -> None:
    case = _group(1, 5, (6,), 6, **attributes)
    model = case.model()
    for value in model.graph.output:
        shape = (1, 1, 64) if value.name == "o0" else (1, 2, 6, 16)
        value.CopyFrom(helper.make_tensor_value_info(value.name, 1, shape))
    path = tmp_path / "one.onnx"
    onnx.save(model, path)
    graph = import_model(path)
    assert graph.uncounted is not None
    assert graph.uncounted.operators == {"com.microsoft.GroupQueryAttention": 1}
    assert graph.uncounted.tensor_share == 1.0
