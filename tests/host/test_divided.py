"""Where a model may be cut for this computer, and why its samples may have to stay together."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from autoturbo.host.divided import MOST_PARTS
from tests.host.host_samples import divided, residual, save


def test_parts_hold_every_operator_once_and_begin_with_products(tmp_path: Path) -> None:
    model = divided(residual(tmp_path))
    operators = model.graph.operators
    assert [i for part in model.parts for i in part] == list(range(len(operators)))
    assert 1 < len(model.parts) <= MOST_PARTS
    assert all(operators[part.start].macs for part in model.parts[1:])


def test_what_crosses_a_cut_inside_a_branch(tmp_path: Path) -> None:
    model = divided(residual(tmp_path))
    part = range(2, len(model.graph.operators))
    assert {place.name for place in model.inputs_of(part)} == {"a", "b"}
    assert [place.name for place in model.outputs_of(range(1))] == ["a"]
    assert model.inputs_of(part)[0].extents(2) == (2, 8, 12, 12)
    assert model.inputs_of(part)[0].sample_bytes == 4 * 8 * 12 * 12


@pytest.mark.parametrize(
    ("batch", "sizes"), [(8, (1, 2, 4, 8)), (7, (1, 7)), (12, (1, 2, 3, 6, 12)), (1, (1,))]
)
def test_samples_at_once_divide_the_batch(tmp_path: Path, batch: int, sizes: object) -> None:
    assert divided(residual(tmp_path), batch).sizes == sizes


def test_few_numbers_of_samples_are_tried_of_many_divisors(tmp_path: Path) -> None:
    sizes = divided(residual(tmp_path), 720).sizes
    assert sizes[-1] == 720
    assert all(b >= 1.5 * a for a, b in itertools.pairwise(sizes))


def test_obstacles_are_named(tmp_path: Path) -> None:
    mixed = [helper.make_node("Softmax", ["x"], ["y"], axis=0)]
    model = divided(save(tmp_path / "mixed.onnx", mixed, [4, 3], [4, 3]))
    assert "works across the batch" in model.obstacle
    assert model.sizes == (4,)
    assert model.parts == (range(1),)
    turned = [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])]
    model = divided(save(tmp_path / "turned.onnx", turned, [4, 3], [3, 4]))
    assert model.obstacle == "the samples of y do not lie one after another"
    constant = np.arange(12, dtype=np.float32).reshape(4, 3)
    added = [helper.make_node("Add", ["x", "c"], ["y"])]
    model = divided(save(tmp_path / "added.onnx", added, [4, 3], [4, 3], c=constant))
    assert model.obstacle == "the constant c is another one for each sample"
    alike = np.tile(constant[:1], (4, 1))
    model = divided(save(tmp_path / "alike.onnx", added, [4, 3], [4, 3], c=alike))
    assert not model.obstacle
