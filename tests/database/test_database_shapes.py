"""Shapes against an independent judge: the general validator on the schema that they publish."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.database.shapes import (
    MOST,
    Count,
    Free,
    ListOf,
    MapOf,
    Maybe,
    MismatchError,
    Number,
    Shape,
    Table,
    Text,
    shape_of,
    table_of,
)

BOUND_TEXT = Text("[a-c]+", "abc")
SHAPES: list[Shape] = [
    Text(),
    BOUND_TEXT,
    Text(choices=("a", "b")),
    Count(),
    Count(1),
    Number(),
    Number(above=0.0),
    Maybe(Count()),
    ListOf(Number()),
    ListOf(Maybe(BOUND_TEXT)),
    MapOf(Count()),
    Free(),
    Table({"a": Count(), "b": Text()}),
    Table({"a": Count(), "b": Text()}, frozenset({"b"})),
    Table({"a": Count(), "b": Text(), "c": Number()}, either=("b", "c")),
    ListOf(Table({"a": Maybe(Free())})),
]

floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = (
    st.none() | st.booleans() | st.integers(-2, 3) | floats | st.sampled_from(["a", "ab", "X"])
)
names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@given(value=values)
def test_a_shape_and_its_schema_agree(shape: Shape, value: Any) -> None:
    valid = jsonschema.Draft202012Validator(shape.schema()).is_valid(value)
    if valid:
        assert shape.load(value) == value
        return
    with pytest.raises(MismatchError) as caught:
        shape.load(value)
    assert "\n" not in f"{caught.value.path}{caught.value.message}{caught.value.hint}"


def test_the_greatest_count() -> None:
    assert Count().load(MOST) == MOST
    with pytest.raises(MismatchError, match="is out of range"):
        Count().load(MOST + 1)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@given(value=values)
def test_loading_again_changes_nothing(shape: Shape, value: Any) -> None:
    try:
        once = shape.load(value)
    except MismatchError:
        return
    again = shape.load(once)
    assert again == once
    assert type(again) is type(once)


@pytest.mark.parametrize(
    ("shape", "value", "path", "message"),
    [
        (Table({"a": Count()}), {}, "a", "this field is missing"),
        (Table({"a": Count()}), {"a": 1, "aa": 1}, "aa", "unknown field"),
        (ListOf(Number()), [1, "x"], "1", "'x' is not a number"),
        (MapOf(ListOf(Count())), {"k": [0, -1]}, "k.1", "-1 is out of range"),
        (MapOf(Count()), {"a\nb": None}, "'a\\nb'", "None is not a whole number"),
        (Maybe(Text()), 1, "", "1 is not text"),
        (Number(), 10**400, "", "1000000000...0000000000 is not finite"),
        (Free(), {"a": [float("inf")]}, "a.0", "inf is not finite"),
        (Free(), {"a": {1, 2}}, "a", "{1, 2} is not a number"),
    ],
)
def test_where_and_what(shape: Shape, value: Any, path: str, message: str) -> None:
    with pytest.raises(MismatchError) as caught:
        shape.load(value)
    assert caught.value.path == path
    # Python shortens a number of many digits in the middle, by how much differs.
    assert caught.value.message.endswith(message[-16:])


@pytest.mark.parametrize(
    ("shape", "value", "plain"),
    [
        (Count(), np.int32(3), 3),
        (Count(), 3.0, 3),
        (Number(), np.float32(0.5), 0.5),
        (Number(), 2, 2.0),
        (Number(), np.int64(2), 2.0),
        (Free(), (1, np.float64(2.5)), [1, 2.5]),
        (ListOf(Count()), (1, 2), [1, 2]),
    ],
)
def test_values_become_plain(shape: Shape, value: Any, plain: Any) -> None:
    loaded = shape.load(value)
    assert loaded == plain
    assert type(loaded) is type(plain)


@dataclasses.dataclass
class Inner:
    size: int


@dataclasses.dataclass
class Outer:
    name: str
    inner: Inner
    rates: Mapping[str, float]
    limit: int | None = None
    parts: tuple[Inner, ...] = ()
    extra: list[Any] = dataclasses.field(default_factory=list)


def test_the_shape_of_a_dataclass() -> None:
    table = table_of(Outer, extra=ListOf(Free()), name=BOUND_TEXT)
    inner = Table({"size": Count()})
    expected = {
        "name": BOUND_TEXT,
        "inner": inner,
        "rates": MapOf(Number()),
        "limit": Maybe(Count()),
        "parts": ListOf(inner),
        "extra": ListOf(Free()),
    }
    assert table.fields == expected
    assert table.optional == {"limit", "parts", "extra"}


@pytest.mark.parametrize("hint", [set[int], dict[int, int], int | str, tuple[int, str], bytes])
def test_types_without_a_shape(hint: Any) -> None:
    with pytest.raises(TypeError, match="no shape for"):
        shape_of(hint)
