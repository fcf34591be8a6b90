"""Efficiency of off-chip memory against DRAMsim3, with nothing but the memories' timing."""

from __future__ import annotations

import pytest
from dram import compare, modelled
from validation_tools import REFERENCES, Errors, reference_rows

TABLE = REFERENCES / "dram_efficiency.csv"

MEAN = {  # bounds on the mean absolute error
    "DDR4_8Gb_x8_3200.ini": 0.09,
    "DDR4_3200_bgil.ini": 0.08,
    "HBM2_8Gb_x128.ini": 0.11,
    "HBM2_bgil.ini": 0.18,
    "LPDDR4_8Gb_x16_2400.ini": 0.03,
}


@pytest.fixture(scope="module")
def found() -> dict[str, Errors]:
    return compare(TABLE)


def test_every_configuration_is_compared(found: dict[str, Errors]) -> None:
    assert found.keys() == MEAN.keys()
    assert sum(len(errors.values) for errors in found.values()) == len(reference_rows(TABLE)) == 210


@pytest.mark.parametrize("config", MEAN)
def test_errors_by_configuration(found: dict[str, Errors], config: str) -> None:
    assert found[config].mean < MEAN[config]
    assert found[config].median < 0.07


def test_never_more_than_the_bus_carries() -> None:
    assert all(0 < modelled(row) <= 1 for row in reference_rows(TABLE))
