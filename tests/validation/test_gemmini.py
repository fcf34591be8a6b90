"""Gemmini's programs on our engines: what the comparison must show, and its parts by hand."""

from __future__ import annotations

import dataclasses
import math

import gemmini
import numpy as np
import pytest
from gemmini_memory import TILE_COLUMNS, Caches, Shape, Tile, Use
from hypothesis import given, settings
from hypothesis import strategies as st
from mappers import REFERENCES, Errors, read_table

from autoturbo.errors import UsageError

pytestmark = pytest.mark.full


ROWS = read_table(REFERENCES / "gemmini_rtl.csv", gemmini.COLUMNS)
CASES = [gemmini.case_of(row) for row in ROWS]
SETTLED = gemmini.settling(len(CASES))
FEW_MACS = 300_000_000


def macs(shape: Shape) -> int:
    return shape.k * shape.c * shape.p * shape.q * shape.r * shape.s


@pytest.fixture(scope="module")
def errors() -> dict[str, Errors]:
    """Of the smaller layers that settled nothing: the larger ones take a minute."""
    fresh = [case for index, case in enumerate(CASES) if index not in SETTLED]
    chosen = [case for case in fresh if macs(case.shape) < FEW_MACS]
    assert len(chosen) > 40
    found = [(c, *gemmini.cycles(gemmini.trace(c), gemmini.Settled())) for c in chosen]
    return gemmini.summary(found)


def test_a_fifth_settles() -> None:
    assert len(CASES) == 101
    assert len(SETTLED) == len(CASES) // 5


def test_mappings_are_closer_than_an_analytical_model(errors: dict[str, Errors]) -> None:
    assert errors["mapping"].mean < 0.15
    assert errors["mapping"].median < 0.10
    assert errors["mapping"].mean < errors["mapping, Timeloop"].mean / 1.5
    assert errors["mapping"].rank > errors["mapping, Timeloop"].rank


def test_the_library_is_closer_than_an_analytical_model(errors: dict[str, Errors]) -> None:
    assert errors["library's tiling"].mean < 0.15
    assert errors["library's tiling"].median < 0.10
    assert errors["library's tiling"].mean < errors["library's tiling, Timeloop"].mean / 2


def test_the_librarys_tilings_are_found_again() -> None:
    found = [c for c in CASES if not c.is_product]
    assert len(found) > 90
    assert all(gemmini.library_tiling(c.shape)[0] == c.tiling[0] for c in found)


def test_a_layer_that_fits_is_tried_once() -> None:
    assert gemmini.library_tiling(Shape(36, 256, 2, 2, 3, 3, 1))[1] == 1


@pytest.mark.parametrize("row", range(0, len(ROWS), 20))
def test_tiles_of_mappings_fit_the_buffers_they_were_made_for(row: int) -> None:
    tile, shape = CASES[row].mapping[0], CASES[row].shape
    high = (tile["Q"] - 1) * shape.stride + tile["S"]
    wide = (tile["P"] - 1) * shape.stride + tile["R"]
    held = tile["C"] * (high * wide + tile["K"] * tile["R"] * tile["S"])
    assert held <= int(ROWS[row]["arch.mem2_entries"])
    sums = tile["Q"] * tile["P"] * math.ceil(tile["K"] / 16)
    assert sums <= int(ROWS[row]["arch.mem1_entries"])


def test_a_mapping_by_hand() -> None:
    extents = {"Q": 8, "P": 8, "K": 64, "S": 3, "R": 3, "C": 32}
    text = "L3[WIO] K2 Q4 - L2[WI] N1 K16X - L1[O] K2 S3 R3 C2 P2 C16X - L0[W] Q2 P4"
    tile, order = gemmini.parse_mapping(text, extents)
    assert tile == {"Q": 2, "P": 8, "K": 32, "S": 3, "R": 3, "C": 32}
    assert order == "PSRCKQ"
    tiles = gemmini.tiles_of(Shape(64, 32, 8, 8, 3, 3, 1), tile, order)
    assert len(tiles) == 8
    assert tiles[1, Tile.Q] == 2  # rows of tiles are innermost
    assert tiles[4, Tile.K] == 32


