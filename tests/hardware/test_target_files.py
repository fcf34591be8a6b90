"""Files that are no target at all, unreadable ones, and everything at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.commands.console import fault_json
from autoturbo.errors import TargetError
from autoturbo.hardware import Target, load_target, scaffold, validate_target_file
from autoturbo.hardware.document import MAX_BYTES, parse_document
from autoturbo.hardware.target_checks import check, from_document, target_of
from autoturbo.hardware.writing import target_text
from tests.tiers import spread

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE = scaffold()


def message_of(text: str | bytes, folder: Path) -> str:
    """The error of a file with that text, with the file named as ``edge.yaml``."""
    path = folder / "edge.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TargetError) as caught:
        load_target(path)
    return str(caught.value).replace(str(path), "edge.yaml")


BILLION = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "edge.yaml: the file is empty; 'autoturbo targets scaffold' prints a template"),
    "only comments": (
        "# nothing\n\n",
        "edge.yaml: the file is empty; 'autoturbo targets scaffold' prints a template",
    ),
    "a word": ("stcp920\n", "edge.yaml:1:1: must be a mapping of fields, not 'stcp920'"),
    "a list": ("- 1\n- 2\n", "edge.yaml:1:1: must be a mapping of fields, not a list"),
    "null": ("~\n", "edge.yaml:1:1: must be a mapping of fields, not nothing"),
    "an ONNX file": (
        b"\x08\x08\x12\x07pytorch\x1a\xff\xfe\x00",
        "edge.yaml: not a text file: byte 12 is not UTF-8; a target is a YAML file",
    ),
    "zeros": (
        b"\0" * 64,
        "edge.yaml:1: not YAML: character U+0000 is not allowed; a target is a text file",
    ),
    "UTF-16": (
        scaffold().encode("utf-16"),
        "edge.yaml: not a text file: byte 0 is not UTF-8; a target is a YAML file",
    ),
    "a bomb": (
        BILLION,
        "edge.yaml:2:8: aliases are not allowed in a target; write the value out",
    ),
    "deep": ("[" * 50_000, "edge.yaml:1:9: nested more than 8 deep"),
    "huge": (
        "#" * (MAX_BYTES + 1),
        "edge.yaml: the file is too large to be a target; target files end at 128 KiB",
    ),
    "only a version": (
        "schema_version: 1\n",
        (
            "edge.yaml:1:1: name: missing field; "
            "add it (short name: small letters, digits, '.', '_' and '-') (and 7 more)"
        ),
    ),
    "no engines": (
        TEMPLATE[: TEMPLATE.index("engines:")]
        + "engines: []\n"
        + TEMPLATE[TEMPLATE.index("lb:") :],
        (
            "edge.yaml:12:1: engines: no engine of kind 'matrix'; "
            "add an entry '- kind: matrix' (and 3 more)"
        ),
    ),
}


@pytest.mark.parametrize("case", spread(FILES, 3))
def test_whole_files(case: str, tmp_path: Path) -> None:
    text, message = FILES[case]
    assert message_of(text, tmp_path) == message


def test_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + scaffold().encode())
    assert load_target(path).name == "my-npu"


def test_exponents_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_text(scaffold().replace("clock_mhz: 1000", "clock_mhz: 1e3"))
    assert load_target(path).clock == 1e9


def test_missing_file() -> None:
    with pytest.raises(TargetError) as caught:
        load_target("no/such/edge.yaml")
    assert str(caught.value) == (
        "no/such/edge.yaml: no such file; 'autoturbo targets scaffold' prints a template"
    )


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: a directory, not a target file; name a YAML file in it"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipe_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    with pytest.raises(TargetError):
        load_target(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_text(scaffold())
    path.chmod(0)
    with pytest.raises(TargetError):
        load_target(path)


def test_impossible_path() -> None:
    with pytest.raises(TargetError):
        load_target("edge\0.yaml")
    with pytest.raises(TargetError):
        load_target("e" * 5000 + ".yaml")


def test_validate_reports_all_in_order(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    text = scaffold().replace("clusters: 2", "clusters: 0").replace("int8: 64", "int8: x")
    path.write_text(text.replace("barrier_us", "barrier_ms"))
    errors = [str(error).replace(str(path), "edge.yaml") for error in validate_target_file(path)]
    assert errors == [
        "edge.yaml:8:11: clusters: must be at least 1, not 0",
        "edge.yaml:26:32: engines[1].lanes.int8: must be a number, not 'x'",
        "edge.yaml:77:3: overheads.barrier_ms: unknown field; did you mean 'barrier_us'?",
    ]


def test_validate_reports_an_unreadable_file() -> None:
    (error,) = validate_target_file("no/such.yaml")
    assert str(error.at) == "no/such.yaml"


def test_documents_without_a_file_name_the_field() -> None:
    document = load_target("goya").as_dict()
    document["lb"]["capacity_kib"] = -1
    with pytest.raises(TargetError) as caught:
        Target.from_dict(document)
    assert str(caught.value) == "lb.capacity_kib: must be at least 1, not -1"
    with pytest.raises(TargetError) as caught:
        from_document({"schema_version": 1})
    assert caught.value.at.field == "name"


def test_error_as_json(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_text(scaffold().replace("rows: 32", "rows: 0"))
    (error,) = validate_target_file(path)
    assert fault_json(error) == {
        "kind": "target",
        "message": "must be at least 1, not 0",
        "file": str(path),
        "line": 14,
        "field": "engines[0].rows",
        "hint": None,
    }


LINES = scaffold().splitlines()


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_no_edit_escapes(data: st.DataObject) -> None:
    """Whatever a line is replaced with, there is a target or located errors, nothing else."""
    index = data.draw(st.integers(0, len(LINES) - 1))
    line = data.draw(st.text(max_size=30) | st.sampled_from(["", "- x", "  a: b", "lb: [", "? :"]))
    text = "\n".join([*LINES[:index], line, *LINES[index + 1 :]])
    try:
        errors = check(parse_document(text, "x.yaml"))
    except TargetError as refused:
        errors = [refused]
    for error in errors:
        assert str(error).startswith("x.yaml:")
        assert "\n" not in str(error)


def test_ranges_are_written_as_they_are_read() -> None:
    target = load_target("stcp920")
    assert target.ranges
    assert target_of(parse_document(target_text(target, {}), "written.yaml")) == target
