"""Static shapes from the file, ``--batch`` and ``--shape``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoturbo.errors import ModelError
from autoturbo.graph.batch import trace_batch
from tests.graph.onnx_import.import_models import (
    FLOAT,
    INT64,
    in_names,
    ints,
    mlp,
    model,
    node,
    out_shapes,
    scalar,
    shape_of,
    value,
    weight,
)
from tests.tiers import spread

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from tests.graph.onnx_import.import_models import Load


def pair(first: list[int | str | None], second: list[int | str | None]) -> ModelProto:
    return model(
        [node("Relu", ["a"], ["p"]), node("Relu", ["b"], ["q"])],
        [value("a", first), value("b", second)],
        [value("p", None), value("q", None)],
    )


def test_a_static_model_keeps_its_own_batch(load: Load) -> None:
    graph = load(mlp(3))
    assert (graph.batch, out_shapes(graph)) == (3, [(3, 4)])
    assert graph.notes == ()


def test_a_dynamic_batch_takes_the_number_given(load: Load) -> None:
    graph = load(mlp("N"), batch=5)
    assert (graph.batch, out_shapes(graph)) == (5, [(5, 4)])


ASSUMED = "batch 1 assumed: the file leaves it open; --batch N for another"


@pytest.mark.parametrize("first", spread(["N", "batch_size", None, -1], 2))
def test_a_batch_that_is_left_open_is_one_and_a_note_says_so(
    first: int | str | None, load: Load
) -> None:
    graph = load(mlp(first))
    assert (graph.batch, out_shapes(graph), graph.notes) == (1, [(1, 4)], (ASSUMED,))
    assert graph.hash == load(mlp(first), batch=1).hash
    assert load(mlp(first), batch=1).notes == ()


def test_a_batch_of_zero_is_taken_for_another_only_if_it_is_given(load: Load) -> None:
    with pytest.raises(ModelError) as caught:
        load(mlp(0))
    assert caught.value.at.field == "y"
    assert out_shapes(load(mlp(0), batch=3)) == [(3, 4)]


def test_names_are_given_extents_in_all_inputs_at_once(load: Load) -> None:
    made = pair(["N", "S"], ["N", 1, "S"])
    graph = load(made, dims={"N": 2, "S": 9})
    assert (out_shapes(graph), graph.notes) == ([(2, 9), (2, 1, 9)], ())
    graph = load(made, dims={"S": 9})
    assert (out_shapes(graph), graph.notes) == ([(1, 9), (1, 1, 9)], (ASSUMED,))
    assert out_shapes(load(made, batch=4, dims={"S": 9})) == [(4, 9), (4, 1, 9)]


def test_a_name_wins_over_the_batch_where_other_inputs_have_one(load: Load) -> None:
    made = pair(["N", 3], ["rows", 4])
    assert out_shapes(load(made, batch=2, dims={"rows": 7})) == [(2, 3), (7, 4)]


@pytest.mark.parametrize(
    ("computed", "extent"),
    spread(
        [
            ("S + 1", 10),
            ("2*S", 18),
            ("S - 1", 8),
            ("S - 9", 0),
            ("S//2", 4),
            ("S*(S + 1)//2", 45),
            ("s0 + S", 12),
        ],
        3,
    ),
)
def test_names_that_are_computed_follow(computed: str, extent: int, load: Load) -> None:
    made = pair([1, "S", "s0"], [1, computed])
    assert out_shapes(load(made, dims={"S": 9, "s0": 3}))[1] == (1, extent)


@pytest.mark.parametrize(
    "computed", spread(["S - 10", "S // 0", "S.real", "f(S)", "S +", "(" * 150, "S" * 300], 3)
)
def test_names_that_come_to_no_extent_are_asked_for(computed: str, load: Load) -> None:
    with pytest.raises(ModelError) as caught:
        load(pair([1, "S"], [1, computed]), dims={"S": 9})
    assert caught.value.at.field == "b"


def test_a_nameless_dimension_takes_the_batch_too(load: Load) -> None:
    assert out_shapes(load(mlp(None), batch=5)) == [(5, 4)]


def test_every_dimension_of_the_batch_s_name_follows(load: Load) -> None:
    graph = load(pair(["N", 3], [7, "N"]), batch=2)
    assert out_shapes(graph) == [(2, 3), (7, 2)]


def test_leading_dimensions_of_other_names_are_batches_too(load: Load) -> None:
    assert out_shapes(load(pair(["N", 3], ["M", 4]), batch=2)) == [(2, 3), (2, 4)]


def test_a_static_input_beside_a_dynamic_one_stays(load: Load) -> None:
    graph = load(pair(["N", 3], [1, 4]), batch=2)
    assert out_shapes(graph) == [(2, 3), (1, 4)]


def test_a_shape_sets_one_input_and_the_dimensions_of_the_same_name(load: Load) -> None:
    graph = load(pair(["N", "S"], ["N", "S"]), shapes={"a": [2, 9]})
    assert out_shapes(graph) == [(2, 9), (2, 9)]


def test_a_shape_wins_over_the_batch(load: Load) -> None:
    graph = load(pair(["N", 3], ["M", 3]), batch=8, shapes={"a": [2, 3]})
    assert out_shapes(graph) == [(2, 3), (8, 3)]


def test_a_shape_gives_a_shapeless_input_its_rank(load: Load) -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", None)], [value("y", None)])
    assert out_shapes(load(made, shapes={"x": [2, 3, 4]})) == [(2, 3, 4)]


def test_a_shape_replaces_static_extents(load: Load) -> None:
    made = model(
        [node("Conv", ["x", "w"], ["y"])],
        [value("x", [1, 3, 8, 8])],
        [value("y", [1, 4, 6, 6])],
        [weight("w", 4, 3, 3, 3)],
    )
    assert out_shapes(load(made, shapes={"x": [2, 3, 16, 16]})) == [(2, 4, 14, 14)]


def test_minus_one_means_any(load: Load) -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", [-1, 3])], [value("y", None)])
    assert out_shapes(load(made, batch=4)) == [(4, 3)]


def test_the_batch_is_the_most_common_leading_extent(load: Load) -> None:
    made = model(
        [node("Add", ["a", "b"], ["c"]), node("Gather", ["t", "i"], ["g"])],
        [value("t", [50, 4]), value("a", [6, 2]), value("b", [6, 2]), value("i", [3], INT64)],
        [value("c", None), value("g", None)],
    )
    graph = load(made)
    assert graph.batch == 6
    (note,) = graph.notes
    assert note == (
        "batch taken as 6; not all inputs begin with it (t: 50, i: 3);"
        " --batch-dim NAME or INPUT:AXIS for another"
    )
    assert out_shapes(load(made, batch=2)) == [(2, 2), (3, 4)]


def recurrent(
    x: list[int | str | None], states: list[int | str | None], *before: NodeProto, read: str = "x"
) -> ModelProto:
    """Two LSTMs one behind the other, their states cut from one tensor each."""
    stored = [weight("w", 1, 16, 4), weight("r", 1, 16, 4), ints("one", 1), ints("two", 1, 1)]
    return model(
        [
            *before,
            node("Split", ["h", "two"], ["h0", "h1"], axis=0),
            node("Split", ["c", "two"], ["c0", "c1"], axis=0),
            node("LSTM", [read, "w", "r", "", "", "h0", "c0"], ["a"], hidden_size=4, name="first"),
            node("Squeeze", ["a", "one"], ["s"]),
            node("LSTM", ["s", "w", "r", "", "", "h1", "c1"], ["b"], hidden_size=4),
            node("Squeeze", ["b", "one"], ["y"]),
        ],
        [value("x", x), value("h", states), value("c", states)],
        [value("y", None)],
        [*stored, ints("axis", 1)],
    )


def test_time_and_layers_in_front_of_the_samples_are_no_batch(load: Load) -> None:
    made = recurrent([5, 8, 4], [2, 8, 4])
    graph = load(made)
    assert (graph.batch, graph.notes, trace_batch(graph).obstacle) == (8, (), None)
    assert trace_batch(graph).tensors[graph.inputs[0]] == (1, 1)
    other = load(made, batch=16)
    assert (other.batch, out_shapes(other), shape_of(other, "h")) == (16, [(5, 16, 4)], (2, 16, 4))
    assert other.hash == load(recurrent([5, 16, 4], [2, 16, 4])).hash != graph.hash
    assert load(recurrent(["T", "N", 4], [2, "N", 4]), batch=3, dims={"T": 6}).batch == 3


def test_states_of_two_layers_beside_one_sample_are_no_batch_of_two(load: Load) -> None:
    turn = node("Transpose", ["x"], ["t"], perm=[1, 0, 2])
    made = recurrent([1, 5, 4], [2, 1, 4], turn, read="t")
    assert (load(made).batch, load(made).notes) == (1, ())
    graph = load(made, batch=4)
    assert (shape_of(graph, "x"), shape_of(graph, "c")) == ((4, 5, 4), (2, 4, 4))
    assert trace_batch(graph).obstacle is None


def test_a_sequence_without_samples_is_one(load: Load) -> None:
    turn = node("Unsqueeze", ["x", "axis"], ["t"])
    graph = load(recurrent([5, 4], [2, 1, 4], turn, read="t"))
    assert (graph.batch, graph.notes) == (1, ())


def test_states_of_other_samples_than_the_sequence_s_are_refused(load: Load) -> None:
    with pytest.raises(ModelError) as caught:
        load(recurrent([5, 8, 4], [2, 8, 4]), shapes={"x": (5, 4, 4)})
    assert caught.value.at.field == "first"


def cached(tokens: int, *cache: int) -> ModelProto:
    """A step of a decoder: keys and values of the past, layers or both of them in front."""
    return model(
        [
            node("Gather", ["words", "ids"], ["e"]),
            node("Gather", ["past_0", "zero"], ["k0"], axis=0),
            node("Gather", ["past_1", "zero"], ["k1"], axis=0),
            node("Concat", ["k0", "e"], ["a"], axis=1),
            node("Concat", ["k1", "a"], ["y"], axis=1),
        ],
        [value("ids", [tokens, 1], INT64), value("past_0", cache), value("past_1", cache)],
        [value("y", None)],
        [weight("words", 9, 4), scalar("zero", 0)],
    )


def test_where_inputs_do_not_agree_the_batch_is_not_a_cache_s(load: Load) -> None:
    graph = load(cached(1, 2, 1, 3, 4))
    assert graph.batch == 1
    (note,) = graph.notes
    assert note == (
        "batch taken as 1; not all inputs begin with it (past_0: 2, past_1: 2);"
        " --batch-dim NAME or INPUT:AXIS for another"
    )
    graph = load(cached(1, 2, 1, 3, 4), batch=4)
    assert (shape_of(graph, "ids"), shape_of(graph, "past_1")) == ((4, 1), (2, 4, 3, 4))


def test_where_inputs_do_not_agree_samples_that_can_be_followed_are_the_batch(load: Load) -> None:
    made = model(
        [node("Mul", ["scale", "x"], ["a"]), node("Add", ["a", "shift"], ["y"])],
        [value("scale", [1, 3]), value("shift", [1, 3]), value("x", [8, 3])],
        [value("y", None)],
    )
    assert load(made).batch == 8
    assert out_shapes(load(made, batch=4)) == [(4, 3)]
    given = load(made, batch=5, shapes={"x": (5, 3)})
    assert (given.batch, out_shapes(given)) == (5, [(5, 3)])


def test_scalars_have_no_batch(load: Load) -> None:
    made = model([node("Neg", ["x"], ["y"])], [value("x", [])], [value("y", [])])
    graph = load(made)
    assert (graph.batch, graph.notes) == (1, ())


def test_initializers_listed_as_inputs_are_weights(load: Load) -> None:
    made = mlp("N")
    made.ir_version = 3
    made.graph.input.extend([value("w", [8, 4]), value("b", [4])])
    graph = load(made, batch=2)
    assert in_names(graph) == ["x"]
    assert graph.notes == ()


def test_parameters_left_out_of_the_file_are_weights(load: Load) -> None:
    made = model(
        [
            node("Transpose", ["fc.weight"], ["t"]),
            node("MatMul", ["x", "t"], ["h"]),
            node("Add", ["h", "fc.bias"], ["a"]),
            node("LayerNormalization", ["a", "ln.weight", "ln.bias"], ["y"]),
        ],
        [
            value("x", ["N", 5, 8]),
            value("fc.weight", [4, 8]),
            value("fc.bias", [4]),
            value("ln.weight", [4]),
            value("ln.bias", [4]),
        ],
        [value("y", None)],
    )
    graph = load(made, batch=2)
    assert in_names(graph) == ["x"]
    assert [operator.kind for operator in graph.operators] == [
        "MatMul",
        "Add",
        "LayerNormalization",
    ]
    assert graph.notes == (
        "4 inputs without values are read only as parameters and taken for weights",
    )


def test_one_left_out_parameter_is_named(load: Load) -> None:
    made = model(
        [node("Conv", ["x", "k"], ["y"])],
        [value("x", [1, 3, 8, 8]), value("k", [4, 3, 3, 3])],
        [value("y", None)],
    )
    graph = load(made)
    assert in_names(graph) == ["x"]
    assert graph.notes == ("input 'k' is read only as a parameter and taken for a weight",)


def test_an_embedding_table_is_a_weight_beside_other_weights(load: Load) -> None:
    made = model(
        [node("Gather", ["table", "ids"], ["e"]), node("MatMul", ["e", "w"], ["y"])],
        [value("table", [100, 8]), value("ids", [2, 5], INT64), value("w", [8, 4])],
        [value("y", None)],
    )
    assert in_names(load(made)) == ["ids"]


def test_data_that_meet_other_data_are_no_weights(load: Load) -> None:
    made = model(
        [node("Gather", ["features", "edges"], ["e"])],
        [value("features", [100, 8]), value("edges", [7], INT64)],
        [value("e", None)],
    )
    assert in_names(load(made)) == ["features", "edges"]
    attention = model(
        [node("MatMul", ["q", "k"], ["y"])],
        [value("q", [2, 4, 8]), value("k", [2, 8, 4])],
        [value("y", None)],
    )
    assert in_names(load(attention)) == ["q", "k"]


def test_an_input_that_is_an_output_too_is_no_weight(load: Load) -> None:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", [2, 8]), value("w", [8, 4])],
        [value("y", None), value("w", [8, 4])],
    )
    assert in_names(load(made)) == ["x", "w"]


def test_unused_inputs_stay_in_the_signature(load: Load) -> None:
    made = mlp(2)
    made.graph.input.append(value("spare", [2, 3], FLOAT))
    graph = load(made)
    assert in_names(graph) == ["x", "spare"]
    assert shape_of(graph, "spare") == (2, 3)
