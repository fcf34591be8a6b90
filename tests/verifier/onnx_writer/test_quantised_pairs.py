"""Scheduled models of quantised ones: ONNX Runtime makes the same integer nodes of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoturbo.errors import KnobsError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.space import Space
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.execution import prepare_comparison
from autoturbo.verifier.numbers import compare_models
from autoturbo.verifier.onnx_writer.calls import passes_of
from autoturbo.verifier.onnx_writer.scheduled_model import scheduled_model, write_scheduled_model
from tests.schedule.schedule_samples import target

PLAIN = frozenset(("Conv", "Add", "Gemm", "GlobalAveragePool"))
"""Operators that ONNX Runtime computes in integers where the pairs stand beside them."""

MOST_PARTS = 40
DRAWS = 60


class Quantised:
    """A network as quantisers write it, under construction."""

    def __init__(self, *, per_channel: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[TensorProto] = []
        self.rng = np.random.default_rng(3)
        self.per_channel = per_channel

    def store(self, name: str, values: np.ndarray) -> str:
        self.stored.append(numpy_helper.from_array(values, name))
        return name

    def pair(self, name: str) -> str:
        """A value quantised and dequantised."""
        given = [self.store(f"{name}.scale", np.asarray(0.03 + 0.01 * len(self.nodes), "f")),
                 self.store(f"{name}.zero", np.asarray(114, "u1"))]  # fmt: skip
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *given], [f"{name}.q"]))
        self.nodes.append(
            helper.make_node("DequantizeLinear", [f"{name}.q", *given], [f"{name}.d"])
        )
        return f"{name}.d"

    def scale_of(self, name: str) -> float:
        """The scale of a value that :meth:`pair` gave."""
        stored = {tensor.name: tensor for tensor in self.stored}
        return float(numpy_helper.to_array(stored[f"{name.removesuffix('.d')}.scale"]))

    def parameter(self, name: str, shape: tuple[int, ...], scale: float, kind: str) -> str:
        """A stored constant behind a DequantizeLinear."""
        count = shape[0] if self.per_channel else 1
        extents = (count,) if self.per_channel else ()
        scales = (scale * np.linspace(1, 2, count)).astype(np.float32).reshape(extents)
        values = self.rng.integers(-100, 100, shape).astype(kind)
        arrays = {"q": values, "scale": scales, "zero": np.zeros(extents, kind)}
        names = [self.store(f"{name}.{part}", array) for part, array in arrays.items()]
        axis: dict[str, Any] = {"axis": 0} if self.per_channel else {}
        self.nodes.append(helper.make_node("DequantizeLinear", names, [name], **axis))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """An operator and the pair behind it."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return self.pair(name)

    def conv(self, data: str, name: str, channels: int, wide: int, kernel: int) -> str:
        shape = (channels, wide, kernel, kernel)
        weights = self.parameter(f"{name}.w", shape, 0.004, "int8")
        bias = self.parameter(f"{name}.b", (channels,), 0.004 * self.scale_of(data), "int32")
        pads = [kernel // 2] * 4
        return self.node("Conv", [data, weights, bias], name, pads=pads, kernel_shape=[kernel] * 2)


def network(*, per_channel: bool) -> ModelProto:
    """Convolutions with a residual connection, a pool, a classifier; weights small and large."""
    net = Quantised(per_channel=per_channel)
    first = net.conv(net.pair("x"), "c1", 8, 3, 3)
    second = net.node("Add", [net.conv(first, "c2", 8, 8, 3), first], "a")
    pooled = net.node("MaxPool", [second], "p", kernel_shape=[2, 2], strides=[2, 2])
    wide = net.conv(pooled, "c3", 96, 8, 3)
    mean = net.node("GlobalAveragePool", [wide], "g")
    flat = net.node("Flatten", [mean], "f")
    classes = [net.parameter("fc.w", (10, 96), 0.004, "int8"),
               net.parameter("fc.b", (10,), 0.0001, "int32")]  # fmt: skip
    last = net.node("Gemm", [flat, *classes], "fc", transB=1)
    graph = helper.make_graph(
        net.nodes, "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 16, 16])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [4, 10])], net.stored,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def optimised(path: Path) -> Counter[str]:
    """How often each operator is in what ONNX Runtime makes of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    made = onnx.load(options.optimized_model_filepath)
    return Counter(node.op_type for node in made.graph.node)


def schedules(model_scheduler: ModelScheduler, count: int) -> list[Schedule]:
    """The heuristic's, and those of some random settings that cut the model into parts."""
    space = Space.of(model_scheduler, subgraphs=4)
    found = [build_schedule(model_scheduler, Knobs())]
    for row in space.random(np.random.default_rng(1), DRAWS, dense=True):
        try:
            schedule = build_schedule(model_scheduler, space.knobs_of(row.tolist()))
        except KnobsError:
            continue
        if len(found) <= count and 4 < schedule.instances.count <= MOST_PARTS:
            found.append(schedule)
    assert len(found) == count + 1
    return found


TARGETS = [
    target(cores=4, lb=1 << 13, gb=1 << 16, clusters=2, weights=1 << 12),
    target(cores=2, lb=1 << 12, gb=1 << 13, weights=1 << 10),
]


@pytest.mark.parametrize(
    ("accelerator", "per_channel"),
    [
        pytest.param(TARGETS[0], False, id="two clusters, per tensor"),
        pytest.param(TARGETS[1], True, id="little room, per channel", marks=pytest.mark.full),
    ],
)
def test_what_runs_in_integers_still_does(
    accelerator: Target, per_channel: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(per_channel=per_channel), path)
    before = optimised(path)
    assert not PLAIN & before.keys()
    assert before["QLinearConv"] == 3
    for schedule in schedules(ModelScheduler(import_model(path), accelerator, "float16"), 2):
        out = write_scheduled_model(schedule, path, tmp_path / "out.onnx").file
        after = optimised(out)
        assert not PLAIN & after.keys()
        assert after["QLinearConv"] >= 3
        checked = verify_schedule(schedule, path=path)
        assert checked.findings == ()
        assert checked.numbers is not None
        assert checked.numbers.skipped is None


def test_a_wrong_layer_of_a_quantised_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(per_channel=True), path)
    schedule = schedules(ModelScheduler(import_model(path), TARGETS[0], "float16"), 1)[-1]
    passes = passes_of(schedule)
    (tmp_path / "run").mkdir()
    setup = prepare_comparison(schedule, path, tmp_path / "run", passes, 0)
    model = scheduled_model(schedule, setup.nodes, passes)
    assert compare_models(schedule, setup, model, 0).findings == ()
    nodes = (node for function in model.proto.functions for node in function.node)
    next(node for node in nodes if node.op_type == "Add").op_type = "Sub"
    findings = compare_models(schedule, setup, model, 0).findings
    assert "c3" in {finding.layer for finding in findings}  # of which the addition is a part


def test_weights_stay_quantised_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(per_channel=True), path)
    (schedule,) = schedules(ModelScheduler(import_model(path), TARGETS[0], "float16"), 0)
    out = onnx.load(write_scheduled_model(schedule, path, tmp_path / "out.onnx").file)
    real = [t for t in out.graph.initializer if t.data_type == TensorProto.FLOAT]
    assert {len(tensor.dims) for tensor in real} == {0, 1}
    assert not [node for node in out.graph.node if node.op_type == "DequantizeLinear"]


