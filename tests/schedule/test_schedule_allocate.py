"""Buffers in time and space: placement, reuse, and who leaves when there is no room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.schedule.context import Zones
from autoturbo.schedule.memory.allocate import (
    ALIGNMENT,
    Buffers,
    allocate,
    live_peak_bytes,
    peak_use,
)
from autoturbo.schedule.place.bind import Scope
from tests.schedule.schedule_samples import STCP920, target

Row = tuple[int, int, int]
"""Birth, death, bytes per core (a cluster has twice as many)."""


def buffers(rows: Sequence[Row], scope: Scope = Scope.LB) -> Buffers:
    table = np.asarray(rows, np.int64).reshape(-1, 3)
    birth, death, size = table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()
    scopes = np.full(len(rows), int(scope), np.int64)
    return Buffers(birth, death, size, 2 * size, scopes, np.full(len(rows), -1, np.int64))


def placed(rows: Sequence[Row], lb: int, gb: int = 1 << 20, victim: str = "longest") -> Buffers:
    return allocate(buffers(rows), Zones(lb, gb, 0, 0), [victim] * len(rows))


def scopes(found: Buffers) -> str:
    return "".join(Scope(s).name[0] for s in found.scope.tolist())


def test_zones_of_stcp920() -> None:
    """A sixteenth of 1 MiB per core; of 8 MiB what eight cores' weights and streams need."""
    zones = Zones.of(STCP920)
    assert (zones.lb, zones.lb_staging) == ((1 << 20) - (1 << 16), 1 << 16)
    assert zones.gb_staging == 8 * ((1 << 18) + (1 << 16))
    assert zones.gb + zones.gb_staging == 8 << 20


@pytest.mark.full
def test_staging_takes_at_most_half_of_gb() -> None:
    zones = Zones.of(target(cores=32, gb=1000, weights=1 << 20))
    assert (zones.gb, zones.gb_staging) == (500, 500)


def test_no_gb_no_zone() -> None:
    zones = Zones.of(target(gb=0))
    assert (zones.gb, zones.gb_staging) == (0, 0)


def test_lives_that_do_not_meet_share_space() -> None:
    found = placed([(0, 1, 64), (2, 3, 64), (4, 5, 64)], lb=64)
    assert found.address.tolist() == [0, 0, 0]
    assert scopes(found) == "LLL"


def test_a_buffer_is_alive_in_its_last_step() -> None:
    """Death 2 and birth 2 meet: whoever reads it last still reads while the next is written."""
    found = placed([(0, 2, 64), (2, 3, 64)], lb=128)
    assert sorted(found.address.tolist()) == [0, 64]


def test_addresses_are_aligned_and_sizes_rounded() -> None:
    found = placed([(0, 1, 1), (0, 1, 65), (0, 1, 64)], lb=256)
    assert scopes(found) == "LLL"
    assert sorted(found.address.tolist()) == [0, 128, 192]
    assert peak_use(found, Scope.LB) <= 256


def test_seven_tasks_as_in_figure_12() -> None:
    """Room for three tensors; the first is read by the last of seven tasks, so it is spilled."""
    lives = [(1, 7, 64), (2, 4, 64), (3, 5, 64), (4, 6, 64), (5, 7, 64), (6, 7, 64)]
    found = placed(lives, lb=192)
    assert scopes(found) == "GLLLLL"
    assert found.address[0] >= 0


@pytest.mark.full
def test_with_room_for_four_nobody_leaves() -> None:
    lives = [(1, 7, 64), (2, 4, 64), (3, 5, 64), (4, 6, 64), (5, 7, 64), (6, 7, 64)]
    assert scopes(placed(lives, lb=256)) == "LLLLLL"


@pytest.mark.parametrize(
    ("victim", "expected"), [("longest", "GLL"), ("largest", "LGL"), ("size_times_lifetime", "LLG")]
)
def test_victims(victim: str, expected: str) -> None:
    """Life 10 x 64 bytes, life 2 x 512 bytes, life 5 x 256 bytes."""
    rows = [(0, 9, 64), (4, 5, 512), (3, 7, 256)]
    assert scopes(placed(rows, lb=800, victim=victim)) == expected


@pytest.mark.full
def test_the_first_of_equals_leaves() -> None:
    assert scopes(placed([(0, 3, 64), (0, 3, 64)], lb=64)) == "GL"


