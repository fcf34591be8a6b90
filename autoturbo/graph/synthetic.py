"""Graphs of a single synthesised layer, for micro-benchmarks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph

_OPSET, _IR = 17, 8


@lru_cache(maxsize=256)
def convolution(channels: int, size: int, kernel: int = 3, batch: int = 1) -> Graph:
    """A convolution with as many channels in as out, and padding that keeps the size.

    Args:
        channels: of input and output.
        size: rows and columns.
        kernel: rows and columns of a filter; odd.
        batch: samples.
    """
    import onnx
    from onnx import TensorProto, helper

    shape = [batch, channels, size, size]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    filters = [channels, channels, kernel, kernel]
    weight = helper.make_tensor_value_info("w", TensorProto.FLOAT, filters)
    values = helper.make_node(
        "ConstantOfShape", ["filters"], ["w"], "fill",
        value=helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0]),
    )  # fmt: skip
    node = helper.make_node("Conv", ["x", "w"], ["y"], "convolution", pads=[kernel // 2] * 4)
    extents = helper.make_tensor("filters", TensorProto.INT64, [4], filters)
    graph = helper.make_graph(
        [values, node], "convolution", ends[:1], ends[1:], [extents], value_info=[weight]
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "convolution.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=_IR), str(file))
        return import_model(file)
