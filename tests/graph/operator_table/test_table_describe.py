"""The look-up, the opaque answer, and nodes that break their operator's definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph import operator_table as table
from autoturbo.graph.domain import WHOLE_DIM, AccessMap
from autoturbo.graph.operator_table import describe, supported
from autoturbo.graph.operators import Engine, Pattern
from tests.graph.operator_table.operator_harness import Described, node
from tests.tiers import spread


def test_public_names() -> None:
    assert sorted(table.__all__) == [
        "NoRowError",
        "NodeView",
        "OperatorSpec",
        "ValueView",
        "describe",
        "supported",
    ]


def test_supported_is_sorted_and_names_foreign_domains() -> None:
    names = supported()
    assert list(names) == sorted(names)
    assert {"Conv", "MatMul", "com.microsoft.FusedMatMul"} <= set(names)
    assert not {"If", "Loop", "Scan", "SequenceAt"} & set(names)


def test_the_long_name_of_the_onnx_domain_is_the_same() -> None:
    plain, long = (node("Relu", [(2, 3)], [(2, 3)], domain=domain) for domain in ("", "ai.onnx"))
    assert describe(plain) == describe(long)


@pytest.mark.parametrize(
    ("domain", "reason"),
    [("", "no row for Frobnicate"), ("com.acme", "no row for com.acme.Frobnicate")],
)
def test_an_unknown_operator_is_opaque(domain: str, reason: str) -> None:
    view = node("Frobnicate", [(2, 3), None, ()], [(2, 3), (5,)], domain=domain)
    described = Described(view)
    spec = described.spec
    assert spec.opaque == reason
    assert spec.axes == ()
    assert spec.inputs == (AccessMap((WHOLE_DIM, WHOLE_DIM)), None, AccessMap(()))
    assert spec.outputs == (AccessMap((WHOLE_DIM, WHOLE_DIM)), AccessMap((WHOLE_DIM,)))
    assert (spec.engine, spec.pattern) == (Engine.VECTOR, Pattern.OPAQUE)
    assert described.operator.vector_ops == 11
    assert described.operator.macs == 0
    assert described.reads(((0, 1), (0, 1))) == {0: ((0, 2), (0, 3)), 2: ()}


@pytest.mark.parametrize(
    ("view", "reason"),
    spread(
        [
            (node("Add", [(2, 3), (4,)], [(2, 3)]), "extent 4 does not broadcast to 3"),
            (node("Relu", [(2, 3)], [(2, 3, 1)]), "extent 2 does not broadcast to 3"),
            (node("MatMul", [(2, 3), (4, 5)], [(2, 5)]), "do not multiply"),
            (node("MatMul", [(2, 3), None], [(2, 5)]), "input 1 is missing"),
            (node("MatMul", [(2, 3), (3, 5)], [(2, 6)]), "the shape of o0 does not follow"),
            (node("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)], [(1, 4, 6, 6)]), "3 channels"),
            (node("Reshape", [(2, 3), (1,)], [(7,)]), "differ in volume"),
            (node("Softmax", [(2, 3)], [(2, 3)], axis=2), "axis 2 of 2 dimensions"),
            (node("Softmax", [(2, 3)], [(2, 3)], axis="x"), "attribute axis is not an integer"),
            (node("Concat", [(2, 3), (2, 3)], [(2, 7)], axis=1), "do not add up"),
            (node("Slice", [(9,), (1,), (1,)], [(3,)]), "is not a known constant"),
            (node("Transpose", [(2, 3)], [(3, 2)], perm=(0, 0)), "perm (0, 0)"),
            (node("Attention", [(2, 3, 4)] * 3, [(2, 3, 4)]), "not as its definition says"),
            (node("Add", [(2, 3), (2,)], [(2, 3)], opset=6, broadcast=1, axis=0), "axis attribute"),
        ],
        4,
    ),
)
def test_a_contradiction_is_opaque_and_says_why(view: table.NodeView, reason: str) -> None:
    spec = describe(view)
    assert spec.opaque is not None
    assert view.op_type in spec.opaque
    assert reason in spec.opaque


SHAPES = st.lists(st.integers(0, 6), max_size=5).map(tuple)
VALUES = st.one_of(
    st.integers(-3, 9),
    st.floats(-2, 2),
    st.text("abij,->.", max_size=8),
    st.lists(st.integers(-2, 5), max_size=6).map(tuple),
    st.binary(max_size=4),
)
NAMES = [
    "axis",
    "axes",
    "perm",
    "group",
    "kernel_shape",
    "pads",
    "strides",
    "dilations",
    "equation",
    "keepdims",
    "block_size",
    "blocksize",
    "mode",
    "transA",
    "layout",
    "num_heads",
    "q_num_heads",
    "kv_num_heads",
    "auto_pad",
    "scales",
    "size",
    "batch_dims",
    "K",
    "N",
    "split",
]
GIVEN = st.one_of(
    st.none(), SHAPES, st.lists(st.integers(-3, 6), max_size=5).map(lambda v: np.array(v, np.int64))
)


@pytest.mark.full
@settings(max_examples=600, deadline=None)
@given(
    name=st.sampled_from(supported()),
    inputs=st.lists(GIVEN, max_size=6),
    outputs=st.lists(SHAPES, min_size=1, max_size=3),
    attributes=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    opset=st.integers(1, 24),
)
def test_odd_nodes_never_raise(
    name: str,
    inputs: list[object],
    outputs: list[tuple[int, ...]],
    attributes: dict[str, object],
    opset: int,
) -> None:
    domain, _, op = name.rpartition(".")
    view = node(op, inputs, outputs, opset=opset, domain=domain)
    spec = describe(table.NodeView(op, op, domain, opset, attributes, view.inputs, view.outputs))
    assert len(spec.inputs) == len(inputs)
    assert len(spec.outputs) == len(outputs)
    if spec.opaque:
        assert spec.work.vector == sum(math.prod(shape) for shape in outputs)


def test_a_tensor_without_elements_is_described() -> None:
    described = Described(node("Add", [(0, 3), (3,)], [(0, 3)]))
    assert described.spec.opaque is None
    assert described.operator.vector_ops == 0


@pytest.mark.parametrize(
    ("view", "expected"),
    spread(
        [
            (node("LeakyRelu", [(2,)], [(2,)], alpha=0.009999999776482582), (("alpha", "0.01"),)),
            (node("Softmax", [(2, 3)], [(2, 3)], axis=1), ()),
            (
                node(
                    "AveragePool", [(1, 1, 4)], [(1, 1, 2)], kernel_shape=(3,), count_include_pad=1
                ),
                (("count_include_pad", "1"),),
            ),
            (node("Gelu", [(2,)], [(2,)], approximate=b"tanh"), (("approximate", "tanh"),)),
            (node("Trilu", [(3, 3), np.array(1)], [(3, 3)], upper=0), (("k", "1"), ("upper", "0"))),
            (
                node(
                    "LSTM",
                    [(5, 1, 2), (1, 8, 2), (1, 8, 2)],
                    [(5, 1, 1, 2)],
                    activations=("A", "B"),
                ),
                (("activations", "A,B"),),
            ),
        ],
        3,
    ),
)
def test_attributes_are_those_that_maps_do_not_show(
    view: table.NodeView, expected: tuple[tuple[str, str], ...]
) -> None:
    spec = describe(view)
    assert spec.opaque is None
    assert spec.attributes == expected
