"""Lint, format, types and import contracts, in the source tree."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TOOLS = (
    ("ruff", "check", "--output-format=concise", "."),
    ("ruff", "format", "--check", "."),
    ("lint-imports",),
    pytest.param(("mypy",), marks=pytest.mark.full),  # takes a minute
)


@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
def test_the_tree_is_clean(tool: tuple[str, ...]) -> None:
    command = [str(Path(sysconfig.get_path("scripts")) / tool[0]), *tool[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
