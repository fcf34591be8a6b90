"""The shipped workloads: static, covered by the operator table, and their MACs to the unit."""

from __future__ import annotations

import csv
import time
from collections import Counter
from pathlib import Path

import pytest

from autoturbo.graph.onnx_import import import_model
from tests.tiers import FAST, tiered, workloads

REPOSITORY = Path(__file__).parents[3]
MODELS = REPOSITORY / "datasets/workloads"
REFERENCES = REPOSITORY / "benchmarks/validation/references/macs"
RENAMED = {"unet": "unet_sd", "llama_prefill": "llama3_8b_block"}
"""Workloads whose reference goes by another name."""

a_model = pytest.mark.parametrize("name", workloads())


@a_model
def test_a_workload_is_static_in_order_and_has_no_opaque_operator(name: str) -> None:
    graph = import_model(MODELS / f"{name}.onnx")
    assert [operator.name for operator in graph.opaque] == []
    assert all(extent > 0 for tensor in graph.tensors for extent in tensor.shape)
    assert len({operator.name for operator in graph.operators}) == len(graph.operators)
    made = {index for operator in graph.operators for index in operator.outputs}
    read = {index for operator in graph.operators for index in operator.inputs}
    for index in read - made:
        assert graph.tensors[index].constant or index in graph.inputs
    for index, operator in enumerate(graph.operators):
        assert all(graph.producer[tensor] < index for tensor in operator.inputs)


@pytest.mark.parametrize("name", tiered(FAST, ["dlrm", "shufflenet_v2", "yolov5s_like"]))
def test_macs_scale_with_the_batch(name: str) -> None:
    own, one, three = (import_model(MODELS / f"{name}.onnx", batch=batch) for batch in (None, 1, 3))
    assert own.macs == own.batch * one.macs
    assert three.macs == 3 * one.macs
    assert len(own.operators) == len(one.operators) == len(three.operators)


@pytest.mark.parametrize("name", workloads(without=["llama_decode"]))
def test_macs_agree_with_the_reference_to_the_unit(name: str) -> None:
    reference = REFERENCES / f"{RENAMED.get(name, name)}.b1.torch_aten.csv"
    if not reference.is_file():
        pytest.skip("no reference for this workload")
    with reference.open(newline="") as file:
        counted = Counter(int(row["macs"]) for row in csv.DictReader(file))
    graph = import_model(MODELS / f"{name}.onnx", batch=1)
    ours = Counter(operator.macs for operator in graph.operators)
    counted.pop(0, None)
    ours.pop(0, None)
    assert ours == counted


@pytest.mark.full
def test_an_import_takes_time_in_proportion_to_its_operators() -> None:
    """A network of twenty times as many operators: what looks at each of each would show."""
    taken: dict[str, float] = {}
    for name in ("squeezenet1_1", "unet"):
        start = time.process_time()
        graph = import_model(MODELS / f"{name}.onnx")
        taken[name] = (time.process_time() - start) / len(graph.operators)
    assert taken["unet"] < 4 * taken["squeezenet1_1"]
