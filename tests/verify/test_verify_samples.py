from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from verify_samples import SAMPLES, halve, quantise, reordered, saved, workload

from autoturbo.graph.onnx_import import import_model
from autoturbo.verify.comparison import arithmetic_of, compare
from autoturbo.verify.execution import open_session, run, with_outputs
from autoturbo.verify.inputs import random_inputs
from autoturbo.verify.weights import seeded_weights, with_weights

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from autoturbo.graph.weight_values import Array


def outputs(model: ModelProto, path: Path) -> dict[str, Array]:
    return run(open_session(saved(model, path)), random_inputs(model, 0))


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_valid_and_understood_to_the_last_operator(name: str, tmp_path: Path) -> None:
    model = SAMPLES[name]()
    onnx.checker.check_model(model, full_check=True)
    graph = import_model(saved(model, tmp_path / "m.onnx"))
    assert [operator.name for operator in graph.operators if operator.opaque] == []


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("qdq")])
@pytest.mark.parametrize("drawn", [False, True])
def test_integers_of_quantised_samples_use_their_range(
    name: str, drawn: bool, tmp_path: Path
) -> None:
    model = SAMPLES[name]()
    if drawn:
        model = with_weights(model, seeded_weights(model, tmp_path, 0))
    integers = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    found = outputs(with_outputs(model, integers), tmp_path / "m.onnx")
    for name_of_value in integers:
        values = found[name_of_value].astype(int)
        assert np.abs(values).max() >= 10
        assert (np.abs(values) >= 127).mean() < 0.1


@pytest.fixture(name="float_network")
def _float_network(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workload at batch 2 with drawn weights."""
    model = workload(request.param, 2)
    return saved(with_weights(model, seeded_weights(model, tmp_path, 0)), tmp_path / "m.onnx")


NETWORKS = ["resnet18", "mobilenet_v2", pytest.param("swin_t", marks=pytest.mark.long)]


@pytest.mark.slow
@pytest.mark.parametrize("float_network", NETWORKS, indirect=True)
def test_large_networks_agree_with_themselves_in_another_order(float_network: Path) -> None:
    model = onnx.load(float_network, load_external_data=False)
    folder = float_network.parent
    reference = outputs(model, folder / "a.onnx")
    candidate = outputs(reordered(model), folder / "b.onnx")
    assert all(c.ok for c in compare(reference, candidate, arithmetic_of(model)))


@pytest.mark.slow
@pytest.mark.parametrize("float_network", NETWORKS, indirect=True)
def test_half_precision_networks_agree_with_themselves_in_another_order(
    float_network: Path,
) -> None:
    folder = float_network.parent
    model = onnx.load(halve(float_network, folder / "half.onnx"))
    graph = import_model(folder / "half.onnx")
    assert not any(operator.opaque for operator in graph.operators)
    reference = outputs(model, folder / "a.onnx")
    candidate = outputs(reordered(model), folder / "b.onnx")
    assert arithmetic_of(model).element == onnx.TensorProto.FLOAT16
    assert all(c.ok for c in compare(reference, candidate, arithmetic_of(model)))


@pytest.mark.slow
@pytest.mark.parametrize("float_network", NETWORKS, indirect=True)
def test_quantised_networks_are_exact_in_another_order(float_network: Path) -> None:
    folder = float_network.parent
    feeds = [random_inputs(onnx.load(float_network, load_external_data=False), s) for s in (5, 6)]
    model = onnx.load(quantise(float_network, folder / "q.onnx", feeds))
    graph = import_model(folder / "q.onnx")
    assert not any(operator.opaque for operator in graph.operators)
    drawn = with_weights(model, seeded_weights(model, folder, 1, "q.bin"))
    assert arithmetic_of(drawn).quantised
    reference = outputs(drawn, folder / "a.onnx")
    candidate = outputs(reordered(drawn), folder / "b.onnx")
    assert all(np.array_equal(reference[name], candidate[name]) for name in reference)
    assert all(float(value.std()) > 0 for value in reference.values())
