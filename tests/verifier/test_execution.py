from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoturbo.errors import UnrunnableError
from autoturbo.extras import how_to_install
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.execution import open_session, run, with_outputs
from tests.verifier.verify_samples import Writer, cnn, saved

if TYPE_CHECKING:
    from pathlib import Path

ONES = {"x": np.ones((2, 3, 32, 32), np.float32)}


def small(kind: str, element: int, **attributes: Any) -> onnx.ModelProto:
    """A model of one node named ``only`` that reads ``x`` and makes ``y``."""
    value = helper.make_tensor_value_info
    node = helper.make_node(kind, ["x"], ["y"], name="only", **attributes)
    graph = helper.make_graph([node], "g", [value("x", element, [4])], [value("y", element, [4])])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_a_model_gives_its_outputs_by_name(tmp_path: Path) -> None:
    session = open_session(saved(cnn(Writer()), tmp_path / "m.onnx"))
    outputs = run(session, ONES)
    assert {name: value.shape for name, value in outputs.items()} == {"y": (2, 10)}


def test_the_numbers_are_the_same_every_time(tmp_path: Path) -> None:
    path = saved(cnn(Writer()), tmp_path / "m.onnx")
    first, second = (run(open_session(path), ONES)["y"] for _ in range(2))
    assert np.array_equal(first, second)


def test_values_inside_become_outputs_and_may_be_asked_for_alone(tmp_path: Path) -> None:
    model = cnn(Writer())
    inside = [node.output[0] for node in model.graph.node if node.op_type in ("Conv", "MaxPool")]
    session = open_session(saved(with_outputs(model, [*inside, "y"]), tmp_path / "m.onnx"))
    assert list(run(session, ONES)) == [*inside, "y"]
    assert list(run(session, ONES, inside[-1:])) == inside[-1:]
    assert [value.name for value in model.graph.output] == ["y"]


def test_nodes_are_run_as_written(tmp_path: Path) -> None:
    """Optimisation would fuse the bias into the product and drop the identity."""
    model = cnn(Writer())
    inside = [name for node in model.graph.node for name in node.output]
    session = open_session(saved(with_outputs(model, inside), tmp_path / "m.onnx"))
    assert len(run(session, ONES)) == len(model.graph.node)


def test_an_operator_that_the_runtime_lacks_is_named(tmp_path: Path) -> None:
    model = small("Frobnicate", TensorProto.FLOAT)
    model.graph.node[0].domain = "acme"
    path = saved(model, tmp_path / "m.onnx")
    with pytest.raises(UnrunnableError, match="Frobnicate") as caught:
        open_session(path)
    assert caught.value.at.file == path
    assert "ONNXRuntimeError" not in str(caught.value)


def test_a_type_that_the_runtime_lacks_is_named_with_the_operator(tmp_path: Path) -> None:
    path = saved(small("Erf", TensorProto.BFLOAT16), tmp_path / "m.onnx")
    with pytest.raises(UnrunnableError, match="Erf"):
        open_session(path)


def test_a_node_that_fails_on_the_way_is_named(tmp_path: Path) -> None:
    model = small("Gather", TensorProto.FLOAT)
    model.graph.node[0].input.append("i")
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [4]))
    session = open_session(saved(model, tmp_path / "m.onnx"))
    feeds = {"x": np.zeros(4, np.float32), "i": np.full(4, 9)}
    with pytest.raises(UnrunnableError, match="'only'"):
        run(session, feeds)


def test_without_the_runtime_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UnrunnableError) as caught:
        open_session(tmp_path / "m.onnx")
    assert how_to_install("verify") in str(caught.value.hint)
    assert caught.value.exit_status == 1


def test_indices_beside_the_file_are_those_that_the_schedule_was_made_for(tmp_path: Path) -> None:
    """As torch exports relative positions: real indices, not drawn ones, pick alike per row."""
    indices = np.broadcast_to(np.arange(15, 7, -1), (8, 8))
    graph = helper.make_graph(
        [helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1)],
        "turned",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 8])],
        [numpy_helper.from_array(np.ascontiguousarray(indices, np.int64), "i")],
    )
    path = tmp_path / "m.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    model_scheduler = ModelScheduler(import_model(path), load_target("stcp920"), "float16")
    checked = verify_schedule(build_schedule(model_scheduler, Knobs()), path=path)
    assert (checked.findings, checked.numbers and checked.numbers.skipped) == ((), None)
