"""Declared types against an independent judge: the general validator on what they publish."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

import jsonschema
import numpy as np
import pytest
from annotated_types import Gt, Len, MinLen
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.schema import (
    MOST,
    Choice,
    DeferredType,
    Described,
    ExactlyOne,
    Index,
    InvalidError,
    Name,
    Natural,
    Positive,
    TypedDict,
    checked,
    document_type,
    dotted,
    json_schema,
    list_type,
    map_type,
    mapping_type,
)
from tests.tiers import spread, tiered

BOUND_TEXT = Annotated[str, Described(pattern="[a-c]+")]
ANYTHING = Any
POSITIVE = Annotated[float, Gt(0.0)]
PARTS = mapping_type("Parts", {"a": Index, "b": NotRequired[str], "c": NotRequired[float]})
KINDS: dict[str, Any] = {
    "text": Name,
    "bound text": BOUND_TEXT,
    "choice": Annotated[str, Choice(("a", "b"))],
    "version": Annotated[int, Choice((1,))],
    "count": Index,
    "at least one": Positive,
    "number": float,
    "positive": POSITIVE,
    "flag": bool,
    "count or null": Index | None,
    "numbers": list_type(float),
    "texts or nulls": list_type(BOUND_TEXT | None),
    "two": Annotated[list_type(float), Len(2, 2)],
    "names": Annotated[list[str], MinLen(1)],
    "counts by name": map_type(Index),
    "anything": ANYTHING,
    "fields": mapping_type("Fields", {"a": Index, "b": str}),
    "a field that may be missing": mapping_type("Fields", {"a": Index, "b": NotRequired[str]}),
    "either": Annotated[PARTS, ExactlyOne(of=("b", "c"))],
    "nested": list_type(mapping_type("Inner", {"a": ANYTHING})),
}

QUICK = ("choice", "count or null", "two", "names", "counts by name", "either", "nested")
"""One of each shape."""

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


@pytest.mark.parametrize("name", tiered(QUICK, [name for name in KINDS if name not in QUICK]))
@given(value=values)
def test_a_type_and_its_schema_agree_and_checking_again_changes_nothing(
    name: str, value: Any
) -> None:
    kind = KINDS[name]
    valid = jsonschema.Draft202012Validator(json_schema(kind, "it")).is_valid(value)
    if valid:
        once = checked(kind, value)
        assert once == value
        again = checked(kind, once)
        assert again == once
        assert type(again) is type(once)
        return
    with pytest.raises(InvalidError) as caught:
        checked(kind, value)
    for issue in caught.value.issues:
        assert "\n" not in f"{dotted(issue.path)}{issue.message}{issue.hint}"


def test_the_greatest_count() -> None:
    assert checked(Index, MOST) == MOST
    with pytest.raises(InvalidError):
        checked(Index, MOST + 1)


FIELDS = mapping_type("Fields", {"size": Index, "name": str})


@pytest.mark.parametrize(
    ("kind", "value", "path", "message"),
    spread(
        [
            (mapping_type("A", {"a": Index}), {}, "a", "missing field"),
            (mapping_type("A", {"a": Index}), {"a": 1, "aa": 1}, "aa", "unknown field"),
            (list_type(float), [1, "x"], "[1]", "must be a number, not 'x'"),
            (map_type(list_type(Index)), {"k": [0, -1]}, "k[1]", "must be at least 0, not -1"),
            (map_type(Index), {"a\nb": None}, "'a\\nb'", "must be a whole number, not nothing"),
            (Name | None, 1, "", "must be text, not 1"),
            (Index, 1.5, "", "must be a whole number, not 1.5"),
            (float, 10**400, "", "must be a finite number, not 1000"),
            pytest.param(
                Index,
                10**5000,
                "",
                "must be at most 9223372036854775807, not a number of thousands",
                id="digits",
            ),
            (ANYTHING, {"a": [float("inf")]}, "a[0]", "must be a finite number, not inf"),
            (ANYTHING, {"a": {1, 2}}, "a", "must be a JSON value, not {1, 2}"),
            (FIELDS, {"size": 1, "name": "a", "\ud800": 1}, "", "must be text that can be written"),
            (FIELDS, {"size": 1, "name": "a", 3: 1}, "[3]", "the name 3 is not text"),
        ],
        3,
    ),
)
def test_where_and_what(kind: Any, value: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        checked(kind, value)
    assert dotted(caught.value.first.path) == path
    assert caught.value.first.message.startswith(message)


def test_everything_is_told_but_what_follows_from_a_misspelt_name() -> None:
    with pytest.raises(InvalidError) as caught:
        checked(FIELDS, {"size": -1, "nme": "a"})
    assert [issue.message for issue in caught.value.issues] == [
        "must be at least 0, not -1",
        "unknown field",
    ]
    assert caught.value.issues[1].suggests == ("name",)


def test_a_value_of_any_depth_is_refused_or_taken() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidError):
        checked(ANYTHING, value)


@pytest.mark.parametrize(
    ("kind", "value", "plain"),
    spread(
        [
            (Index, np.int32(3), 3),
            (Index, 3.0, 3),
            (float, np.float32(0.5), 0.5),
            (float, 2, 2.0),
            (float, np.int64(2), 2.0),
            (ANYTHING, (1, np.float64(2.5)), [1, 2.5]),
            (list_type(Index), (1, 2), [1, 2]),
        ],
        3,
    ),
)
def test_values_become_plain(kind: Any, value: Any, plain: Any) -> None:
    found = checked(kind, value)
    assert found == plain
    assert type(found) is type(plain)


@dataclasses.dataclass
class Inner:
    size: int


@dataclasses.dataclass
class Outer:
    name: BOUND_TEXT
    inner: Inner
    rates: Mapping[str, float]
    limit: int | None = None
    parts: tuple[Inner, ...] = ()


def test_the_form_of_a_dataclass() -> None:
    form = document_type(Outer, required=("limit",), more=ANYTHING)
    schema = json_schema(form, "it")
    assert schema["required"] == ["name", "inner", "rates", "limit", "more"]
    assert schema["properties"]["rates"]["additionalProperties"]["type"] == "number"
    value = {"name": "a", "inner": {"size": 1}, "rates": {}, "limit": None, "more": None}
    assert checked(form, {**value, "parts": ({"size": 2},)})["parts"] == [{"size": 2}]


@pytest.mark.parametrize(
    "hint", spread([set[int], dict[int, int], int | str, tuple[int, str], bytes], 3)
)
def test_types_without_a_form(hint: Any) -> None:
    odd = dataclasses.make_dataclass("Odd", [("field", hint)])
    with pytest.raises(TypeError, match="no JSON form"):
        document_type(odd)


class Part(TypedDict):
    """A part.

    Of which there is more to say.
    """

    size: Natural
    name: NotRequired[str]


def made() -> Any:
    return list_type(Part)


def test_a_type_that_is_found_when_it_is_asked_for() -> None:
    here = {one: Annotated[Any, DeferredType(of=f"{__name__}:{one}")] for one in ("Part", "made")}
    assert json_schema(here["Part"], "it") == json_schema(Part, "it")
    assert json_schema(here["made"] | None, "it")["anyOf"][0]["items"]["$ref"] == "#/$defs/Part"
    assert checked(here["made"], [{"size": 2**70}]) == [{"size": 2**70}]
    with pytest.raises(InvalidError) as caught:
        checked(here["Part"], {"size": -1})
    assert caught.value.first.path == ("size",)
