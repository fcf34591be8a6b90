"""A weight that the file stores once counts once, however many nodes make views of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from autoturbo.commands.model_facts import model_facts
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.bound import lower_bound, weight_bytes
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

SIDE, READERS = 64, 12
WHOLE = SIDE * SIDE

View = Callable[[int], list[NodeProto]]
"""Nodes that make the weight ``v<k>`` of a reader from what is stored."""


def chain(*kinds: str, scale: str = "s") -> View:
    """Return views made by nodes of some kinds one after another."""
    given: dict[str, dict[str, Any]] = {
        "Transpose": {"perm": [1, 0]}, "Cast": {"to": TensorProto.FLOAT},
        "Reshape": {}, "Identity": {}, "DequantizeLinear": {}, "QuantizeLinear": {}, "Slice": {},
    }  # fmt: skip
    more = {"DequantizeLinear": [scale], "QuantizeLinear": [scale], "Reshape": ["square"]}

    def nodes(k: int) -> list[NodeProto]:
        names = ["W", *(f"t{k}_{i}" for i in range(1, len(kinds))), f"v{k}"]
        return [
            helper.make_node(kind, [names[i], *(one.format(k=k) for one in more.get(kind, []))],
                             [names[i + 1]], **given[kind])
            for i, kind in enumerate(kinds)
        ]  # fmt: skip

    return nodes


def parts(step: int) -> View:
    """Return views of some rows of the weight, ``step`` further down for each reader."""

    def nodes(k: int) -> list[NodeProto]:
        begin, end = (
            helper.make_node("Constant", [], [f"{name}{k}"], value_ints=[at])
            for name, at in (("b", k * step), ("e", k * step + SIDE))
        )
        return [begin, end, helper.make_node("Slice", ["W", f"b{k}", f"e{k}"], [f"v{k}"])]

    return nodes


def model(path: Path, view: View, rows: int = SIDE, dtype: type = np.float32) -> Graph:
    """Return a line of products by views of one weight."""
    rng = np.random.default_rng(0)
    stored = {
        "W": rng.integers(-9, 9, (rows, SIDE)).astype(dtype),
        "s": np.full((), 0.1, np.float32), "square": np.array([SIDE, SIDE]),
        **{f"s{k}": rng.random(SIDE, np.float32) for k in range(READERS)},
    }  # fmt: skip
    nodes = [node for k in range(READERS) for node in view(k)]
    for k in range(READERS):
        ends = (f"h{k - 1}" if k else "x", "y" if k == READERS - 1 else f"h{k}")
        nodes.append(helper.make_node("MatMul", [ends[0], f"v{k}"], [ends[1]]))
    graph = helper.make_graph(
        nodes, "shared", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, SIDE])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return import_model(path)


VIEWS = {
    "transposed": (chain("Transpose"), np.float32, 4 * WHOLE),
    "cast": (chain("Cast"), np.float16, 4 * WHOLE),
    "dequantised": (chain("DequantizeLinear"), np.int8, WHOLE + 4),
    "scaled apart": (
        chain("DequantizeLinear", scale="s{k}"), np.int8, WHOLE + 4 * SIDE * READERS
    ),
    "dequantised, rearranged": (
        chain("Transpose", "DequantizeLinear", "Reshape", "Transpose"), np.int8, WHOLE + 4
    ),
    "quantised and back": (
        chain("Reshape", "QuantizeLinear", "DequantizeLinear"), np.float32, WHOLE + 4
    ),
    "as it is": (chain("Identity"), np.float32, 4 * WHOLE),
}  # fmt: skip


@pytest.mark.parametrize("case", VIEWS)
def test_bytes_of_views_count_once(case: str, tmp_path: Path) -> None:
    view, dtype, stored = VIEWS[case]
    found = model(tmp_path / "model.onnx", view, dtype=dtype)
    assert model_facts(found)["weight_bytes"] == pytest.approx(stored, rel=0.01)
    assert weight_bytes(found, "float32") == pytest.approx(stored, rel=0.01)


@pytest.mark.parametrize(
    ("step", "rows"), [(SIDE, SIDE * READERS), (1, SIDE + READERS - 1), (0, SIDE)]
)
def test_parts_count_once(step: int, rows: int, tmp_path: Path) -> None:
    """Beside each other, over each other, one part many times."""
    found = model(tmp_path / "model.onnx", parts(step), rows)
    assert weight_bytes(found, "float32") == 4 * rows * SIDE


@pytest.mark.parametrize("case", VIEWS)
@pytest.mark.parametrize("preset", ["goya", "stcp920"])
def test_no_schedule_beats_the_bound(case: str, preset: str, tmp_path: Path) -> None:
    view, dtype, _ = VIEWS[case]
    graph, target = model(tmp_path / "model.onnx", view, dtype=dtype), load_target(preset)
    compute = "int8" if preset == "goya" else "float16"
    found = Evaluator(graph, target, compute).evaluate(Knobs())
    assert isinstance(found, Measurement)
    assert found.latency >= lower_bound(graph, target, compute).seconds
    assert found.ddr_bytes >= weight_bytes(graph, compute)


MIXED = (
    ("DequantizeLinear",), ("Transpose", "DequantizeLinear"), ("Cast",), ("Cast", "Transpose"),
    ("DequantizeLinear", "Transpose", "Reshape"),
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(kinds=st.lists(st.sampled_from(MIXED), min_size=READERS, max_size=READERS))
def test_views_of_all_kinds_take_the_bytes_of_the_widest(kinds: list[tuple[str, ...]]) -> None:
    target = load_target("goya")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        alone = [
            weight_bytes(model(file, chain(*kind), dtype=np.int8), "float32") for kind in set(kinds)
        ]
        graph = model(file, lambda k: chain(*kinds[k])(k), dtype=np.int8)
    assert max(alone) <= weight_bytes(graph, "float32") <= max(alone) + 4  # and a scale
    found = Evaluator(graph, target, "float32").evaluate(Knobs())
    assert isinstance(found, Measurement)
    assert found.bound.seconds <= found.latency
    assert weight_bytes(graph, "float32") <= found.ddr_bytes
