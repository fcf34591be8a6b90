"""Models to measure: a residual network without its ends, and the two halves of a BERT layer.

Weights are pseudo-random and always the same. Their scale keeps activations near one, so that a
comparison of numbers in FP16 says something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

INPUT = "input"
"""Name of the only input of every model."""

OUTPUT = "output"
"""Name of the only output of every model."""

IR_VERSION = 10
"""Version of the file format that goes with the operator set, so that older runtimes read it."""

TAILORED_CHANNELS = (64, 64, 128, 128, 256, 256, 512, 512)
"""Output channels of the layers of the tailored ResNet-18."""

TAILORED_STRIDED = (2, 4, 6)
"""Indices of its layers that halve height and width."""


class _Graph:
    """A graph in the making: nodes, and initialisers from one stream of random numbers."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.random = np.random.default_rng(0)

    def constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        """Return the name of a new initialiser."""
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def normal(self, name: str, shape: tuple[int, ...], scale: float, mean: float = 0.0) -> str:
        """Return the name of a new initialiser of normally distributed numbers in FP32."""
        values = self.random.standard_normal(shape) * scale + mean
        return self.constant(name, values.astype(np.float32))

    def add(self, operator: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of the output of a new node, which is the node's own."""
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def linear(self, name: str, x: str, inner: int, outer: int) -> str:
        """Return the name of a product with a weight, plus a bias."""
        weight = self.normal(f"{name}_weight", (inner, outer), inner**-0.5)
        product = self.add("MatMul", f"{name}_matmul", x, weight)
        return self.add("Add", f"{name}_add", product, self.normal(f"{name}_bias", (outer,), 0.1))

    def residual(self, x: str, shortcut: str, width: int) -> None:
        """End with the sum of both, normalised: the output of the model."""
        total = self.add("Add", "residual", x, shortcut)
        scale = self.normal("norm_scale", (width,), 0.1, mean=1.0)
        shift = self.normal("norm_shift", (width,), 0.1)
        self.add("LayerNormalization", OUTPUT, total, scale, shift, axis=-1, epsilon=1e-12)

    def model(self, name: str, shape: list[int], result: list[int]) -> ModelProto:
        """Return the checked model of these nodes.

        Args:
            name: What the graph is called.
            shape: Extents of the input.
            result: Extents of the output.
        """
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, result)],
            self.initializers,
        )
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 20)],
            ir_version=IR_VERSION,
            producer_name="autoturbo-gpu",
        )
        onnx.checker.check_model(made, full_check=True)
        return made


