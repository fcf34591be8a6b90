"""The nine light models of the ``onnx`` package: batch and weights are written into the graph."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from autoturbo.graph.onnx_import import import_model
from tests.tiers import tiered

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

# operators, MACs per sample (matrix operators only), output shape per sample
LIGHT: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "light_bvlc_alexnet": (22, 654_560_384, (1000,)),
    "light_densenet121": (668, 2_834_161_664, (1000, 1, 1)),
    "light_inception_v1": (142, 1_431_556_352, (1000,)),
    "light_inception_v2": (371, 2_018_851_840, (1000,)),
    "light_resnet50": (176, 4_089_184_256, (1000,)),
    "light_shufflenet": (203, 124_664_528, (1000,)),
    "light_squeezenet": (65, 349_151_936, (1000, 1, 1)),
    "light_vgg19": (44, 19_632_062_464, (1000,)),
    "light_zfnet512": (22, 1_481_727_008, (1000,)),
}


def test_all_nine_are_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.onnx")} == set(LIGHT)


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("light_shufflenet", None),
        ("light_squeezenet", 2),
        ("light_zfnet512", 4),
        pytest.param("light_bvlc_alexnet", 1, marks=pytest.mark.full),
        pytest.param("light_densenet121", 2, marks=pytest.mark.full),
        pytest.param("light_inception_v1", 4, marks=pytest.mark.full),
        pytest.param("light_inception_v2", None, marks=pytest.mark.full),
        pytest.param("light_resnet50", 2, marks=pytest.mark.full),
        pytest.param("light_vgg19", 1, marks=pytest.mark.full),
    ],
)
def test_a_light_model_takes_any_batch(name: str, batch: int | None) -> None:
    operators, macs, shape = LIGHT[name]
    graph = import_model(FOLDER / f"{name}.onnx", batch=batch)
    samples = batch or 1
    assert graph.batch == samples
    assert len(graph.operators) == operators
    assert graph.macs == macs * samples
    assert [graph.tensors[index].shape for index in graph.outputs] == [(samples, *shape)]
    assert graph.name == name


@pytest.mark.parametrize(
    "name",
    tiered(["light_squeezenet"], ["light_densenet121", "light_resnet50"]),
)
def test_weights_made_by_nodes_are_constants(name: str) -> None:
    graph = import_model(FOLDER / f"{name}.onnx")
    assert len(graph.inputs) == 1
    assert not graph.opaque
    assert not graph.notes
    assert "ConstantOfShape" not in {operator.kind for operator in graph.operators}
    for operator in graph.operators:
        if operator.kind == "Conv":
            assert [graph.tensors[index].constant for index in operator.inputs[1:]] == [True] * (
                len(operator.inputs) - 1
            )
    assert all(extent > 0 for tensor in graph.tensors for extent in tensor.shape)


def test_importing_twice_gives_the_same_graph() -> None:
    path = FOLDER / "light_squeezenet.onnx"
    first, second = import_model(path), import_model(path)
    assert first == second
    assert first.hash == second.hash
    assert import_model(path, batch=2).hash != first.hash
    assert import_model(path, batch=1).hash == first.hash
