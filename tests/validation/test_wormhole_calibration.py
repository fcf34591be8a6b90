"""Figures of the Wormhole n150 fitted to silicon, judged on shapes that fits have not seen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from validation_tools import REFERENCES
from wormhole import TARGET, convert, converted

from autoturbo.commands.loading import load_model
from autoturbo.hardware import Target, load_target
from autoturbo.tuning.calibration import calibrate, fit, median_error, parameters_of
from autoturbo.tuning.measured_table import Case, read_table

TABLE = REFERENCES / "wormhole_gemm_silicon.csv"
DATA_SHEET = load_target(TARGET)


def cases(folder: Path) -> tuple[Case, ...]:
    convert((TABLE,), folder / "board.csv", untuned=False)
    return read_table(folder / "board.csv", DATA_SHEET, load_model).cases


def naive() -> Target:
    """The card with clock, cores and peaks alone."""
    t = DATA_SHEET
    return replace(
        t,
        matrix=replace(
            t.matrix,
            rate=(("bfloat16", 0.25), ("bfloat8", 0.5), ("bfloat4", 1.0)),
            startup_cycles=0,
        ),
        vector=replace(t.vector, startup_cycles=0),
        transfer=replace(t.transfer, bandwidth=32e9, latency=0.0),
        dma=replace(t.dma, latency=0.0),
        ddr=replace(t.ddr, latency=0.0, efficiency=1.0),
        overheads=replace(t.overheads, kernel_launch=0.0, barrier=0.0, kernel_ramp=0.0),
    )


def test_what_is_converted(tmp_path: Path) -> None:
    found = cases(tmp_path)
    assert len(found) == 25
    assert len(converted(TABLE, untuned=True)) == 37
    assert median_error([one.simulated(DATA_SHEET) for one in found], found) < 0.06


@pytest.mark.full
def test_from_the_data_sheet_with_twenty_rows(tmp_path: Path) -> None:
    """Each of five fits sees 20 rows and is judged on the other five."""
    found = calibrate(DATA_SHEET, cases(tmp_path), parameters_of(DATA_SHEET))
    assert found.after <= 0.05
    assert found.after < found.before


@pytest.mark.full
def test_from_naive_peaks_with_ten_rows(tmp_path: Path) -> None:
    """Fits see two of the five shapes, and are judged on the other three; three pairs of ten."""
    known, begin = cases(tmp_path), naive()
    pairs = itertools.combinations(dict.fromkeys(one.group for one in known), 2)
    for pair in itertools.islice(pairs, 0, None, 4):
        seen = [one for one in known if one.group in pair]
        rest = [one for one in known if one.group not in pair]
        assert len(seen) == 10
        fitted = fit(begin, seen, parameters_of(begin)).target
        assert median_error([one.simulated(fitted) for one in rest], rest) <= 0.15, pair
