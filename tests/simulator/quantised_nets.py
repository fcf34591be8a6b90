"""Networks and what ONNX Runtime's quantiser makes of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)


class Net:
    """A network of plain operators, under construction."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.nodes: list[NodeProto] = []
        self.stored: list[TensorProto] = []
        self.rng = np.random.default_rng(0)
        self.shape = shape

    def store(self, name: str, values: Any) -> str:
        self.stored.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, data: str, shape: tuple[int, int, int], **given: Any) -> str:
        """A convolution by weights of (outputs, inputs, kernel), with a bias."""
        outputs, inputs, kernel = shape
        values = self.rng.standard_normal((outputs, inputs, kernel, kernel)) / inputs / kernel
        weights = self.store(f"w{len(self.nodes)}", values)
        bias = self.store(f"b{len(self.nodes)}", self.rng.standard_normal(outputs))
        given = {"pads": [kernel // 2] * 4, "kernel_shape": [kernel] * 2, **given}
        return self.node("Conv", [data, weights, bias], **given)

    def relu(self, data: str) -> str:
        return self.node("Relu", [data])

    def model(self, output: str) -> ModelProto:
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.stored,
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def residual(size: int = 32) -> ModelProto:
    """Convolutions, a pool, a residual connection."""
    net = Net((2, 3, size, size))
    data = net.relu(net.conv("x", (32, 3, 3)))
    data = net.node("MaxPool", [data], kernel_shape=[2, 2], strides=[2, 2])
    inner = net.conv(net.relu(net.conv(data, (64, 32, 3))), (32, 64, 1))
    return net.model(net.relu(net.node("Add", [data, inner])))


def detector(size: int = 96) -> ModelProto:
    """Depthwise blocks, two scales, upsampling, and heads side by side."""
    net = Net((1, 3, size, size))

    def block(data: str) -> str:
        inner = net.relu(net.conv(data, (48, 48, 1)))
        inner = net.conv(inner, (48, 1, 3), group=48)
        return net.relu(net.node("Add", [data, net.conv(inner, (48, 48, 1))]))

    near = block(block(net.relu(net.conv("x", (48, 3, 3), strides=[4, 4]))))
    far = block(net.relu(net.conv(near, (48, 48, 3), strides=[2, 2])))
    twice = net.store("twice", [1, 1, 2, 2])
    both = net.node("Concat", [near, net.node("Resize", [far, "", twice])], axis=1)
    head = net.relu(net.conv(both, (64, 96, 1)))
    classes = net.node("Sigmoid", [net.conv(head, (80, 64, 1))])
    return net.model(net.node("Concat", [net.conv(head, (4, 64, 1)), classes], axis=1))


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # untyped
    """Random inputs."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(1)
        values = rng.standard_normal(shape).astype(np.float32)
        self.samples: Iterator[dict[str, Any]] = iter([{name: values}])

    def get_next(self) -> dict[str, Any] | None:
        return next(self.samples, None)


def quantised(
    model: Path, *, pairs: bool = True, per_channel: bool = False, wide: bool = False
) -> Path:
    """Return the file beside a model's that the quantiser makes: with pairs, or of operators.

    Activations are of 8 bits, or of 16 if they are ``wide``.
    """
    (given,) = onnx.load(model, load_external_data=False).graph.input
    shape = tuple(dim.dim_value for dim in given.type.tensor_type.shape.dim)
    out = model.with_name(f"{model.stem}_{'qdq' if pairs else 'operators'}{wide:d}.onnx")
    logging.disable(logging.WARNING)
    quantize_static(
        model, out, _Samples(given.name, shape), per_channel=per_channel,
        quant_format=QuantFormat.QDQ if pairs else QuantFormat.QOperator,
        activation_type=QuantType.QUInt16 if wide else QuantType.QUInt8,
        weight_type=QuantType.QInt8, extra_options={"UseQDQContribOps": wide},
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    return out


def quantised_dynamically(model: Path) -> Path:
    """Return the file beside a model's in which products find their scales while they run."""
    out = model.with_name(f"{model.stem}_dynamic.onnx")
    logging.disable(logging.WARNING)
    quantize_dynamic(
        model, out, weight_type=QuantType.QUInt8, op_types_to_quantize=["Conv", "MatMul"]
    )
    logging.disable(logging.NOTSET)
    return out


def with_pairs_at_products(model: Path) -> Path:
    """Return the file beside a model of pairs that has them at the operands of products alone."""
    proto = onnx.load(model)
    made = {node.output[0]: node for node in proto.graph.node}
    stored = {tensor.name for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        for place, name in enumerate(node.input):
            back = made.get(name)
            inner = node.op_type not in {"Conv", "MatMul", "QuantizeLinear"}
            if (
                inner
                and back
                and back.op_type == "DequantizeLinear"
                and back.input[0] not in stored
            ):
                node.input[place] = made[back.input[0]].input[0]
    out = model.with_name(f"{model.stem}_at_products.onnx")
    onnx.save(proto, out)  # pairs that nobody reads any more are dropped at import
    return out
