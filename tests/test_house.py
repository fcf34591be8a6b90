"""Lint, format, types and import contracts, in the source tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TOOLS = (
    ("ruff", "check", "--output-format=concise", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
)


@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
def test_the_tree_is_clean(tool: tuple[str, ...]) -> None:
    command = [str(Path(sysconfig.get_path("scripts")) / tool[0]), *tool[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


PRIVATE = re.compile(
    r"\b(whoever|genes|immigrants?|beginnings?|the one form|commonest|workshop)\b"
    r"|^(what|whether|where|how|the|all|every|which)\b",
    re.IGNORECASE,
)
"""Words that only we understood, and beginnings of first lines that say nothing is done."""


def test_first_lines_are_sentences_in_the_words_of_the_field() -> None:
    lines = [
        f"{path.relative_to(ROOT)}: {node.name}: {text.splitlines()[0]}"
        for path in sorted((ROOT / "autoturbo").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node))
    ]
    assert [line for line in lines if PRIVATE.search(line.split(": ", 2)[2])] == []
    assert len(lines) > 1000