def test_what_gb_cannot_hold_goes_to_ddr() -> None:
    found = placed([(0, 5, 64), (0, 4, 64), (0, 3, 64)], lb=64, gb=128)
    assert scopes(found) == "DGL"
    assert found.address.tolist() == [-1, 0, 0]


@pytest.mark.full
def test_without_gb_it_goes_to_ddr_at_once() -> None:
    assert scopes(placed([(0, 5, 64), (0, 4, 64)], lb=64, gb=0)) == "DL"


def test_a_buffer_larger_than_everything_goes_to_ddr() -> None:
    assert scopes(placed([(0, 1, 1 << 12)], lb=64, gb=64)) == "D"


def test_declared_scopes_are_kept() -> None:
    declared = buffers([(0, 1, 64), (0, 1, 64)], Scope.DDR)
    assert scopes(allocate(declared, Zones(1 << 10, 1 << 10, 0, 0), ["longest"] * 2)) == "DD"
    declared = buffers([(0, 1, 64)], Scope.GB)
    assert scopes(allocate(declared, Zones(1 << 10, 1 << 10, 0, 0), ["longest"])) == "G"


@pytest.mark.full
def test_the_argument_is_not_changed() -> None:
    given_buffers = buffers([(0, 5, 64), (0, 4, 64)])
    allocate(given_buffers, Zones(64, 0, 0, 0), ["longest"] * 2)
    assert given_buffers.scope.tolist() == [0, 0]
    assert given_buffers.address.tolist() == [-1, -1]


@pytest.mark.full
def test_nothing_to_place() -> None:
    found = placed([], lb=64)
    assert peak_use(found, Scope.LB) == 0
    assert live_peak_bytes(found, Scope.LB) == 0


def test_live_peak_counts_whole_tensors() -> None:
    found = placed([(0, 2, 64), (1, 3, 64), (3, 4, 64)], lb=1024)
    assert live_peak_bytes(found, Scope.LB) == 2 * 2 * 64


LIVES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 100), st.integers(0, 300)).map(
        lambda r: (r[0], r[0] + r[1], r[2])
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(
    rows=LIVES, lb=st.integers(0, 1500), gb=st.integers(0, 1500),
    victim=st.sampled_from(("longest", "largest", "size_times_lifetime")),
)  # fmt: skip
def test_nothing_overlaps_and_nothing_passes_its_zone(
    rows: list[Row], lb: int, gb: int, victim: str
) -> None:
    found = placed(rows, lb, gb, victim)
    for level, factor, room in ((Scope.LB, 1, lb), (Scope.GB, 2, gb)):
        here = [
            (birth, death, int(found.address[i]), int(found.address[i]) + size * factor)
            for i, (birth, death, size) in enumerate(rows)
            if found.scope[i] == level
        ]
        for index, (birth, death, low, high) in enumerate(here):
            assert low % ALIGNMENT == 0
            assert 0 <= low <= high <= room or low == high == 0
            for other in here[:index]:
                together = birth <= other[1] and other[0] <= death
                assert not together or high <= other[2] or other[3] <= low
    assert ((found.address < 0) == (found.scope == Scope.DDR)).all()


@settings(max_examples=60, deadline=None)
@given(rows=LIVES, lb=st.integers(64, 2000))
def test_nobody_leaves_while_the_live_set_is_far_below_the_room(rows: list[Row], lb: int) -> None:
    """Placement may fragment, but never where every buffer could have a place of its own."""
    total = sum(-(-size // ALIGNMENT) * ALIGNMENT for _, _, size in rows)
    found = placed(rows, max(lb, total))
    assert set(scopes(found)) <= {"L"}


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(rows=LIVES, lb=st.integers(0, 1500))
def test_long_and_short_lives_are_found_alike(rows: list[Row], lb: int) -> None:
    """Stretching time changes nothing."""
    stretched = [(9 * b, 9 * d, s) for b, d, s in rows]
    first, second = placed(rows, lb), placed(stretched, lb)
    if len(set(rows)) == len(rows):
        assert _legal(stretched, second)
        assert _legal(rows, first)


def _legal(rows: Sequence[Row], found: Buffers) -> bool:
    spans = [
        (b, d, int(a), int(a) + s)
        for (b, d, s), a, level in zip(rows, found.address, found.scope, strict=True)
        if level == Scope.LB and s
    ]
    return all(
        y[1] < x[0] or x[1] < y[0] or x[3] <= y[2] or y[3] <= x[2]
        for i, x in enumerate(spans)
        for y in spans[:i]
    )
