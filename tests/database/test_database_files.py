from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.database import RunFolder, run_id
from autoturbo.database.run_folder import file_name_part
from autoturbo.errors import DatabaseError, RunError, UsageError
from autoturbo.files import atomic_write

SETTINGS = {"graph_hash": "9f31", "target_hash": "77aa", "seed": 0, "shapes": {"x": [64, 3]}}


# atomic_write


@pytest.mark.parametrize("content", ["text \u5b66\r\n", b"\x00\xff", "", b""])
def test_a_file_is_written_as_it_is(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "out"
    atomic_write(path, "before")
    atomic_write(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    atomic_write(tmp_path / "ours", "")
    (tmp_path / "usual").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "usual")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_was_there_stays_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "out"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place: Any = os if step == "fsync" else Path
    monkeypatch.setattr(place, step, full)
    with pytest.raises(DatabaseError) as caught:
        atomic_write(path, "after", DatabaseError)
    assert str(caught.value) == (
        f"{path}: cannot write: No space left on device; "
        "free some space, or write it to another disk"
    )
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    path.write_text("before")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, "after")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".", "TMP: a folder, not a file; for example TMP/out.json"),
        ("no/out", "TMP/no/out: no folder 'TMP/no'; create it first"),
        ("file/out", "TMP/file/out: cannot write: Not a directory"),
        ("a\0b", "TMP/a\0b: cannot write: embedded null byte"),
        ("x" * 300, f"TMP/{'x' * 300}: cannot write: File name too long"),
    ],
)
def test_places_where_no_file_can_be(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught:
        atomic_write(tmp_path / name, "x")
    assert str(caught.value).replace(str(tmp_path), "TMP") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    atomic_write(tmp_path / ("x" * 255), "whole")
    assert (tmp_path / ("x" * 255)).read_text() == "whole"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


@pytest.mark.skipif(sys.platform != "linux", reason="devices by their Linux names")
def test_devices_are_written_and_stay_what_they_are() -> None:
    atomic_write("/dev/null", "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    code = "from autoturbo.files import atomic_write; atomic_write('/dev/stdout', 'shown')"
    assert python(code) == "shown"


# Run ids


def test_an_id_depends_on_values_and_not_on_their_order() -> None:
    first = run_id(SETTINGS)
    assert re.fullmatch("[0-9a-f]{10}", first)
    assert run_id({**SETTINGS, "effort": None}) == first
    assert run_id(dict(reversed(SETTINGS.items()))) == first


@pytest.mark.parametrize("name", ["seed", "graph_hash", "another"])
def test_each_result_setting_changes_the_id(name: str) -> None:
    assert run_id({**SETTINGS, name: "another"}) != run_id(SETTINGS)


def test_the_id_is_the_same_for_ever() -> None:
    """Runs in people's databases have such ids: a change here loses them."""
    assert run_id(SETTINGS) == "8233c1d093"


# The run folder


def test_the_files_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "resnet50", "stcp920", "aa00")
    assert folder.path == tmp_path / "runs" / "resnet50-stcp920-aa00"
    manifest = folder.write_manifest({"seed": 0, "hashes": {"graph": "9f31"}})
    assert json.loads(manifest.read_text()) == {
        "schema": 1,
        "seed": 0,
        "hashes": {"graph": "9f31"},
    }
    assert folder.write_schedule('{"x":1}').read_text() == '{"x":1}'
    folder.log("started\nat once")
    folder.log("done \udcff")
    times, lines = zip(
        *(x.split(" ", 1) for x in folder.log_file.read_text().splitlines()), strict=True
    )
    assert lines == ("started at once", "done \\udcff")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times)
    assert {p.name for p in folder.path.iterdir()} == {"manifest.json", "schedule.json", "log.txt"}


def test_a_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path, "m", "t", "1")
    first.log("one")
    again = RunFolder.create(tmp_path, "m", "t", "1")
    again.log("two")
    assert first == again
    assert len(first.log_file.read_text().splitlines()) == 2


HOSTILE = [
    ("", "model"),
    ("..", "model"),
    ("../../etc/passwd", "etc_passwd"),
    ("/abs/olute", "abs_olute"),
    ("a\\b:c*?", "a_b_c"),
    ("-rf", "rf"),
    (".hidden", "hidden"),
    ("a\0b\nc", "a_b_c"),
    ("a..b", "a.b"),
    ("ViT-B/16", "ViT-B_16"),
    ("mod\u00e8le \u5b66\u4e60", "mod\u00e8le_\u5b66\u4e60"),
    ("mode\u0300le", "mod\u00e8le"),
    ("\u202egnp.exe", "gnp.exe"),
    ("\udcff", "model"),
    ("x" * 500, "x" * 80),
    ("\u5b66" * 500, "\u5b66" * 26),
    (" trailing. ", "trailing"),
]


@pytest.mark.parametrize(("name", "expected"), HOSTILE)
def test_hostile_names(name: str, expected: str) -> None:
    assert file_name_part(name, "model") == expected


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_name_is_one_part_of_a_path(name: str) -> None:
    safe = file_name_part(name, "model")
    assert safe == file_name_part(safe, "model")
    assert len(safe.encode()) <= 80
    assert safe[0] not in ".-_"
    assert Path(safe).name == safe
    assert ".." not in safe


@pytest.mark.parametrize("name", [name for name, _ in HOSTILE])
def test_a_hostile_folder_can_be_made_within_the_root(tmp_path: Path, name: str) -> None:
    root = tmp_path / "runs"
    folder = RunFolder.create(root, name, name, name)
    assert folder.path.parent == root
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]
    folder.write_schedule("{}")


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "m-t-1").touch()
    for root, reason in ((tmp_path / "file", "Not a directory"), (tmp_path, "File exists")):
        with pytest.raises(RunError) as caught:
            RunFolder.create(root, "m", "t", "1")
        assert str(caught.value) == (
            f"{root / 'm-t-1'}: cannot make the run folder: {reason}; "
            "the folder for runs must be one that can be written"
        )


def test_a_folder_that_was_taken_away(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "m", "t", "1")
    folder.path.rmdir()
    with pytest.raises(RunError) as caught:
        folder.write_schedule("{}")
    assert caught.value.at.file == folder.schedule_file
    with pytest.raises(RunError) as caught:
        folder.log("line")
    assert caught.value.at.file == folder.path / "log.txt"
    with pytest.raises(dataclasses.FrozenInstanceError):
        folder.path = tmp_path  # type: ignore[misc]


# Importing


def python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ["numpy", "onnx", "optuna", "ray", "xgboost", "numba", "jsonschema", "rich", "yaml"]
    code = f"import sys, autoturbo.database; print([m for m in {heavy} if m in sys.modules])"
    assert python(code).strip() == "[]"
