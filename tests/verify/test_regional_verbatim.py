"""Nodes that run as in the file, control flow among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from regional_harness import in_runtime

from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import ModelNodes, load_nodes
from autoturbo.verify.onnx_writer.builder import GraphBuilder, stored_constants
from autoturbo.verify.onnx_writer.partial_operator import RegionError
from autoturbo.verify.onnx_writer.restriction import Rule, restrict

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def _info(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _branch(name: str, *nodes: onnx.NodeProto) -> GraphProto:
    return helper.make_graph(nodes, name, [], [_info(name, 4)])


def _choice(path: Path, opset: int = 17) -> ModelNodes:
    """``If`` that reads a tensor, a weight and, further inside, a tensor again from outside."""
    inner = helper.make_node(
        "If", ["flag"], ["deep"],
        then_branch=_branch("p", helper.make_node("Relu", ["x"], ["p"])),
        else_branch=_branch("q", helper.make_node("Neg", ["h"], ["q"])),
    )  # fmt: skip
    nodes = [
        helper.make_node("Abs", ["x"], ["h"]),
        helper.make_node(
            "If", ["flag"], ["c"], name="choice",
            then_branch=_branch("a", inner, helper.make_node("Add", ["deep", "w"], ["a"])),
            else_branch=_branch("b", helper.make_node("Mul", ["h", "w"], ["b"])),
        ),
        helper.make_node("Exp", ["c"], ["y"]),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(RNG.normal(size=4).astype(np.float32), "w")]
    inputs = [_info("x", 4), _info("flag", kind=TensorProto.BOOL)]
    graph = helper.make_graph(nodes, "g", inputs, [_info("y", 4)], weights)
    return _loaded(graph, path, opset)


def _loaded(graph: GraphProto, path: Path, opset: int) -> ModelNodes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, path)
    return load_nodes(path)


def _index(nodes: ModelNodes, name: str) -> int:
    return [tensor.name for tensor in nodes.graph.tensors].index(name)


def _written(nodes: ModelNodes, kind: str, want: Region) -> tuple[GraphBuilder, Rule]:
    """A part of the first output of the one operator of a kind, all inputs held whole."""
    graph = nodes.graph
    place = next(i for i, operator in enumerate(graph.operators) if operator.kind == kind)
    operator = graph.operators[place]
    builder = GraphBuilder(nodes.opsets[""], layer="layer")
    real = [t for t in operator.inputs if not graph.tensors[t].constant]
    builder.regions.update({t: graph.tensors[t].whole for t in real})
    builder.regions[operator.outputs[0]] = want
    box = operator.axis_region({0: want})
    shapes = [tensor.shape for tensor in graph.tensors]
    return builder, restrict(builder, nodes.nodes[place], operator, shapes, box)


def _run(nodes: ModelNodes, builder: GraphBuilder, feeds: dict[str, Array], output: str) -> Array:
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
    given = [_info(name, *value.shape, kind=kinds[name]) for name, value in feeds.items()]
    made = [onnx.ValueInfoProto(name=output)]
    graph = helper.make_graph(
        builder.nodes, "part", given, made, stored_constants(builder.nodes, nodes.stored)
    )
    opsets = [helper.make_opsetid("", builder.opset)]
    model: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return in_runtime(model, feeds)[0]


@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_runs_with_what_it_captures(tmp_path: Path, *, flag: bool) -> None:
    nodes = _choice(tmp_path / "choice.onnx")
    builder, rule = _written(nodes, "If", ((0, 4),))
    assert rule is Rule.WHOLE
    assert "w" in builder.reads
    x = RNG.normal(size=4).astype(np.float32)
    feeds = {"x": x, "h": np.abs(x), "flag": np.array(flag)}
    w = numpy_helper.to_array(nodes.stored["w"])
    expected = np.maximum(x, 0) + w if flag else np.abs(x) * w
    np.testing.assert_allclose(_run(nodes, builder, feeds, "c"), expected, rtol=1e-6)


def test_a_part_of_what_control_flow_makes_is_cut_from_it(tmp_path: Path) -> None:
    nodes = _choice(tmp_path / "choice.onnx")
    builder, rule = _written(nodes, "If", ((1, 3),))
    assert rule is Rule.WHOLE
    x = RNG.normal(size=4).astype(np.float32)
    feeds = {"x": x, "h": np.abs(x), "flag": np.array(False)}  # noqa: FBT003
    expected = np.abs(x) * numpy_helper.to_array(nodes.stored["w"])
    np.testing.assert_allclose(_run(nodes, builder, feeds, "c"), expected[1:3], rtol=1e-6)


def test_control_flow_without_what_it_captures_is_refused(tmp_path: Path) -> None:
    nodes = _choice(tmp_path / "choice.onnx")
    place = next(i for i, o in enumerate(nodes.graph.operators) if o.kind == "If")
    operator, tensors = nodes.graph.operators[place], nodes.graph.tensors
    builder = GraphBuilder(17, regions={_index(nodes, "flag"): (), operator.outputs[0]: ((0, 4),)})
    builder.regions[_index(nodes, "h")] = ((0, 3),)
    with pytest.raises(RegionError, match="'h'"):
        restrict(builder, nodes.nodes[place], operator, [t.shape for t in tensors], ())


def test_half_precision_is_padded_and_cut(tmp_path: Path) -> None:
    kind = TensorProto.FLOAT16
    node = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2)
    given, made = _info("x", 1, 8, 2, 2, kind=kind), _info("y", 1, 2, 4, 4, kind=kind)
    nodes = _loaded(helper.make_graph([node], "g", [given], [made]), tmp_path / "d.onnx", 17)
    builder, rule = _written(nodes, "DepthToSpace", ((0, 1), (1, 2), (1, 2), (0, 4)))
    assert rule is Rule.EMBEDDED
    x = RNG.normal(size=(1, 8, 2, 2)).astype(np.float16)
    whole = x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 4)
    np.testing.assert_array_equal(_run(nodes, builder, {"x": x}, "y"), whole[:, 1:2, 1:2])
