"""What ONNX Runtime's own tools write is imported, counted, scheduled and written back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoturbo.datasets.workloads import get, materialize_file
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.onnx_writer.scheduled_model import write_scheduled_model
from tests.verifier.ort_files import Decoder, bert_layer, decoder_macs, optimised

MS = "com.microsoft"


def _kinds(path: Path) -> set[str]:
    nodes = onnx.load(path, load_external_data=False).graph.node
    return {f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes}


def _check(path: Path, batch: int | None = None) -> int:
    """Its multiply-accumulates; scheduled and written, it computes the same."""
    graph = import_model(path, batch=batch)
    assert (graph.opaque, graph.uncounted) == ((), None)
    target = load_target("stcp920")
    schedule, _ = Evaluator(graph, target, target.default_dtype).scheduler("graphturbo")
    found = verify_schedule(schedule, path=path)
    assert found.findings == ()
    assert found.numbers is not None
    assert found.numbers.skipped is None
    out = path.with_suffix(".out.onnx")
    write_scheduled_model(schedule, path, out)
    written = onnx.load(out, load_external_data=False)
    imports = {one.domain for one in written.opset_import}
    used = {node.domain for function in written.functions for node in function.node}
    assert used <= imports | {"", "ai.onnx"}
    return graph.macs


@pytest.mark.parametrize(
    ("layers", "batch", "rows", "lengths"),
    [(1, 1, 4, False), (1, 2, 1, True), pytest.param(2, 2, 1, False, marks=pytest.mark.full)],
)
def test_a_decoder_of_the_generative_exporter(
    layers: int, batch: int, rows: int, tmp_path: Path, *, lengths: bool
) -> None:
    path = Decoder(layers, batch, rows, lengths=lengths).save(tmp_path / "decoder.onnx")
    assert f"{MS}.GroupQueryAttention" in _kinds(path)
    assert _check(path) == decoder_macs(layers, batch, rows)


@pytest.mark.full
def test_what_the_optimiser_writes(tmp_path: Path) -> None:
    source = materialize_file(get("squeezenet1_1").file, tmp_path / "original")
    path = optimised(source, tmp_path / "original" / "optimised.onnx")
    assert f"{MS}.FusedConv" in _kinds(path)
    macs = import_model(source, batch=1).macs
    assert _check(path, batch=1) == macs
    layer = bert_layer(tmp_path / "bert.onnx")
    path = optimised(layer, tmp_path / "optimised.onnx")
    assert {f"{MS}.SkipLayerNormalization", f"{MS}.FusedMatMul"} <= _kinds(path)
    assert _check(path, batch=2) == import_model(layer, batch=2).macs


@pytest.mark.full
def test_what_the_optimiser_of_transformers_writes(tmp_path: Path) -> None:
    pytest.importorskip("sympy")  # that optimiser needs it
    from onnxruntime.transformers import optimizer

    layer = bert_layer(tmp_path / "bert.onnx")
    found = optimizer.optimize_model(
        str(layer), model_type="bert", num_heads=12, hidden_size=768, opt_level=0
    )
    path = tmp_path / "fused.onnx"
    found.save_model_to_file(str(path))
    assert {f"{MS}.SkipLayerNormalization", f"{MS}.BiasGelu"} <= _kinds(path)
    assert _check(path, batch=2) == import_model(layer, batch=2).macs


@pytest.fixture
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.full
@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("form", ["QDQ", "QOperator", "dynamic"])
def test_what_the_quantiser_writes(form: str, tmp_path: Path) -> None:
    from onnxruntime import quantization

    made = tmp_path / "quantised.onnx"
    if form == "dynamic":
        source = bert_layer(tmp_path / "bert.onnx")
        quantization.quantize_dynamic(str(source), str(made))
        wanted = {f"{MS}.DynamicQuantizeMatMul", f"{MS}.MatMulIntegerToFloat"}
    else:
        source = materialize_file(get("squeezenet1_1").file, tmp_path)
        value = onnx.load(source, load_external_data=False).graph.input[0]
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]

        class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
            left = 1

            def get_next(self) -> dict[str, np.ndarray] | None:
                self.left -= 1
                drawn = np.random.default_rng(0).normal(size=shape).astype(np.float32)
                return {value.name: drawn} if self.left >= 0 else None

        chosen = quantization.QuantFormat[form]
        quantization.quantize_static(str(source), str(made), Images(), quant_format=chosen)
        wanted = {"QLinearConv", f"{MS}.QLinearConcat"}
    path = optimised(made, tmp_path / "optimised.onnx")
    assert wanted <= _kinds(path)
    batch = 2 if form == "dynamic" else 1
    macs = import_model(source, batch=batch).macs
    assert _check(made, batch=batch) == macs
    assert _check(path, batch=batch) == macs


@pytest.mark.parametrize("domain", ["", MS])
def test_rotary_positions_of_every_sample_are_shared_out(domain: str, tmp_path: Path) -> None:
    """A constant ``[batch, rows]`` of positions goes with the samples, or ONNX Runtime refuses."""
    batch, rows, width = 4, 6, 8
    angles = np.outer(np.arange(9), np.arange(width // 2)).astype(np.float32)
    places = np.tile(np.arange(rows), (batch, 1))
    stored = {"cos": np.cos(angles), "sin": np.sin(angles), "at": places,
              "w": np.eye(2 * width, dtype=np.float32)}  # fmt: skip
    inputs = ["m", "at", "cos", "sin"] if domain else ["m", "cos", "sin", "at"]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        onnx.helper.make_node("RotaryEmbedding", inputs, ["y"], "turn", domain=domain, num_heads=2),
    ]
    ends = [onnx.helper.make_tensor_value_info(n, 1, [batch, rows, 2 * width]) for n in "xy"]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = onnx.helper.make_graph(nodes, "rotary", ends[:1], ends[1:], tensors)
    opsets = [onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid(MS, 1)]
    path = tmp_path / "rotary.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    assert trace_batch(import_model(path)).obstacle is None
    _check(path)
