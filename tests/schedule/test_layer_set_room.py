"""The tables of layer sets have room for all that one node may add."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autoturbo.errors import ModelError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import MAX_RANK
from autoturbo.hardware import load_target
from autoturbo.schedule import layer_sets, merging
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.layer_sets import Count, LayerSets
from autoturbo.schedule.pipeline import Workbench, plan
from autoturbo.schedule.split import RETRIES

pytestmark = pytest.mark.full

_PRODUCERS = 120


def test_a_set_has_no_more_ways_than_there_is_spare_room() -> None:
    assert MAX_RANK * (RETRIES + 1) < layer_sets._SPARE


def test_a_node_of_many_producers_overruns_no_table(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each producer that is refused leaves a set of all layers merged so far."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8], [0.5] * 64)
    names = [f"p{at}" for at in range(_PRODUCERS)]
    apart = [f"q{at}" for at in range(_PRODUCERS)]  # between them, so that sets are of many rows
    pairs = zip(names, apart, strict=True)
    nodes = [helper.make_node("MatMul", ["x", "w"], [name]) for pair in pairs for name in pair]
    nodes.append(helper.make_node("Sum", names, ["y"]))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 8]) for n in ("y", *apart)]
    graph = helper.make_graph(nodes, "wide", [given], made, [weight])
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports), f"{tmp_path}/m")
    bench = Workbench(import_model(f"{tmp_path}/m"), load_target("stcp920"), "float16")
    met = []

    def noted(known: LayerSets, layers: int) -> LayerSets:
        met.append((int(known.counts[Count.MEMBERS]), len(known.members)))
        return layer_sets.grown(known, layers)

    monkeypatch.setattr(merging, "grown", noted)
    for most in range(2, _PRODUCERS, 7):
        plan(bench, Knobs(max_layers=most))
    assert met
    assert all(members <= room for members, room in met)


def test_there_are_numbers_for_every_set() -> None:
    known = layer_sets.layer_sets(np.arange(1, 5))
    known.counts[Count.SETS] = layer_sets.MOST_SETS
    with pytest.raises(ModelError, match="different sub-graphs"):
        layer_sets.grown(known, 4)
