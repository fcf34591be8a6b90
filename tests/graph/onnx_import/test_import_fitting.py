"""Open extents that go together: what is proposed fits, what does not fit is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from autoturbo.errors import ModelError
from autoturbo.graph.importer.fitting import Form, MisfitError, examples, mended, relations
from tests.graph.onnx_import.import_models import (
    Load,
    follow,
    ints,
    kinds,
    model,
    node,
    scalar,
    value,
    weight,
)

WIDTH = 8


def _layer(k: int, mask: str) -> tuple[list[NodeProto], list[ValueInfoProto]]:
    """One attention over a past and the present, its mask added, its past of symbols of its own."""
    name: Callable[[str], str] = lambda text: f"{text}{k}"  # noqa: E731 - short
    nodes = [
        node("Squeeze", [name("pk"), "one"], [name("ck")]),
        node("Squeeze", [name("pv"), "one"], [name("cv")]),
        node("Concat", [name("ck"), f"x{k}"], [name("k")], axis=1),
        node("Concat", [name("cv"), f"x{k}"], [name("v")], axis=1),
        node("Transpose", [name("k")], [name("t")], perm=[0, 2, 1]),
        node("MatMul", [f"x{k}", name("t")], [name("s")]),
        node("Add", [name("s"), mask], [name("m")], name=name("masked")),
        node("Softmax", [name("m")], [name("a")]),
        node("MatMul", [name("a"), name("v")], [f"x{k + 1}"]),
    ]
    past = [value(name(p), ["b", 1, f"s_{p}{k}", WIDTH]) for p in ("pk", "pv")]
    return nodes, past


def decoder(layers: int = 1) -> ModelProto:
    nodes = [node("Unsqueeze", ["mask", "one"], ["seen"])]
    inputs = [value("x0", ["b", "s_x", WIDTH]), value("mask", ["b", "s_mask"])]
    for k in range(layers):
        own, past = _layer(k, "seen")
        nodes += own
        inputs += past
    return model(nodes, inputs, [value(f"x{layers}", None)], [ints("one", 1)])


def attention(opset: int = 23) -> ModelProto:
    """The same as one operator, its mask of truth values."""
    nodes = [
        node("Concat", ["pk", "x"], ["k"], axis=2),
        node("Concat", ["pv", "x"], ["v"], axis=2),
        node("Unsqueeze", ["mask", "places"], ["seen"]),
        node("Attention", ["x", "k", "v", "seen"], ["y"], name="attention"),
    ]
    inputs = [
        value("x", ["b", 2, "s_x", WIDTH]), value("mask", ["b", "s_mask"], TensorProto.BOOL),
        value("pk", ["b", 2, "s_pk0", WIDTH]), value("pv", ["b", 2, "s_pv0", WIDTH]),
    ]  # fmt: skip
    return model(nodes, inputs, [value("y", None)], [ints("places", 1, 2)], opset=opset, ir=10)


def looked_up() -> ModelProto:
    """A padding mask that is looked up at the position of every key."""
    nodes = [
        node("Concat", ["pk0", "x0"], ["k"], axis=1),
        node("Shape", ["k"], ["length"], start=1, end=2),
        node("Squeeze", ["length"], ["end"]),
        node("Range", ["zero", "end", "one"], ["places"]),
        node("Gather", ["mask", "places"], ["seen"], axis=1),
        node("Unsqueeze", ["seen", "last"], ["m"]),
        node("Mul", ["k", "m"], ["y"]),
    ]
    inputs = [
        value("x0", ["b", "s_x", WIDTH]),
        value("pk0", ["b", "s_pk0", WIDTH]),
        value("mask", ["b", "s_mask"]),
    ]
    stored = [scalar("zero", 0), scalar("one", 1), ints("last", 2)]
    return model(nodes, inputs, [value("y", None)], stored)


MODELS = {
    "added": decoder(),
    "Attention of opset 23": attention(),
    "looked up": looked_up(),
    "12 layers": decoder(12),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_proposed_fits(name: str, load: Load) -> None:
    (said,) = follow(load, MODELS[name])
    assert "--dim s_mask=256" in said
    assert "--dim s_x=128" in said


@pytest.mark.parametrize("name", MODELS)
def test_what_is_proposed_fits_what_is_given(name: str, load: Load) -> None:
    (said,) = follow(load, MODELS[name], dims={"s_x": 1, "s_pk0": 9})
    assert "--dim s_mask=10" in said


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    dims=st.dictionaries(
        st.sampled_from(["b", "s_x", "s_mask", "s_pk0"]), st.integers(2, 40), max_size=4
    )
)
def test_whatever_is_given_the_proposals_lead_on(load: Load, dims: dict[str, int]) -> None:
    said = follow(load, decoder(), dims=dims)
    assert len(said) <= 2


@pytest.mark.parametrize(
    ("dims", "named"),
    [
        ({"s_x": 128, "s_mask": 128, "s_pk0": 128, "s_pv0": 128}, "s_mask=256"),
        ({"s_x": 128, "s_mask": 256, "s_pk0": 128, "s_pv0": 64}, "s_pv0=128"),
        ({"s_x": 2, "s_mask": 9, "s_pk0": 3, "s_pv0": 3}, "s_mask=5"),
    ],
)
@pytest.mark.parametrize("name", ["added", "Attention of opset 23"])
def test_what_does_not_fit_is_an_error_that_names_what_would(
    name: str, dims: dict[str, int], named: str, load: Load
) -> None:
    with pytest.raises(ModelError, match=f"--dim {named}$"):
        load(MODELS[name], dims=dims)


def test_a_shape_that_does_not_fit_is_given_anew(load: Load) -> None:
    shapes = {"mask": [1, 4], "x0": [1, 2, WIDTH]}
    shapes |= {"pk0": [1, 1, 3, WIDTH], "pv0": [1, 1, 3, WIDTH]}
    with pytest.raises(ModelError, match=r"--shape mask=1,5$"):
        load(decoder(), shapes=shapes)


def _layers(width: str | None) -> list[tuple[ModelProto, str]]:
    conv = model(
        [node("Conv", ["x", "w"], ["y"], group=2)], [value("x", ["n", width, 9, 9])],
        [value("y", None)], [weight("w", 4, 3, 3, 3)],
    )  # fmt: skip
    gemm = model(
        [node("Gemm", ["x", "w"], ["y"], transB=1)], [value("x", ["n", width])],
        [value("y", None)], [weight("w", 4, 6)],
    )  # fmt: skip
    back = model(
        [node("ConvTranspose", ["x", "w"], ["y"])], [value("x", ["n", width, 9, 9])],
        [value("y", None)], [weight("w", 6, 3, 3, 3)],
    )  # fmt: skip
    product = model(
        [node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 4, width])],
        [value("y", None)], [weight("w", 6, 3)],
    )  # fmt: skip
    recurrence = model(
        [node("GRU", ["x", "w", "r"], ["y"], hidden_size=4)], [value("x", [5, "n", width])],
        [value("y", None)], [weight("w", 1, 12, 6), weight("r", 1, 12, 4)],
    )  # fmt: skip
    return [(made, made.graph.node[0].op_type) for made in (conv, gemm, back, product, recurrence)]


@pytest.mark.parametrize("width", ["width", None])
@pytest.mark.parametrize("place", range(5))
def test_what_weights_determine_is_proposed(place: int, width: str | None, load: Load) -> None:
    made, _ = _layers(width)[place]
    (said,) = follow(load, made)
    assert "128" not in said
    if width is not None and place:  # a group of a convolution is seen by its row alone
        with pytest.raises(ModelError, match="--dim width=6"):
            load(made, dims={"width": 5})


def test_an_extent_that_is_given_twice_is_given_anew_in_both(load: Load) -> None:
    dims = {"s_mask": 4, "s_x": 2, "s_pk0": 3, "s_pv0": 3}
    with pytest.raises(ModelError, match=r"--dim s_mask=5 --shape mask=1,5$"):
        load(decoder(), dims=dims, shapes={"mask": [1, 4]})


def test_extents_without_symbols_are_refused_as_inference_does(load: Load) -> None:
    made = attention()
    for given_input, shape in zip(
        made.graph.input, ([1, 2, 4, 8], [1, 5], [1, 2, 3, 8]), strict=False
    ):
        given_input.CopyFrom(value(given_input.name, shape, given_input.type.tensor_type.elem_type))
    made.graph.input[3].CopyFrom(value("pv", [1, 2, 3, 8]))
    with pytest.raises(ModelError) as caught:
        load(made)
    assert caught.value.at.field == "attention"


def test_an_attention_that_fits_is_written_as_before(load: Load) -> None:
    graph = load(attention(), dims={"s_x": 4, "s_mask": 7, "s_pk0": 3, "s_pv0": 3})
    assert "Attention" in kinds(graph)
    assert graph.macs == 2 * 2 * 4 * 7 * WIDTH


# ------------------------------------------------------------------------------------ arithmetic


def _try_sums(extents: Any) -> None:
    if extents["c"] != extents["a"] + extents["b"]:
        raise MisfitError((extents["a"] + extents["b"], extents["c"]))
    if extents["d"] != extents["a"] + 1:
        raise MisfitError((extents["d"], extents["a"] + 1))
    if extents["e"] != 64:
        raise MisfitError((extents["e"], 64))


def test_relations_are_found_by_trials() -> None:
    found = relations(["a", "b", "c", "d", "e"], {}, _try_sums, {})
    assert found == {"c": Form({"a": 1, "b": 1}), "d": Form({"a": 1}, 1), "e": Form({}, 64)}
    assert examples(found, {"a": 3}, {"b": 5}) == {"a": 3, "b": 5, "c": 8, "d": 4, "e": 64}
    assert mended(found, {"a": 3, "b": 5, "c": 8, "d": 9, "e": 64}) == {"d": 4}


def test_symbols_that_are_given_are_not_what_follows() -> None:
    found = relations(["a", "b", "c", "d", "e"], {"c": 9, "a": 4}, _try_sums, {})
    assert examples(found, {"c": 9, "a": 4}, {"b": 128, "d": 128, "e": 128}) == {
        "a": 4, "b": 5, "c": 9, "d": 5, "e": 64,
    }  # fmt: skip


def test_a_sum_that_cannot_be_is_no_example() -> None:
    found = {"c": Form({"a": 1}, -9)}
    assert examples(found, {"a": 3}, {}) is None
