"""Pages that are written from the code are current, and what pages point to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import results_page

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *("autoturbo", "benchmarks", "cost_models", "datasets", "docs", "examples", "search"),
    *("tests", "tools"),
)
"""Where pages are; other folders beside them may be environments, builds and runs."""


def pages() -> list[Path]:
    inner = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))
    return sorted((*ROOT.glob("*.md"), *inner))


def test_the_page_of_knobs_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "knobs_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_of_results_is_what_the_files_make() -> None:
    assert results_page.main(["--check"]) == 0
    files = {path.stem for path in results_page.FOLDER.glob("*.md")}
    assert files == {name for names in results_page.GROUPS.values() for name in names}


@pytest.mark.parametrize("file", sorted(results_page.FOLDER.glob("*.md")), ids=lambda p: p.stem)
def test_a_result_names_one_command_whose_script_exists(file: Path) -> None:
    (command,) = results_page.COMMAND.findall(file.read_text(encoding="utf-8"))
    scripts = [word for word in command.split() if word.endswith(".py")]
    assert scripts or command.startswith("autoturbo ")
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_a_table_is_recorded_from_what_its_command_prints(tmp_path: Path) -> None:
    file = tmp_path / "one.md"
    file.write_text("# One\n\nA sum.\n\nCommand: `A=1 echo 1 2`\n\n```text\nold\n```\n")
    results_page.record(file)
    assert "```text\n1 2\n```\n" in file.read_text()
    file.write_text("# One\n\nA sum.\n\nCommand: `echo 1`\n\n| a |\n")
    with pytest.raises(SystemExit, match="by hand"):
        results_page.record(file)


def linked(page: Path) -> Iterator[Path]:
    """Files that a page links to, relative to itself."""
    for address in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target, _, _ = address.partition("#")
        if target and "://" not in target and not target.startswith("mailto:"):
            yield page.parent / target


def named(page: Path) -> Iterator[Path]:
    """Files of the repository that a page names in code, from the root."""
    folders = "|".join(FOLDERS)
    pattern = rf"(?<![\w/.-])((?:{folders})/[\w./-]+\.(?:py|md|json|yaml|onnx|csv))\b"
    for name in re.findall(pattern, page.read_text(encoding="utf-8")):
        yield ROOT / name


def test_links_and_named_files_are_there() -> None:
    found = [(page, path) for page in pages() for path in (*linked(page), *named(page))]
    assert len(found) > 500
    missing = [f"{page.relative_to(ROOT)}: {path}" for page, path in found if not path.exists()]
    assert missing == []
