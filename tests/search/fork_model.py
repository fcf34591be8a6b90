"""A small network with branches, for machines of several units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, SIZE = 64, 56


def save_fork(folder: Path) -> Path:
    """A convolution, two beside each other, and their sum; the channels suit the NPU."""
    edges = [("x", "a"), ("a", "b"), ("a", "c")]
    filters = np.zeros((CHANNELS, CHANNELS, 3, 3), np.float32)
    weights = [numpy_helper.from_array(filters, f"w{i}") for i in range(len(edges))]
    nodes = [
        helper.make_node("Conv", [read, f"w{i}"], [made], made, pads=[1, 1, 1, 1])
        for i, (read, made) in enumerate(edges)
    ]
    nodes.append(helper.make_node("Add", ["b", "c"], ["y"], "y"))
    shape = [1, CHANNELS, SIZE, SIZE]
    ends = [helper.make_tensor_value_info(t, TensorProto.FLOAT, shape) for t in ("x", "y")]
    graph = helper.make_graph(nodes, "fork", ends[:1], ends[1:], weights)
    file = folder / "fork.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(file))
    return file
