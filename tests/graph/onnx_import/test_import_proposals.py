"""What messages propose leads on: to a graph, or to another proposal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from onnx import ModelProto

from autoturbo.errors import ModelError
from tests.graph.onnx_import.import_models import (
    BOOL,
    INT64,
    Load,
    follow,
    graph,
    ints,
    model,
    node,
    out_shapes,
    scalar,
    value,
    weight,
)


def detector(batch: str | None, states: str | int | None) -> ModelProto:
    """A voice detector: the rate of the samples chooses a branch, each with a recurrence."""

    def branch(name: str, *before: Any) -> Any:
        nodes = [
            *before,
            node("Transpose", [f"{name}_x"], [f"{name}_t"], perm=[1, 0, 2]),
            node("Gather", ["state", "zero"], [f"{name}_h"], axis=0),
            node("Gather", ["state", "one"], [f"{name}_c"], axis=0),
            node("Unsqueeze", [f"{name}_h", "first"], [f"{name}_h0"]),
            node("Unsqueeze", [f"{name}_c", "first"], [f"{name}_c0"]),
            node(
                "LSTM", [f"{name}_t", "w", "r", "", "", f"{name}_h0", f"{name}_c0"],
                [f"{name}_y"], hidden_size=4, name=f"{name}_lstm",
            ),
        ]  # fmt: skip
        return graph(nodes, [], [value(f"{name}_y", None)])

    fast = branch("fast", node("Identity", ["x"], ["fast_x"]))
    slow = branch("slow", node("Concat", ["x", "x"], ["slow_x"], axis=1))
    nodes = [
        node("Equal", ["sr", "rate"], ["fast"]),
        node("If", ["fast"], ["y"], name="choice", then_branch=fast, else_branch=slow),
    ]
    inputs = [
        value("x", [batch, 6, 4]), value("state", [2, states, 4]), value("sr", [], INT64)
    ]  # fmt: skip
    stored = [
        scalar("rate", 16000), scalar("zero", 0), scalar("one", 1), ints("first", 0),
        weight("w", 1, 16, 4), weight("r", 1, 16, 4),
    ]  # fmt: skip
    return model(nodes, inputs, [value("y", ["t", 1, "b", 4])], stored)


@pytest.mark.parametrize(
    ("batch", "states"), [("n", "m"), (None, None), ("n", None), (None, "m"), ("n", 1)]
)
def test_the_batch_of_a_state_is_taken_from_the_other_input(
    batch: str | None, states: str | int | None, load: Load
) -> None:
    said = follow(load, detector(batch, states))
    assert "128" not in " ".join(said)
    assert "--value sr=1 (or 0)" in said[-1]


def test_a_state_of_other_samples_is_proposed_as_a_shape(load: Load) -> None:
    with pytest.raises(ModelError) as caught:
        load(detector("n", 1), batch=3, values={"sr": [1]})
    assert caught.value.at.field == "slow_lstm"
    assert str(caught.value.hint).endswith("--shape state=2,3,4")
    load(detector("n", 1), batch=3, shapes={"state": [2, 3, 4]}, values={"sr": [1]})


def test_a_state_that_is_no_input_is_not_called_one(load: Load) -> None:
    nodes = [
        node("Add", ["a", "b"], ["inner"]),
        node("LSTM", ["x", "w", "r", "", "", "inner"], ["y"], hidden_size=4, name="lstm"),
    ]
    inputs = [value("x", [5, 3, 4]), value("a", [1, 2, 4]), value("b", [1, 2, 4])]
    made = model(nodes, inputs, [value("y", None)], [weight("w", 1, 16, 4), weight("r", 1, 16, 4)])
    with pytest.raises(ModelError) as refused:
        load(made)
    assert "inner" not in str(refused.value)
    assert "--shape" not in str(refused.value)


@pytest.mark.parametrize(("rate", "branch"), [(16000, "then"), (8000, "else"), (0, "else")])
def test_a_value_chooses_a_branch_and_a_note_says_which(rate: int, branch: str, load: Load) -> None:
    result = load(detector("n", 1), batch=1, values={"sr": [rate]})
    assert f"--value sr={rate} takes the {branch} branch of choice" in result.notes
    assert out_shapes(result) == [(6 if branch == "then" else 12, 1, 1, 4)]


def test_a_branch_that_shapes_choose_is_no_choice_of_the_user(load: Load) -> None:
    one = graph([node("Exp", ["x"], ["v"])], [], [value("v", None)])
    two = graph([node("Neg", ["x"], ["u"])], [], [value("u", None)])
    nodes = [
        node("Size", ["x"], ["size"]),
        node("Equal", ["size", "six"], ["flag"]),
        node("If", ["flag"], ["y"], then_branch=one, else_branch=two),
    ]
    made = model(nodes, [value("x", [2, 3])], [value("y", None)], [scalar("six", 6)])
    assert load(made).notes == ()


X = value("x", [2, 6])

HANGING: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "Range": (
        [node("Range", ["zero", "n", "one"], ["p"]), node("Add", ["p", "one"], ["y"])],
        [value("n", [], INT64)],
    ),
    "ConstantOfShape": ([node("ConstantOfShape", ["n"], ["y"])], [value("n", [2], INT64)]),
    "Reshape": ([node("Reshape", ["x", "n"], ["y"])], [value("n", [2], INT64)]),
    "Reshape of a part": (
        [node("Concat", ["n", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])],
        [value("n", [1], INT64)],
    ),
    "Expand": ([node("Expand", ["x", "n"], ["y"])], [value("n", [3], INT64)]),
    "TopK": ([node("TopK", ["x", "n"], ["y", "i"])], [value("n", [1], INT64)]),
    "Tile": ([node("Tile", ["x", "n"], ["y"])], [value("n", [2], INT64)]),
    "Slice": ([node("Slice", ["x", "first", "n"], ["y"])], [value("n", [1], INT64)]),
    "Pad": ([node("Pad", ["x", "n"], ["y"])], [value("n", [4], INT64)]),
    "OneHot": (
        [node("OneHot", ["places", "n", "both"], ["h"]), node("Add", ["h", "one"], ["y"])],
        [value("n", [], INT64)],
    ),
    "Resize": ([node("Resize", ["x", "", "", "n"], ["y"])], [value("n", [2], INT64)]),
    "by a sum": (
        [
            node("Add", ["n", "m"], ["sum"]),
            node("Slice", ["x", "first", "sum", "axis"], ["y"]),
        ],
        [value("n", [1], INT64), value("m", [1], INT64)],
    ),
    "trips": (
        [
            node(
                "Loop", ["n", "", "x"], ["f", "y"],
                body=graph(
                    [
                        node("Identity", ["c"], ["on"]),
                        node("Neg", ["s"], ["t"]),
                        node("Identity", ["t"], ["row"]),
                    ],
                    [value("i", [], INT64), value("c", [], BOOL), value("s", [2, 6])],
                    [value("on", [], BOOL), value("t", [2, 6]), value("row", [2, 6])],
                ),
            )
        ],
        [value("n", [], INT64)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HANGING)
def test_shapes_that_hang_on_a_value_propose_it(name: str, load: Load) -> None:
    nodes, inputs = HANGING[name]
    stored = [
        scalar("zero", 0), scalar("one", 1), ints("rest", -1), ints("first", 0), ints("axis", 1),
        ints("places", 0, 1), ints("both", 0, 1),
    ]  # fmt: skip
    made = model(
        [*nodes, node("Relu", ["x"], ["z"])], [X, *inputs],
        [value("y", None), value("z", None)], stored,
    )  # fmt: skip
    (said,) = follow(load, made)
    assert "--value n=" in said


def test_what_many_numbers_decide_is_not_asked_for(load: Load) -> None:
    nodes = [
        node("ReduceMax", ["image"], ["most"], keepdims=0),
        node("Cast", ["most"], ["count"], to=INT64),
        node("Unsqueeze", ["count", "axis"], ["n"]),
        node("ConstantOfShape", ["n"], ["y"], name="made"),
    ]
    made = model(nodes, [value("image", [8, 8])], [value("y", None)], [ints("axis", 0)])
    with pytest.raises(ModelError) as caught:
        load(made)
    assert caught.value.at.field == "made"
    assert "--value" not in str(caught.value)


def test_zero_is_a_value(load: Load) -> None:
    nodes = [node("Slice", ["x", "n", "end", "axis"], ["s"]), node("Relu", ["s"], ["y"])]
    made = model(
        nodes, [X, value("n", [1], INT64)], [value("y", None)], [ints("end", 4), ints("axis", 1)]
    )
    assert out_shapes(load(made, values={"n": [0]})) == [(2, 4)]
    kept = [node("Concat", ["past", "x"], ["k"], axis=0), node("Relu", ["k"], ["y"])]
    made = model(kept, [X, value("past", ["p", 6])], [value("y", None)])
    assert out_shapes(load(made, dims={"p": 0})) == [(2, 6)]
    made = model(kept, [X, value("past", ["p - 3", 6])], [value("y", None)])
    assert out_shapes(load(made, dims={"p": 3})) == [(2, 6)]


def test_only_names_that_are_missing_are_proposed(load: Load) -> None:
    made = model(
        [node("Relu", ["x"], ["y"])], [value("x", [1, "past", "past + seq"])], [value("y", None)]
    )
    (said,) = follow(load, made, dims={"past": 9})
    assert said.endswith("for example --dim seq=128")
