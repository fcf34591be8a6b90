"""The notebook of the examples runs from its first cell to its last, and shows pictures."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "examples" / "notebook.ipynb"
PAGE = ROOT / "docs" / "own-cost-model.md"


def notebook() -> Any:
    return nbformat.read(FILE, as_version=4)  # type: ignore[no-untyped-call]


def test_it_is_kept_without_outputs_and_has_the_pages_model() -> None:
    cells = [cell for cell in notebook().cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    (model,) = (cell.source for cell in cells if "class Nearest" in cell.source)
    page = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert model.strip() == page.strip()


@pytest.mark.full
def test_it_runs(tmp_path: Path) -> None:
    made = notebook()
    NotebookClient(
        made, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = {
        cell.source.splitlines()[-1]: cell.outputs[-1].get("data", {})
        for cell in made.cells
        if cell.cell_type == "code" and cell.outputs
    }
    assert "<svg" in shown['result.plot("convergence")']["image/svg+xml"]
    assert "<table" in shown["result"]["text/html"]
    assert "<svg" in shown["result"]["text/html"]
    verified = shown['autoturbo.verify(model, target, folder / "schedule.json")']
    assert "numbers ok" in verified["text/plain"]
    found = ast.literal_eval(made.cells[-1].outputs[-1]["data"]["text/plain"])
    assert found.keys() == {None, "nearest"}
    assert max(found.values()) < 1.1 * min(found.values())
