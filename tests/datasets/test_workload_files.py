from __future__ import annotations

import filecmp
from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest

from autoturbo.datasets import workloads
from tests import tiers
from tests.datasets.workload_macs import REFERENCES, graph_macs, reference_macs, shapes_of

ALL = workloads.names()
WITH_REFERENCE = [name for name in ALL if workloads.get(name).macs_reference]
FILE_LIMIT = 1_000_000
INLINE_LIMIT = 1024
TABLE_LIMIT = 128 * 1024
LEGACY = {"mobilenet_v2", "googlenet", "shufflenet_v2", "whisper_base_enc"}
BERTS = {"bert_base_s128", "bert_base_s256", "bert_large_s384", "bert_base_s512"}

ONE_BATCH_ONLY = {"convnext_tiny", "vit_b16", *BERTS}
"""torch writes the batch into a table of indices, into a class token, and into BERT's mask."""

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "resnet50.onnx"


@cache
def load(name: str) -> onnx.ModelProto:
    return onnx.load(workloads.get(name).file, load_external_data=False)


def metadata(name: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in load(name).metadata_props}


def external(name: str) -> list[onnx.TensorProto]:
    tensors = load(name).graph.initializer
    return [t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL]


def place(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries["offset"]), int(entries["length"])


def size_in_bytes(tensor: onnx.TensorProto) -> int:
    count = 1
    for extent in tensor.dims:
        count *= extent
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def test_files_exist_and_are_below_a_megabyte() -> None:
    assert all(0 < workloads.get(name).file.stat().st_size < FILE_LIMIT for name in ALL)


def test_the_folder_holds_the_workloads_and_nothing_else() -> None:
    shipped = {path.name for path in workloads.MODELS_FOLDER.iterdir()}
    assert {name for name in shipped if not name.endswith(".weights.bin")} == {
        "workloads.csv",
        *(f"{name}.onnx" for name in ALL),
    }


def test_the_example_that_the_readme_tunes_is_the_resnet50_workload() -> None:
    assert not EXAMPLE.is_symlink()
    assert filecmp.cmp(EXAMPLE, workloads.get("resnet50").file, shallow=False)


@pytest.mark.parametrize("name", tiers.workloads())
def test_the_checker_accepts_the_graph(name: str) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(load(name))
    for tensor in [t for t in model.graph.initializer if place_is_external(t)]:
        shape = tuple(tensor.dims)
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
        )
        model.graph.initializer.remove(tensor)
    onnx.checker.check_model(model, full_check=True)


def place_is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


@pytest.mark.parametrize("name", tiers.workloads())
def test_every_value_has_a_static_shape(name: str) -> None:
    shapes = shapes_of(load(name))
    values = [output for node in load(name).graph.node for output in node.output if output]
    assert [value for value in values if min(shapes.get(value, (-1,)), default=1) < 1] == []


@pytest.mark.parametrize("name", tiers.workloads())
def test_the_batch_is_the_first_dimension_of_every_input_and_output(name: str) -> None:
    graph = load(name).graph
    leading = {v.type.tensor_type.shape.dim[0].dim_value for v in (*graph.input, *graph.output)}
    assert leading == {workloads.get(name).batch}


@pytest.mark.parametrize("name", tiers.workloads(without={*ALL} - {*WITH_REFERENCE}))
def test_macs_per_operator_equal_the_reference_table(name: str) -> None:
    workload = workloads.get(name)
    assert workload.macs_reference is not None
    assert graph_macs(load(name)) == reference_macs(workload.macs_reference, workload.batch)


def test_resnext_has_the_multiply_accumulates_that_are_published() -> None:
    macs = sum(size * count for (_, size), count in graph_macs(load("resnext50")).items())
    assert round(macs / workloads.get("resnext50").batch / 1e9, 2) == 4.23  # torchvision's table


def test_zfnet_has_the_feature_maps_of_its_figure() -> None:
    shapes = shapes_of(load("zfnet"))
    found = [
        shapes[node.output[0]][1:3]
        for node in load("zfnet").graph.node
        if node.op_type in ("Conv", "MaxPool")
    ]
    assert found == [
        (96, 110),
        (96, 55),
        (256, 26),
        (256, 13),
        (384, 13),
        (384, 13),
        (256, 13),
        (256, 6),
    ]


