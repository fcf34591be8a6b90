"""Cutting a graph into layers: straight lines, one learned operator, closed diamonds."""

from __future__ import annotations

import pytest

from autoturbo.graph.layers import layers_from, layers_of
from autoturbo.graph.operators import Engine, Graph
from tests.graph.graph_samples import model, workload
from tests.tiers import workloads


def kinds(graph: Graph) -> list[str]:
    """The kinds of operators of each layer."""
    return ["+".join(graph.operators[i].kind for i in x.operators) for x in layers_of(graph)]


WEIGHT = "w = RandomNormal <shape = [8, 8]> ()"


def sequence(body: str, shape: str = "2,8") -> list[str]:
    return kinds(model(f"(float[{shape}] x) => (float[{shape}] y)", body))


@pytest.mark.parametrize("name", workloads())
def test_workloads(name: str) -> None:
    """Every operator once, producers first, one matrix operator and one learned one at most."""
    graph = workload(name)
    layers = layers_of(graph)
    assert sorted(i for x in layers for i in x.operators) == list(range(len(graph.operators)))
    assert [x.index for x in layers] == list(range(len(layers)))
    owner = {i: x.index for x in layers for i in x.operators}
    made = {t for x in layers for t in x.outputs}
    for layer in layers:
        operators = [graph.operators[i] for i in layer.operators]
        assert list(layer.operators) == sorted(layer.operators)
        assert sum(o.engine is Engine.MATRIX for o in operators) <= 1
        assert sum(o.parameterised for o in operators) <= 1
        assert len(operators) == 1 or not any(o.opaque for o in operators)
        assert layer.anchor in layer.operators
        assert all(graph.tensors[t].constant for t in layer.weights)
        assert not any(graph.tensors[t].constant for t in layer.inputs)
        assert not set(layer.outputs) - set(operators[-1].outputs)
        assert set(layer.inputs) <= made | set(graph.inputs)
        for operator in operators:
            before = {graph.producer[t] for t in operator.inputs} - {-1}
            assert all(owner[p] <= layer.index for p in before)


def test_straight_lines_join() -> None:
    assert sequence("a = Relu(x) b = Neg(a) y = Exp(b)") == ["Relu+Neg+Exp"]


def test_a_second_reader_ends_a_line() -> None:
    assert sequence("a = Relu(x) b = Softmax(a) y = Add(b, a)") == ["Relu", "Softmax", "Add"]


def test_a_second_operand_ends_a_line() -> None:
    graph = model(
        "(float[2,8] x, float[2,8] z) => (float[2,8] y)", "a = Relu(x) b = Neg(z) y = Add(a, b)"
    )
    assert kinds(graph) == ["Relu", "Neg", "Add"]


def test_an_output_of_the_model_ends_a_line() -> None:
    graph = model("(float[2,8] x) => (float[2,8] a, float[2,8] y)", "a = Relu(x) y = Neg(a)")
    assert kinds(graph) == ["Relu", "Neg"]


def test_two_products_are_two_layers() -> None:
    graph = model(
        "(float[2,8] x) => (float[2,8] y)",
        f"{WEIGHT} a = MatMul(x, w) b = Relu(a) y = MatMul(b, w)",
    )
    assert kinds(graph) == ["MatMul+Relu", "MatMul"]


def test_two_learned_operators_are_two_layers() -> None:
    graph = model(
        "(float[2,8] x) => (float[2,8] y)",
        "s = RandomNormal <shape = [8]> () "
        "a = LayerNormalization(x, s) y = LayerNormalization(a, s)",
    )
    assert kinds(graph) == ["LayerNormalization", "LayerNormalization"]


def test_the_product_is_the_anchor_and_gives_the_name() -> None:
    graph = model(
        "(float[2,8] x) => (float[2,8] y)",
        f"{WEIGHT} a = Relu(x) b = MatMul(a, w) y = Sigmoid(b)",
    )
    (layer,) = layers_of(graph)
    assert graph.operators[layer.anchor].kind == "MatMul"
    assert layer.name == graph.operators[layer.anchor].name
    assert [graph.tensors[t].name for t in layer.weights] == ["w"]


def test_without_a_product_the_last_operator_is_the_anchor() -> None:
    graph = model("(float[2,8] x) => (float[2,8] y)", "a = Relu(x) y = Softmax(a)")
    (layer,) = layers_of(graph)
    assert graph.operators[layer.anchor].kind == "Softmax"


def test_silu_closes_on_itself() -> None:
    assert sequence("a = Relu(x) b = Sigmoid(a) y = Mul(a, b)") == ["Relu+Sigmoid+Mul"]


def test_a_gelu_written_out_closes() -> None:
    body = "a = Neg(x) b = Erf(a) c = Sqrt(b) d = Mul(a, c) y = Relu(d)"
    assert sequence(body) == ["Neg+Erf+Sqrt+Mul+Relu"]


def test_only_diamonds_whose_end_reads_their_start_close() -> None:
    """Two branches that both have operators of their own meet in a layer of its own."""
    body = "a = Neg(x) b = Erf(a) c = Exp(a) y = Mul(b, c)"
    assert sequence(body) == ["Neg", "Erf", "Exp", "Mul"]


def test_a_diamond_with_a_softmax_stays_open() -> None:
    """A branch that is not elementwise needs the whole of what the other branch has long passed."""
    assert sequence("a = Relu(x) b = Softmax(a) y = Mul(a, b)") == ["Relu", "Softmax", "Mul"]


def test_a_diamond_whose_inner_value_leaves_stays_open() -> None:
    graph = model(
        "(float[2,8] x) => (float[2,8] b, float[2,8] y)",
        "a = Relu(x) b = Sigmoid(a) y = Mul(a, b)",
    )
    assert kinds(graph) == ["Relu", "Sigmoid", "Mul"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Relu(x)", True),
        ("a = Relu(x) y = Neg(a)", True),
        ("y = Softmax(x)", True),
        ("one = Constant <value_int = 1> () y = CumSum(x, one)", False),
    ],
)
def test_elementwise_layers_and_rows_may_be_written_in_place(body: str, expected: bool) -> None:
    (layer,) = layers_of(model("(float[2,8] x) => (float[2,8] y)", body))
    assert layer.in_place is expected


def test_given_chains_are_sorted() -> None:
    graph = model("(float[2,8] x) => (float[2,8] y)", "a = Relu(x) b = Neg(a) y = Exp(b)")
    layers = layers_from(graph, [[2], [1, 0]])
    assert [x.operators for x in layers] == [(0, 1), (2,)]
    assert [x.index for x in layers] == [0, 1]


def test_chains_that_need_each_other_are_left_out() -> None:
    """0 and 2 in one layer, 1 between them: no order runs them, so neither comes back."""
    graph = model("(float[2,8] x) => (float[2,8] y)", "a = Relu(x) b = Neg(a) y = Exp(b)")
    assert layers_from(graph, [[0, 2], [1]]) == ()


def test_layers_of_resnet() -> None:
    """53 convolutions and a classifier, 16 sums, two poolings; ReLUs belong to what they follow."""
    graph = workload("resnet50")
    found = kinds(graph)
    assert sum(k.startswith("Conv") for k in found) == 53
    assert sum(k.startswith("Add") for k in found) == 16
    assert not any(k.startswith("Relu") for k in found)
