"""Operators restricted to regions are those regions of the whole, by the right rule, or refused."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from autoturbo.graph.domain import AxisKind, Region, volume
from autoturbo.graph.model_nodes import ModelNodes, load_nodes
from autoturbo.verifier.onnx_writer.builder import GraphBuilder, stored_constants
from autoturbo.verifier.onnx_writer.partial_operator import RegionError
from autoturbo.verifier.onnx_writer.restriction import Rule, restrict
from tests.graph.operator_table.operator_cases import CASES as TABLE
from tests.graph.operator_table.operator_cases import ELEMENTWISE, REDUCTION
from tests.graph.operator_table.operator_harness import Case, ints, real
from tests.verifier.restriction_cases import CASES
from tests.verifier.restriction_harness import (
    Part,
    Whole,
    in_runtime,
    part_of,
    random_part,
    run_whole,
)

REGIONS = 8

_OF_TABLE = [case for case in TABLE if (case.op, case.attributes.get("size")) != ("LRN", 4)]
"""Even windows of LRN are in the reference alone, right for as many channels as samples only."""

_PLAIN = [*ELEMENTWISE, *REDUCTION]
"""Cases that are one where their inputs and attributes are: the rest is the same code."""

_FAST = frozenset(
    ("Relu", "Add", "MatMul", "Conv", "ConvTranspose", "MaxPool", "LRN", "Resize", "Softmax",
     "LayerNormalization", "GroupNormalization", "SimplifiedLayerNormalization", "ReduceMean",
     "Transpose", "Reshape", "Concat", "Slice", "Pad", "Expand", "Tile", "Trilu", "Gather",
     "GatherND", "ScatterElements", "DepthToSpace", "QLinearConv", "LSTM", "Attention",
     "RotaryEmbedding", "NonZero")
)  # fmt: skip
"""Operators whose first case is of the fast tier: every way of writing a part."""


def _every() -> list[Any]:
    """One case for all that are cut alike."""
    seen: set[str] = set()
    fast = set(_FAST)
    found = []
    for case in sorted([*_OF_TABLE, *CASES], key=lambda case: case.op not in _FAST):
        alike = case.label.partition("(")[2] if case in _PLAIN else case.label
        if alike not in seen:
            marks = () if case.op in fast else pytest.mark.full
            found.append(pytest.param(case, id=case.label, marks=marks))
            fast.discard(case.op)
        seen.add(alike)
    return found


def _seeded(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.label.encode()))


def _case(op: str, index: int = 0) -> Case:
    return [case for case in TABLE if case.op == op][index]


def _whole(case: Case) -> Whole:
    return run_whole(case, _seeded(case))


def _part(whole: Whole, region: Region) -> Part:
    """One part of the first output, nothing held but what it needs, no weights."""
    box = whole.described.operator.axis_region({0: region})
    part = part_of(whole, {0: region}, box, np.random.default_rng(0))
    reads = whole.described.reads(region)
    held = {
        i: reads[i] for i, given in enumerate(whole.case.inputs) if i in reads and callable(given)
    }
    return replace(part, held=held, weights=())


@pytest.mark.parametrize("case", _every())
def test_a_part_is_the_region_of_the_whole(case: Case) -> None:
    rng = _seeded(case)
    whole = run_whole(case, rng)
    assert whole.described.spec.opaque is None
    for _ in range(REGIONS):
        random_part(whole, rng).check(rng)


_COMMON = {
    "Attention", "AveragePool", "BatchNormalization", "Conv", "Einsum", "Gemm", "GlobalAveragePool",
    "GroupNormalization", "InstanceNormalization", "LayerNormalization", "MatMul", "MatMulInteger",
    "QLinearConv", "QLinearMatMul", "ReduceMean", "Relu", "Resize", "Softmax", "Transpose",
    "MatMulNBits", "SkipLayerNormalization", "QuantizeLinear", "DequantizeLinear", "Reshape",
    "Concat", "Slice", "Split", "Gather",
}  # fmt: skip


def _parts_of_parallel_axes(whole: Whole) -> list[Region]:
    """Per dimension of the first output, its two halves."""
    shape = whole.results[0].shape
    full = tuple((0, extent) for extent in shape)
    return [
        tuple(half if i == dim else all_ for i, all_ in enumerate(full))
        for dim, extent in enumerate(shape)
        if extent > 1
        for half in ((0, extent // 2), (extent // 2, extent))
    ]


_FIRST = ("Conv", "MatMul")
"""Of the common ones, the fast tier's."""

_ONE_OF_EACH = [
    pytest.param(op, marks=() if op in _FIRST else pytest.mark.full) for op in sorted(_COMMON)
]


