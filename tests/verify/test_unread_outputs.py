"""Models of which some outputs of an operator are read by nobody: tuned, checked and written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, defs, numpy_helper
from schedule_samples import target

from autoturbo.commands.applying import apply_schedule
from autoturbo.graph.onnx_import import import_model
from autoturbo.tuner import tune
from autoturbo.verify import verify_schedule
from autoturbo.verify.inputs import random_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Several:
    """A node with several outputs.

    Attributes:
        node: in ONNX's text form, without its outputs; it reads ``h``, of the shape of ``x``.
        outputs: how many.
        stored: constants that it reads.
        inputs: of the model.
    """

    node: str
    outputs: int
    stored: Mapping[str, np.ndarray] = field(default_factory=dict)
    inputs: str = "float[4,3,8] x"


def _cell(gates: int) -> dict[str, np.ndarray]:
    """Weights of a recurrent operator with two hidden units."""
    shapes = {"w": (1, gates * 2, 8), "r": (1, gates * 2, 2)}
    return {name: np.random.default_rng(1).normal(size=s).astype("f") for name, s in shapes.items()}


_BRANCHES = """If (c) <
  then_branch = t () => (float[4,3,8] a, float[4,3,8] b) { a = Exp(h) b = Neg(h) },
  else_branch = e () => (float[4,3,8] d, float[4,3,8] f) { d = Neg(h) f = Abs(h) }>"""

CASES = {
    "Dropout": Several("Dropout(h)", 2),
    "DynamicQuantizeLinear": Several("DynamicQuantizeLinear(h)", 3),
    "GRU": Several("GRU <hidden_size = 2> (h, w, r)", 2, _cell(3)),
    "If": Several(_BRANCHES, 2, inputs="float[4,3,8] x, bool c"),
    "LSTM": Several("LSTM <hidden_size = 2> (h, w, r)", 3, _cell(4)),
    "LayerNormalization": Several("LayerNormalization(h, s)", 3, {"s": np.ones(8, "f")}),
    "MaxPool": Several("MaxPool <kernel_shape = [2]> (h)", 2),
    "MaxPool, apart": Several("MaxPool <kernel_shape = [2], strides = [2]> (h)", 2),
    "RNN": Several("RNN <hidden_size = 2> (h, w, r)", 2, _cell(1)),
    "Split": Several("Split <axis = 2> (h, n)", 3, {"n": np.asarray([3, 1, 4])}),
    "Split, outermost": Several("Split <axis = 0> (h, n)", 2, {"n": np.asarray([3, 1])}),
    "TopK": Several("TopK(h, n)", 2, {"n": np.asarray([3])}),
}
"""By operator type, with what is particular."""

LEFT_OUT = {
    "Attention": "its keys and values come out only where those of the past go in",
    "BatchNormalization": "has one output except in training, which ONNX Runtime does not run",
    "CausalConvWithState": "newer than ONNX Runtime",
    "LinearAttention": "newer than ONNX Runtime",
    "Loop": "has a body, as If has",
    "Scan": "has a body, as If has",
    "SequenceMap": "makes sequences",
    "SoftmaxCrossEntropyLoss": "is of training",
    "StringSplit": "makes strings",
    "Unique": "has as many elements as its data have distinct ones",
}
"""Operator types with several outputs that are not tried, and why."""


def test_every_operator_with_several_outputs_is_tried_or_left_out_with_a_reason() -> None:
    several = {s.name for s in defs.get_all_schemas() if s.max_output > 1 and not s.domain}
    assert several == {case.split(",")[0] for case in CASES} | LEFT_OUT.keys()


@dataclass(frozen=True, slots=True)
class Reading:
    """Which outputs of a node are read, and which of them by another node."""

    case: str
    read: tuple[int, ...]
    followed: frozenset[int]


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    case = draw(st.sampled_from(sorted(CASES)))
    places = st.integers(0, CASES[case].outputs - 1)
    read = draw(st.frozensets(places, min_size=1))
    return Reading(case, tuple(sorted(read)), draw(st.frozensets(st.sampled_from(sorted(read)))))


def _model(reading: Reading) -> ModelProto:
    """Relu, the node, and after some of its outputs a Cast and an Abs."""
    case = CASES[reading.case]
    nodes = [f"{', '.join(f'o{k}' for k in range(case.outputs))} = {case.node}"]
    nodes += [f"c{k} = Cast <to = 1> (o{k}) y{k} = Abs(c{k})" for k in reading.followed]
    outputs = ", ".join(f"float {'y' if k in reading.followed else 'o'}{k}" for k in reading.read)
    text = f"""<ir_version: 8, opset_import: ["": 17]>
      g ({case.inputs}) => ({outputs}) {{ h = Relu(x) {" ".join(nodes)} }}"""
    model = onnx.parser.parse_model(text)
    stored = [numpy_helper.from_array(array, name) for name, array in case.stored.items()]
    model.graph.initializer.extend(stored)
    for value in model.graph.output:
        value.ClearField("type")
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v for v in inferred.graph.output}
    for value in model.graph.output:
        value.CopyFrom(types[value.name])
    return model


def _holds(reading: Reading, folder: Path) -> None:
    """Tune, check and apply the model; what is written gives the same numbers."""
    model = _model(reading)
    path = folder / "model.onnx"
    onnx.save(model, path)
    graph = import_model(path)
    result = tune(
        graph, target(cores=2, lb=1 << 14, clusters=2, weights=1 << 13), dtype="float16",
        trials=3, baselines=(), database=folder / "a.db", runs_folder=folder / "runs",
    )  # fmt: skip
    schedule = result.best.schedule
    checked = verify_schedule(schedule, path=path)
    assert checked.findings == ()
    assert checked.numbers is not None
    assert checked.numbers.skipped is None
    written = apply_schedule(schedule, path, folder / "out.onnx").file
    onnx.checker.check_model(str(written))
    feeds = random_inputs(model, 0)
    original, applied = (onnxruntime.InferenceSession(str(p)) for p in (path, written))
    assert [v.name for v in applied.get_outputs()] == [v.name for v in original.get_outputs()]
    for want, got in zip(original.run(None, feeds), applied.run(None, feeds), strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["TopK", "MaxPool"])
def test_the_last_operator_s_first_output_may_be_unread(kind: str, tmp_path: Path) -> None:
    reading = Reading(kind, (1,), frozenset())
    assert len(import_of(reading, tmp_path)) == 1
    _holds(reading, tmp_path)


def import_of(reading: Reading, folder: Path) -> tuple[int, ...]:
    """The outputs that the graph's operator of several outputs has."""
    onnx.save(_model(reading), folder / "model.onnx")
    return import_model(folder / "model.onnx").operators[1].outputs


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reading=readings())
def test_any_outputs_may_be_unread(
    reading: Reading, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _holds(reading, tmp_path_factory.mktemp("unread"))


@pytest.mark.long
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reading=readings())
def test_any_outputs_of_many_models_may_be_unread(
    reading: Reading, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _holds(reading, tmp_path_factory.mktemp("unread"))
