"""What kernels are compared with: estimates with their tensors in LB, GB and DDR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoturbo.cost_models.ratios import RATIOS, base_seconds, ratios
from autoturbo.schedule.knobs.kinds import UNLIMITED
from autoturbo.simulator.plan import COLUMNS

MIB = float(1 << 20)

KERNEL = {
    "near_s": 1e-4, "far_s": 8e-4, "copy_gb_s": 1e-6, "matrix_s": 2e-5, "overhead_s": 1e-6,
    "footprint_bytes": 3 * MIB, "output_bytes": MIB, "whole_input_bytes": 6 * MIB,
    "whole_output_bytes": 2 * MIB, "lb_bytes": 8 * MIB, "weight_room_bytes": 2 * MIB,
    "gb_room_bytes": 16 * MIB, "ddr_bandwidth": 1e10, "gb_bandwidth": 1e12,
}  # fmt: skip
"""A kernel whose boundary fits GB and not LB; what is not named is 0."""


def statistics(**other: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    figures = {**KERNEL, **other}
    return np.asarray([[figures.get(name, 0.0) for name in COLUMNS]])


def base(**other: float) -> float:
    return float(base_seconds(statistics(**other))[0])


def ratio(name: str, share: float = UNLIMITED, **other: float) -> float:
    row = ratios(statistics(**other), np.asarray([share], np.float32))[0]
    return float(np.exp(row[RATIOS.index(name)]))


def test_what_fits_gb_is_priced_there_and_what_does_not_in_ddr() -> None:
    assert base() == pytest.approx(1e-4 + 1e-6)  # near, after copies from GB
    assert base(gb_room_bytes=8 * MIB) == base()
    assert base(gb_room_bytes=7 * MIB) == pytest.approx(8e-4)
    assert base(gb_room_bytes=0, gb_bandwidth=0) == pytest.approx(8e-4)


def test_what_never_fits_lb_comes_from_gb_instead_of_ddr() -> None:
    late = {"near_ddr_bytes": 5e5, "late_bytes": 5e5}  # 50 us of DDR
    assert base(**late) == pytest.approx(5e-5 + 1e-6)


@pytest.mark.parametrize(
    "busiest",
    [
        {"vector_s": 9e-5},
        {"transfer_s": 9e-5},
        {"near_ddr_bytes": 5e5 + 9e5},  # weights: 90 us of DDR that no room in GB saves
        {"gb_bytes": 9e7},
    ],
)
def test_no_kernel_in_gb_is_shorter_than_its_busiest_engine(busiest: dict[str, float]) -> None:
    late = {"near_ddr_bytes": 5e5, "late_bytes": 5e5}
    assert base(**{**late, **busiest}) == pytest.approx(9e-5 + 1e-6 + 1e-6)


@pytest.mark.full
def test_weight_tiles_leave_less_room_for_tensors() -> None:
    room = 8 * 15 / 16  # MiB without the staging zones
    assert ratio("footprint_lb") == pytest.approx(3 / room)
    assert ratio("footprint_lb", np.log2(0.25)) == pytest.approx(3 / room)  # as the buffer anyway
    assert ratio("footprint_lb", np.log2(0.5)) == pytest.approx(3 / (room - 2))
    assert ratio("output_lb", np.log2(0.5)) == pytest.approx(1 / (room - 2))


@pytest.mark.full
def test_whole_tensors_are_held_to_the_rooms() -> None:
    assert ratio("whole_output_gb") == pytest.approx(2 / 16)
    assert ratio("whole_gb") == pytest.approx(8 / 16)
    assert ratio("whole_input_lb") == pytest.approx(3 * ratio("whole_output_lb"))


def test_a_target_of_other_size_and_pace_has_the_same_ratios() -> None:
    per_size = {n: KERNEL[n] * 4 for n in KERNEL if n.endswith("_bytes")}
    rates = {"ddr_bandwidth": 4e10, "gb_bandwidth": 4e12}
    share = np.asarray([-1.0], np.float32)
    one, other = (ratios(s, share) for s in (statistics(), statistics(**per_size, **rates)))
    moved = [RATIOS.index(n) for n in RATIOS if n not in ("near_ddr", "weights", "late")]
    assert other[0, moved] == pytest.approx(one[0, moved], rel=1e-5)


def test_without_gb_all_ratios_are_numbers() -> None:
    row = ratios(statistics(gb_room_bytes=0, gb_bandwidth=0), np.asarray([-1.0], np.float32))
    assert np.isfinite(row).all()