@pytest.mark.parametrize("op", _ONE_OF_EACH)
def test_common_operators_never_do_the_work_of_the_whole(op: str) -> None:
    wholes = [_whole(case) for case in TABLE if case.op == op]
    assert wholes
    for whole, region in ((w, region) for w in wholes for region in _parts_of_parallel_axes(w)):
        box = whole.described.operator.axis_region({0: region})
        axes = zip(whole.described.spec.axes, box, strict=True)
        if all(axis.kind is not AxisKind.PARALLEL or b == (0, axis.extent) for axis, b in axes):
            continue
        assert _part(whole, region).write()[1] is not Rule.EMBEDDED


@pytest.mark.parametrize("op", _ONE_OF_EACH)
def test_a_held_region_one_element_too_small_is_refused(op: str) -> None:
    case = _case(op)
    whole = _whole(case)
    rng = _seeded(case)
    for _ in range(3):
        part = replace(random_part(whole, rng), weights=())
        reads = {i: r for i, r in _needed(part).items() if volume(r)}
        for position, need in ((i, r) for i, r in reads.items() if r):
            dim = int(rng.integers(0, len(need)))
            low, high = need[dim]
            less = (low + 1, high) if rng.random() < 0.5 else (low, high - 1)
            held = {**reads, position: (*need[:dim], less, *need[dim + 1 :])}
            with pytest.raises(RegionError, match=f"of i{position}"):
                replace(part, held=held).write()


def _needed(part: Part) -> dict[int, Region]:
    whole = part.whole
    operator, positions = whole.described.operator, whole.described.positions
    reads = {
        p: operator.input_region(i, part.box, whole.described.shape_in(p))
        for i, p in enumerate(positions)
    }
    return {p: region for p, region in reads.items() if callable(whole.case.inputs[p])}


def test_an_input_that_is_not_held_at_all_is_refused() -> None:
    part = _part(_whole(_case("Relu")), ((0, 1), (0, 3), (0, 5)))
    with pytest.raises(RegionError, match="of i0"):
        replace(part, held={}).write()


def test_a_box_smaller_than_what_is_wanted_is_refused() -> None:
    part = _part(_whole(_case("Relu")), ((0, 1), (0, 3), (0, 5)))
    with pytest.raises(RegionError, match="of o0"):
        replace(part, box=((0, 1), (0, 2), (0, 5))).write()


def test_nothing_is_written_where_nothing_is_wanted() -> None:
    part = _part(_whole(_case("Relu")), ((0, 1), (0, 3), (0, 5)))
    builder, rule = replace(part, regions={0: ((0, 0),) * 3}).write()
    assert rule is Rule.NOTHING
    assert not builder.nodes


def test_the_whole_is_the_node_of_the_file() -> None:
    case = Case("Conv", (real(1, 2, 5, 5), real(3, 2, 3, 3)), {"auto_pad": "SAME_UPPER"})
    whole = _whole(case)
    builder, rule = _part(whole, tuple((0, extent) for extent in whole.results[0].shape)).write()
    assert rule is Rule.WHOLE
    (node,) = builder.nodes
    assert [a.name for a in node.attribute] == ["auto_pad"]
    assert (list(node.input), list(node.output)) == (["i0", "i1"], ["o0"])


@pytest.mark.parametrize("op", _ONE_OF_EACH)
def test_equal_parts_are_equal_byte_for_byte(op: str) -> None:
    case = _case(op)
    whole = _whole(case)
    part = random_part(whole, _seeded(case))
    first, second = (
        [node.SerializeToString(deterministic=True) for node in part.write()[0].nodes]
        for _ in range(2)
    )
    assert first == second


def test_parts_of_equal_halo_are_equal() -> None:
    """Only positions within what is held count: two inner tiles share one function."""
    case = Case("Conv", (real(1, 2, 16, 4), real(3, 2, 3, 3)), {"pads": (1, 1, 1, 1)})
    whole = _whole(case)
    bodies = [
        _part(whole, ((0, 1), (0, 3), (low, low + 4), (0, 4))).write()[0].nodes for low in (4, 8)
    ]
    assert bodies[0] == bodies[1]


def test_one_group_is_convolved_alone() -> None:
    case = Case("Conv", (real(1, 4, 6, 6), real(6, 2, 3, 3), real(6)), {"group": 2})
    part = _part(_whole(case), ((0, 1), (4, 5), (0, 4), (0, 4)))
    builder, rule = part.write()
    convolution = next(node for node in builder.nodes if node.op_type == "Conv")
    groups = [a.i for a in convolution.attribute if a.name == "group"]
    assert (rule, groups) == (Rule.SLIDING_WINDOW, [1])
    assert part.held[0][1] == (2, 4)


