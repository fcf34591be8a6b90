"""Small models that take every way through the lowering."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper


class Net:
    """A model in the making, with pseudo-random weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int, scale: float = 0.2) -> str:
        name = f"w{len(self.weights)}"
        values = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, *values: float, integer: bool = False) -> str:
        name = f"w{len(self.weights)}"
        kind = np.int64 if integer else np.float32
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def scalar(self, value: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def conv(
        self, x: str, inner: int, outer: int, side: int = 3, stride: int = 1, pad: int = 1,
        relu: bool = True, bias: bool = True, **more: object,
    ) -> str:  # fmt: skip
        groups = int(str(more.get("group", 1)))
        weight = self.weight(
            outer, inner // groups, side, side, scale=(side * side * inner) ** -0.5
        )
        given = [x, weight, *([self.weight(outer, scale=0.1)] if bias else [])]
        y = self.add(
            "Conv", *given, kernel_shape=[side, side], pads=[pad] * 4, strides=[stride] * 2, **more
        )
        return self.add("Relu", y) if relu else y

    def model(self, shape: list[int], out: str, out_shape: list[int]) -> ModelProto:
        values = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "net", [values("input", 1, shape)], [values(out, 1, out_shape)],
            self.weights,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def residual(batch: int) -> ModelProto:
    """Return a residual block, a chain with a stride, pools and a classifier."""
    net = Net()
    x = net.conv("input", 8, 16)
    y = net.add("Relu", net.add("Add", net.conv(x, 16, 16, relu=False), x))
    y = net.conv(y, 16, 24, stride=2)
    y = net.conv(y, 24, 40, side=1, pad=0)
    y = net.conv(y, 40, 24)
    y = net.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = net.add("Flatten", net.add("GlobalAveragePool", y))
    y = net.add("Gemm", y, net.weight(10, 24), net.weight(10), transB=1)
    return net.model([batch, 8, 14, 14], y, [batch, 10])


def chain(batch: int) -> ModelProto:
    """Return four convolutions of all sides and paddings, with odd sizes and without a bias."""
    net = Net()
    y = net.conv("input", 5, 20, pad=0)
    y = net.conv(y, 20, 18, side=1, pad=0, bias=False)
    y = net.conv(y, 18, 33, side=5, pad=2, relu=False)
    y = net.conv(y, 33, 7, stride=2)
    return net.model([batch, 5, 15, 13], y, [batch, 7, 7, 6])


def shortcut(batch: int) -> ModelProto:
    """Return a block whose shortcut is a convolution too: one of the two has to wait."""
    net = Net()
    x = net.conv("input", 8, 16)
    y = net.conv(net.conv(x, 16, 24, stride=2), 24, 24, relu=False)
    y = net.add("Relu", net.add("Add", y, net.conv(x, 16, 24, 1, 2, 0, relu=False)))
    y = net.conv(y, 24, 8)
    return net.model([batch, 8, 12, 12], y, [batch, 8, 6, 6])


def others(batch: int) -> ModelProto:
    """Return what PyTorch carries out: groups, dilation, average pools, branches, other pads."""
    net = Net()
    x = net.conv("input", 8, 8, group=8)
    y = net.conv(x, 8, 8, dilations=[2, 2], pad=2)
    z = net.add("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    y = net.add("Concat", y, net.add("Sigmoid", z), axis=1)
    y = net.add("Mul", y, net.add("Tanh", net.conv(y, 16, 16, relu=False)))
    normal = [net.weight(16, scale=1.0), *(net.weight(16) for _ in range(2))]
    y = net.add("BatchNormalization", y, *normal, net.constant(*[0.5] * 16))
    y = net.add("Clip", y, net.scalar(-0.3), net.scalar(0.4))
    y = net.add("ReduceMean", y, net.constant(2, 3, integer=True), keepdims=0)
    return net.model([batch, 8, 9, 9], y, [batch, 16])


def masked_attention(batch: int) -> ModelProto:
    """Return attention with a mask that is added, a division, and sizes that fill no block."""
    net = Net()
    heads = net.add("Reshape", "input", net.constant(0, 11, 3, 20, integer=True))
    q = net.add("Transpose", heads, perm=[0, 2, 1, 3])
    k = net.add("Transpose", heads, perm=[0, 2, 3, 1])
    scores = net.add("Div", net.add("MatMul", q, k), net.constant(4.0))
    scores = net.add("Add", scores, net.weight(1, 1, 11, 11, scale=1.0))
    y = net.add("MatMul", net.add("Softmax", scores, axis=-1), q)
    y = net.add("Transpose", y, perm=[0, 2, 1, 3])
    y = net.add("Reshape", y, net.constant(0, 11, 60, integer=True))
    return net.model([batch, 11, 60], y, [batch, 11, 60])


def not_attention(batch: int) -> ModelProto:
    """Return what begins as attention does: without a softmax, and with a factor behind it."""
    net = Net()
    turned = net.add("Transpose", "input", perm=[0, 2, 1])
    x = net.add("Mul", net.add("MatMul", "input", turned), net.constant(0.3))
    x = net.add("MatMul", x, "input")
    scores = net.add("MatMul", x, net.add("Transpose", x, perm=[0, 2, 1]))
    shares = net.add("Mul", net.add("Softmax", scores, axis=-1), net.constant(0.5))
    y = net.add("MatMul", shares, x)
    return net.model([batch, 10, 24], y, [batch, 10, 24])


def products(batch: int) -> ModelProto:
    """Return products with a weight in a row, one with a computed matrix, and a normalisation."""
    net = Net()
    x = net.add("Add", net.add("MatMul", "input", net.weight(24, 36)), net.weight(36))
    x = net.add("MatMul", net.add("Relu", x), net.weight(36, 20))
    y = net.add("Add", net.add("MatMul", x, net.weight(20, 24)), "input")
    turned = net.add("Transpose", y, perm=[0, 2, 1])
    y = net.add("MatMul", net.add("MatMul", y, turned), y)
    y = net.add("LayerNormalization", y, net.weight(24, scale=1.0), net.weight(24), axis=-1)
    return net.model([batch, 10, 24], y, [batch, 10, 24])


MODELS: dict[str, Callable[[int], ModelProto]] = {
    one.__name__: one
    for one in (residual, chain, shortcut, others, masked_attention, not_attention, products)
}
