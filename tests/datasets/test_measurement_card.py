"""What a card says, with a golden of all of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoturbo.datasets.measurements import (
    Measurements,
    collect,
    load_measurements,
    make_card,
    write_card,
)
from autoturbo.datasets.measurements.card import DataCard, readme
from tests.datasets.measurement_samples import collection

pytest.importorskip("pyarrow")

GOLDEN = Path(__file__).parent / "measurement_card.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("data")
    collect(collection(tmp_path_factory.mktemp("models")), found)
    return found


@pytest.fixture(scope="module")
def data(folder: Path) -> Measurements:
    return load_measurements(folder)


@pytest.fixture(scope="module")
def card(data: Measurements) -> DataCard:
    return make_card(data)


def test_the_card_is_as_written(card: Any) -> None:
    """With AUTOTURBO_UPDATE_GOLDEN=1 it is written anew."""
    text = json.dumps(card, indent=2) + "\n"
    if os.environ.get("AUTOTURBO_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert _rounded(json.loads(text)) == _rounded(golden)


def _rounded(value: Any) -> Any:
    """The error of sums differs between processors in its last bits, and so do quotients."""
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items() if k != "largest_relative_error"}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def test_counts_add_up(card: Any, data: Measurements) -> None:
    assert card["rows"] == {"settings": len(data), "kernels": len(data.times)}
    assert sum(card["outcomes"].values()) == len(data)
    assert sum(pair["settings"] for pair in card["pairs"]) == len(data)
    assert sum(pair["kernels"] for pair in card["pairs"]) == len(data.times)
    assert sum(row["settings"] for row in card["origins"].values()) == len(data)
    for counts in card["knobs"]["model"].values():
        assert sum(counts.values()) == len(data)


def test_latencies_are_over_the_pairs_own_default(data: Measurements) -> None:
    relative = data.relative
    assert relative[data.settings["number"] == 0].tolist() == [1.0] * 4
    row = int(np.flatnonzero(data.settings["number"] == 3)[2])
    assert relative[row] == data.latency[row] / data.latency[row - 3]


def test_sums_of_kernels_are_exact_where_clusters_work_alike(card: Any) -> None:
    sums = card["kernel_sums"]
    assert sums["alike"]["settings"] > 20
    assert sums["alike"]["largest_relative_error"] < 1e-12
    known = sums["alike"]["settings"] + sums["joint"]["settings"]
    assert known == card["outcomes"]["measured"]
    assert sums["joint"]["relative_error"]["max"] > 0.01


def test_people_read_the_same_figures(card: Any) -> None:
    text = readme(card)
    assert f"{card['rows']['settings']} settings with {card['rows']['kernels']} kernels" in text
    assert f"| measured | {card['outcomes']['measured']} |" in text
    for pair in card["pairs"]:
        assert f"| {pair['model']} | {pair['batch']} | {pair['target']} |" in text


def test_both_are_written_and_hold_no_date(card: Any, folder: Path, tmp_path: Path) -> None:
    write_card(tmp_path, card)
    assert json.loads((tmp_path / "card.json").read_text()) == card
    assert (tmp_path / "README.md").read_text() == readme(card)
    assert "20" + "26" not in readme(card)
    assert str(folder) not in json.dumps(card)
