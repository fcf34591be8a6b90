"""Kernels small enough to work out on paper from the target's figures (stcp920)."""

from __future__ import annotations

import pytest

from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    MATRIX_ENGINE,
    VECTOR_ENGINE,
    Column,
)
from autoturbo.simulator.kernels import dma_bandwidth, run_kernel
from tests.simulator.simulate_samples import (
    chain,
    changed,
    program,
    rules_of,
    stage,
    streams,
    table,
    target_of,
    timed,
)

CLOCK = 1e9
DDR = 119.4e9 / 4 * 0.9  # one cluster's share of the bandwidth that long transfers reach
DDR_LATENCY = 500e-9 + 200e-9  # DMA and memory
TRANSFER, TRANSFER_LATENCY = 64e9, 100e-9  # one core's engine
GB, GB_LATENCY = 256e9, 100e-9  # all cores together
LB = 512e9


def test_dma_bandwidth_is_the_share_or_what_the_channels_move() -> None:
    target = target_of()
    assert dma_bandwidth(target) == pytest.approx(DDR)
    assert target.dma.channels * target.dma.bandwidth > DDR


def test_one_matrix_product() -> None:
    # 64 x 32 x 1000 is one fold of the 64 x 32 array: a step per element of the reduction, start-up
    row = stage(rows=64, columns=32, depth=1000, read=1000, written=64 * 32 * 2)
    time = timed(table(row))
    assert time.seconds == pytest.approx((1000 + 96) / CLOCK)
    assert time.busy[MATRIX_ENGINE] == time.seconds
    assert time.ddr_bytes == time.gb_bytes == 0


@pytest.mark.full
def test_one_product_bound_by_the_local_buffer() -> None:
    row = stage(rows=64, columns=32, depth=10, read=1e6, written=4096)
    assert timed(table(row)).seconds == pytest.approx((1e6 + 4096) / LB)


def test_one_convolution() -> None:
    # 3 x 3 convolution, 64 to 32 channels on 56 positions: rows 56, columns 32, reduction 576
    weights = 32 * 576 * 2
    row = stage(
        rows=56, columns=32, depth=576, vector=56 * 32, weights=weights, read=7e3, written=56 * 64
    )
    dma = weights / DDR + DDR_LATENCY
    hoist = weights / TRANSFER + TRANSFER_LATENCY + GB_LATENCY  # slower than weights / GB
    matrix = (576 + 96) / CLOCK
    relu = (56 * 32 / 64 + 16) / CLOCK
    time = timed(table(row))
    assert time.seconds == pytest.approx(dma + hoist + matrix + relu)
    assert time.ddr_bytes == weights
    assert time.gb_bytes == 2 * weights  # written once, read once and broadcast


@pytest.mark.full
def test_weights_that_every_core_reads_for_itself() -> None:
    weights = 32 * 576 * 2
    row = stage(rows=56, columns=32, depth=576, weights=weights, written=56 * 64, cores=8)
    time = timed(table(row), broadcast=False)
    assert time.gb_bytes == weights + 8 * weights
    hoist = 8 * weights / GB + TRANSFER_LATENCY + GB_LATENCY
    assert time.seconds == pytest.approx(weights / DDR + DDR_LATENCY + hoist + 672e-9)


def test_resident_weights_stay_out_of_ddr() -> None:
    weights = 32 * 576 * 2
    row = stage(rows=56, columns=32, depth=576, weights=weights, written=56 * 64)
    time = timed(table(row), resident=True)
    hoist = weights / TRANSFER + TRANSFER_LATENCY + GB_LATENCY
    assert time.ddr_bytes == 0
    assert time.seconds == pytest.approx(hoist + 672e-9)


def test_elementwise_work_only() -> None:
    row = stage(vector=6400, special=320, read=1000, written=1000, steps=500)
    time = timed(table(row))
    assert time.seconds == pytest.approx((6400 / 64 + 320 / 16 + 16) / CLOCK)
    assert time.busy[VECTOR_ENGINE] == time.seconds


@pytest.mark.full
def test_elementwise_work_bound_by_the_local_buffer() -> None:
    row = stage(vector=64, read=30_000, written=30_000, steps=15_000)
    assert timed(table(row)).seconds == pytest.approx(60_000 / LB)


@pytest.mark.full
def test_data_movement_reads_and_writes_the_local_buffer() -> None:
    row = stage(moved=32_000, read=32_000, written=32_000, steps=16_000)
    assert timed(table(row)).seconds == pytest.approx(64_000 / LB)


def test_weights_are_the_bound() -> None:
    # 100 MB of weights for one row: 128 KiB at a time, each computed long before the next is there
    weights = 100e6
    row = stage(rows=1, columns=2048, depth=weights / 2048 / 2, weights=weights, written=4096)
    time = timed(table(row))
    assert weights / DDR < time.seconds < 1.05 * weights / DDR
    assert time.busy[DMA_IN] == pytest.approx(weights / DDR)


@pytest.mark.full
def test_stores_are_the_bound() -> None:
    size = 8 * 1024 * 1024
    row = stage(vector=64, read=1000, written=size / 8, steps=size / 16)
    time = timed(table(row), streams(1, OUT_DDR=(0, size)))
    assert size / DDR < time.seconds < 1.05 * size / DDR
    assert time.busy[DMA_OUT] == pytest.approx(size / DDR)
    assert time.ddr_bytes == pytest.approx(size)
    assert time.gb_bytes == pytest.approx(2 * size)