def test_bert_large_has_the_macs_of_its_definition() -> None:
    batch, length, width, inner, heads, blocks = 8, 384, 1024, 4096, 16, 24
    tokens = batch * length
    attention = batch * heads * length * length * (width // heads)
    expected = Counter(
        {
            ("product", tokens * width * width): 4 * blocks,
            ("product", attention): 2 * blocks,
            ("product", tokens * width * inner): 2 * blocks,
            ("product", batch * width * width): 1,
        }
    )
    assert graph_macs(load("bert_large_s384")) == expected


def test_every_reference_that_the_registry_names_exists() -> None:
    for name in WITH_REFERENCE:
        assert (REFERENCES / f"{workloads.get(name).macs_reference}.b1.torch_aten.csv").is_file()


@pytest.mark.parametrize("name", tiers.workloads())
def test_metadata_names_workload_seed_source_and_exporter(name: str) -> None:
    found = metadata(name)
    assert found["autoturbo.workload"] == name
    assert found["autoturbo.weights_seed"].isdigit()
    library, version = found["autoturbo.source"].split(" ")
    assert library in {"torch", "torchvision", "timm", "transformers"}
    assert version[0].isdigit()
    assert found["autoturbo.exporter"] == f"torch.onnx dynamo={name not in LEGACY}"


@pytest.mark.parametrize("name", tiers.workloads())
def test_both_exporters_leave_their_opset(name: str) -> None:
    (opset,) = load(name).opset_import
    assert (opset.domain, opset.version) == ("", 17 if name in LEGACY else 20)


@pytest.mark.parametrize("name", tiers.workloads())
def test_large_tensors_are_external_and_small_ones_inline(name: str) -> None:
    for tensor in load(name).graph.initializer:
        floating = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).kind == "f"
        limit = INLINE_LIMIT if floating else TABLE_LIMIT
        assert place_is_external(tensor) == (size_in_bytes(tensor) > limit), tensor.name


@pytest.mark.parametrize("name", tiers.workloads())
def test_external_tensors_lie_in_one_file_without_overlap(name: str) -> None:
    end = 0
    for tensor in sorted(external(name), key=lambda t: place(t)[1]):
        location, offset, length = place(tensor)
        assert location == f"{name}.weights.bin"
        assert length == size_in_bytes(tensor)
        assert offset >= end
        assert offset % 64 == 0
        end = offset + length


@pytest.mark.parametrize("name", tiers.workloads())
def test_nothing_is_left_unused(name: str) -> None:
    graph = load(name).graph
    read = {i for node in graph.node for i in node.input} | {o.name for o in graph.output}
    assert [t.name for t in graph.initializer if t.name not in read] == []
    assert [n.name for n in graph.node if not read & set(n.output)] == []


@pytest.mark.parametrize("name", tiers.workloads())
def test_no_shape_arithmetic_and_no_description_is_left(name: str) -> None:
    model = load(name)
    kinds = {node.op_type for node in model.graph.node}
    assert not kinds & {
        "Shape",
        "Size",
        "ConstantOfShape",
        "Constant",
        "Identity",
        "If",
        "Loop",
    }
    assert all(not n.doc_string and not n.metadata_props for n in model.graph.node)
    assert not model.graph.value_info


@pytest.mark.parametrize("name", tiers.workloads())
def test_reshapes_hold_no_batch_that_could_be_left_out(name: str) -> None:
    model = load(name)
    batch = workloads.get(name).batch
    shapes = shapes_of(model)
    targets = {
        t.name: onnx.numpy_helper.to_array(t)
        for t in model.graph.initializer
        if not place_is_external(t)
    }
    for node in model.graph.node:
        if node.op_type == "Reshape" and shapes[node.input[0]][0] == batch:
            assert targets[node.input[1]][0] <= 0, node.name


@pytest.mark.parametrize("name", tiers.workloads(without=ONE_BATCH_ONLY))
def test_shapes_come_out_right_at_another_batch(name: str) -> None:
    batch = 2 * workloads.get(name).batch + 1
    model = onnx.ModelProto()
    model.CopyFrom(load(name))
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    shapes = shapes_of(model)
    for value in load(name).graph.output:
        at_workloads_batch = [d.dim_value for d in value.type.tensor_type.shape.dim]
        assert shapes[value.name] == (batch, *at_workloads_batch[1:])
