"""Small models with weights, and plans for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoturbo.graph.onnx_import import import_model
from autoturbo.host.cpu import Cpu
from autoturbo.host.divided import DividedModel

CPU = Cpu("a processor", 2, 2, 1 << 20, 1 << 25, 1e10, 1e11, 2e11)


def save(path: Path, nodes: list[Any], shape: list[int], out: list[int], **weights: Any) -> Path:
    """A model of one input x and one output y."""
    values = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(
        nodes, path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)], values,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def residual(folder: Path, batch: int = 8) -> Path:
    """Convolutions around a sum: two tensors cross a cut inside the branch."""
    draw = np.random.default_rng(0).standard_normal
    weights = {f"w{i}": draw((8, 8, 3, 3)).astype(np.float32) / 8 for i in range(4)}
    names = ["x", "a", "b", "c", "d"]
    nodes = [
        helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], pads=[1, 1, 1, 1])
        for i in range(3)
    ]
    nodes += [
        helper.make_node("Add", ["a", "c"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Conv", ["r", "w3"], ["y"], pads=[1, 1, 1, 1]),
    ]
    shape = [batch, 8, 12, 12]
    return save(folder / "residual.onnx", nodes, shape, shape, **weights)


def divided(path: Path, batch: int | None = None) -> DividedModel:
    return DividedModel.of(path, import_model(path, batch=batch))
