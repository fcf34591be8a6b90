"""Matrix-engine cycles against SCALE-Sim: all rows, and what whole layers come to."""

from __future__ import annotations

import pytest
from scalesim import Comparison, compare
from validation_tools import REFERENCES

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(REFERENCES / "scalesim_cycles.csv")


def test_every_row_without_stalls_comes_out_to_the_cycle(found: Comparison) -> None:
    assert len(found.waiting.values) == 282
    assert set(found.waiting.values) == {0.0}


def test_overlapping_folds_are_never_slower(found: Comparison) -> None:
    assert all(error <= 0 for error in found.overlapping.values)
    assert found.overlapping.mean > 0.1, "filling the array is a good part of small layers"


def test_whole_layers_with_memory_limits(found: Comparison) -> None:
    assert found.limited is not None
    assert len(found.limited.values) == 19
    assert found.limited.mean < 0.10
    assert found.limited.median < 0.05