def test_padding_is_explicit_at_the_edges_and_absent_inside() -> None:
    case = Case("Conv", (real(1, 1, 9, 9), real(1, 1, 3, 3)), {"auto_pad": "SAME_UPPER"})
    whole = _whole(case)
    pads = []
    for low, high in ((0, 3), (3, 6), (6, 9)):
        builder, _ = _part(whole, ((0, 1), (0, 1), (low, high), (0, 9))).write()
        node = next(node for node in builder.nodes if node.op_type == "Conv")
        pads.append(next(list(a.ints) for a in node.attribute if a.name == "pads"))
        assert not any(a.name == "auto_pad" for a in node.attribute)
    assert pads == [[1, 1, 0, 1], [0, 1, 0, 1], [0, 1, 1, 1]]


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


EXAMPLES = settings(max_examples=30, deadline=None)
EXTENTS = st.integers(1, 5)
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**16)

DRAWN_PARTS = 4


def _check(case: Case, seed: int) -> set[Rule]:
    rng = np.random.default_rng(seed)
    whole = run_whole(case, rng)
    assert whole.described.spec.opaque is None
    return {random_part(whole, rng).check(rng) for _ in range(DRAWN_PARTS)}


def _window(data: st.DataObject, source: int) -> tuple[int, int, int, tuple[int, int]]:
    """Kernel, stride, dilation and padding of one dimension."""
    kernel, stride, dilation = (data.draw(st.integers(1, 3)) for _ in range(3))
    pads = (data.draw(st.integers(0, kernel - 1)), data.draw(st.integers(0, kernel - 1)))
    assume(source + sum(pads) >= (kernel - 1) * dilation + 1)
    return kernel, stride, dilation, pads


@pytest.mark.full
@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_convolutions(data: st.DataObject, seed: int) -> None:
    groups, inner, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    (kh, sh, dh, ph), (kw, sw, dw, pw) = _window(data, 7), _window(data, 5)
    attributes: dict[str, object] = {
        "group": groups, "strides": (sh, sw), "dilations": (dh, dw),
        "pads": (ph[0], pw[0], ph[1], pw[1]),
    }  # fmt: skip
    inputs = (real(2, groups * inner, 7, 5), real(groups * outer, inner, kh, kw))
    _check(Case("Conv", inputs, attributes, runtime=True), seed)


@pytest.mark.full
@EXAMPLES
@given(data=st.data(), op=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]), seed=SEEDS)
def test_pools(data: st.DataObject, op: str, seed: int) -> None:
    kernel, stride, dilation, pads = _window(data, 9)
    attributes: dict[str, object] = {
        "kernel_shape": (kernel,), "strides": (stride,), "dilations": (dilation,), "pads": pads,
        "ceil_mode": int(data.draw(st.booleans())),
    }  # fmt: skip
    if op == "AveragePool":
        attributes["count_include_pad"] = int(data.draw(st.booleans()))
    _check(Case(op, (real(2, 3, 9),), attributes, 19, runtime=True), seed)


@pytest.mark.full
@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_padding_that_follows_from_the_extents(data: st.DataObject, seed: int) -> None:
    stride = data.draw(st.integers(1, 3))
    kernel = data.draw(st.integers(stride, 4))  # a pool that leaves positions out does not run
    rule = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    extent = data.draw(st.integers(4, 9))
    attributes: dict[str, object] = {"strides": (stride,), "auto_pad": rule}
    inputs = (real(2, 3, extent), real(4, 3, kernel))
    _check(Case("Conv", inputs, attributes, runtime=True), seed)
    attributes["kernel_shape"] = (kernel,)
    for op in ("MaxPool", "AveragePool"):
        _check(Case(op, (real(2, 3, extent),), attributes, runtime=True), seed)


@pytest.mark.full
@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_reshapes(data: st.DataObject, seed: int) -> None:
    factors = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = data.draw(st.permutations(factors))
    source, target = (_joined(data, values) for values in (factors, order))
    assert math.prod(source) == math.prod(target)
    case = Case("Reshape", (real(*source), ints(*target)), runtime=True)
    assert _check(case, seed) <= {Rule.DATA_MOVEMENT, Rule.WHOLE}


def _joined(data: st.DataObject, factors: list[int]) -> tuple[int, ...]:
    """A shape whose dimensions are products of neighbouring factors."""
    shape = [1]
    for factor in factors:
        if data.draw(st.booleans()):
            shape.append(factor)
        else:
            shape[-1] *= factor
    return tuple(shape)


@pytest.mark.full
@EXAMPLES
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_repetitions(data: st.DataObject, shape: tuple[int, ...], seed: int) -> None:
    copies = [data.draw(st.integers(1, 3)) for _ in shape]
    _check(Case("Tile", (real(*shape), ints(*copies)), runtime=True), seed)
    wide = [extent if extent > 1 else data.draw(EXTENTS) for extent in shape]
    case = Case("Expand", (real(*shape), ints(2, *wide)), runtime=True)
    assert _check(case, seed) <= {Rule.PARALLEL_AXES, Rule.WHOLE}