def tailored_resnet18(
    batch: int, side: int = 56, channels: Sequence[int] = TAILORED_CHANNELS
) -> ModelProto:
    """Return "ResNet18-Tailor" of the paper, by our reading of it.

    The paper takes ResNet-18 without the first convolution and max pooling, and without the last
    average pooling and softmax, and speaks of eight layers. We read this as eight convolutions of
    3 x 3, each with a bias (of the folded batch normalization) and a ReLU, and no shortcuts; the
    third, fifth and seventh have stride 2.

    Args:
        batch: Samples at once.
        side: Height and width of the input.
        channels: Of the layers' outputs; the first has as many inputs.
    """
    graph = _Graph()
    x, inner, height = INPUT, channels[0], side
    for index, outer in enumerate(channels):
        stride = 2 if index in TAILORED_STRIDED else 1
        name = f"conv{index + 1}"
        # A ReLU halves the variance, hence the 2.
        scale = (2 / (9 * inner)) ** 0.5
        weight = graph.normal(f"{name}_weight", (outer, inner, 3, 3), scale)
        bias = graph.normal(f"{name}_bias", (outer,), 0.1)
        x = graph.add(
            "Conv", name, x, weight, bias,
            kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[stride, stride],
        )  # fmt: skip
        last = index == len(channels) - 1
        x = graph.add("Relu", OUTPUT if last else f"relu{index + 1}", x)
        inner, height = outer, -(-height // stride)
    return graph.model(
        "resnet18-tailor", [batch, channels[0], side, side], [batch, inner, height, height]
    )


def bert_feed_forward(
    batch: int, tokens: int = 128, width: int = 768, inner: int = 3072
) -> ModelProto:
    """Return the feed-forward half of a BERT layer, with its residual and normalisation.

    Args:
        batch: Sequences at once.
        tokens: Tokens of a sequence.
        width: Features of a token.
        inner: Features between both products.
    """
    graph = _Graph()
    x = graph.linear("expand", INPUT, width, inner)
    x = graph.add("Gelu", "gelu", x)
    x = graph.linear("contract", x, inner, width)
    graph.residual(x, INPUT, width)
    shape = [batch, tokens, width]
    return graph.model("bert-feed-forward", shape, shape)


def bert_attention(batch: int, tokens: int = 128, width: int = 768, heads: int = 12) -> ModelProto:
    """Return the attention half of a BERT layer, with its residual and normalisation.

    Args:
        batch: Sequences at once.
        tokens: Tokens of a sequence.
        width: Features of a token.
        heads: Heads that share the features.

    Raises:
        ValueError: The heads do not divide the features.
    """
    if width % heads:
        raise ValueError(f"{width} features cannot be divided among {heads} heads")
    features = width // heads
    graph = _Graph()
    apart = graph.constant("apart", np.array([batch, tokens, heads, features], np.int64))
    together = graph.constant("together", np.array([batch, tokens, width], np.int64))
    # The transposed key comes about in its own transpose: one node less, and the same product.
    orders = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    parts = dict[str, str]()
    for name, order in orders.items():
        part = graph.linear(name, INPUT, width, width)
        part = graph.add("Reshape", f"{name}_reshape", part, apart)
        parts[name] = graph.add("Transpose", f"{name}_transpose", part, perm=order)
    scores = graph.add("MatMul", "scores", parts["query"], parts["key"])
    scale = graph.constant("scale", np.array(features**-0.5, np.float32))
    scores = graph.add("Mul", "scaled", scores, scale)
    shares = graph.add("Softmax", "softmax", scores, axis=-1)
    x = graph.add("MatMul", "context", shares, parts["value"])
    x = graph.add("Transpose", "context_transpose", x, perm=[0, 2, 1, 3])
    x = graph.add("Reshape", "context_reshape", x, together)
    x = graph.linear("project", x, width, width)
    graph.residual(x, INPUT, width)
    shape = [batch, tokens, width]
    return graph.model("bert-attention", shape, shape)


def product(rows: int, depth: int, columns: int) -> ModelProto:
    """Return a model that is one product with a weight.

    Args:
        rows: Of the input, its samples.
        depth: Columns of the input.
        columns: Of the weight.
    """
    graph = _Graph()
    graph.add("MatMul", OUTPUT, INPUT, graph.normal("weight", (depth, columns), depth**-0.5))
    return graph.model("product", [rows, depth], [rows, columns])


def inputs_of(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Return pseudo-random inputs of a model's file, numbers that FP16 has."""
    random = np.random.default_rng(1)
    found = {}
    for one in onnx.load(path, load_external_data=False).graph.input:
        shape = [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        found[one.name] = random.standard_normal(shape).astype(np.float16).astype(np.float32)
    return found


MODELS: dict[str, Callable[[int], ModelProto]] = {
    "resnet18-tailor": tailored_resnet18,
    "bert-feed-forward": bert_feed_forward,
    "bert-attention": bert_attention,
}
"""What makes each model, given the batch."""


def save(name: str, batch: int, path: Path | str) -> None:
    """Write a model as an ONNX file.

    Args:
        name: A key of :data:`MODELS`.
        batch: Samples at once.
        path: The file to write.
    """
    onnx.save(MODELS[name](batch), path)
