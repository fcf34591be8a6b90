"""Data sets that something else than the simulator measured, by latencies alone."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from autoturbo.cost_models.pretrained import CORRECTIONS, Pretrained, train
from autoturbo.cost_models.training import Table
from autoturbo.datasets.measurements import (
    Collection,
    Measurements,
    collect,
    load_measurements,
    make_card,
)
from autoturbo.datasets.measurements.card import readme
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Simulator
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.simulator.measurers import measurement_of
from tests.datasets.measurement_samples import collection

SLOWER = 1.3

MODULE = sys.modules[collect.__module__]
"""The package has a function of this name."""


class Board:
    """The simulator, slower by a factor; a latency is all that it gives."""

    def __init__(self, most: int = 1000) -> None:
        self.left, self.asked = most, 0

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return [self._one(schedule) for schedule in schedules]

    def _one(self, schedule: Schedule) -> Outcome:
        if not self.left:
            raise KeyboardInterrupt
        self.left, self.asked = self.left - 1, self.asked + 1
        (outcome,) = Simulator().measure([schedule])
        if not isinstance(outcome, Measurement):
            return outcome
        return measurement_of(schedule, SLOWER * outcome.latency)


def measured(
    made: Collection, folder: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> Measurements:
    monkeypatch.setattr(MODULE, "find_measurer", lambda _: board)
    recipe = {**made.recipe, "command": "", "measurer": "board@1"}
    collect(dataclasses.replace(made, measurer="board", recipe=recipe), folder)
    return load_measurements(folder)


@pytest.fixture
def made(tmp_path: Path) -> Collection:
    return collection(tmp_path, settings=8)


def test_latencies_are_kept_and_times_of_kernels_are_not_made_up(
    made: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(made, tmp_path / "board", Board(), monkeypatch)
    assert np.isnan(found.times).all()
    assert found.measured.any()
    assert not found.timed.any()
    monkeypatch.undo()
    collect(made, tmp_path / "simulated")
    simulated = load_measurements(tmp_path / "simulated")
    default = found.settings["number"] == 0
    first = simulated.settings["number"] == 0
    np.testing.assert_allclose(found.latency[default], SLOWER * simulated.latency[first])
    card = make_card(found)
    assert card["kernel_sums"]["alike"]["settings"] == 0
    assert "Measured by board@1" in readme(card)


@pytest.mark.full
def test_a_shard_that_is_cut_short_loses_no_measurement(
    made: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Board()
    expected = measured(made, tmp_path / "whole", whole, monkeypatch)
    cut = Board(most=4)
    with pytest.raises(KeyboardInterrupt):
        measured(made, tmp_path / "cut", cut, monkeypatch)
    (kept,) = (tmp_path / "cut").glob("*.measured.jsonl")
    with kept.open("a") as stream:
        stream.write('["abc", {"late')  # what a kill leaves
    rest = Board()
    found = measured(made, tmp_path / "cut", rest, monkeypatch)
    assert cut.asked + rest.asked == whole.asked
    np.testing.assert_array_equal(found.latency, expected.latency)
    assert not list((tmp_path / "cut").glob("*.measured.jsonl"))


def test_times_of_kernels_follow_from_latencies(
    made: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(made, tmp_path / "board", Board(), monkeypatch)
    monkeypatch.undo()
    table = Table.of(found)
    good = table.measured
    np.testing.assert_allclose(table.total(table.times)[good], table.latency[good])
    collect(dataclasses.replace(made, measurer="simulator"), tmp_path / "simulated")
    start = train(Table.of(load_measurements(tmp_path / "simulated")), {})
    corrected = train(Table.of(found, start.factors), {}, start=start)
    assert corrected.card["trees"] == start.card["trees"] + CORRECTIONS

    def error(of: Pretrained) -> float:
        sums = table.total(table.base * np.exp(of.factors.predict(table.rows)))
        return float(np.abs(np.log(sums[good] / table.latency[good])).mean())

    assert error(train(table, {})) < 0.1
    assert error(corrected) < 0.1 < error(start)  # which stays as it is
