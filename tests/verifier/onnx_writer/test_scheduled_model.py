"""Scheduled models as files: valid, complete, and the same numbers; unread outputs too."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, checker, defs, numpy_helper

from autoturbo.commands.schedules.writing import apply_schedule
from autoturbo.errors import UsageError, VerifyError
from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.tuning.tuner import tune
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.findings import instance_name
from autoturbo.verifier.onnx_writer.calls import FUNCTION_DOMAIN
from autoturbo.verifier.onnx_writer.scheduled_model import (
    nodes_of,
    scheduled_model,
    write_scheduled_model,
)
from autoturbo.verifier.random_values import random_inputs
from tests.schedule.schedule_samples import Net, target
from tests.verifier.scheduled_samples import applied, image_net, row_net, scheduled, small_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import NodeProto


def _calls(model: ModelProto) -> list[NodeProto]:
    return [node for node in model.graph.node if node.domain == FUNCTION_DOMAIN]


def _facts(node: NodeProto) -> dict[str, str]:
    return {p.key.removeprefix("autoturbo."): p.value for p in node.metadata_props}


@pytest.mark.parametrize("net", [image_net, row_net], ids=["images", "rows"])
def test_a_scheduled_model_passes_the_checker_and_gives_the_same_numbers(
    net: object, tmp_path: Path
) -> None:
    schedule, path = scheduled(net(), tmp_path)  # type: ignore[operator]
    result = write_scheduled_model(schedule, path, tmp_path / "out.onnx")
    checker.check_model(str(result.file), full_check=True)
    rng = np.random.default_rng(0)
    original, found = (onnxruntime.InferenceSession(str(p)) for p in (path, result.file))
    feeds = {v.name: rng.normal(size=v.shape).astype("f") for v in original.get_inputs()}
    for want, got in zip(original.run(None, feeds), found.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert [v.name for v in found.get_outputs()] == [v.name for v in original.get_outputs()]


def test_every_instance_of_every_pass_is_a_call_in_the_order_of_the_schedule(
    tmp_path: Path,
) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    model, result = applied(schedule, path)
    calls = _calls(model)
    count = len(result.passes)
    assert count == 2
    assert len(schedule.order) > 4
    names = [instance_name(schedule, index) for index in schedule.order]
    assert [_facts(node)["instance"] for node in calls] == names * count
    assert [int(_facts(node)["order"]) for node in calls] == [*range(len(names))] * count
    assert {node.op_type for node in calls} == {function.name for function in model.functions}


def test_calls_say_where_they_run_and_where_their_buffers_are(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    calls = _calls(applied(schedule, path)[0])
    timeline = schedule.timeline
    told = 0
    for node, instance in zip(calls, schedule.order, strict=False):
        facts = _facts(node)
        assert json.loads(facts["cores"]) == list(schedule.placement.bindings[instance])
        assert facts["scope"] == schedule.placement.scopes[instance].name
        assert facts["cluster"] == "0"
        buffers = json.loads(facts["buffers"])
        own = timeline.owner == instance
        assert [b["address"] for b in buffers] == timeline.buffers.address[own].tolist()
        told += len(buffers)
    assert told == len(timeline.owner)


def test_functions_hold_the_layers_and_parts_that_are_alike_share_one(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    model, _ = applied(schedule, path)
    assert len(model.functions) < len(schedule.order)
    layers = {p.value for f in model.functions for n in f.node for p in n.metadata_props}
    assert layers == {layer.name for layer in schedule.context.layers}


def test_movements_say_what_they_are(tmp_path: Path) -> None:
    knobs = Knobs(output_scope="GB")
    schedule, path = scheduled(image_net(), tmp_path, knobs)
    model, _ = applied(schedule, path)
    found = [_facts(node) for node in model.graph.node if node.op_type == "Identity"]
    moved = [facts for facts in found if facts.get("movement")]
    assert {facts["movement"] for facts in moved} == {"copy"}
    assert {facts["from"] for facts in moved} == {"GB"}


def test_weights_are_stored_once(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    model, _ = applied(schedule, path)
    original = {t.name: t.raw_data for t in onnx.load(path).graph.initializer}
    stored = {t.name: t.raw_data for t in model.graph.initializer}
    assert len(stored) == len(model.graph.initializer)
    assert stored == {name: original[name] for name in stored}
    constants = [n for f in model.functions for n in f.node if n.op_type == "Constant"]
    largest = max((np.prod(n.attribute[0].t.dims) for n in constants), default=0)
    assert largest < 8


def _with_data_file(path: Path, folder: Path) -> Path:
    """The model with its values in a file beside it."""
    folder.mkdir()
    model = onnx.load(path)
    onnx.save(
        model, folder / "net.onnx", save_as_external_data=True, location="weights", size_threshold=0
    )
    return folder / "net.onnx"


def _locations(path: Path) -> set[str]:
    model = onnx.load(path, load_external_data=False)
    return {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _agrees(first: Path, second: Path) -> bool:
    sessions = [onnxruntime.InferenceSession(str(path)) for path in (first, second)]
    rng = np.random.default_rng(1)
    feeds = {v.name: rng.normal(size=v.shape).astype("f") for v in sessions[0].get_inputs()}
    results = [session.run(None, feeds) for session in sessions]
    return all(np.allclose(a, b, atol=1e-5) for a, b in zip(*results, strict=True))


def test_data_files_are_referred_to_beside_the_original_and_copied_elsewhere(
    tmp_path: Path,
) -> None:
    schedule, plain = scheduled(image_net(), tmp_path)
    path = _with_data_file(plain, tmp_path / "external")
    before = (tmp_path / "external" / "weights").read_bytes()
    beside = write_scheduled_model(schedule, path, path.with_name("beside.onnx"))
    elsewhere = write_scheduled_model(schedule, path, tmp_path / "elsewhere.onnx")
    assert beside.data_files == ()
    assert _locations(beside.file) == {"weights"}
    assert elsewhere.data_files == (tmp_path / "elsewhere.onnx.data",)
    assert _locations(elsewhere.file) == {"elsewhere.onnx.data"}
    assert _agrees(path, beside.file)
    assert _agrees(path, elsewhere.file)
    assert (tmp_path / "external" / "weights").read_bytes() == before


def test_a_model_without_its_data_file_is_applied_and_says_so(tmp_path: Path) -> None:
    schedule, plain = scheduled(image_net(), tmp_path)
    path = _with_data_file(plain, tmp_path / "external")
    (tmp_path / "external" / "weights").unlink()
    result = write_scheduled_model(schedule, path, path.with_name("out.onnx"))
    assert result.missing == ("weights",)
    assert _locations(result.file) == {"weights"}


def test_the_model_itself_is_not_overwritten(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        write_scheduled_model(schedule, path, path)
    assert caught.value.at.file == path
    assert path.read_bytes() == before


def test_a_baseline_that_writes_operators_out_is_refused(tmp_path: Path) -> None:
    net = Net(x=(2, 6, 8))
    net.relu(net.norm("x"))
    _, path = scheduled(net, tmp_path)
    schedule = next(candidates("tvm", ModelScheduler(net.graph(), target(), "float16")))
    with pytest.raises(VerifyError, match="tvm"):
        scheduled_model(schedule, nodes_of(schedule, path))


def test_constants_may_leave_a_model_and_inputs_be_asked_for_their_extents_alone(
    tmp_path: Path,
) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float[2,3] x, float[4,5] z) => (float[2,3] y, float n) {
        s = Size(z) n = Cast<to=1>(s) y = Add(x, n)
    }"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    model_scheduler = ModelScheduler(import_model(path), small_target(), "float16")
    found = verify_schedule(build_schedule(model_scheduler, Knobs()), path=path)
    assert found.findings == ()
    assert found.numbers is not None
    assert found.numbers.skipped is None


def test_an_output_that_is_listed_twice_is_written_once(tmp_path: Path) -> None:
    schedule, path = scheduled(row_net(), tmp_path)
    model = onnx.load(path)
    model.graph.output.append(model.graph.output[0])
    onnx.save(model, path)
    model_scheduler = ModelScheduler(import_model(path), small_target(), "float16")
    result = write_scheduled_model(
        build_schedule(model_scheduler, Knobs()), path, tmp_path / "out.onnx"
    )
    session = onnxruntime.InferenceSession(str(result.file))
    assert [v.name for v in session.get_outputs()] == [v.name for v in model.graph.output]
    assert verify_schedule(build_schedule(model_scheduler, Knobs()), path=path).ok
    assert verify_schedule(schedule, path=path).ok


@pytest.mark.parametrize("outputs", ["float[4,8] x, float[4,8] y", "float[4,8] also, float[4,8] y"])
def test_an_input_that_is_an_output_too_stays_whole(tmp_path: Path, outputs: str) -> None:
    """Clusters take parts of it, and only what nodes make is joined of parts."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    net (float[4,8] x) => ({outputs}) {{ also = Identity(x) y = Relu(x) }}"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    model_scheduler = ModelScheduler(import_model(path), small_target(), "float16")
    schedule = build_schedule(model_scheduler, Knobs())
    assert schedule.share.clusters > 1
    result = write_scheduled_model(schedule, path, tmp_path / "out.onnx")
    values = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    ours, files = (
        onnxruntime.InferenceSession(str(file)).run(None, {"x": values})
        for file in (result.file, path)
    )
    for own, want in zip(ours, files, strict=True):
        np.testing.assert_array_equal(own, want)


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


@pytest.mark.parametrize("kind", ["TopK", pytest.param("MaxPool", marks=pytest.mark.full)])
def test_the_last_operator_s_first_output_may_be_unread(kind: str, tmp_path: Path) -> None:
    reading = Reading(kind, (1,), frozenset())
    assert len(import_of(reading, tmp_path)) == 1
    _holds(reading, tmp_path)


def import_of(reading: Reading, folder: Path) -> tuple[int, ...]:
    """The outputs that the graph's operator of several outputs has."""
    onnx.save(_model(reading), folder / "model.onnx")
    return import_model(folder / "model.onnx").operators[1].outputs


@pytest.mark.full
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reading=readings())
def test_any_outputs_may_be_unread(
    reading: Reading, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _holds(reading, tmp_path_factory.mktemp("unread"))
