"""Small models as third parties write them: one for each habit of an exporter.

Every model is written down here in ONNX's text form, with random weights drawn from a seed. What
is in the file (opset, symbols, constants in place of shapes, unread outputs) is what exporters,
optimisers and quantisers were seen to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper, parser

MS = "com.microsoft"
Values = NDArray[np.generic]
Weight = Sequence[int] | Values
"""Extents of a weight that is drawn at random, or its values."""


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A model of the zoo.

    Attributes:
        name: Of the file.
        quirk: What it is there for.
        build: Makes the model.
        flags: What a user adds to every command.
        refused: Words of the line that refuses it; empty where it is to be tuned.
        runs: Whether ONNX Runtime can run it; otherwise its numbers are not asked for.
    """

    name: str
    quirk: str
    build: Callable[[], ModelProto]
    flags: tuple[str, ...] = ()
    refused: str = ""
    runs: bool = True


ZOO: dict[str, ZooModel] = {}
"""All models by name."""


def text_model(
    text: str,
    weights: Mapping[str, Weight] | None = None,
    opset: int = 17,
    *,
    ir_version: int = 8,
    domains: Mapping[str, int] | None = None,
) -> ModelProto:
    """Return the model of a graph in text form, its weights drawn at random.

    Args:
        text: ``name (inputs) => (outputs) { nodes }``.
        weights: Initializers by name.
        opset: Of ONNX's own operators.
        ir_version: Of the file.
        domains: Further opsets.
    """
    opsets = {"": opset, **(domains or {})}
    listed = ", ".join(f'"{domain}": {version}' for domain, version in opsets.items())
    model = parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{listed}]>\n{text}")
    rng = np.random.default_rng(7)
    for name, weight in (weights or {}).items():
        values = weight if isinstance(weight, np.ndarray) else _drawn(rng, tuple(weight))
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    fan = max(int(np.prod(shape[1:])), 1)
    values: Values = (rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
    return values


def scalar(value: float, dtype: str = "float32") -> Values:
    """Return a tensor without dimensions."""
    return np.asarray(value, dtype)


def ints(*values: int) -> Values:
    """Return a vector of 64-bit integers."""
    return np.asarray(values, np.int64)


def add(
    name: str,
    quirk: str,
    build: Callable[[], ModelProto],
    *flags: str,
    refused: str = "",
    runs: bool = True,
) -> None:
    """Put a model into the zoo."""
    ZOO[name] = ZooModel(name, quirk, build, flags, refused, runs)


# ------------------------------------------------------------------ shape arithmetic at each opset


def _flatten(opset: int) -> ModelProto:
    """Flatten as PyTorch's ``view(x.size(0), -1)`` was written."""
    axes_inside = opset < 13  # noqa: PLR2004  axes became an input of Unsqueeze
    unsqueeze = "Unsqueeze<axes = [0]>(n)" if axes_inside else "Unsqueeze(n, zero)"
    text = f"""view (float["N", 3, 8, 8] x) => (float["N", 10] y) {{
        c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)
        r = Relu(c)
        s = Shape(r)
        n = Gather<axis = 0>(s, index)
        u = {unsqueeze}
        t = Concat<axis = 0>(u, rest)
        f = Reshape(r, t)
        y = Gemm<transB = 1>(f, v, b)
    }}"""
    weights: dict[str, Weight] = {
        "w": (4, 3, 3, 3), "v": (10, 256), "b": (10,),
        "index": scalar(0, "int64"), "rest": ints(-1),
    }  # fmt: skip
    if not axes_inside:
        weights["zero"] = ints(0)
    return text_model(text, weights, opset, ir_version=4 if axes_inside else 8)


for _opset in (7, 8, 9, 10, 11, 12, 13, 15, 18, 21, 23):
    add(
        f"view_opset{_opset}",
        f"a view's shape computed at opset {_opset}, open batch",
        lambda opset=_opset: _flatten(opset),  # type: ignore[misc]
    )

# --------------------------------------------------------------------------------------- old files

add(
    "old_initializers",
    "IR version 3: initializers are inputs too; BatchNormalization and Dropout of opset 7",
    lambda: text_model(
        """old (float[2, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] s, float[4] b, float[4] m,
                float[4] v) => (float[2, 4, 8, 8] y) {
            c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)
            n = BatchNormalization<epsilon = 0.001>(c, s, b, m, v)
            d = Dropout<ratio = 0.5>(n)
            y = Relu(d)
        }""",
        {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": np.full(4, 0.5, np.float32)},
        7,
        ir_version=3,
    ),
)
add(
    "upsample_opset9",
    "Upsample with scales as an input",
    lambda: text_model(
        """up (float[2, 3, 6, 6] x) => (float[2, 4, 12, 12] y) {
            u = Upsample<mode = "nearest">(x, scales)
            y = Conv<kernel_shape = [1, 1]>(u, w)
        }""",
        {"w": (4, 3, 1, 1), "scales": np.asarray([1, 1, 2, 2], np.float32)},
        9,
    ),
)
add(
    "unknown_attribute",
    "an attribute that ONNX does not know",
    lambda: text_model(
        """odd (float[2, 8] x) => (float[2, 4] y) {
            m = MatMul(x, w)
            y = Relu<consumed_inputs = [0]>(m)
        }""",
        {"w": (8, 4)},
        13,
    ),
    runs=False,
)
add(
    "tf_nhwc",
    "channels last between Transposes, symbols named by a converter",
    lambda: text_model(
        """tf (float["unk__123", 8, 8, 3] x) => (float["unk__124", 8, 8, 4] y) {
            t = Transpose<perm = [0, 3, 1, 2]>(x)
            c = Conv<kernel_shape = [3, 3], auto_pad = "SAME_UPPER">(t, w)
            r = Clip(c, low, high)
            y = Transpose<perm = [0, 2, 3, 1]>(r)
        }""",
        {"w": (4, 3, 3, 3), "low": scalar(0), "high": scalar(6)},
        13,
    ),
)

# --------------------------------------------------------------------------------- sequence models

_BERT = """bert (int64["batch_size", "seq_len"] ids) => (float["batch_size", "seq_len", 16] y) {
    e = Gather(table, ids)
    q0 = MatMul(e, wq)
    s = Shape(e)
    n = Gather(s, i0)
    l = Gather(s, i1)
    n1 = Unsqueeze(n, zero)
    l1 = Unsqueeze(l, zero)
    t = Concat<axis = 0>(n1, l1, heads, width)
    q1 = Reshape(q0, t)
    q = Transpose<perm = [0, 2, 1, 3]>(q1)
    k = Transpose<perm = [0, 2, 3, 1]>(q1)
    a = MatMul(q, k)
    p = Softmax<axis = -1>(a)
    o = MatMul(p, q)
    o1 = Transpose<perm = [0, 2, 1, 3]>(o)
    t2 = Concat<axis = 0>(n1, l1, all)
    o2 = Reshape(o1, t2)
    r = Add(o2, e)
    y = LayerNormalization<axis = -1>(r, g, b)
}"""
_BERT_WEIGHTS: dict[str, Weight] = {
    "table": (32, 16), "wq": (16, 16), "g": (16,), "b": (16,), "i0": scalar(0, "int64"),
    "i1": scalar(1, "int64"), "zero": ints(0), "heads": ints(2), "width": ints(8),
    "all": ints(16),
}  # fmt: skip
add(
    "symbols_by_name",
    "two symbols, both given by name",
    lambda: text_model(_BERT, _BERT_WEIGHTS),
    "--dim", "batch_size=4", "--dim", "seq_len=6",
)  # fmt: skip
add(
    "symbol_not_given",
    "a sequence length that nothing tells",
    lambda: text_model(_BERT, _BERT_WEIGHTS),
    refused="seq_len",
)
add(
    "iota_batch_index",
    "BERT's pooled positions by GatherND with a constant batch index",
    lambda: text_model(
        """pool (float[4, 6, 8] x) => (float[4, 8] y) {
            m = MatMul(x, w)
            p = GatherND(m, index)
            y = Tanh(p)
        }""",
        {"w": (8, 8), "index": np.stack([np.arange(4), np.zeros(4)], 1).astype(np.int64)},
    ),
)
add(
    "strided_windows",
    "windows picked by Gather with constant indices, as as_strided is exported",
    lambda: text_model(
        """win (float[4, 16] x) => (float[4, 3, 4] y) {
            g = Gather<axis = 1>(x, index)
            m = MatMul(g, w)
            y = Gelu(m)
        }""",
        {"w": (4, 4), "index": np.asarray([[0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]])},
        20,
    ),
)
add(
    "flat_gather",
    "as_strided over the flattened batch",
    lambda: text_model(
        """flat (float[4, 8] x) => (float[4, 3] y) {
            f = Reshape(x, all)
            g = Gather<axis = 0>(f, index)
            y = Relu(g)
        }""",
        {"all": ints(-1), "index": (np.arange(4)[:, None] * 8 + np.asarray([1, 4, 6]))},
        20,
    ),
)
add(
    "shifted_windows",
    "Swin's shifted windows: rolls by Slice and Concat, partition by Reshape and Transpose",
    lambda: text_model(
        """swin (float[2, 8, 8, 4] x) => (float[2, 8, 8, 4] y) {
            a = Slice(x, two, end, one)
            b = Slice(x, zero, two, one)
            r = Concat<axis = 1>(a, b)
            s = Reshape(r, parts)
            t = Transpose<perm = [0, 1, 3, 2, 4, 5]>(s)
            w0 = Reshape(t, windows)
            m = MatMul(w0, w)
            v = Reshape(m, parts2)
            u = Transpose<perm = [0, 1, 3, 2, 4, 5]>(v)
            y = Reshape(u, whole)
        }""",
        {
            "two": ints(2), "end": ints(8), "one": ints(1), "zero": ints(0), "w": (4, 4),
            "parts": ints(-1, 2, 4, 2, 4, 4), "windows": ints(-1, 16, 4),
            "parts2": ints(-1, 2, 2, 4, 4, 4), "whole": ints(-1, 8, 8, 4),
        },
    ),
)  # fmt: skip
add(
    "einsum_attention",
    "attention in Einsum",
    lambda: text_model(
        """ein (float[2, 6, 2, 4] q, float[2, 6, 2, 4] k) => (float[2, 6, 2, 4] y) {
            a = Einsum<equation = "bqhd,bkhd->bhqk">(q, k)
            p = Softmax<axis = -1>(a)
            y = Einsum<equation = "bhqk,bkhd->bqhd">(p, k)
        }""",
    ),
)
add(
    "layernorm_in_pieces",
    "LayerNormalization and Gelu as a legacy exporter writes them",
    lambda: text_model(
        """ln (float[4, 6, 16] x) => (float[4, 6, 16] y) {
            m = ReduceMean<axes = [-1]>(x)
            d = Sub(x, m)
            s = Pow(d, two)
            v = ReduceMean<axes = [-1]>(s)
            e = Add(v, eps)
            r = Sqrt(e)
            n = Div(d, r)
            c = Div(n, root)
            f = Erf(c)
            g = Add(f, one)
            h = Mul(n, g)
            y = Mul(h, half)
        }""",
        {name: scalar(value) for name, value in
         (("two", 2), ("eps", 1e-5), ("root", 2**0.5), ("one", 1), ("half", 0.5))},
        13,
    ),
)  # fmt: skip


def _recurrent(op: str, gates: int, opset: int) -> ModelProto:
    return text_model(
        f"""{op.lower()} (float[6, 2, 8] x) => (float[6, 2, 2, 8] y, float[2, 2, 8] h) {{
            y, h = {op}<hidden_size = 8, direction = "bidirectional">(x, w, r, b)
        }}""",
        {"w": (2, gates * 8, 8), "r": (2, gates * 8, 8), "b": (2, 2 * gates * 8)},
        opset,
    )


add("lstm_opset7", "a bidirectional LSTM", lambda: _recurrent("LSTM", 4, 7))
add("gru_opset14", "a bidirectional GRU", lambda: _recurrent("GRU", 3, 14))