@pytest.mark.full
def test_inputs_are_the_bound() -> None:
    size = 8 * 1024 * 1024
    row = stage(vector=64, read=size / 8, written=1000, steps=size / 16)
    time = timed(table(row), streams(1, IN_DDR=(0, size)))
    assert size / DDR < time.seconds < 1.05 * size / DDR


def test_reading_and_writing_share_the_memory() -> None:
    size = 8 * 1024 * 1024
    row = stage(vector=64, read=size / 8, written=size / 8, steps=size / 16)
    moved = streams(1, IN_DDR=(0, size), OUT_DDR=(0, size))
    time = timed(table(row), moved)
    assert 2 * size / DDR <= time.seconds * (1 + 1e-12) < 1.1 * 2 * size / DDR


def test_exchange_uses_the_transfer_engine_alone() -> None:
    row = stage(rows=64, columns=32, depth=100, exchanged=16_000, written=4096)
    time = timed(table(row))
    assert time.seconds == pytest.approx(16_000 / TRANSFER + TRANSFER_LATENCY + 196e-9)
    assert time.gb_bytes == 0


def two_layers() -> list[list[float]]:
    first = stage(rows=128, columns=32, depth=4000, weights=100_000, written=8192)
    second = stage(rows=128, columns=32, depth=4000, weights=100_000, written=8192)
    return [first, second]


def test_without_instruction_scheduling_layers_follow_each_other() -> None:
    rows = two_layers()
    apart = sum(timed(table(row)).seconds for row in rows)
    assert timed(table(*rows), across=False).seconds == pytest.approx(apart)


def test_instruction_scheduling_hides_the_weights_of_the_next_layer() -> None:
    rows = two_layers()
    apart = timed(table(*rows), across=False).seconds
    together = timed(table(*rows)).seconds
    fetch = 100_000 / DDR + DDR_LATENCY + 100_000 / TRANSFER + TRANSFER_LATENCY + GB_LATENCY
    assert together == pytest.approx(apart - min(fetch, 8096e-9))


def test_what_a_kernel_spills_comes_back_after_it_was_written() -> None:
    rows = [stage(vector=64, written=1000), stage(vector=64, read=1000)]
    found = program(
        table(*rows), streams(2, OUT_DDR=(0, 8000), LATE_DDR=(1, 8000)), chain(2),
        rules_of(target_of()),
    ).where  # fmt: skip
    store = next(i for i, row in enumerate(found) if row[Column.ENGINE] == DMA_OUT)
    load = next(i for i, row in enumerate(found) if row[Column.ENGINE] == DMA_IN)
    assert store in found[load, Column.AFTER :]


def test_a_target_without_a_global_buffer_loads_straight_into_the_cores() -> None:
    target = target_of("ipu-mk2")
    row = stage(rows=4, columns=4, depth=64, weights=512, written=32)
    time = timed(table(row), target=target)
    assert time.gb_bytes == 0
    assert time.ddr_bytes == 512
    assert 512 / target.transfer.bandwidth > 512 / dma_bandwidth(
        target
    )  # every core takes them all
    load = 512 / target.transfer.bandwidth + target.dma.latency + target.ddr.latency
    matrix = (64 / 4 / 4 * 4 + 12) / target.clock  # weight stationary: 4 folds of 4 rows each
    assert time.seconds == pytest.approx(load + matrix)


def test_without_broadcast_or_global_buffer_every_core_loads_for_itself() -> None:
    target = target_of("ipu-mk2")
    row = stage(rows=4, columns=4, depth=64, weights=512, written=32, cores=1472)
    time = timed(table(row), target=target, broadcast=False)
    assert time.ddr_bytes == 512 * 1472


@pytest.mark.full
def test_cores_without_a_part_load_nothing() -> None:
    row = stage(rows=4, columns=4, depth=64, weights=512, written=32, cores=3)
    time = timed(table(row), target=target_of("ipu-mk2"), broadcast=False)
    assert time.ddr_bytes == 512 * 3
    assert timed(table(row), broadcast=False).gb_bytes == 512 + 512 * 3


def blocked(*, rereads: bool) -> float:
    """Seconds of a product of 128 x 64 in 4 native blocks of 64 x 32, bound by its buffer."""
    row = stage(rows=128, columns=64, depth=10, read=1e6, weights=2e5, written=4096)
    found = timed(
        table(row), resident=True, rereads=rereads,
        tile_bytes=1 << 20, weight_room=1 << 20, staging=1 << 30,
    )  # fmt: skip
    return found.busy[MATRIX_ENGINE]


@pytest.mark.full
def test_blocks_that_read_their_operands_anew_take_them_twice() -> None:
    assert blocked(rereads=False) == pytest.approx((1e6 + 2e5 + 4096) / LB)
    assert blocked(rereads=True) == pytest.approx((2e6 + 4e5 + 4096) / LB)


def test_block_floats_take_their_bytes_in_memory() -> None:
    target = target_of()
    lanes = (("bfloat4", 64.0),)
    target = changed(changed(target, "vector.lanes", lanes), "matrix.rate", (("bfloat4", 1.0),))
    row = stage(vector=64, read=30_000, written=30_000, steps=15_000)
    program_ = program(table(row), streams(1), chain(1), rules_of(target))
    found = run_kernel(program_, rates_of(target, "bfloat4"))
    assert found.seconds == pytest.approx(60_000 * 0.5625 / LB)
