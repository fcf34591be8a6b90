"""Files of JSON lines: what is written is read, whatever a kill has left at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo.errors import UsageError
from autoturbo.json_lines import JsonLines


@pytest.mark.parametrize("left", ["", '{"b": ', "\x00\x00", '{"b": 2}'])
def test_a_line_that_is_cut_spoils_no_other(tmp_path: Path, left: str) -> None:
    file = tmp_path / "a.jsonl"
    JsonLines(file).append({"a": 1})
    with file.open("a") as stream:
        stream.write(left)
    again = JsonLines(file)
    before = again.read()
    assert before[0] == {"a": 1}
    for value in ([3], "four"):
        again.append(value)
    assert JsonLines(file).read() == [*before, [3], "four"]


def test_no_file_has_no_values_and_a_folder_cannot_be_written(tmp_path: Path) -> None:
    assert JsonLines(tmp_path / "none").read() == []
    with pytest.raises(UsageError) as caught:
        JsonLines(tmp_path).append(1)
    assert caught.value.at.file == tmp_path
