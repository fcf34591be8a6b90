"""Reading YAML: values, and where they stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.errors import TargetError, did_you_mean
from autoturbo.hardware.document import Document, parse_document
from autoturbo.schema import dotted
from tests.tiers import spread


def parsed(text: str) -> Document:
    return parse_document(text, "x.yaml")


def scalar(text: str) -> Any:
    return parsed(f"a: {text}\n").value["a"]


@pytest.mark.parametrize(
    ("text", "value"),
    spread(
        [
            ("7", 7),
            ("-7", -7),
            ("1_000_000", 1_000_000),
            ("0.5", 0.5),
            (".5", 0.5),
            ("1e9", 1e9),
            ("1E-3", 1e-3),
            ("true", True),
            ("False", False),
            ("null", None),
            ("", None),
        ],
        2,
    ),
)
def test_scalars(text: str, value: object) -> None:
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    spread(
        [
            "010",  # 8 in YAML 1.1
            "0x10",  # 16
            "0b11",  # 3
            "1:30",  # 90
            "yes",  # True
            "2020-01-01",  # a date
            ".",
            "1_",
            "1e",
            "٣",  # a digit, but not of ours
            "inf",
            "word",
        ],
        3,
    ),
)
def test_scalars_that_stay_text(text: str) -> None:
    assert scalar(text) == text


@pytest.mark.parametrize("text", ["'5'", '"true"', "'~'", "'.inf'"])
def test_quoted_scalars_are_text(text: str) -> None:
    assert scalar(text) == text[1:-1]


@pytest.mark.parametrize(("text", "sign"), [(".inf", 1), ("+.INF", 1), ("-.Inf", -1)])
def test_infinities_are_read_so_that_they_can_be_refused(text: str, sign: int) -> None:
    assert scalar(text) == sign * float("inf")


def test_nan_is_read_so_that_it_can_be_refused() -> None:
    assert scalar(".NaN") != scalar(".NaN")


def test_folded_text_is_one_value() -> None:
    assert parsed("a: >\n  one\n  two\n").value == {"a": "one two\n"}


def test_anchors_without_aliases_do_no_harm() -> None:
    assert parsed("a: &name 5\n").value == {"a": 5}


def test_positions() -> None:
    document = parsed("a: 1\nlist:\n  - b: 2\n    c: {d: 3}\n")
    assert document.keys == {
        ("a",): (1, 1),
        ("list",): (2, 1),
        ("list", 0, "b"): (3, 5),
        ("list", 0, "c"): (4, 5),
        ("list", 0, "c", "d"): (4, 9),
    }
    assert document.values[()] == (1, 1)
    assert document.values["a",] == (1, 4)
    assert document.values["list",] == (3, 3)
    assert document.values["list", 0] == (3, 5)
    assert document.values["list", 0, "c", "d"] == (4, 12)


def test_positions_after_comments_and_blank_lines() -> None:
    document = parsed("# one\n\n---\n  # two\na: 1\n")
    assert document.keys["a",] == (5, 1)


def test_duplicates_keep_the_first() -> None:
    document = parsed("a: 1\nb: {c: 2, c: 3}\na: 4\n")
    assert document.value == {"a": 1, "b": {"c": 2}}
    assert document.duplicates == ((("b", "c"), (2, 11)), (("a",), (3, 1)))


@pytest.mark.parametrize("depth", [1, 4, 8])
def test_depth_that_is_read(depth: int) -> None:
    text = "[" * (depth - 1) + "]" * (depth - 1) if depth > 1 else "a"
    parsed(text)


@pytest.mark.parametrize(
    "text", ["[" * 9 + "]" * 9, "{a: " * 9 + "}" * 9, "- " * 9 + "x", "? " * 9 + "x"]
)
def test_depth_that_is_refused(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parsed(text)
    assert caught.value.at.column


@pytest.mark.parametrize("text", ["!!binary aGk=", "!!set {a}", "!!python/name:os.system x"])
def test_tags_are_refused(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parsed(f"a: {text}\n")
    assert (caught.value.at.line, caught.value.at.column) == (1, 4)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1), inner),
    max_leaves=8,
)


@given(VALUES)
def test_json_reads_as_itself(value: object) -> None:
    """What ``as_dict`` prints as JSON is a target file; so JSON must read as JSON means it."""
    text = json.dumps({"v": value})
    try:
        assert parsed(text).value == {"v": value}
    except TargetError as error:
        assert "nested more than 8 deep" in str(error)  # noqa: PT017  (deep values are refused)


# Names in messages


@pytest.mark.parametrize(
    ("path", "text"),
    spread(
        [
            ((), ""),
            (("lb",), "lb"),
            (("engines", 0, "rows"), "engines[0].rows"),
            (("engines", 12), "engines[12]"),
            (("a", "b", "c"), "a.b.c"),
            (("a\nb",), "'a\\nb'"),
            (("x" * 50,), "x" * 37 + "..."),
        ],
        3,
    ),
)
def test_dotted(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


def test_suggestions() -> None:
    known = ["capacity", "rows"]
    assert did_you_mean("capcity", known) == "did you mean 'capacity'?"
    assert did_you_mean("zzz", known, kind="fields") == "known fields: capacity, rows"
    assert did_you_mean("zzz", known) == "one of capacity, rows"
    assert did_you_mean("zzz", known, "'autoturbo runs' lists them").startswith("'autoturbo")
    many = [f"target{i}" for i in range(20)]
    assert did_you_mean("zzz", many, kind="targets").endswith("target15, ...")
