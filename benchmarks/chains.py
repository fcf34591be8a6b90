"""Networks of any size for scaling: chains of convolutions, a machine that cuts every sample."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target, with_field

CHANNELS, SIDE = 64, 8


def chain(layers: int, samples: int) -> Graph:
    """Return a chain of 1x1 convolutions; a sample is 8 KiB in FP16 at every layer."""
    shape = (samples, CHANNELS, SIDE, SIDE)
    names = ["x", *(f"y{n}" for n in range(layers))]
    weight = np.zeros((CHANNELS, CHANNELS, 1, 1), np.float32)
    nodes = [
        helper.make_node("Conv", [names[n], f"w{n}"], [names[n + 1]], f"conv{n}")
        for n in range(layers)
    ]
    weights = [numpy_helper.from_array(weight, f"w{n}") for n in range(layers)]
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, shape)],
        weights,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "chain.onnx"
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
        return import_model(file)


def narrow() -> Target:
    """Return one core whose local buffer holds one sample's input and output."""
    target = load_target("stcp920")
    for field, value in (("clusters", 1), ("cores_per_cluster", 1), ("lb.capacity_kib", 16)):
        target = with_field(target, field, value)
    return target
