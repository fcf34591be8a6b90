"""Bytes of a product between DDR and the chip: never fewer than can be, fewer with more room."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen import tiling
from autoturbo.schedule.codegen.tiling import IN_LB, Amount, Tiling
from autoturbo.schedule.context import Zones
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.timeline import room_to_stay
from autoturbo.schedule.streams import ROOM
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.verifier.memory import check_kept_streams, check_memory, check_rooms
from tests.schedule.schedule_samples import Net
from tests.simulator.simulate_samples import chain, program, rules_of, stage, streams, table

Shape = tuple[int, int, int]

MIB = 1 << 20
STCP920 = load_target("stcp920")
OPTIMUM_MIB = {16: 73, 64: 41, 256: 19, 512: 15, 1024: 13, 2048: 11}
"""Of the int8 product 4096 x 512 x 2048 by KiB of LB: AccelForge 1.0.467, and all uneven nests."""


@functools.lru_cache(maxsize=64)
def product(m: int, k: int, n: int) -> Graph:
    """Return a model of one product, rows by depth by columns."""
    net = Net(x=(1, m, k))
    return net.graph(net.linear("x", n))


def one_core(kib: int, cores: int = 1, clusters: int = 1, gb_kib: int = 0) -> Target:
    """Return a machine of 32 x 32 MACs a core with so much LB, a quarter of it for weights."""
    matrix = dataclasses.replace(STCP920.matrix, rows=32, columns=32)
    lb = dataclasses.replace(STCP920.lb, capacity=kib * 768, weight_capacity=kib * 256)
    gb = dataclasses.replace(STCP920.gb, capacity=gb_kib * 1024)
    return dataclasses.replace(
        STCP920, name="cores", clusters=clusters, cores=cores, matrix=matrix, lb=lb, gb=gb
    )


def measured(graph: Graph, target: Target, knobs: Knobs | None = None) -> Measurement | None:
    """Return what a setting measures in int8; None where it does not fit."""
    found = Evaluator(graph, target, "int8").evaluate(knobs or Knobs())
    return found if isinstance(found, Measurement) else None


def least_mib(m: int, k: int, n: int, kib: float) -> float:
    """Return what no schedule can undercut: compulsory bytes, or 2MNK / sqrt(S) - 2S."""
    room = kib * 1024
    return max(m * k + k * n + m * n, 2 * m * n * k / math.sqrt(room) - 2 * room) / MIB


def test_no_row_of_the_table_of_optima_is_undercut() -> None:
    found = [measured(product(4096, 512, 2048), one_core(kib)) for kib in OPTIMUM_MIB]
    moved = [own.ddr_bytes / MIB for own in found if own]
    assert len(moved) == len(OPTIMUM_MIB)
    assert all(own >= best for own, best in zip(moved, OPTIMUM_MIB.values(), strict=True))
    assert moved == sorted(moved, reverse=True)
    assert max(own / best for own, best in zip(moved, OPTIMUM_MIB.values(), strict=True)) < 2.4


def test_the_bound_knows_the_room_on_the_chip() -> None:
    for kib in OPTIMUM_MIB:
        own = measured(product(4096, 512, 2048), one_core(kib))
        assert own
        bound = own.bound.ddr_s * STCP920.ddr.bandwidth / MIB
        assert bound == pytest.approx(least_mib(4096, 512, 2048, kib))


EXTENTS = st.integers(1, 2048) | st.sampled_from((32, 64, 512, 1024))
SIZES = st.integers(1, 24).map(lambda n: n * 48)
CHOICES = st.builds(
    Knobs, prefetch_depth=st.sampled_from((1, 2, 3)), tile_subdivision=st.sampled_from((1, 2, 4)),
    instruction_scheduling=st.sampled_from(("auto", "layer", "off")),
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.tuples(SIZES, SIZES, SIZES), kib=st.sampled_from((16, 32, 128, 512)),
    cores=st.sampled_from((1, 2, 8)), clusters=st.sampled_from((1, 2)),
    gb_kib=st.sampled_from((0, 64, 1024)), knobs=CHOICES,
)  # fmt: skip
def test_no_schedule_moves_less_than_can_be(
    shape: Shape, kib: int, cores: int, clusters: int, gb_kib: int, knobs: Knobs
) -> None:
    target = one_core(kib, cores, clusters, gb_kib)
    found = measured(product(*shape), target, knobs)
    if found is None:
        return
    on_chip = clusters * (cores * kib + gb_kib)
    assert found.ddr_bytes / MIB >= least_mib(*shape, on_chip) * (1 - 1e-9)
    schedule = Evaluator(product(*shape), target, "int8").schedule(knobs)
    assert check_memory(schedule) == ()


def ddr_bytes(shape: Shape, kib: int, ahead: int, divisor: int, gb_kib: int) -> float:
    """Return what a kernel of one whole product moves from and to DDR."""
    m, k, n = shape
    target = one_core(kib, gb_kib=gb_kib)
    zones = Zones.of(target)
    row = stage(rows=m, columns=n, depth=k, weights=k * n, read=m * k, written=m * n)
    moved = streams(1, IN_DDR=(0, m * k), OUT_DDR=(0, m * n))
    moved[0, ROOM] = room_to_stay(np.asarray(zones.lb), zones)
    rules = rules_of(target, ahead=ahead, divisor=divisor, ddr_cost=4)
    found = program(table(row), moved, chain(1), rules)
    return float(found.amounts[:, Amount.DDR].sum())


@pytest.mark.full
@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    shape=st.tuples(EXTENTS, EXTENTS, EXTENTS), ahead=st.sampled_from((0, 1, 2, 3)),
    divisor=st.sampled_from((1, 2, 4)), gb_kib=st.sampled_from((0, 512)),
)  # fmt: skip
def test_more_room_never_means_more_traffic(
    shape: Shape, ahead: int, divisor: int, gb_kib: int
) -> None:
    """Of a whole product: into which instances it is split, heuristic and search choose."""
    moved = [
        ddr_bytes(shape, kib, ahead, divisor, gb_kib) for kib in (16, 32, 64, 128, 256, 512, 1024)
    ]
    assert all(more <= less * (1 + 1e-9) for less, more in itertools.pairwise(moved))


def test_room_that_is_taken_is_found() -> None:
    schedule = Evaluator(product(1024, 512, 1024), one_core(256), "int8").schedule(Knobs())
    assert check_rooms(schedule) == ()
    (timeline,) = schedule.timelines
    streams = timeline.streams.copy()
    streams[:, ROOM] = schedule.context.target.lb.capacity
    forged = dataclasses.replace(timeline, streams=streams)
    found = check_rooms(dataclasses.replace(schedule, timelines=(forged,)))
    assert [finding.kind for finding in found] == ["overlap"]


@pytest.mark.parametrize("outside", [0, 1])
def test_inputs_or_sums_that_do_not_fit_are_found(
    monkeypatch: pytest.MonkeyPatch, outside: int
) -> None:
    schedule = Evaluator(product(4096, 512, 2048), one_core(64), "int8").schedule(Knobs())
    assert check_kept_streams(schedule) == ()
    counts = tiling.tile_counts

    def forged(*arguments: object) -> np.ndarray:
        """Row tiles that are too large, or sums of all rows."""
        tiles = counts(*arguments)  # type: ignore[arg-type]
        tiles[:, Tiling.ROWS_OUTSIDE] = outside
        tiles[:, Tiling.KEPT] = IN_LB if outside else 0
        return tiles

    monkeypatch.setattr("autoturbo.schedule.codegen.instructions.tile_counts", forged)
    found = check_kept_streams(schedule)
    assert {finding.kind for finding in found} == {"capacity"}
    assert "inputs and sums that stay take" in found[0].message
