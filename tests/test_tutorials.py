"""The tutorials work as they are written: their blocks are run in order in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
RECIPE = TUTORIALS.parent / "how-to" / "ci.md"
SHELL = ["bash", "-euo", "pipefail", "-c"]


@dataclass(frozen=True)
class Block:
    """A block to run, and the lines that follow it in a block of text."""

    line: int
    language: str
    code: str
    shown: tuple[str, ...]


def blocks(text: str) -> Iterator[Block]:
    """Blocks of ``sh`` and ``python``; a block of ``text`` shows what the one before it prints."""
    found = [
        (text.count("\n", 0, m.start()) + 1, m[1], m[2])
        for m in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    for place, (line, language, code) in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else (0, "", "")
        shown = tuple(after[2].splitlines()) if after[1] == "text" else ()
        if language in {"sh", "python"}:
            yield Block(line, language, code, shown)


def missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """Lines shown that are not printed in this order; dots stand for anything, spaces for any."""
    left = iter(" ".join(line.split()) for line in printed.splitlines())
    return [line for line in shown if line.strip() != "..." and not _comes(line, left)]


def _comes(line: str, left: Iterator[str]) -> bool:
    words = (re.escape(" ".join(part.split())) for part in line.split("..."))
    pattern = re.compile(r"\s*.*?\s*".join(words))
    return any(pattern.fullmatch(printed) for printed in left)


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """Where ``autoturbo`` is the package that is tested, and nothing of ours is set."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, more in (("autoturbo", " -m autoturbo"), ("python", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{more} "$@"\n')
        script.chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTURBO")}
    return {**plain, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}


@pytest.mark.full
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda path: path.stem)
def test_a_tutorial_works_as_written(
    page: Path, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    if (example := TUTORIALS.parents[1] / "examples" / page.stem).is_dir():
        shutil.copytree(example, folder / page.stem)
    ways = {"sh": SHELL, "python": [sys.executable, "-c"]}
    for block in blocks(page.read_text(encoding="utf-8")):
        done = subprocess.run(
            [*ways[block.language], block.code],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        where = f"{page.name}:{block.line}"
        assert done.returncode == 0, f"{where}: {done.stderr}"
        assert not missing(block.shown, done.stdout), f"{where} prints:\n{done.stdout}"


@pytest.mark.full
def test_the_recipe_for_a_ci_works_as_written(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    text = RECIPE.read_text(encoding="utf-8")
    (before,) = blocks(text)
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    workflow = yaml.safe_load(found)
    steps = [step for step in workflow["jobs"]["schedules"]["steps"] if "run" in step]
    install, *commands = (step["run"] for step in steps)
    assert install.startswith("pip install")
    given = {**environment, **workflow["env"]}
    for command in (before.code, *commands):
        done = subprocess.run(
            [*SHELL, command], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    kept = [step["with"]["path"] for step in workflow["jobs"]["schedules"]["steps"][-1:]]
    assert all((tmp_path / name).exists() for name in kept[0].split())
    assert (tmp_path / "before.json").is_file()


def test_every_kind_of_user_has_a_tutorial_that_runs_something() -> None:
    pages = {page.stem: list(blocks(page.read_text(encoding="utf-8"))) for page in _pages()}
    assert set(pages) == {"architect", "board", "compiler-engineer", "researcher"}
    for name, found in pages.items():
        assert {block.language for block in found} == {"sh", "python"}, name
        assert any(block.shown for block in found), name


def _pages() -> list[Path]:
    return sorted(TUTORIALS.glob("*.md"))


def test_blocks_are_found_with_what_they_print() -> None:
    text = "a\n```sh\nls\n```\n\n```text\nb\n```\n```python\nx\n```\n```sh\ny\n```\n"
    assert list(blocks(text)) == [
        Block(2, "sh", "ls\n", ("b",)),
        Block(9, "python", "x\n", ()),
        Block(12, "sh", "y\n", ()),
    ]


def test_what_is_not_printed_is_missed() -> None:
    printed = "head\none  2 three\nlast\n"
    assert missing(("head", "one ... three", "...", "last"), printed) == []
    assert missing(("one",), printed) == ["one"]
    assert missing(("last", "head"), printed) == ["head"]
