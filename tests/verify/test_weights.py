from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from verify_samples import SAMPLES, Writer, cnn, saved

from autoturbo.datasets import workloads
from autoturbo.verify.execution import open_session, run
from autoturbo.verify.inputs import random_inputs
from autoturbo.verify.weights import DATA_FILE, seeded_weights, with_weights

if TYPE_CHECKING:
    from pathlib import Path


def loaded(model: ModelProto, folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """The weights of a model as they are read back through its data file."""
    path = saved(with_weights(model, seeded_weights(model, folder, seed)), folder / "m.onnx")
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def of_one_node(node: Any, *stored: TensorProto) -> ModelProto:
    return helper.make_model(helper.make_graph([node], "one", [], [], stored))


def missing(name: str, element: int, *dims: int) -> TensorProto:
    tensor = TensorProto(name=name, dims=dims, data_type=element)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nowhere.bin")
    return tensor


def test_weights_are_the_same_for_a_seed_and_differ_between_seeds(tmp_path: Path) -> None:
    found = []
    for run_number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(run_number)
        folder.mkdir()
        found.append(loaded(cnn(Writer()), folder, seed)["w0"])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_values_depend_on_the_name_and_not_on_what_else_is_stored(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    other = helper.make_node("MatMul", ["z", "v"], ["u"])
    alone = of_one_node(node, missing("w", TensorProto.FLOAT, 40, 50))
    both = of_one_node(node, missing("w", TensorProto.FLOAT, 40, 50))
    both.graph.node.insert(0, other)
    both.graph.initializer.insert(0, missing("v", TensorProto.FLOAT, 40, 50))
    first = loaded(alone, tmp_path)["w"]
    second = loaded(both, tmp_path)
    assert np.array_equal(first, second["w"])
    assert not np.array_equal(first, second["v"])


def test_the_file_is_written_once_and_any_model_may_refer_to_it(tmp_path: Path) -> None:
    model = cnn(Writer())
    weights = seeded_weights(model, tmp_path, 3)
    written = (tmp_path / DATA_FILE).stat()
    paths = [saved(with_weights(model, weights), tmp_path / f"{n}.onnx") for n in range(2)]
    feeds = random_inputs(model, 0)
    outputs = [run(open_session(path), feeds)["y"] for path in paths]
    assert np.array_equal(outputs[0], outputs[1])
    assert (tmp_path / DATA_FILE).stat().st_mtime_ns == written.st_mtime_ns
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.onnx", "1.onnx", DATA_FILE]
    assert sum(path.stat().st_size for path in paths) < written.st_size


def test_values_begin_on_pages_and_small_ones_stay_in_the_model(tmp_path: Path) -> None:
    tensors = seeded_weights(cnn(Writer()), tmp_path, 0).tensors
    outside = {
        name: {entry.key: entry.value for entry in tensor.external_data}
        for name, tensor in tensors.items()
        if tensor.data_location == TensorProto.EXTERNAL
    }
    assert outside
    assert all(int(place["offset"]) % 4096 == 0 for place in outside.values())
    assert all(np.prod(tensors[name].dims) > 128 for name in outside)
    assert any(np.prod(t.dims) <= 128 for name, t in tensors.items() if name not in outside)


def test_the_model_given_is_not_changed(tmp_path: Path) -> None:
    model = cnn(Writer())
    before = model.SerializeToString(deterministic=True)
    with_weights(model, seeded_weights(model, tmp_path, 0))
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("name", SAMPLES)
def test_activations_keep_their_magnitude(name: str, tmp_path: Path) -> None:
    model = SAMPLES[name]()
    path = saved(with_weights(model, seeded_weights(model, tmp_path, 0)), tmp_path / "m.onnx")
    outputs = run(open_session(path), random_inputs(model, 0))
    assert all(0.2 < float(np.abs(v).mean()) < 10 for v in outputs.values())
    assert all(float(v.std()) > 0.2 for v in outputs.values())


@pytest.mark.parametrize("name", ["squeezenet1_1", "shufflenet_v2", "dlrm"])
def test_networks_without_their_data_files_can_be_run(name: str, tmp_path: Path) -> None:
    model = onnx.load(workloads.get(name).file, load_external_data=False)
    path = saved(with_weights(model, seeded_weights(model, tmp_path, 0)), tmp_path / "m.onnx")
    outputs = run(open_session(path), random_inputs(model, 0))
    assert all(np.isfinite(value).all() for value in outputs.values())
    assert all(float(value.std()) > 0 for value in outputs.values())


def test_a_large_constant_becomes_an_initializer(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=missing("", TensorProto.FLOAT, 32, 10))
    model = Writer().model({"x": (4, 32)}, {"y": (4, 10)})
    model.graph.node.extend([constant, helper.make_node("MatMul", ["x", "w"], ["y"])])
    made = with_weights(model, seeded_weights(model, tmp_path, 0))
    assert [node.op_type for node in made.graph.node] == ["MatMul"]
    outputs = run(open_session(saved(made, tmp_path / "m.onnx")), random_inputs(model, 0))
    assert 0.5 < float(outputs["y"].std()) < 2
