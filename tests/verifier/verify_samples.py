"""Small quantised and half-precision networks for the proof's tests, as exporters write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, load, numpy_helper, save

from autoturbo.datasets.workloads import get

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

OPSET = 20
Array = np.ndarray[Any, Any]


class Writer:
    """An ONNX graph under construction; every method returns the name of the value it adds."""

    def __init__(self, element: int = TensorProto.FLOAT, seed: int = 0) -> None:
        self.element = element
        self.dtype = helper.tensor_dtype_to_np_dtype(element)
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.stored: list[TensorProto] = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, values: Array, name: str = "c") -> str:
        unique = f"{name}{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(values), unique))
        return unique

    def ints(self, *numbers: int) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.asarray(value, self.dtype))

    def weight(self, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> str:
        values = self.random.standard_normal(shape) * np.sqrt(gain / fan_in)
        return self.constant(values.astype(self.dtype), "w")

    def bias(self, width: int) -> str:
        return self.constant((0.1 * self.random.standard_normal(width)).astype(self.dtype), "b")

    def activation(self, value: str, largest: float) -> str:
        """Where a quantised network rounds; a plain one does nothing."""
        del largest
        return value

    def conv(self, value: str, shape: tuple[int, int, int], **attributes: Any) -> str:
        """Convolution of ``(output, input, kernel)`` channels with padding that keeps extents."""
        out, channels, kernel = shape
        weight = self.weight((out, channels, kernel, kernel), channels * kernel**2, 2.0)
        pads = [kernel // 2] * 4
        return self.node("Conv", value, weight, self.bias(out), pads=pads, **attributes)

    def linear(self, value: str, width: int, out: int) -> str:
        product = self.node("MatMul", value, self.weight((width, out), width))
        return self.node("Add", product, self.bias(out))

    def model(
        self, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, Sequence[int]]
    ) -> ModelProto:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "sample",
            [value(name, self.element, shape) for name, shape in inputs.items()],
            [value(name, self.element, shape) for name, shape in outputs.items()],
            self.stored,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class QdqWriter(Writer):
    """The same with int8: weights per output channel, activations per tensor.

    A weight is stored as integers behind a DequantizeLinear, a bias as int32 with the product of
    both scales, and every activation goes through QuantizeLinear and DequantizeLinear.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(TensorProto.FLOAT, seed)
        self.scales: dict[str, float] = {}

    def activation(self, value: str, largest: float) -> str:
        scale = largest / 127
        step = self.constant(np.asarray(scale, np.float32), "s")
        zero = self.constant(np.asarray(0, np.int8), "z")
        rounded = self.node("QuantizeLinear", value, step, zero)
        back = self.node("DequantizeLinear", rounded, step, zero)
        self.scales[back] = scale
        return back

    def quantised(self, values: Array, axis: int) -> tuple[str, Array]:
        """A weight by channel along ``axis``, and its scales."""
        others = tuple(d for d in range(values.ndim) if d != axis)
        scales = (np.abs(values).max(axis=others) / 127).astype(np.float32)
        shape = [-1 if d == axis else 1 for d in range(values.ndim)]
        whole = np.clip(np.rint(values / scales.reshape(shape)), -127, 127).astype(np.int8)
        names = [self.constant(whole, "q"), self.constant(scales, "s")]
        names.append(self.constant(np.zeros(scales.size, np.int8), "z"))
        return self.node("DequantizeLinear", *names, axis=axis), scales

    def conv(self, value: str, shape: tuple[int, int, int], **attributes: Any) -> str:
        out, channels, kernel = shape
        deviation = np.sqrt(2 / (channels * kernel**2))
        values = self.random.standard_normal((out, channels, kernel, kernel)) * deviation
        weight, scales = self.quantised(values, 0)
        steps = scales * np.float32(self.scales.get(value, 4 / 127))
        whole = np.rint(0.1 * self.random.standard_normal(out) / steps).astype(np.int32)
        names = [self.constant(whole, "b"), self.constant(steps, "s")]
        names.append(self.constant(np.zeros(out, np.int32), "z"))
        bias = self.node("DequantizeLinear", *names, axis=0)
        return self.node("Conv", value, weight, bias, pads=[kernel // 2] * 4, **attributes)

    def linear(self, value: str, width: int, out: int) -> str:
        values = self.random.standard_normal((width, out)) / np.sqrt(width)
        weight, _ = self.quantised(values, 1)
        return self.node("Add", self.node("MatMul", value, weight), self.bias(out))


def cnn(writer: Writer, batch: int = 2, size: int = 32) -> ModelProto:
    """A stem with pooling, a residual block with a strided shortcut, and a classifier."""
    x = writer.activation("x", 4.0)
    x = writer.activation(writer.node("Relu", writer.conv(x, (16, 3, 3))), 6.0)
    x = writer.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    short = writer.activation(writer.conv(x, (32, 16, 1), strides=[2, 2]), 8.0)
    y = writer.conv(x, (32, 16, 3), strides=[2, 2])
    y = writer.activation(writer.node("Relu", y), 8.0)
    y = writer.activation(writer.conv(y, (32, 32, 3)), 8.0)
    x = writer.activation(writer.node("Relu", writer.node("Add", short, y)), 10.0)
    x = writer.activation(writer.node("GlobalAveragePool", x), 5.0)
    x = writer.node("Flatten", x)
    y = writer.activation(writer.linear(x, 32, 10), 6.0)
    writer.nodes.append(helper.make_node("Identity", [y], ["y"], name="y"))
    return writer.model({"x": (batch, 3, size, size)}, {"y": (batch, 10)})


def transformer(
    writer: Writer, batch: int = 2, tokens: int = 16, width: int = 32, heads: int = 4
) -> ModelProto:
    """One block: attention over ``heads``, a feed-forward part, normalisation before each."""
    x = writer.activation("x", 4.0)
    normal = writer.activation(_normalised(writer, x, width), 4.0)
    query, key, value = (
        _heads(writer, writer.activation(writer.linear(normal, width, width), 4.0),
               (tokens, width, heads), last)
        for last in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    )  # fmt: skip
    scores = writer.node("MatMul", query, key)
    scores = writer.node("Mul", scores, writer.number((width / heads) ** -0.5))
    shares = writer.activation(writer.node("Softmax", scores, axis=-1), 1.0)
    mixed = writer.node("MatMul", shares, value)
    mixed = writer.node("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = writer.node("Reshape", mixed, writer.ints(0, tokens, width))
    mixed = writer.linear(writer.activation(mixed, 3.0), width, width)
    x = writer.activation(writer.node("Add", x, mixed), 5.0)
    normal = writer.activation(_normalised(writer, x, width), 4.0)
    inner = writer.node("Gelu", writer.linear(normal, width, 4 * width))
    inner = writer.linear(writer.activation(inner, 4.0), 4 * width, width)
    y = writer.activation(writer.node("Add", x, inner), 6.0)
    writer.nodes.append(helper.make_node("Identity", [y], ["y"], name="y"))
    return writer.model({"x": (batch, tokens, width)}, {"y": (batch, tokens, width)})


def _normalised(writer: Writer, value: str, width: int) -> str:
    scale = writer.constant(np.ones(width, writer.dtype), "g")
    return writer.node("LayerNormalization", value, scale, writer.bias(width), axis=-1)


def _heads(
    writer: Writer, value: str, extents: tuple[int, int, int], order: tuple[int, ...]
) -> str:
    tokens, width, heads = extents
    split = writer.node("Reshape", value, writer.ints(0, tokens, heads, width // heads))
    return writer.node("Transpose", split, perm=list(order))


SAMPLES: dict[str, Callable[[], ModelProto]] = {
    "cnn": lambda: cnn(Writer()),
    "cnn-fp16": lambda: cnn(Writer(TensorProto.FLOAT16)),
    "cnn-qdq": lambda: cnn(QdqWriter()),
    "transformer": lambda: transformer(Writer()),
    "transformer-fp16": lambda: transformer(Writer(TensorProto.FLOAT16)),
    "transformer-qdq": lambda: transformer(QdqWriter()),
}
"""Every network in every precision, small enough to schedule and run in a moment."""


def saved(model: ModelProto, path: Path) -> Path:
    """The file that a model was written to."""
    save(model, path)
    return path


def workload(name: str, batch: int) -> ModelProto:
    """A bundled network at another batch size, where nothing but its inputs says the batch."""
    entry = get(name)
    model = load(entry.file, load_external_data=False)
    for value in model.graph.input:
        extents = value.type.tensor_type.shape.dim
        if extents[0].dim_value == entry.batch:
            extents[0].dim_value = batch
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def quantise(source: Path, target: Path, feeds: Sequence[Mapping[str, Array]]) -> Path:
    """A float network with its weights beside it, quantised to QDQ by ONNX Runtime's own tool.

    Args:
        source: the network.
        target: where the result is written, weights inside.
        feeds: inputs whose activations calibrate the scales.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(feeds)

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self._left, None)

    quantize_static(source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
    return target


def halve(source: Path, target: Path) -> Path:
    """A float network in float16, inputs and outputs too."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    save(convert_float_to_float16(load(source), keep_io_types=False), target)
    return target


def reordered(model: ModelProto) -> ModelProto:
    """The same computation with every sum of products taken in the opposite order."""
    copy = ModelProto()
    copy.CopyFrom(model)
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    for node in nodes:
        copy.graph.node.extend([*_turned(node, copy.graph), node])
    return copy


def _turned(node: Any, graph: Any) -> list[Any]:
    """Nodes that reverse both operands of a product along the axis summed over."""
    flags = {a.name: a.i for a in node.attribute}
    grouped = flags.get("group", 1) > 1
    axes = {
        "Conv": (1, 1),
        "MatMul": (-1, -2),
        "Gemm": (flags.get("transA", 0) ^ 1, flags.get("transB", 0)),
    }.get("" if grouped else node.op_type)
    return [] if axes is None else [_reverse(node, p, axis, graph) for p, axis in enumerate(axes)]


def _reverse(node: Any, position: int, axis: int, graph: Any) -> Any:
    """A slice with step -1 in front of an input, whose bounds are stored once each."""
    bounds = {"turn_start": -1, "turn_end": -(2**31), "turn_step": -1, f"turn_axis_{axis}": axis}
    stored = {tensor.name for tensor in graph.initializer}
    for name, number in bounds.items():
        if name not in stored:
            graph.initializer.append(numpy_helper.from_array(np.asarray([number]), name))
    names = ["turn_start", "turn_end", f"turn_axis_{axis}", "turn_step"]
    source, turned = node.input[position], f"{node.output[0]}_turned_{position}"
    node.input[position] = turned
    return helper.make_node("Slice", [source, *names], [turned])


def with_wrong_row(model: ModelProto, value: str, axis: int) -> ModelProto:
    """The model with the first row of a value replaced by its second: a halo off by one."""
    copy = ModelProto()
    copy.CopyFrom(model)
    place = next(i for i, node in enumerate(copy.graph.node) if value in node.output)
    wrong = f"{value}_wrong"
    for node in copy.graph.node:
        node.input[:] = [wrong if name == value else name for name in node.input]
    bounds = {"cut": [1], "cut_end": [2**31], "cut_row_end": [2], "cut_axis": [axis]}
    copy.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(numbers), name) for name, numbers in bounds.items()
    )
    added = [
        helper.make_node("Slice", [value, "cut", "cut_row_end", "cut_axis"], ["cut_row"]),
        helper.make_node("Slice", [value, "cut", "cut_end", "cut_axis"], ["cut_rest"]),
        helper.make_node("Concat", ["cut_row", "cut_rest"], [wrong], axis=axis),
    ]
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    copy.graph.node.extend([*nodes[: place + 1], *added, *nodes[place + 1 :]])
    return copy
