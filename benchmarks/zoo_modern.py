"""Models of the zoo that optimisers, quantisers and exporters of language models write."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper
from zoo_models import MS, Weight, add, ints, scalar, text_model

# --------------------------------------------------------------------------------------- quantised

_SCALES: dict[str, Weight] = {
    "xs": scalar(0.02), "xz": scalar(128, "uint8"), "ws": np.full(8, 0.01, np.float32),
    "wz": np.zeros(8, np.int8), "ys": scalar(0.05), "yz": scalar(100, "uint8"),
}  # fmt: skip


def _bytes(*shape: int, dtype: str = "int8") -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    low, high = (-100, 100) if dtype == "int8" else (0, 200)
    return np.random.default_rng(3).integers(low, high, shape).astype(dtype)


add(
    "qdq_conv",
    "a convolution between DequantizeLinear and QuantizeLinear, scales per channel",
    lambda: text_model(
        """qdq (float[4, 4, 8, 8] x) => (float[4, 8, 8, 8] y) {
            q = QuantizeLinear(x, xs, xz)
            d = DequantizeLinear(q, xs, xz)
            wd = DequantizeLinear<axis = 0>(w, ws, wz)
            c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(d, wd, b)
            r = Relu(c)
            p = QuantizeLinear(r, ys, yz)
            y = DequantizeLinear(p, ys, yz)
        }""",
        {**_SCALES, "w": _bytes(8, 4, 3, 3), "b": (8,)},
    ),
)
add(
    "qlinear_conv",
    "the operator-oriented form of the same",
    lambda: text_model(
        """qop (float[4, 4, 8, 8] x) => (float[4, 8, 8, 8] y) {
            q = QuantizeLinear(x, xs, xz)
            c = QLinearConv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(
                q, xs, xz, w, ws, wz, ys, yz)
            y = DequantizeLinear(c, ys, yz)
        }""",
        {**_SCALES, "w": _bytes(8, 4, 3, 3)},
    ),
)
add(
    "qlinear_add",
    "QLinearAdd, QLinearMatMul and a quantised pool, as ONNX Runtime's quantiser writes them",
    lambda: text_model(
        f"""qadd (float[4, 8] x) => (float[4, 16] y) {{
            q = QuantizeLinear(x, xs, xz)
            a = {MS}.QLinearAdd(q, xs, xz, q, xs, xz, ys, yz)
            m = QLinearMatMul(a, ys, yz, w, xs, wz0, ys, yz)
            y = DequantizeLinear(m, ys, yz)
        }}""",
        {**_SCALES, "w": _bytes(8, 16), "wz0": scalar(0, "int8")},
        domains={MS: 1},
    ),
)
add(
    "dynamic_quantised",
    "DynamicQuantizeLinear before MatMulInteger",
    lambda: text_model(
        """dyn (float[4, 6, 16] x) => (float[4, 6, 32] y) {
            q, s, z = DynamicQuantizeLinear(x)
            m = MatMulInteger(q, w, z, wz0)
            f = Cast<to = 1>(m)
            t = Mul(s, ws0)
            y = Mul(f, t)
        }""",
        {"w": _bytes(16, 32), "wz0": scalar(0, "int8"), "ws0": scalar(0.01)},
    ),
)
add(
    "dynamic_quantised_fused",
    "the same in one operator",
    lambda: text_model(
        f"""dyn (float[4, 6, 16] x) => (float[4, 6, 32] y) {{
            y = {MS}.DynamicQuantizeMatMul(x, w, ws0, wz0)
        }}""",
        {"w": _bytes(16, 32), "wz0": scalar(0, "int8"), "ws0": scalar(0.01)},
        domains={MS: 1},
    ),
)

add(
    "qlinear_pool",
    "a pool on 8-bit values between QLinearConv",
    lambda: text_model(
        """qpool (float[4, 4, 8, 8] x) => (float[4, 8, 4, 4] y) {
            q = QuantizeLinear(x, xs, xz)
            c = QLinearConv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(
                q, xs, xz, w, ws, wz, ys, yz)
            p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
            d = QLinearConv<kernel_shape = [1, 1]>(p, ys, yz, v, ws, wz, ys, yz)
            y = DequantizeLinear(d, ys, yz)
        }""",
        {**_SCALES, "w": _bytes(8, 4, 3, 3), "v": _bytes(8, 8, 1, 1)},
    ),
)
add(
    "int4_blocks",
    "a product by INT4 weights that DequantizeLinear makes real in blocks",
    lambda: text_model(
        """nbits (float[4, 64] x) => (float[4, 32] y) {
            d = DequantizeLinear<axis = 0, block_size = 8>(w, s)
            y = MatMul(x, d)
        }""",
        {"w": _bytes(64, 32).astype(helper.tensor_dtype_to_np_dtype(TensorProto.INT4)),
         "s": np.full((8, 32), 0.02, np.float32)},
        21,
        ir_version=10,
    ),
)  # fmt: skip

# ---------------------------------------------------------------- constants that carry the batch

add(
    "masked_batch",
    "attention at a batch of 4 with the mask of every sample in a constant",
    lambda: text_model(
        """mask (float[4, 2, 6, 8] q, float[4, 2, 8, 6] k, float[4, 2, 6, 8] v)
                => (float[4, 2, 6, 8] y) {
            s = MatMul(q, k)
            m = Add(s, mask)
            p = Softmax<axis = -1>(m)
            y = MatMul(p, v)
        }""",
        {"mask": np.triu(np.full((4, 1, 6, 6), -1e4, np.float32), 1)},
    ),
)
add(
    "stacked_lstm",
    "two LSTMs that begin with states of zeros for 4 samples, time first",
    lambda: text_model(
        """lm (float[5, 4, 8] x) => (float[5, 4, 8] y) {
            a, h, c = LSTM<hidden_size = 8>(x, w0, r0, , , zeros, zeros)
            b = Squeeze(a, one)
            d, i, e = LSTM<hidden_size = 8>(b, w1, r1, , , zeros, zeros)
            y = Squeeze(d, one)
        }""",
        {"w0": (1, 32, 8), "r0": (1, 32, 8), "w1": (1, 32, 8), "r1": (1, 32, 8),
         "zeros": np.zeros((1, 4, 8), np.float32), "one": ints(1)},
    ),
)  # fmt: skip
add(
    "einsum_of_three",
    "an Einsum of three operands, which is two products",
    lambda: text_model(
        """ein (float[4, 6, 8] x) => (float[4, 6, 10] y) {
            y = Einsum<equation = "bik,kl,lj->bij">(x, u, v)
        }""",
        {"u": (8, 16), "v": (16, 10)},
    ),
)

# --------------------------------------------------------------------------------------- optimised

add(
    "optimised_bert",
    "Attention, SkipLayerNormalization, BiasGelu: a layer after ONNX Runtime's optimiser",
    lambda: text_model(
        f"""opt (float[4, 6, 16] x) => (float[4, 6, 16] y) {{
            a = {MS}.Attention<num_heads = 2>(x, wqkv, bqkv)
            o = MatMul(a, wo)
            n = {MS}.SkipLayerNormalization<epsilon = 0.00001>(o, x, g, b, bo)
            h = MatMul(n, w1)
            e = {MS}.BiasGelu(h, b1)
            f = MatMul(e, w2)
            y = {MS}.SkipLayerNormalization<epsilon = 0.00001>(f, n, g, b, bo)
        }}""",
        {
            "wqkv": (16, 48), "bqkv": (48,), "wo": (16, 16), "g": (16,), "b": (16,), "bo": (16,),
            "w1": (16, 32), "b1": (32,), "w2": (32, 16),
        },
        domains={MS: 1},
    ),
)  # fmt: skip
add(
    "fused_conv",
    "FusedConv and FusedMatMul",
    lambda: text_model(
        f"""fused (float[4, 3, 8, 8] x) => (float[4, 10] y) {{
            c = {MS}.FusedConv<kernel_shape = [3, 3], activation = "Relu">(x, w, b)
            p = GlobalAveragePool(c)
            f = Flatten(p)
            y = {MS}.FusedMatMul<transB = 1, alpha = 0.5>(f, v)
        }}""",
        {"w": (8, 3, 3, 3), "b": (8,), "v": (10, 8)},
        domains={MS: 1},
    ),
)
add(
    "decoder_genai",
    "a decoder layer of the generative-AI exporter: GroupQueryAttention with caches, 4-bit weights",
    lambda: text_model(
        f"""gqa (float[1, 1, 32] x, float[1, 2, 8, 16] pk, float[1, 2, 8, 16] pv, int32[1, 1] sl,
                int32 tl) => (float[1, 1, 32] y, float[] k, float[] v) {{
            n = {"SimplifiedLayerNormalization"}<axis = -1, epsilon = 0.00001>(x, g)
            q0 = MatMul(n, wq)
            k0 = MatMul(n, wk)
            v0 = MatMul(n, wv)
            a, k, v = {MS}.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>(
                q0, k0, v0, pk, pv, sl, tl, cos, sin)
            o = MatMul(a, wo)
            s, t0, t1, r = {MS}.SkipSimplifiedLayerNormalization<epsilon = 0.00001>(x, o, g)
            m = {MS}.MatMulNBits<K = 32, N = 32, bits = 4, block_size = 16>(s, wb, ws)
            y = Add(m, r)
        }}""",
        {
            "g": (32,), "wq": (32, 64), "wk": (32, 32), "wv": (32, 32), "wo": (64, 32),
            "cos": (16, 8), "sin": (16, 8), "ws": np.full(64, 0.02, np.float32),
            "wb": _bytes(32, 2, 8, dtype="uint8"),
        },
        domains={MS: 1},
    ),
    "--value", "tl=9", "--value", "sl=8",
)  # fmt: skip

# ------------------------------------------------------------------------------------ newest opset

add(
    "decoder_opset23",
    "RMSNormalization, RotaryEmbedding and Attention with past keys and values at opset 23",
    lambda: text_model(
        """dec (float[1, 2, 3, 8] x, float[1, 2, 4, 8] pk, float[1, 2, 4, 8] pv)
                => (float[1, 2, 3, 8] y, float[] k, float[] v) {
            n = RMSNormalization<axis = -1>(x, g)
            r = RotaryEmbedding(n, cos, sin, pos)
            y, k, v = Attention(r, r, n, , pk, pv)
        }""",
        {"g": (8,), "cos": (8, 4), "sin": (8, 4), "pos": np.asarray([[4, 5, 6]])},
        23,
        ir_version=10,
    ),
)
add(
    "swiglu_opset24",
    "Swish and a gate at opset 24",
    lambda: text_model(
        """glu (float[4, 16] x) => (float[4, 16] y) {
            a = MatMul(x, w1)
            s = Swish(a)
            b = MatMul(x, w2)
            g = Mul(s, b)
            y = MatMul(g, w3)
        }""",
        {"w1": (16, 32), "w2": (16, 32), "w3": (32, 16)},
        24,
        ir_version=10,
    ),
)

# ------------------------------------------------------------------------------------ control flow

_IF = """vad (float[1, 64] x, int64 sr) => (float[1, 4] y) {
    c = Equal(sr, rate)
    y = If(c) <
        then_branch = yes () => (float[1, 4] a) { a = MatMul(x, w) },
        else_branch = no () => (float[1, 4] b) { h = Tanh(x) b = MatMul(h, w) }
    >
}"""


def _if() -> ModelProto:
    return text_model(_IF, {"w": (64, 4), "rate": scalar(16000, "int64")})


add("if_given", "a branch chosen by the sampling rate", _if, "--value", "sr=16000")
add("if_open", "the same with the rate left open", _if)


def _loop(steps: int) -> ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["h_out"]),
            helper.make_node("Identity", ["go"], ["go_out"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [2, 8]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h_out", TensorProto.FLOAT, [2, 8]),
        ],
    )
    model = text_model(
        "loop (float[2, 8] x) => (float[2, 8] y) { y = Identity(x) }",
        {"w": (8, 8), "n": scalar(steps, "int64"), "yes": np.asarray(True)},  # noqa: FBT003  a tensor
    )
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body))
    return model


add("loop_known_count", "a Loop of five steps", lambda: _loop(5))
add("loop_long", "a Loop of so many steps that it is not written out", lambda: _loop(3000))

# --------------------------------------------------------------------------- outputs and detection

add(
    "unread_values",
    "TopK of which only the indices are read, last in the graph",
    lambda: text_model(
        """top (float[4, 16] x) => (int64[4, 3] y) {
            m = MatMul(x, w)
            v, y = TopK<axis = -1>(m, k)
        }""",
        {"w": (16, 32), "k": ints(3)},
    ),
)
add(
    "pool_indices",
    "MaxPool of which only the indices are read",
    lambda: text_model(
        """pool (float[4, 3, 8, 8] x) => (int64[4, 3, 4, 4] y) {
            r = Relu(x)
            v, y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        }""",
    ),
)
add(
    "detector",
    "a head that ends in NonMaxSuppression",
    lambda: text_model(
        """nms (float[1, 16, 4] boxes, float[1, 8, 16] f) => (int64["n", 3] y) {
            s = MatMul(w, f)
            p = Sigmoid(s)
            y = NonMaxSuppression(boxes, p, most, iou, least)
        }""",
        {"w": (3, 8), "most": ints(5), "iou": np.asarray([0.5], np.float32),
         "least": np.asarray([0.1], np.float32)},
    ),
)  # fmt: skip


def _listed_twice() -> ModelProto:
    model = text_model(
        "two (float[4, 8] x) => (float[4, 4] y) { m = MatMul(x, w) y = Relu(m) }", {"w": (8, 4)}
    )
    model.graph.output.append(model.graph.output[0])
    return model


add("output_twice", "an output that is listed twice", _listed_twice)
add(
    "deeplab_head",
    "a fixed batch inside Resize's sizes",
    lambda: text_model(
        """aspp (float[4, 8, 8, 8] x) => (float[4, 16, 8, 8] y) {
            a = Conv<kernel_shape = [1, 1]>(x, w)
            p = GlobalAveragePool(x)
            c = Conv<kernel_shape = [1, 1]>(p, v)
            r = Resize<mode = "linear">(c, , , sizes)
            y = Concat<axis = 1>(a, r)
        }""",
        {"w": (8, 8, 1, 1), "v": (8, 8, 1, 1), "sizes": ints(4, 8, 8, 8)},
    ),
)
add(
    "mixture_of_experts",
    "a fixed batch in a constant that gates are scattered into",
    lambda: text_model(
        """moe (float[4, 16] x) => (float[4, 16] y) {
            s = MatMul(x, wg)
            p = Softmax<axis = -1>(s)
            v, i = TopK<axis = -1>(p, k)
            g = ScatterElements<axis = 1>(zeros, i, v)
            g0, g1 = Split<axis = 1>(g)
            h0 = MatMul(x, w0)
            h1 = MatMul(x, w1)
            o0 = Mul(h0, g0)
            o1 = Mul(h1, g1)
            y = Add(o0, o1)
        }""",
        {"wg": (16, 2), "w0": (16, 16), "w1": (16, 16), "k": ints(1),
         "zeros": np.zeros((4, 2), np.float32)},
        13,
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------------ audio, others

add(
    "spectrogram",
    "STFT in front of a convolution",
    lambda: text_model(
        """stft (float[2, 64, 1] x) => (float[2, 4, 7, 9] y) {
            s = STFT(x, step, window)
            p = Mul(s, s)
            r = ReduceSum<keepdims = 0>(p, last)
            u = Unsqueeze(r, first)
            y = Conv<kernel_shape = [1, 1]>(u, w)
        }""",
        {"step": scalar(8, "int64"), "window": np.hanning(16).astype(np.float32),
         "last": ints(3), "first": ints(1), "w": (4, 1, 1, 1)},
    ),
)  # fmt: skip
add(
    "columns",
    "Col2Im",
    lambda: text_model(
        """col (float[2, 12, 9] x) => (float[2, 3, 4, 4] y) {
            r = Relu(x)
            y = Col2Im(r, image, block)
        }""",
        {"image": ints(4, 4), "block": ints(2, 2)},
        18,
    ),
)
add(
    "custom_operator",
    "an operator of a domain that nobody knows",
    lambda: text_model(
        """own (float[4, 8] x) => (float[4, 4] y) {
            m = MatMul(x, w)
            y = acme.Activate(m)
        }""",
        {"w": (8, 4)},
        domains={"acme": 1},
    ),
    runs=False,
)
add(
    "half_precision",
    "float16 throughout",
    lambda: text_model(
        """half (float16[4, 8] x) => (float16[4, 4] y) {
            m = MatMul(x, w)
            y = Relu(m)
        }""",
        {"w": np.random.default_rng(1).standard_normal((8, 4)).astype(np.float16)},
    ),
)
add(
    "embeddings",
    "a recommender: tables, a sum over looked-up rows, interactions",
    lambda: text_model(
        """rec (float[8, 4] d, int64[8, 3] i) => (float[8, 1] y) {
            e = Gather(table, i)
            s = ReduceSum<keepdims = 0>(e, one)
            b = Gemm(d, w, c)
            z = Concat<axis = 1>(b, s)
            m = MatMul(z, v)
            y = Sigmoid(m)
        }""",
        {"table": (20, 4), "one": ints(1), "w": (4, 4), "c": (4,), "v": (8, 1)},
    ),
)