@pytest.mark.parametrize("text", ["", "K16", "L1[O] Z4", "L1[O] Kx"])
def test_a_mapping_that_cannot_be_read_is_refused(text: str) -> None:
    row = {**ROWS[0], "mapping.mapping": text}
    if text in ("", "K16"):
        assert gemmini.case_of(row).mapping[0]["C"] == 1  # nothing said: extents of one
        return
    with pytest.raises(UsageError) as caught:
        gemmini.case_of(row)
    assert caught.value.at.field == "mapping.mapping"


@pytest.mark.parametrize("text", ["", "1_2", "a_b_c_d_e_f_g"])
def test_a_tiling_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        gemmini.case_of({**ROWS[0], "dse.auto_tiling": text})
    assert caught.value.at.field == "dse.auto_tiling"


@st.composite
def plans(draw: st.DrawFn) -> tuple[Shape, dict[str, int], str]:
    extents = {d: draw(st.integers(1, 9)) for d in gemmini.DIMENSIONS}
    k, c, p, q, r, s = (extents[d] for d in "KCPQRS")
    shape = Shape(k, c, p, q, r, s, draw(st.integers(1, 2)))
    tile = {d: draw(st.integers(1, extents[d])) for d in gemmini.DIMENSIONS}
    return shape, tile, "".join(draw(st.permutations(gemmini.DIMENSIONS)))


@settings(max_examples=60, deadline=None)
@given(plan=plans())
def test_tiles_cover_a_layer_once(plan: tuple[Shape, dict[str, int], str]) -> None:
    shape = plan[0]
    tiles = gemmini.tiles_of(*plan)
    assert int((tiles[:, 1::2] - tiles[:, ::2]).prod(axis=1).sum()) == macs(shape)


@settings(max_examples=60, deadline=None)
@given(plan=plans())
def test_what_is_asked_for_again_is_there(plan: tuple[Shape, dict[str, int], str]) -> None:
    caches, tiles = Caches.empty(), gemmini.tiles_of(*plan)
    first, second = caches.walk(plan[0], tiles), caches.walk(plan[0], tiles)
    assert first[:, Use.READ_LINES].sum() > 0
    assert first[:, Use.READ_BEATS].sum() == second[:, Use.READ_BEATS].sum()
    assert second[:, [Use.READ_LINES, Use.WRITE_LINES]].sum() == 0  # all of it fits
    assert (first[:, Use.READ_FAR] <= first[:, Use.READ_LINES]).all()


def test_a_layer_larger_than_the_caches_misses_again() -> None:
    shape = Shape(2048, 4096, 1, 1, 1, 1, 1)
    caches, tiles = Caches.empty(), gemmini.tiles_of(shape, dict.fromkeys("QPKSRC", 4096), "QPKSRC")
    tiles = np.minimum(tiles, 4096)
    caches.walk(shape, tiles)
    again = caches.walk(shape, tiles)
    assert again[0, Use.READ_LINES] > 100_000  # of 131,136
    assert 0 < again[0, Use.READ_FAR] < again[0, Use.READ_LINES]


def test_rows_that_stream_by_hand() -> None:
    tiles = np.zeros((3, TILE_COLUMNS), np.int64)
    tiles[:, 1::2] = 1
    tiles[:, Tile.Q + 1], tiles[:, Tile.P + 1] = [1, 4, 2], [16, 7, 20]
    found = gemmini.streamed_rows(tiles, gemmini.Settled(pair=7))
    # one full row; four of 7 + 1, the first no less than 16; two of (16 + 1) + 7
    assert found.tolist() == [17, 4 * 8 + 8, 2 * 24]


@pytest.mark.parametrize("name", ["pair", "line", "far", "dirty", "start", "trial"])
def test_what_was_settled_matters(name: str) -> None:
    case = next(c for c in CASES if c.shape.c == 512 and c.shape.p == 7 and c.shape.s == 1)
    tiles, used = gemmini.trace(case).automatic
    used[:, Use.READ_FAR] = used[:, Use.READ_LINES]  # nothing behind L2
    traced = gemmini.Traced(case, (tiles, used), (tiles, used), 10)
    base = gemmini.Settled()
    more = dataclasses.replace(base, **{name: 4 * getattr(base, name)})
    assert sum(gemmini.cycles(traced, more)) > sum(gemmini.cycles(traced, base))


def test_no_program_is_faster_than_its_products() -> None:
    for case in CASES[:12]:
        least = macs(case.shape) / gemmini.ARRAY**2
        assert min(gemmini.cycles(gemmini.trace(case), gemmini.Settled())) > least
