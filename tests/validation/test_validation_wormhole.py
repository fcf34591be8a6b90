"""Products on a Wormhole n150 against the silicon."""

from __future__ import annotations

import hashlib
from statistics import median

import pytest
from validation_tools import REFERENCES
from wormhole import Comparison, Row, compare, read, scheduled, simulated

from autoturbo.hardware import load_target

TABLE = REFERENCES / "wormhole_gemm_silicon.csv"


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(TABLE)


def test_rows_with_a_trace(found: Comparison) -> None:
    assert len(found.traced.values) == 37
    assert found.traced.mean < 0.095
    assert found.traced.worst < 0.33


def test_the_target_file_names_that_error(found: Comparison) -> None:
    named = load_target("examples/targets/wormhole-n150.yaml").calibration
    assert named is not None
    assert named.rows == len(found.traced.values)
    assert named.error == pytest.approx(median(map(abs, found.traced.values)), abs=5e-4)
    assert named.sha256 == hashlib.sha256(TABLE.read_bytes()).hexdigest()


def test_rows_that_the_host_dispatches(found: Comparison) -> None:
    assert found.untraced is not None
    assert found.untraced.mean < 0.085


def test_fitted_closed_forms_do_no_better_than_a_little(found: Comparison) -> None:
    """What is known of the machine must be worth about as much as constants fitted to it."""
    three, four = found.formulas
    assert found.beside.mean < three.mean + 0.015
    assert found.beside.mean < four.mean + 0.03


def large(row: Row) -> bool:
    return row.traced and min(row.shape) >= 3072


def test_what_binds_is_what_the_unpackers_bind() -> None:
    """At HiFi2, bfloat16 waits for L1 and bfloat8 for the multipliers."""
    rows = [row for row in read(TABLE) if large(row) and row.fidelity == "HiFi2"]
    by_type = {row.dtype: row for row in rows if row.shape == (3072, 3072, 3072)}
    assert simulated(by_type["bfloat16"])[0] > 1.3 * simulated(by_type["bfloat8"])[0]
    assert by_type["bfloat16"].seconds > 1.3 * by_type["bfloat8"].seconds


def test_the_heuristics_schedule_is_never_faster_than_the_best_grid() -> None:
    rows = [row for row in read(TABLE) if row.shape == (1024, 2048, 1024) and scheduled(row)]
    assert rows
    for row in rows:
        assert (scheduled(row) or 0) >= simulated(row)[0] * (1 - 1e-9)
