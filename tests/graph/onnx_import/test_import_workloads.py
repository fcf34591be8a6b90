"""The shipped workloads: static, covered by the operator table, and their MACs to the unit."""

from __future__ import annotations

import csv
import time
from collections import Counter
from pathlib import Path

import pytest

from autoturbo.graph.onnx_import import import_model

REPOSITORY = Path(__file__).parents[3]
MODELS = sorted((REPOSITORY / "autoturbo/datasets/workloads/models").glob("*.onnx"))
REFERENCES = REPOSITORY / "benchmarks/validation/references/macs"
RENAMED = {"unet": "unet_sd", "llama_prefill": "llama3_8b_block"}
"""Workloads whose reference goes by another name."""

SLOWEST_S = 5.0
"""Seconds that one import may take on a busy machine; on an idle one it is below 1."""

every_model = pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)


@every_model
def test_a_workload_is_static_and_has_no_opaque_operator(path: Path) -> None:
    start = time.process_time()
    graph = import_model(path)
    assert time.process_time() - start < SLOWEST_S
    assert [operator.name for operator in graph.opaque] == []
    assert all(extent > 0 for tensor in graph.tensors for extent in tensor.shape)
    assert len({operator.name for operator in graph.operators}) == len(graph.operators)
    made = {index for operator in graph.operators for index in operator.outputs}
    read = {index for operator in graph.operators for index in operator.inputs}
    for index in read - made:
        assert graph.tensors[index].constant or index in graph.inputs


@every_model
def test_operators_come_after_what_they_read(path: Path) -> None:
    graph = import_model(path)
    for index, operator in enumerate(graph.operators):
        assert all(graph.producer[tensor] < index for tensor in operator.inputs)


@every_model
def test_macs_scale_with_the_batch(path: Path) -> None:
    own, one, three = (import_model(path, batch=batch) for batch in (None, 1, 3))
    assert own.macs == own.batch * one.macs
    assert three.macs == 3 * one.macs
    assert len(own.operators) == len(one.operators) == len(three.operators)


@every_model
def test_macs_agree_with_the_reference_to_the_unit(path: Path) -> None:
    reference = REFERENCES / f"{RENAMED.get(path.stem, path.stem)}.b1.torch_aten.csv"
    if not reference.is_file():
        pytest.skip("no reference for this workload")
    with reference.open(newline="") as file:
        counted = Counter(int(row["macs"]) for row in csv.DictReader(file))
    graph = import_model(path, batch=1)
    ours = Counter(operator.macs for operator in graph.operators)
    counted.pop(0, None)
    ours.pop(0, None)
    assert ours == counted