def weight_only(kind: int, blocks: int) -> ModelProto:
    """A product by a weight of a narrow type; a scale per column, or per block of the rows."""
    rng = np.random.default_rng(5)
    values = rng.integers(1, 7, 16 * 24).astype(np.float32)
    scales = rng.uniform(0.01, 0.02, (16 // blocks, 24) if blocks else 24).astype(np.float32)
    axis: dict[str, Any] = {"axis": 0, "block_size": blocks} if blocks else {"axis": 1}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], **axis),
            helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
        ],
        "weight_only",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 24])],
        [helper.make_tensor("q", kind, (16, 24), values), numpy_helper.from_array(scales, "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("blocks", [0, 8])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "FLOAT8E4M3FN", "INT8"])
def test_parts_of_narrow_weights_can_be_written(kind: str, blocks: int, tmp_path: Path) -> None:
    """Slice has no types of 4 bits and no 8-bit floats: what is made of them is cut."""
    path = tmp_path / "model.onnx"
    onnx.save(weight_only(getattr(TensorProto, kind), blocks), path)
    model_scheduler = ModelScheduler(import_model(path), TARGETS[0], "float16")
    schedule = build_schedule(model_scheduler, Knobs(instance_multiplier=4))
    checked = verify_schedule(schedule, path=path)
    assert schedule.instances.count > 1
    assert (checked.findings, checked.numbers and checked.numbers.skipped) == ((), None)
