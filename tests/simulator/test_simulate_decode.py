"""One query position against cached keys and values: heuristic against TVM-like fusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.context import loop_orders
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

HEADS, CHANNELS = 32, 128
HALF = TensorProto.FLOAT16
Shapes = Mapping[str, tuple[int, ...]]


def model_of(
    nodes: list[NodeProto], inputs: Shapes, outputs: Shapes, opset: int,
    stored: list[TensorProto] | None = None,
) -> ModelProto:  # fmt: skip
    ins, outs = (
        [helper.make_tensor_value_info(name, HALF, shape) for name, shape in own.items()]
        for own in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, "decode", ins, outs, stored or [])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def fused(samples: int, keys: int, past: int) -> ModelProto:
    """One operator on the whole cache."""
    cache, row = (samples, keys, past, CHANNELS), (samples, HEADS, 1, CHANNELS)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], name="attention")
    return model_of([node], {"q": row, "k": cache, "v": cache}, {"y": row}, 23)


def growing(samples: int, keys: int, past: int) -> ModelProto:
    """One operator with a cache that it appends to."""
    row, new = (samples, HEADS, 1, CHANNELS), (samples, keys, 1, CHANNELS)
    old, cache = (samples, keys, past, CHANNELS), (samples, keys, past + 1, CHANNELS)
    node = helper.make_node(
        "Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "ok", "ov"], name="attention"
    )
    inputs = {"q": row, "k": new, "v": new, "pk": old, "pv": old}
    return model_of([node], inputs, {"y": row, "ok": cache, "ov": cache}, 23)


def written_out(samples: int, keys: int, past: int) -> ModelProto:
    """Products and a softmax, with heads of keys repeated."""
    cache, row = (samples, keys, past, CHANNELS), (samples, HEADS, 1, CHANNELS)
    shape = (samples, keys, HEADS // keys, past, CHANNELS)
    flat = (samples, HEADS, past, CHANNELS)
    stored = [
        numpy_helper.from_array(np.asarray(values, np.int64), name)
        for name, values in (("axis", [2]), ("shape", shape), ("flat", flat))
    ]
    node = helper.make_node
    nodes = [
        *(step for x in "kv" for step in (
            node("Unsqueeze", [x, "axis"], [f"{x}1"]),
            node("Expand", [f"{x}1", "shape"], [f"{x}2"]),
            node("Reshape", [f"{x}2", "flat"], [f"{x}3"]),
        )),
        node("Transpose", ["k3"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "v3"], ["y"]),
    ]  # fmt: skip
    return model_of(nodes, {"q": row, "k": cache, "v": cache}, {"y": row}, 18, stored)


FORMS: dict[str, Callable[[int, int, int], ModelProto]] = {
    "fused": fused, "growing": growing, "written out": written_out,
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "samples", "keys", "past", "target"),
    [
        ("fused", 1, 8, 512, "stcp920"),
        ("growing", 1, 32, 512, "ipu-mk2"),
        ("written out", 16, 8, 512, "ascend-910"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("fused", 16, 8, 4096, "ipu-mk2"), ("fused", 1, 32, 2048, "ascend-910"),
                ("growing", 1, 8, 2048, "ascend-910"), ("growing", 16, 8, 4096, "stcp920"),
                ("written out", 1, 32, 2048, "ipu-mk2"), ("written out", 1, 8, 4096, "stcp920"),
            )
        ),
    ],
)  # fmt: skip
def test_the_heuristic_is_not_behind_tvm(
    tmp_path: Path, form: str, samples: int, keys: int, past: int, target: str
) -> None:
    onnx.save(FORMS[form](samples, keys, past), tmp_path / "decode.onnx")
    machine = load_target(target)
    evaluator = Evaluator(import_model(tmp_path / "decode.onnx"), machine, machine.default_dtype)
    tvm, own = (evaluator.measure_scheduler(name) for name in ("tvm", "graphturbo"))
    assert isinstance(tvm, Measurement)
    assert isinstance(own, Measurement)
    assert own.latency <= tvm.latency


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_cached_heads_are_no_channels(tmp_path: Path, form: str) -> None:
    """The cache lies in memory as in the file, so that a part of its heads is contiguous."""
    onnx.save(FORMS[form](1, 8, 64), tmp_path / "decode.onnx")
    graph = import_model(tmp_path / "decode.onnx")
    orders = loop_orders(graph)
    assert all(orders[t] == tuple(range(4)) for t in graph.inputs)


@pytest.mark.parametrize(("kind", "order"), [
    ("Conv", (0, 2, 3, 1)), ("Relu", (0, 2, 3, 1)),
    ("MatMul", (0, 1, 2, 3)),
])  # fmt: skip
def test_images_are_what_windows_or_nothing_but_elements_read(
    tmp_path: Path, kind: str, order: tuple[int, ...]
) -> None:
    """Behind an elementwise operator, too."""
    weights = {"Conv": (4, 4, 3, 3), "MatMul": (4, 4, 8, 8)}
    stored = [
        numpy_helper.from_array(np.ones(weights[kind], np.float16), "w")
    ] if kind in weights else []  # fmt: skip
    attributes: dict[str, Any] = {"kernel_shape": [3, 3]} if kind == "Conv" else {}
    size = 6 if attributes else 8
    inputs = ["r", *(["w"] if stored else [])]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(kind, inputs, ["y"], **attributes),
    ]
    model = model_of(nodes, {"x": (4, 4, 8, 8)}, {"y": (4, 4, size, size)}, 17, stored)
    onnx.save(model, tmp_path / "net.onnx")
    graph = import_model(tmp_path / "net.onnx")
    assert loop_orders(graph)[graph.inputs[0]] == order
