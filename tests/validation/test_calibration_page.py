"""Figures of the page of results are those of the commands, which take other tables too."""

from __future__ import annotations

import sys
from pathlib import Path

import dram
import pytest
import scalesim
import wormhole
from validation_tools import REFERENCES, Errors

DOCS = Path(__file__).parents[2] / "docs"
PAGE = " ".join((DOCS / "results.md").read_text(encoding="utf-8").split())


def figures(errors: Errors) -> str:
    """Mean, median and worst as the page writes them."""
    mean, median, worst = (
        f"{100 * value:.1f} %" for value in (errors.mean, errors.median, errors.worst)
    )
    return f"mean {mean}, median {median}, worst {worst}"


@pytest.mark.full
def test_overview() -> None:
    silicon = wormhole.compare(REFERENCES / "wormhole_gemm_silicon.csv")
    assert figures(silicon.traced) in PAGE
    assert silicon.untraced is not None
    assert figures(silicon.untraced) in PAGE
    for errors in (silicon.beside, *silicon.formulas):
        assert f" {len(errors.values)} {100 * errors.mean:.1f} %" in PAGE
    limited = scalesim.compare(REFERENCES / "scalesim_cycles.csv").limited
    assert limited is not None
    assert figures(limited) in PAGE


@pytest.mark.full
def test_memories() -> None:
    found = dram.compare(REFERENCES / "dram_efficiency.csv")
    everything = Errors(tuple(e for errors in found.values() for e in errors.values))
    assert figures(everything) in PAGE
    for errors in found.values():
        cells = (errors.mean, errors.median, errors.worst)
        row = " ".join(f"{100 * value:.1f} %" for value in cells)
        assert f" {len(errors.values)} {row}" in PAGE


@pytest.mark.parametrize(
    ("command", "table"),
    [
        (dram.main, "dram_efficiency.csv"),
        (scalesim.main, "scalesim_cycles.csv"),
        (wormhole.main, "wormhole_gemm_silicon.csv"),
    ],
)
def test_another_table(
    command: object,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A few rows of the table in a file of another name."""
    lines = (REFERENCES / table).read_text(encoding="utf-8").splitlines()
    other = tmp_path / "other.csv"
    other.write_text("\n".join([lines[0], *lines[26:30]]) + "\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["command", "--reference", str(other)])
    assert callable(command)
    command()
    assert "4 rows, absolute error mean" in capsys.readouterr().out
